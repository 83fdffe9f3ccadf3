/** The summary: makes summary.html as mast summarize does, and opens it. */

import * as api from "./api.js";
import { readFailed } from "./connection.js";
import { byId, element } from "./dom.js";
import { many } from "./format.js";
import { toast } from "./notices.js";
import { on, state, tell } from "./state.js";

const AGAIN_MS = 1000; // between two checks on one that is being made

const ABOUT =
  "Calls per hour, day and site, and pictures of the best and the doubtful ones, on one page to send: what " +
  "mast summarize writes, with the decisions as they stand.";
const NOTHING_FOUND =
  "A summary is made of what mast detect has found. This is a folder of recordings with boxes: run mast detect on it first.";

export class SummaryPanel {
  constructor() {
    this.root = byId("panel-summary");
    this.asked = 0; // number of requests: an answer to an outdated one is not drawn
    on("saved", () => !this.root.hidden && this.load());
  }

  load() {
    return this.ask(api.summary);
  }

  make() {
    if (!state.reviewer) return tell("nameless");
    return this.ask(api.makeSummary);
  }

  async ask(request) {
    clearTimeout(this.timer);
    const turn = ++this.asked;
    try {
      const found = await request();
      if (turn !== this.asked) return;
      this.draw(found);
      if (found.state === "running") this.timer = setTimeout(() => this.load(), AGAIN_MS);
    } catch (error) {
      readFailed(error, (refused) => toast(`The summary could not be made: ${refused.message}`, { error: true }));
    }
  }

  draw(found) {
    this.root.replaceChildren(
      element("h2", {}, "Summary"),
      element("p", { class: "soft" }, found.available ? ABOUT : NOTHING_FOUND),
      ...(found.available ? this.offer(found) : []),
    );
  }

  offer({ state: now, sentence, what, done, total, made, decisions_since }) {
    if (now === "running") {
      const known = total > 0;
      return [
        element("progress", { ...(known ? { max: total, value: done } : {}), "aria-label": "Progress of the summary" }),
        element("p", { class: "soft", role: "status" }, known ? `Making it: ${what}…` : "Starting…"),
      ];
    }
    const failed = { failed: `It could not be made: ${sentence}`, stopped: "It was stopped before it was made." }[now];
    const since = decisions_since ? many(decisions_since, "decision") : "nothing was decided";
    return [
      failed && element("p", { class: "failed", role: "alert" }, failed),
      made && element("p", { class: "soft", id: "summary-made" }, `Made on ${dayAndTime(made)}; ${since} since.`),
      element(
        "p",
        { class: "buttons" },
        made && element(
          "a",
          { class: "button primary", id: "summary-open", href: api.summaryAddress(), target: "_blank", rel: "noopener" },
          "Open the summary",
        ),
        element(
          "button",
          { type: "button", id: "summary-make", class: made ? null : "primary", onclick: () => this.make() },
          made ? "Update the summary" : "Make the summary",
        ),
      ),
    ].filter(Boolean);
  }
}

const dayAndTime = (moment) => new Date(moment).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
