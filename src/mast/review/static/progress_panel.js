/** How far the review has come, who did what, and how precise the detector was in random order. */

import * as api from "./api.js";
import { readFailed } from "./connection.js";
import { byId, debounce, element, svg } from "./dom.js";
import { many, percent, stretch } from "./format.js";
import { toast } from "./notices.js";
import { on, state, tell } from "./state.js";

const WIDTH = 240;

export class ProgressPanel {
  /** @param {() => void} sample shows the queue in random order */
  constructor(sample) {
    this.sample = sample;
    this.root = byId("panel-progress");
    this.load = debounce(() => this.fetch(), 150);
    on("saved", () => this.load());
  }

  async fetch() {
    try {
      const found = await api.progress();
      tell("progress", found);
      this.draw(found);
    } catch (error) {
      readFailed(error, (refused) => toast(refused.message, { error: true }));
    }
  }

  draw(progress) {
    const { events, reviewed } = progress;
    const share = events ? reviewed / events : 0;
    byId("meter-fill").style.width = `${100 * share}%`;
    byId("meter-text").textContent = `${reviewed.toLocaleString("en")} of ${many(events, "event")} reviewed`;
    byId("meter").setAttribute("aria-valuemax", String(events));
    byId("meter").setAttribute("aria-valuenow", String(reviewed));
    this.root.replaceChildren(
      element("h2", {}, `${events ? percent(share) : "Nothing"} reviewed`),
      this.shares(progress),
      this.counts(progress),
      element("h3", {}, "Precision of the detector"),
      ...this.precision(progress),
      element("h3", {}, "Reviewers"),
      this.reviewers(progress.by_reviewer),
    );
  }

  shares({ events, accepted, rejected }) {
    const bar = element(
      "div",
      { class: "shares", role: "img", "aria-label": `${accepted} accepted, ${rejected} rejected of ${events}` },
    );
    for (const [kind, n] of [["accepted", accepted], ["rejected", rejected]]) {
      const part = element("div", { class: kind });
      part.style.width = `${events ? (100 * n) / events : 0}%`;
      bar.append(part);
    }
    return bar;
  }

  counts({ accepted, rejected, relabelled, added, changed, spans_s, learner_accepted, learner_rejected, group_accepted, group_rejected, to_check }) {
    const rows = [
      ["Accepted", accepted],
      ["Rejected", rejected],
      ["Given a different label", relabelled],
      ["Moved or resized", changed],
      ["Drawn by hand", added],
      ...(to_check.drawn
        ? [["Sample to check", `${to_check.checked.toLocaleString("en")} of ${to_check.drawn.toLocaleString("en")} checked`]]
        : []),
      ["Sound marked as heard", spans_s ? stretch(spans_s) : "none"],
      ...(learner_accepted + learner_rejected
        ? [["Accepted by the learner", learner_accepted], ["Rejected by the learner", learner_rejected]]
        : []),
      ...(group_accepted + group_rejected
        ? [["Accepted with their group", group_accepted], ["Rejected with their group", group_rejected]]
        : []),
    ];
    return element(
      "dl",
      { class: "facts spread" },
      ...rows.flatMap(([name, n]) => [
        element("dt", {}, name),
        element("dd", {}, typeof n === "number" ? n.toLocaleString("en") : n),
      ]),
    );
  }

  precision({ precision: found, to_check: { drawn } }) {
    const go = element("button", { type: "button", onclick: this.sample }, "Review in random order");
    if (!found || !found.n) {
      const text =
        "Nobody has judged events in the order “Random order” yet. " +
        "A few dozen of them are enough to estimate how many of all detections are right." +
        (drawn ? " Those of the “Sample to check” do not count here: mast summarize corrects its counts with them." : "");
      return [element("p", { class: "soft" }, text), go];
    }
    const { n, right, estimate, low, high } = found;
    const text = `${right} of ${n} were right: between ${percent(low)} and ${percent(high)} with 95 % confidence.`;
    return [
      element("p", { class: "big" }, percent(estimate)),
      interval(found),
      element("p", { class: "soft" }, text),
      go,
    ];
  }

  reviewers(counts) {
    const names = Object.entries(counts || {}).sort((a, b) => b[1] - a[1]);
    if (!names.length) return element("p", { class: "soft" }, "No decisions yet.");
    return element(
      "dl",
      { class: "facts spread" },
      ...names.flatMap(([name, n]) => [
        element("dt", {}, name === state.reviewer ? `${name} (you)` : name),
        element("dd", {}, n.toLocaleString("en")),
      ]),
    );
  }
}

/** The estimate and its interval on a line from 0 to 1. */
function interval({ estimate, low, high }) {
  const x = (share) => 8 + share * (WIDTH - 16);
  return svg(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${WIDTH} 38`,
      role: "img",
      "aria-label": `Precision ${percent(estimate)}, interval ${percent(low)} to ${percent(high)}`,
    },
    svg("line", { class: "rule", x1: x(0), x2: x(1), y1: 14, y2: 14 }),
    svg("rect", { class: "span", x: x(low), y: 9, width: Math.max(2, x(high) - x(low)), height: 10, rx: 5 }),
    svg("circle", { class: "point", cx: x(estimate), cy: 14, r: 5 }),
    ...[
      0,
      0.5,
      1,
    ].map((share) => svg(
      "text",
      { class: "axis", x: x(share), y: 34, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle" },
      percent(share),
    )),
  );
}
