/** The queue of events to decide on, in the order chosen; it does not change while somebody works through it. */

import * as api from "./api.js";
import { readFailed } from "./connection.js";
import { byId, element } from "./dom.js";
import { clockText, elapsed, fileName, many, score, shortDayText, shortText, wallClock } from "./format.js";
import { toast } from "./notices.js";
import { overlaid } from "./outbox.js";
import { isOpen, state } from "./state.js";
import { thumbnail } from "./thumbnails.js";
import { VirtualList } from "./virtual_list.js";

const PAGE = 50;
const SIGNS = { open: "", accepted: "✓", rejected: "✕", deleted: "–" };
const RANK_AGAIN = 10; // decisions, in the learner's orders

/** "likely:Blackbird" → the order and the label to look for. */
function orderAndLabel(chosen) {
  const [order, ...label] = chosen.split(":");
  return [order, label.join(":")];
}

export class Queue {
  /** @param {HTMLElement} box @param {(event: any) => void} chosen called with the event of a clicked row */
  constructor(box, chosen) {
    this.chosen = chosen;
    this.rows = new Map(); // id → {sign, node}: rows are kept so that pictures are not fetched again
    this.list = new VirtualList(
      box,
      58,
      (index) => this.row(index),
      (_, last) => last > this.items.length - 12 && this.more(),
    );
    this.clear();
  }

  clear() {
    this.abort?.abort();
    this.abort = new AbortController();
    this.items = [];
    this.total = 0;
    this.loading = null;
    this.ended = false;
    this.last = -1; // row of the event of this queue that was selected last
    this.decisions = 0; // since it was ranked
    this.rows.clear();
  }

  /** Start again with the current filters; true once it has come and nothing else was requested meanwhile. */
  async reload() {
    this.clear();
    const { signal } = this.abort;
    this.asked = JSON.stringify(this.wish());
    this.list.setCount(0);
    this.list.box.scrollTop = 0;
    await this.more();
    return !signal.aborted && (this.ended || this.items.length > 0);
  }

  /** Whether it was requested and none of it has come yet. */
  get starting() {
    return this.loading !== null && !this.items.length;
  }

  /** What the filters select; if this differs from before, the list is out of date. */
  wish() {
    const { group, status, site, day, hour, min_score } = state.filters;
    const [order, label] = orderAndLabel(state.filters.order);
    return { order, label, group, status, site, day, hour, min_score: Number(min_score) || "" };
  }

  /** A decision was saved: the learner's orders are ranked again from time to time. */
  decided() {
    if (!["unsure", "likely"].includes(this.wish().order) || ++this.decisions < RANK_AGAIN) return;
    this.decisions = 0;
    this.rankAgain();
  }

  /** Bring what comes after the event looked at into the learner's new order; nothing before it moves. */
  async rankAgain() {
    this.abort.abort(); // pages of the old order
    this.abort = new AbortController();
    this.loading = null;
    const { signal } = this.abort;
    try {
      const page = await api.queue({ ...this.wish(), limit: PAGE, after: "" }, signal);
      if (signal.aborted) return;
      const kept = this.items.slice(0, this.last + 1);
      const known = new Set(kept.map((event) => event.id));
      this.items = [...kept, ...page.events.filter((event) => !known.has(event.id))];
      this.total = kept.filter((event) => event.status !== "open").length + page.total;
      this.ended = page.events.length < PAGE;
      this.say();
      this.list.setCount(this.items.length);
    } catch (error) {
      readFailed(error, (refused) => toast(refused.message, { error: true }));
    }
  }

  query() {
    const last = this.items[this.items.length - 1];
    return { ...this.wish(), limit: PAGE, after: last ? last.id : "" };
  }

  more() {
    if (this.ended) return Promise.resolve();
    if (!this.loading) {
      const page = this.fetchPage().finally(() => this.loading === page && (this.loading = null));
      this.loading = page;
    }
    return this.loading;
  }

  async fetchPage() {
    const { signal } = this.abort;
    try {
      const page = await api.queue(this.query(), signal);
      if (signal.aborted) return;
      const known = new Set(this.items.map((event) => event.id));
      const fresh = page.events.filter((event) => !known.has(event.id)).map(overlaid);
      this.items.push(...fresh);
      this.total = Math.max(page.total, this.items.length);
      this.ended = fresh.length === 0 || page.events.length < PAGE;
      this.say();
      this.list.setCount(this.items.length);
    } catch (error) {
      readFailed(error, (refused) => {
        this.ended = true;
        toast(refused.message, { error: true });
      });
    }
  }

  say() {
    if (!this.list.active) return;
    const order = state.filters.order === "random" ? ", at random" : "";
    byId("list-count").textContent = this.items.length ? `${many(this.total, "event")}${order}` : "Nothing left here";
  }

  indexOf(id) {
    return this.items.findIndex((event) => event.id === id);
  }

  /** The event `by` steps from the selected one, further pages fetched as needed; null at either end. */
  neighbour(by) {
    return this.at(this.last < 0 ? 0 : this.last + by); // a box chosen elsewhere does not lose the place
  }

  /** The next event that is still open; where none that was fetched is, the first of the next page. */
  nextOpen() {
    const index = this.items.findIndex((event, place) => place > this.last && isOpen(event));
    return this.at(index < 0 ? this.items.length : index);
  }

  async at(index) {
    if (index >= this.items.length) await this.more();
    return this.items[index] || null;
  }

  /** Show the new state of an event. */
  update(event) {
    const index = this.indexOf(event.id);
    if (index < 0) return;
    this.items[index] = { ...this.items[index], ...event };
    this.list.draw();
  }

  /** Mark the selected row and bring it into view. */
  mark() {
    const index = this.indexOf(state.selected);
    if (index < 0) return this.list.draw();
    this.last = index;
    return this.list.show(index);
  }

  row(index) {
    const event = this.items[index];
    const chosen = event.id === state.selected;
    const sign = `${event.status}/${event.label}/${event.version}/${chosen}/${event.learned?.status}/${event.chance}`;
    const kept = this.rows.get(event.id);
    if (kept && kept.sign === sign) return kept.node;
    const picture = kept ? kept.node.querySelector(".thumbnail") : thumbnail(event, 66, 44);
    const points = score(event.chance ?? event.score);
    const meaning = event.chance === undefined ? "The detector's score" : "Chance, according to the learner";
    const verdict = event.status === "open" && event.learned?.status;
    const clock = wallClock(event.datetime);
    const place = `${elapsed(event.start_s)} in ${fileName(event.recording)}`;
    const when = clock ? `${shortDayText(clock)} ${clockText(clock).slice(0, 5)}` : place;
    const where = [event.site, when].filter(Boolean).join(" · ");
    const node = element(
      "div",
      {
        class: `row event-row ${event.status}`,
        role: "option",
        "aria-selected": String(chosen),
        dataset: { id: event.id },
        onclick: () => this.chosen(this.items[this.indexOf(event.id)]),
      },
      picture,
      element(
        "div",
        { class: "row-text" },
        element(
          "div",
          { class: "row-main" },
          element(
            "span",
            { class: "sign", title: verdict ? `${verdict} by ${event.learned.by ? `${event.learned.by}, with its group` : "the learner"}` : event.status },
            verdict ? `(${SIGNS[verdict]})` : SIGNS[event.status],
          ),
          element("b", {}, shortText(event)),
          element("span", { class: "score", title: meaning }, points),
        ),
        element("div", { class: "row-sub", title: `${event.recording} at ${elapsed(event.start_s)}` }, where),
      ),
    );
    this.rows.set(event.id, { sign, node });
    return node;
  }
}
