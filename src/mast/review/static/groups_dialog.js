/** Groups of look-alikes in a grid of cards: the most typical box, the name, how many there are and how many decided. */

import * as api from "./api.js";
import { readFailed } from "./connection.js";
import { byId, element } from "./dom.js";
import { groupName, many } from "./format.js";
import { toast } from "./notices.js";
import { tell } from "./state.js";
import { thumbnail } from "./thumbnails.js";

const AGAIN_MS = 1500; // between two checks whether they have been found

const NO_VECTORS =
  "Groups are found by the boxes' vectors, and there are none here: run mast detect with --embed, " +
  "or mast embed with --out in this folder.";

export class GroupsDialog {
  /** @param {(filters: Object<string, any>) => void} show shows events in the queue */
  constructor(show) {
    this.show = show;
    this.node = byId("groups-dialog");
    this.grid = byId("groups-grid");
    this.seen = new IntersectionObserver((entries) => this.paint(entries), { root: this.node });
    byId("groups").addEventListener("click", () => this.open());
    byId("groups-close").addEventListener("click", () => this.node.close());
    byId("groups-again").addEventListener("click", () => this.find());
    this.grid.addEventListener("keydown", (event) => this.move(event));
  }

  /** Tell the page which groups there are. */
  load() {
    return this.ask(api.groups);
  }

  /** Show them; where nobody has looked for them yet, begin. */
  async open() {
    this.node.showModal();
    const state = await this.load();
    if (!state) return;
    if (state.available && !state.found && !state.busy) await this.find();
    else this.draw(state);
    this.grid.querySelector("button")?.focus();
  }

  async find() {
    const state = await this.ask(api.findGroups);
    if (state) this.draw(state);
  }

  async ask(request) {
    try {
      const state = await request();
      tell("groups", state);
      return state;
    } catch (error) {
      readFailed(error, (refused) => toast(refused.message, { error: true }));
      return null;
    }
  }

  draw(state) {
    const { available, busy, found, outdated, failure, groups, alone } = state;
    byId("groups-text").textContent = sentence(state);
    byId("groups-again").hidden = !available || busy || !(outdated || failure);
    this.seen.disconnect();
    this.grid.replaceChildren(...groups.map((group) => this.card(group)), ...(alone ? [this.rest(alone)] : []));
    if (busy) this.lookLater();
    else if (found && !this.grid.contains(document.activeElement)) this.grid.querySelector("button")?.focus();
  }

  /** Check whether they have been found meanwhile, even after this was closed: the filters offer them. */
  lookLater() {
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      const state = await this.load();
      if (state && this.node.open) this.draw(state);
      else if (!state || state.busy) this.lookLater();
    }, AGAIN_MS);
  }

  card(group) {
    const { events, decided, names, typical } = group;
    const labels = names.map(({ label, events: n }) => `${label} (${n.toLocaleString("en")})`).join(", ");
    const picture = element("span", { class: "thumbnail" });
    picture.event = typical;
    this.seen.observe(picture);
    return element(
      "button",
      {
        type: "button",
        class: "group-card",
        title: labels ? `Group ${group.group + 1}: ${labels}` : `Group ${group.group + 1}, without a name`,
        onclick: () => this.choose(group.group, decided < events, "typical"),
      },
      picture,
      element("b", {}, groupName(group)),
      element("span", { class: "soft" }, many(events, "box", "boxes")),
      element("span", { class: "soft" }, `${decided.toLocaleString("en")} decided`),
    );
  }

  rest(alone) {
    return element(
      "button",
      {
        type: "button",
        class: "group-card",
        title: "Boxes that sound like too few others",
        onclick: () => this.choose(-1, true, "score"),
      },
      element("b", {}, "In no group"),
      element("span", { class: "soft" }, many(alone, "box", "boxes")),
    );
  }

  /** Pictures are fetched when their card comes into view. */
  paint(entries) {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      this.seen.unobserve(target);
      target.replaceWith(thumbnail(target.event, 0, 92));
    }
  }

  /** Go through a group: its open boxes, or all where none is open. */
  choose(group, open, order) {
    this.node.close();
    this.show({ group: String(group), order, status: open ? "open" : "" });
  }

  /** Arrows go from card to card. */
  move(event) {
    const cards = [...this.grid.children];
    const at = cards.indexOf(document.activeElement);
    const columns = cards.filter((card) => card.offsetTop === cards[0].offsetTop).length;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (at < 0 || !by) return;
    event.preventDefault();
    cards[at + by]?.focus();
  }
}

function sentence({ available, busy, found, outdated, failure, groups }) {
  if (!available) return NO_VECTORS;
  if (busy) return "Finding groups among the boxes. This can take a minute or two; close this and review meanwhile if you like.";
  if (failure) return `No groups could be found: ${failure}.`;
  if (outdated) return "The boxes have changed since these groups were found.";
  if (found && !groups.length) return "No groups were found: a group needs at least ten boxes that sound alike.";
  return "Boxes that sound alike, the largest group first, each with its most typical box. Choose one to go through it.";
}
