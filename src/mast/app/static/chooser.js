/** Choosing a folder: typed, pasted, dropped, opened before, or found in the list of folders. */

import { byId, element } from "../static/dom.js";
import { fileName, many } from "../static/format.js";
import { toast } from "../static/notices.js";
import * as api from "./window_api.js";

const KEPT = "mast-folders";
const MAX_KEPT = 6;

export class Chooser {
  /** @param {(path: string) => void} chosen */
  constructor(chosen) {
    this.chosen = chosen;
    this.here = "";
    byId("up").addEventListener("click", () => this.show(this.parent));
    byId("use").addEventListener("click", () => this.use(this.here));
    byId("path-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.show(byId("path").value);
    });
    this.watchDrops();
  }

  /** Offer places to start from, and folders that were opened before. */
  fill(places) {
    const chip = ({ name, path }) => element(
      "button",
      { type: "button", class: "chip", title: path, onclick: () => this.show(path) },
      name,
    );
    byId("places").replaceChildren(...places.map(chip));
    const before = recent().map((path) => element(
      "button",
      { type: "button", class: "chip", title: path, onclick: () => this.use(path) },
      `Again: ${fileName(path)}`,
    ));
    byId("recent").replaceChildren(...before);
  }

  /** List a folder. */
  async show(path) {
    try {
      const found = await api.folders(path);
      this.here = found.path;
      this.parent = found.parent;
      byId("path").value = found.path;
      byId("here").textContent = found.path;
      byId("up").disabled = !found.parent;
      byId("here-count").textContent = found.is_results
        ? "results of an earlier search"
        : `${found.recordings ? many(found.recordings, "recording") : "no recordings"} in this folder itself; subfolders count, too`;
      const join = (name) => (found.path.endsWith("/") || found.path.endsWith("\\")
        ? `${found.path}${name}`
        : `${found.path}${found.path.includes("\\") ? "\\" : "/"}${name}`);
      const rows = found.folders.map((name) => element(
        "li",
        {},
        element("button", { type: "button", onclick: () => this.show(join(name)) }, `▸ ${name}`),
      ));
      byId("folders").replaceChildren(...(rows.length
        ? rows
        : [element("li", { class: "none" }, "No folders in this one.")]));
      byId("folders").scrollTop = 0;
    } catch (error) {
      toast(error.message, { error: true });
    }
  }

  use(path) {
    if (path) this.chosen(path);
  }

  watchDrops() {
    const form = byId("path-form");
    document.addEventListener("dragover", (event) => {
      event.preventDefault(); // otherwise the browser would open what is dropped
      form.classList.add("over");
    });
    document.addEventListener("dragleave", () => form.classList.remove("over"));
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      form.classList.remove("over");
      const lines = (event.dataTransfer.getData("text/uri-list") || event.dataTransfer.getData("text/plain")).split("\n");
      const path = lines.map((line) => line.trim()).find((line) => line && !line.startsWith("#"));
      if (path) this.show(path);
      else toast("This browser does not say where that folder is; choose it from the list, or paste its path.", {
        error: true,
      });
    });
  }
}

/** Folders that were opened before, the last one first. */
export function recent() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) || "[]");
    return Array.isArray(kept) ? kept.filter((path) => typeof path === "string") : [];
  } catch {
    return [];
  }
}

export function rememberFolder(path) {
  try {
    const all = [path, ...recent().filter((other) => other !== path)];
    localStorage.setItem(KEPT, JSON.stringify(all.slice(0, MAX_KEPT)));
  } catch {
    /* private windows may refuse */
  }
}
