/** When and where the sounds are: events by hour of the day, in all and site by site. Cells are filters. */

import * as api from "./api.js";
import { readFailed } from "./connection.js";
import { byId, element, svg } from "./dom.js";
import { many } from "./format.js";
import { toast } from "./notices.js";

const WIDTH = 240;
const LEFT = 4;
const BARS = 96; // pixels of the bar chart

export class ActivityPanel {
  /** @param {(filters: {site?: string, hour?: string}) => void} chosen */
  constructor(chosen) {
    this.chosen = chosen;
    this.root = byId("panel-activity");
  }

  async load() {
    try {
      this.draw(await api.activity());
    } catch (error) {
      readFailed(error, (refused) => toast(refused.message, { error: true }));
    }
  }

  draw({ hours, sites, counts, without_clock }) {
    const totals = hours.map((_, h) => counts.reduce((sum, row) => sum + row[h], 0));
    const all = totals.reduce((sum, n) => sum + n, 0);
    const parts = [element("h2", {}, "Activity by hour")];
    if (all) {
      parts.push(element(
        "p",
        { class: "soft" },
        `${many(all, "event")} with a clock time, rejected ones left out. Click to filter.`,
      ));
      parts.push(this.bars(hours, totals), element("h3", {}, "By site"), this.cells(hours, sites, counts));
    } else parts.push(element(
      "p",
      { class: "soft" },
      "No event has a clock time; add a column datetime to recordings.csv to see activity by hour.",
    ));
    if (without_clock && all) parts.push(element(
      "p",
      { class: "soft" },
      `${many(without_clock, "event")} without a clock time not shown.`,
    ));
    this.root.replaceChildren(...parts);
  }

  bars(hours, totals) {
    const peak = Math.max(1, ...totals);
    const step = (WIDTH - 2 * LEFT) / hours.length;
    const bars = hours.map((hour, i) => {
      const height = (totals[i] / peak) * BARS;
      const bar = svg(
        "rect",
        {
          class: "bar-count",
          x: LEFT + i * step + 1,
          y: 14 + BARS - height,
          width: step - 2,
          height: Math.max(totals[i] ? 1 : 0, height),
          rx: 1.5,
        },
      );
      const ground = svg("rect", { class: "bar-ground", x: LEFT + i * step, y: 14, width: step, height: BARS });
      const name = svg("title", {}, `${hour}:00 – ${hour + 1}:00, ${many(totals[i], "event")}`);
      return svg("g", { class: "hit", onclick: () => this.chosen({ hour: String(hour) }) }, name, ground, bar);
    });
    const top = svg("text", { class: "axis", x: LEFT, y: 10 }, `${peak.toLocaleString("en")} at most`);
    return svg(
      "svg",
      {
        class: "chart",
        viewBox: `0 0 ${WIDTH} ${BARS + 34}`,
        role: "img",
        "aria-label": `Events by hour of the day, at most ${peak}`,
      },
      top,
      ...bars,
      ...hourNames(step, BARS + 28),
    );
  }

  cells(hours, sites, counts) {
    const peak = Math.max(1, ...counts.flat());
    const step = (WIDTH - 2 * LEFT) / hours.length;
    const rows = sites.map((site, r) => {
      const cells = hours.map((hour, h) => {
        const n = counts[r][h];
        const name = svg("title", {}, `${site || "no site"}, ${hour}:00 – ${hour + 1}:00, ${many(n, "event")}`);
        const cell = svg(
          "rect",
          {
            class: n ? "cell" : "cell none",
            x: LEFT + h * step + 0.5,
            y: 0.5,
            width: step - 1,
            height: 15,
            rx: 2,
            "fill-opacity": n ? 0.15 + 0.85 * Math.sqrt(n / peak) : 1,
          },
        );
        return svg("g", { class: "hit", onclick: () => this.chosen({ site, hour: String(hour) }) }, name, cell);
      });
      const total = counts[r].reduce((sum, n) => sum + n, 0);
      const strip = svg(
        "svg",
        { class: "chart", viewBox: `0 0 ${WIDTH} 16`, role: "img", "aria-label": `${site}: ${total} events` },
        ...cells,
      );
      return element(
        "div",
        { class: "site-row" },
        element(
          "div",
          { class: "site-name" },
          element("span", {}, site || "no site"),
          element("span", { class: "soft" }, total.toLocaleString("en")),
        ),
        strip,
      );
    });
    const axis = svg(
      "svg",
      { class: "chart", viewBox: `0 0 ${WIDTH} 16`, "aria-hidden": "true" },
      ...hourNames(step, 12),
    );
    return element("div", {}, ...rows, axis);
  }
}

const hourNames = (step, y) =>
  [0, 6, 12, 18, 23].map((hour) =>
    svg(
      "text",
      {
        class: "axis",
        x: LEFT + (hour + 0.5) * step,
        y,
        "text-anchor": hour === 0 ? "start" : hour === 23 ? "end" : "middle",
      },
      `${hour}`,
    ),
  );
