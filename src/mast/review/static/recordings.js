/** The list of recordings, fetched page by page as it is scrolled. */

import * as api from "./api.js";
import { readFailed } from "./connection.js";
import { byId, element } from "./dom.js";
import { clockText, dayText, fileName, many, score, stretch, wallClock } from "./format.js";
import { toast } from "./notices.js";
import { state } from "./state.js";
import { VirtualList } from "./virtual_list.js";

const PAGE = 100;

export class Recordings {
  /** @param {HTMLElement} box @param {(id: number) => void} chosen */
  constructor(box, chosen) {
    this.chosen = chosen;
    this.list = new VirtualList(box, 54, (index) => this.row(index), (first, last) => this.need(first, last));
    this.pages = new Map(); // number → items, or null while they are on their way
    this.abort = new AbortController();
    this.total = 0;
  }

  /** What the filters select; if this differs from before, the list is out of date. */
  wish() {
    const { search, site, day, hour, recording_status, sort, min_score } = state.filters;
    return { search, site, day, hour, status: recording_status, sort, min_score: Number(min_score) || "" };
  }

  async reload() {
    this.abort.abort();
    this.abort = new AbortController();
    this.pages.clear();
    this.asked = JSON.stringify(this.wish());
    this.list.box.scrollTop = 0;
    await this.fetchPage(0);
  }

  need(first, last) {
    for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page++) {
      if (!this.pages.has(page)) this.fetchPage(page);
    }
  }

  async fetchPage(page) {
    const { signal } = this.abort;
    this.pages.set(page, null);
    try {
      const { total, items } = await api.recordings({ ...this.wish(), offset: page * PAGE, limit: PAGE }, signal);
      if (signal.aborted) return;
      this.pages.set(page, items);
      this.total = total;
      this.say();
      this.list.setCount(total);
    } catch (error) {
      if (!signal.aborted) this.pages.delete(page);
      readFailed(error, (refused) => toast(refused.message, { error: true }));
    }
  }

  say() {
    if (this.list.active) byId("list-count").textContent = this.total ? many(
      this.total,
      "recording",
    ) : "No matching recordings";
  }

  item(index) {
    const items = this.pages.get(Math.floor(index / PAGE));
    return (items && items[index % PAGE]) || null;
  }

  /** Fetch the open recording's row again: its counts have changed. */
  update(fresh) {
    for (const items of this.pages.values()) {
      const at = items ? items.findIndex((item) => item.id === fresh.id) : -1;
      if (at >= 0) items[at] = { ...items[at], ...fresh };
    }
    this.list.draw();
  }

  mark() {
    for (const [page, items] of this.pages) {
      const at = items && state.recording ? items.findIndex((item) => item.id === state.recording.id) : -1;
      if (at >= 0) return this.list.show(page * PAGE + at);
    }
    return this.list.draw();
  }

  row(index) {
    const item = this.item(index);
    if (!item) return element("div", { class: "row waiting", role: "option", "aria-selected": "false" }, "…");
    const chosen = state.recording !== null && state.recording.id === item.id;
    const clock = wallClock(item.datetime);
    const when = clock ? `${dayText(clock)} ${clockText(clock).slice(0, 5)}` : "";
    const best = item.best_score === null || item.best_score === undefined ? "" : `best ${score(item.best_score)}`;
    const facts = item.error || [item.site, when, stretch(item.duration_s)].filter(Boolean).join(" · ");
    const counts = item.events ? `${item.reviewed}/${item.events}` : "none";
    return element(
      "div",
      {
        class: `row recording-row ${item.error ? "broken" : ""}`,
        role: "option",
        "aria-selected": String(chosen),
        dataset: { id: item.id },
        onclick: () => this.chosen(item.id),
      },
      element("span", { class: `dot ${item.status}`, title: `${item.status}${best ? `, ${best}` : ""}` }),
      element(
        "div",
        { class: "row-text" },
        element(
          "div",
          { class: "row-main" },
          element("b", { title: item.name }, fileName(item.name)),
          element("span", { class: "score", title: `${item.reviewed} of ${item.events} events reviewed` }, counts),
        ),
        element("div", { class: "row-sub", title: item.error || item.name }, facts),
      ),
    );
  }
}
