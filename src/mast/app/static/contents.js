/** What is in the folder: hours, sites, days, broken files, and a picture of some of its sound. */

import { byId, element } from "../static/dom.js";
import { fileName, kilohertz, many, stretch } from "../static/format.js";
import * as api from "./window_api.js";

const ASK_MS = 400;

/**
 * Show the contents of a folder, and how far reading them has come.
 * @param {string} path
 * @param {(found: any) => void} read called once all is known
 * @param {() => boolean} wanted whether the folder is still the one shown
 */
export async function showContents(path, read, wanted) {
  const place = byId("contents");
  place.replaceChildren(element("p", { class: "soft" }, "Reading…"));
  let found;
  try {
    found = await api.contents(path, true);
    while (found.state === "reading" && wanted()) {
      const count = found.total ? `${found.done.toLocaleString("en")} of ${many(found.total, "file")}` : "";
      const bar = element("progress", found.total ? { max: found.total, value: found.done } : {});
      place.replaceChildren(element("p", { class: "soft" }, `Reading the headers of the recordings. ${count}`), bar);
      await new Promise((done) => setTimeout(done, ASK_MS));
      found = await api.contents(path);
    }
  } catch (error) {
    found = { state: "failed", sentence: error.message };
  }
  if (!wanted()) return;
  if (found.state === "failed") {
    place.replaceChildren(element("p", { class: "failed-text", id: "contents-failed" }, found.sentence));
    return;
  }
  place.replaceChildren(bigFacts(found), moreFacts(found), picture(path, found));
  read(found);
}

function bigFacts(found) {
  const fact = (value, name) => element("div", {}, element("b", {}, value), element("span", {}, name));
  const [hours, unit] = stretch(3600 * found.hours).split(" ");
  return element(
    "div",
    { class: "big-facts" },
    fact(found.recordings.toLocaleString("en"), found.recordings === 1 ? "recording" : "recordings"),
    fact(`${hours} ${unit}`, "of sound"),
    fact(String(found.site_count || "–"), found.site_count === 1 ? "site" : "sites"),
    fact(String(found.day_count || "–"), found.day_count === 1 ? "day" : "days"),
  );
}

function moreFacts(found) {
  const rates = found.sample_rates.map(({ hz, recordings }) => `${kilohertz(hz)} kHz (${recordings.toLocaleString("en")})`);
  const sites = found.sites.map(({ name, recordings }) => `${name} (${recordings.toLocaleString("en")})`);
  const hidden = found.site_count - found.sites.length;
  const lines = [
    found.first_day && `From ${found.first_day} to ${found.last_day}`,
    found.undated > 0 && `${many(found.undated, "recording")} without clock time`,
    sites.length > 0 && `Sites: ${sites.join(", ")}${hidden > 0 ? ` and ${hidden} more` : ""}`,
    `Sample rates: ${rates.slice(0, 5).join(", ")}`,
    found.warned_count > 0 && `${many(found.warned_count, "recording")} cut off or without sound`,
  ].filter(Boolean);
  const broken = found.broken.map(({ file, reason }) => element("li", { class: "wrong" }, `${file}: ${reason}`));
  if (found.broken_count > broken.length) {
    broken.push(element("li", { class: "wrong" }, `… and ${found.broken_count - broken.length} more`));
  }
  const none = found.broken_count === 0;
  return element(
    "ul",
    { class: "more-facts" },
    ...lines.map((line) => element("li", {}, line)),
    element("li", {}, none ? "All files can be read" : `${many(found.broken_count, "file")} cannot be read and ${found.broken_count === 1 ? "is" : "are"} left out:`),
    ...broken,
  );
}

function picture(path, found) {
  const image = element("img", {
    src: api.pictureAddress(path, found.shown),
    alt: `Spectrogram of the beginning of ${found.shown}`,
  });
  image.addEventListener("error", () => image.remove());
  const highest = Math.max(...found.sample_rates.map(({ hz }) => hz)) / 2;
  return element(
    "figure",
    { class: "picture" },
    image,
    element(
      "figcaption",
      {},
      element("span", { title: found.shown }, `The beginning of ${fileName(found.shown)}`),
      element("span", {}, found.sample_rates.length === 1 ? `0 to ${kilohertz(highest)} kHz, 20 s at most` : "its whole band, 20 s at most"),
    ),
  );
}
