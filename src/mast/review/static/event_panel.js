/** The panel at the right: what is known about the selected event, what to do with it, and what it looks like. */

import * as api from "./api.js";
import { byId, debounce, element } from "./dom.js";
import { clockText, dayText, elapsed, fileName, kilohertz, labelText, percent } from "./format.js";
import { score, shortText, span, statusText, wallClock } from "./format.js";
import { labelField } from "./label_field.js";
import { speak } from "./notices.js";
import { nameOf } from "./outbox.js";
import { on, selectedEvent, state } from "./state.js";
import { thumbnail } from "./thumbnails.js";

const LOOK_ALIKES = 12;

export class EventPanel {
  /** @param {any} actions see actions.js */
  constructor(actions) {
    this.actions = actions;
    this.root = byId("panel-event");
    this.sign = "";
    this.field = null;
    this.abort = new AbortController();
    this.facts = element("div", {});
    this.similar = element("div", { class: "similar" });
    this.root.append(this.facts, this.similar);
    this.lookUp = debounce((event) => this.fetchSimilar(event), 200);
    for (const topic of ["selection", "events", "labels"]) on(topic, () => this.draw());
    on("selection", () => this.clearSimilar());
    this.draw();
  }

  focusLabel() {
    if (this.field) this.field.focus();
  }

  draw() {
    const event = selectedEvent();
    speak(event ? `${labelText(event)}, ${statusText(event)}, at ${elapsed(event.start_s)}` : "");
    const sign = event ? JSON.stringify([event, state.advance, state.session?.labels.slice(0, 9)]) : "none";
    if (sign === this.sign) return;
    const typing = document.activeElement?.id === "label-field";
    if (typing && event && event.id === nameOf(this.id)) return; // keep what is being typed
    this.sign = sign;
    this.id = event ? event.id : null;
    this.facts.replaceChildren(...(event ? this.describe(event) : [this.hint()]));
  }

  hint() {
    return element(
      "div",
      { class: "hint" },
      element("p", {}, "Choose an event in the queue, or click a box in the spectrogram."),
      element(
        "p",
        {},
        element("kbd", {}, "J"),
        " ",
        element("kbd", {}, "K"),
        " go through the queue, ",
        element("kbd", {}, "A"),
        " accepts, ",
        element("kbd", {}, "R"),
        " rejects, ",
        element("kbd", {}, "?"),
        " shows all keys.",
      ),
    );
  }

  describe(event) {
    const clock = wallClock(event.datetime);
    this.field = labelField(event.label, (label) => this.actions.relabel(label));
    const from = event.score === null ? event.source : `${event.source}, score ${score(event.score)}`;
    const rows = [
      ["Time", span(event.start_s, event.end_s)],
      clock && ["Clock", `${dayText(clock)} ${clockText(clock)}`],
      ["Band", `${kilohertz(event.low_hz)} – ${kilohertz(event.high_hz)} kHz`],
      ["In", [event.site, fileName(event.recording)].filter(Boolean).join(" · ")],
      ["Source", from],
      ...(event.suggestions ?? []).map(({ source, label, score: sure }) => [
        source,
        sure === null ? "not heard" : `${label}, score ${score(sure)}`,
      ]),
      event.status === "open" && event.learned && [event.learned.by ?? "Learner", `${event.learned.status} it${event.learned.label ? ` as ${event.learned.label}` : ""}${event.learned.by ? ", with its group" : ""}`],
      event.original_label && event.original_label !== event.label && ["Was", event.original_label],
      event.reviewer && ["Decided", `by ${event.reviewer}`],
    ].filter(Boolean);
    return [
      element(
        "div",
        { class: "event-title" },
        element("h2", {}, labelText(event)),
        element("span", { class: `badge ${event.status}` }, statusText(event)),
      ),
      this.scoreBar(event),
      element(
        "div",
        { class: "decide" },
        this.button("Accept", "A", "accept", event.status === "accepted", () => this.actions.decide("accepted")),
        this.button("Reject", "R", "reject", event.status === "rejected", () => this.actions.decide("rejected")),
        this.button("Delete", "", "delete", null, () => this.actions.remove()),
      ),
      this.field.node,
      this.quickLabels(event),
      element(
        "dl",
        { class: "facts" },
        ...rows.flatMap(([name, text]) => [
          element("dt", {}, name),
          element("dd", { title: text, class: name === "In" ? "cut" : null }, text),
        ]),
      ),
      this.advanceChoice(),
    ].filter(Boolean);
  }

  scoreBar(event) {
    if (event.score === null) return null;
    const fill = element("div", { class: "score-fill" });
    fill.style.width = percent(Math.min(1, Math.max(0, event.score))).replace(" ", "");
    return element("div", { class: "score-bar", title: `Score ${score(event.score)}` }, fill);
  }

  button(name, key, kind, pressed, action) {
    return element(
      "button",
      {
        type: "button",
        class: kind,
        "aria-pressed": pressed === null ? null : String(pressed),
        title: `${name} (${key || "Del"})`,
        onclick: action,
      },
      name,
      key ? " " : null,
      key ? element("kbd", {}, key) : null,
    );
  }

  /** The labels used most, one digit each. */
  quickLabels(event) {
    const labels = this.actions.quickLabels();
    if (!labels.length) return null;
    const chips = labels.map((label, i) =>
      element(
        "button",
        {
          type: "button",
          class: "chip",
          "aria-pressed": String(label === event.label),
          title: `Name it ${label} (${i + 1})`,
          onclick: () => this.actions.relabel(label),
        },
        element("kbd", {}, String(i + 1)),
        " ",
        label,
      ),
    );
    return element("div", { class: "chips", role: "group", "aria-label": "Labels by number key" }, ...chips);
  }

  advanceChoice() {
    const box = element(
      "input",
      { type: "checkbox", onchange: (change) => this.actions.setAdvance(change.target.checked) },
    );
    box.checked = state.advance;
    return element("label", { class: "check" }, box, " Next event after a decision");
  }

  clearSimilar() {
    const event = selectedEvent();
    if (event && event.id === this.similarTo) return;
    this.abort.abort();
    this.similarTo = event ? event.id : null;
    this.similar.replaceChildren();
    if (event) this.lookUp(event);
  }

  async fetchSimilar(event) {
    if (event.id !== state.selected) return;
    this.abort = new AbortController();
    const { signal } = this.abort;
    const title = element("h3", {}, "Look-alikes");
    const missing = noLookAlikes(event);
    if (missing) {
      this.similar.replaceChildren(title, element("p", { class: "soft" }, missing));
      return;
    }
    try {
      const { events } = await api.similar(event.id, LOOK_ALIKES, signal);
      if (signal.aborted) return;
      const grid = element("div", { class: "grid" }, ...events.map((other) => this.card(other)));
      this.similar.replaceChildren(
        title,
        events.length ? grid : element("p", { class: "soft" }, "Nothing to compare with yet."),
      );
    } catch (error) {
      if (error.name === "AbortError" || error instanceof api.Away) return;
      this.similar.replaceChildren(title, element("p", { class: "soft" }, error.message));
    }
  }

  card(event) {
    const where = `${event.recording} at ${elapsed(event.start_s)}`;
    const distance = event.distance === undefined ? "" : `, distance ${event.distance.toFixed(2)}`;
    return element(
      "button",
      {
        type: "button",
        class: `card ${event.status}`,
        title: `${labelText(event)}, ${statusText(event)}, ${where}${distance}`,
        onclick: () => this.actions.goTo(event),
      },
      thumbnail(event, 0, 54),
      element("span", {}, shortText(event)),
    );
  }
}

/** Why nothing can be compared with this event; empty where it can. */
function noLookAlikes(event) {
  if (!state.session.has_embeddings) return "Run mast detect with --embed to see events that look like this one.";
  if (state.session.compares_drawn) return "";
  return event.score === null ? "Only what the detector found can be compared; this box was drawn by hand." : "";
}
