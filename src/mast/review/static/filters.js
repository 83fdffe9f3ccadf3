/** The left column: tabs, filters, and which list they apply to. */

import { byId, debounce, element } from "./dom.js";
import { groupName, score } from "./format.js";
import { on, state, tell } from "./state.js";

const NO_GROUP = -1;
const NEUTRAL = { group: "", site: "", day: "", hour: "", status: "open", recording_status: "", search: "", min_score: 0 };

/** @param {{actions: any, queue: import("./queue.js").Queue, recordings: import("./recordings.js").Recordings}} lists */
export function watchFilters({ actions, queue, recordings }) {
  const form = byId("filters");
  const fields = Object.keys(state.filters);
  let chosenAnew = false; // whether the queue should begin with its first open event

  /** Show the list of the chosen tab. */
  const show = async ({ keep = false } = {}) => {
    const chosen = state.list === "queue" ? queue : recordings;
    queue.list.active = chosen === queue;
    recordings.list.active = chosen === recordings;
    for (const name of ["queue", "recordings"]) {
      byId(`tab-${name}`).setAttribute("aria-selected", String(state.list === name));
      for (const part of form.querySelectorAll(`.only-${name}`)) part.hidden = state.list !== name;
    }
    byId("group-row").hidden ||= form.elements.group.length < 2;
    byId("left-body").setAttribute("aria-label", state.list === "queue" ? "Queue" : "Recordings");
    const changed = Object.entries(NEUTRAL).some(([name, value]) => String(state.filters[name]) !== String(value));
    byId("clear-filters").hidden = !changed;
    if (keep && chosen.total && chosen.asked === JSON.stringify(chosen.wish())) {
      chosen.say();
      chosen.list.draw();
      if (chosen === queue) chosenAnew = false;
    } else {
      const there = await chosen.reload();
      if (there && chosen === queue && chosenAnew) {
        chosenAnew = false;
        actions.begin();
      }
    }
    chosen.mark();
    tell("listed");
  };

  const reflect = () => {
    for (const name of fields) form.elements[name].value = state.filters[name];
    const minimum = Number(state.filters.min_score);
    byId("min-score-text").textContent = minimum ? score(minimum) : "any";
  };

  const read = () => {
    for (const name of fields) state.filters[name] = form.elements[name].value;
    chosenAnew = true;
    reflect();
    tell("filters");
    show();
  };

  /** Set some filters from elsewhere in the page. */
  const set = (chosen, list = state.list) => {
    Object.assign(state.filters, chosen);
    chosenAnew = true;
    state.list = list;
    reflect();
    return show();
  };

  form.addEventListener(
    "change",
    (event) => event.target.name !== "search" && event.target.name !== "min_score" && read(),
  );
  form.addEventListener(
    "input",
    debounce((event) => (event.target.name === "search" || event.target.name === "min_score") && read(), 250),
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const name of ["queue", "recordings"]) {
    byId(`tab-${name}`).addEventListener("click", () => {
      state.list = name;
      show({ keep: true });
    });
  }
  byId("clear-filters").addEventListener("click", () => set(NEUTRAL));
  byId("reload-list").addEventListener("click", () => show());
  on("recording", () => recordings.list.draw());

  /** Offer what the learner can rank by, and what it has decided. */
  on("learner", ({ available, labels, applied }) => {
    const { order, status } = form.elements;
    for (const value of ["unsure", "likely"]) order.querySelector(`[value=${value}]`).hidden = !available;
    for (const old of order.querySelectorAll("[data-label]")) if (!labels.includes(old.dataset.label)) old.remove();
    const offered = new Set([...order.querySelectorAll("[data-label]")].map((option) => option.dataset.label));
    const fresh = labels.filter((label) => available && !offered.has(label));
    order.querySelector("[value=likely]").after(...fresh.map((label) => element(
      "option",
      { value: `likely:${label}`, dataset: { label } },
      `Most likely ${label} first`,
    )));
    for (const value of ["learner_accepted", "learner_rejected"]) {
      status.querySelector(`[value=${value}]`).hidden = !applied && state.filters.status !== value;
    }
    reflect();
  });

  /** Offer the groups that were found. */
  on("groups", ({ groups, alone }) => {
    const { group, order } = form.elements;
    const choices = groups.map((one) => [one.group, `${one.group + 1}: ${groupName(one)} (${one.events.toLocaleString("en")})`]);
    if (alone) choices.push([NO_GROUP, `in no group (${alone.toLocaleString("en")})`]);
    group.replaceChildren(group.options[0], ...choices.map(([value, text]) => element("option", { value }, text)));
    byId("group-row").hidden = state.list !== "queue" || !choices.length;
    order.querySelector("[value=typical]").hidden = !groups.length;
    for (const value of ["group_accepted", "group_rejected"]) {
      form.elements.status.querySelector(`[value=${value}]`).hidden = !groups.length;
    }
    if (!choices.some(([value]) => String(value) === String(state.filters.group))) state.filters.group = "";
    reflect();
  });

  /** Offer the sites, days and hours there are. */
  const fill = () => {
    const { sites, days, to_check } = state.session;
    form.elements.order.querySelector("[value=check]").hidden = !to_check; // mast summarize --check has drawn one
    const choices = { site: sites, day: days, hour: Array.from({ length: 24 }, (_, hour) => String(hour)) };
    const hours = (hour) => `${hour.padStart(2, "0")}–${String(Number(hour) + 1).padStart(2, "0")} h`;
    for (const [name, values] of Object.entries(choices)) {
      const text = (value) => (name === "hour" ? hours(value) : value);
      form.elements[name].append(...values.map((value) => element("option", { value }, text(value))));
    }
    reflect();
  };

  return { show, set, fill };
}
