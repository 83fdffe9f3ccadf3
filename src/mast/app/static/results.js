/** Searches and what was learned: how far each has come, and what can be done with it. */

import { element } from "../static/dom.js";
import { many } from "../static/format.js";
import { FORMAT_NAMES } from "../static/format_names.js";
import { toast } from "../static/notices.js";
import { saveAnswer } from "../static/download.js";
import * as api from "./window_api.js";

const STATES = { running: "running", done: "done", stopped: "stopped", failed: "failed" };

export class Results {
  /**
   * @param {HTMLElement} place
   * @param {() => void} changed asks the server again
   */
  constructor(place, changed) {
    this.place = place;
    this.changed = changed;
    this.formats = [];
    this.cards = new Map(); // folder → its card, and the state that it shows
    this.opened = new Set(); // summaries to open once they are made
  }

  show(results) {
    const folders = new Set(results.map(({ folder }) => folder));
    for (const [folder, card] of this.cards) {
      if (folders.has(folder)) continue;
      card.node.remove();
      this.cards.delete(folder);
    }
    for (const job of results) {
      const sign = JSON.stringify([job, this.formats.length]);
      const known = this.cards.get(job.folder);
      if (known && known.sign === sign) continue;
      const kept = known && keptBy(known.node);
      const node = this.card(job);
      if (known) known.node.replaceWith(node);
      else this.place.prepend(node);
      if (kept) restore(node, kept);
      this.cards.set(job.folder, { node, sign });
    }
  }

  card(job) {
    const name = job.name.charAt(0).toUpperCase() + job.name.slice(1);
    const title = job.kind === "learn" ? `${name}: what was learned` : name;
    return element(
      "article",
      { class: "sheet job", "data-folder": job.folder, "aria-label": title },
      element(
        "div",
        { class: "job-head" },
        element("h2", { title: job.folder }, title),
        element("span", { class: `badge ${job.state}`, role: "status" }, STATES[job.state] || job.state),
      ),
      ...this.progress(job),
      ...(job.kind === "find" && job.events !== null ? this.found(job) : []),
      ...(job.kind === "learn" ? this.learned(job) : []),
      this.details(job),
    );
  }

  progress(job) {
    if (job.state === "done") return [];
    const rows = [];
    if (job.state === "running") {
      const known = job.total > 0;
      rows.push(
        element("progress", { ...(known ? { max: job.total, value: job.done } : {}), "aria-label": "Progress" }),
        element(
          "div",
          { class: "line" },
          element("span", {}, known ? `${job.done.toLocaleString("en")} of ${job.total.toLocaleString("en")} ${job.unit}` : job.unit || "starting…"),
          element("span", { class: "left" }, timeLeft(job.left_s)),
        ),
      );
    } else if (job.state === "failed") {
      rows.push(element("p", { class: "failed-text" }, job.sentence || "It ended without a message; the log is in its folder."));
    } else {
      const far = job.total > 0 ? ` after ${job.done.toLocaleString("en")} of ${job.total.toLocaleString("en")} ${job.unit.split(",")[0]}` : "";
      rows.push(element("p", {}, `Stopped${far}. What is done is kept.`));
    }
    const button = job.state === "running"
      ? this.button("Stop", () => api.stop(job.folder))
      : job.can_resume && this.button("Resume", () => api.resume(job.folder), "primary");
    rows.push(element("div", { class: "actions" }, button || element("span", { class: "soft" }, "Run its command again in a terminal to resume it.")));
    return rows;
  }

  found(job) {
    const failed = job.failed ? ` ${many(job.failed, "file")} could not be searched.` : "";
    const select = element(
      "select",
      { "aria-label": "Format to export", name: "format" },
      ...this.formats.map((format) => element("option", { value: format }, FORMAT_NAMES[format] || format)),
    );
    const running = job.state === "running";
    const summary = job.summary;
    const making = summary && summary.state === "running";
    if (summary && summary.state === "done" && this.opened.delete(summary.folder)) {
      toast("The summary is ready.", { choices: [{ name: "Open it", action: () => window.open(api.pageAddress(job.folder, "summary")) }] });
    }
    return [
      element("p", {}, element("b", {}, many(job.events, "sound")), ` found in ${many(job.searched, "recording")}.${failed}`),
      element(
        "div",
        { class: "actions" },
        this.button("Review…", () => this.review(job), running ? "" : "primary"),
        this.button(making ? "Summarising…" : job.has_summary ? "Summarise again" : "Summarise", () => this.summarize(job), "", making || running),
        job.has_summary && element("a", { class: "button", href: api.pageAddress(job.folder, "summary"), target: "_blank" }, "Summary"),
        element("span", { class: "export" }, select, this.button("Export", () => this.export(job, select.value))),
      ),
      element("p", { class: "soft" }, "An export holds the boxes that were accepted in the review."),
      summary && summary.state === "failed" && element("p", { class: "failed-text" }, summary.sentence),
      !running && this.learn(job),
      !running && this.adapt(job),
    ].filter(Boolean);
  }

  learn(job) {
    const complete = element("input", { type: "checkbox", name: "complete", checked: true });
    return this.training(
      "Learn from what I checked",
      () => api.learn(job.folder, complete.checked),
      "Trains the detector on your decisions and reports what that changed.",
      element("label", { class: "check" }, complete, " Recordings in which every box is decided count as heard from beginning to end: where they have no box, nothing calls"),
    );
  }

  adapt(job) {
    return this.training(
      "Adapt to these recordings",
      () => api.adapt(job.folder),
      "Trains the detector on what it finds here by itself, without your decisions, for about an hour at most.",
    );
  }

  training(name, action, does, ...more) {
    return element(
      "div",
      { class: "learn" },
      element("div", { class: "actions" }, this.button(name, action), element("span", { class: "soft" }, does)),
      ...more,
    );
  }

  learned(job) {
    return [
      element(
        "div",
        { class: "actions" },
        job.has_report && element("a", { class: "button", href: api.pageAddress(job.folder, "report"), target: "_blank" }, "Report"),
        job.has_model && job.state === "done" && element("span", { class: "soft" }, "Choose it under Find to search with it."),
      ),
    ];
  }

  details(job) {
    const notes = job.notes.map((line) => element("p", {}, line));
    return element(
      "details",
      {},
      element("summary", {}, "Details"),
      element("p", {}, "Folder: ", element("code", {}, job.folder)),
      job.typed ? element("p", {}, "In a terminal: ", element("code", {}, job.typed)) : null,
      job.state === "running" && job.what ? element("p", {}, `Now: ${job.what}`) : null,
      ...notes,
    );
  }

  button(name, action, kind = "", disabled = false) {
    return element("button", { type: "button", class: kind || null, disabled, onclick: () => this.act(action) }, name);
  }

  async act(action) {
    try {
      await action();
      this.changed();
    } catch (error) {
      toast(error.message, { error: true });
    }
  }

  async review(job) {
    toast("Opening the review…");
    await api.openReview(job.key);
    location.assign(api.reviewAddress(job.key));
  }

  async summarize(job) {
    const { folder } = await api.summarize(job.folder);
    this.opened.add(folder);
  }

  async export(job, format) {
    await saveAnswer(await api.exportZip(job.key, format), `${job.name}_${format}.zip`);
    toast("The download has started. It holds the boxes that were accepted in the review.");
  }
}

/** Seconds as people say them. */
export function timeLeft(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s left`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min left`;
  return `${(seconds / 3600).toFixed(1)} h left`;
}

/** What somebody has set or focused in a card, to be restored after it is redrawn. */
function keptBy(node) {
  const focused = node.contains(document.activeElement) ? [...node.querySelectorAll("button, select, a, summary, input")].indexOf(document.activeElement) : -1;
  return {
    open: node.querySelector("details")?.open,
    format: node.querySelector("select[name=format]")?.value,
    complete: node.querySelector("input[name=complete]")?.checked,
    focused,
  };
}

function restore(node, { open, format, complete, focused }) {
  if (open) node.querySelector("details").open = true;
  const select = node.querySelector("select[name=format]");
  if (select && format) select.value = format;
  const box = node.querySelector("input[name=complete]");
  if (box && complete !== undefined) box.checked = complete;
  if (focused >= 0) node.querySelectorAll("button, select, a, summary, input")[focused]?.focus();
}
