/** The learner: what it has learnt from, what it would decide, and the button that lets it decide. */

import * as api from "./api.js";
import { readFailed } from "./connection.js";
import { byId, debounce, element } from "./dom.js";
import { many, percent } from "./format.js";
import { toast } from "./notices.js";
import { on, state, tell } from "./state.js";

const PRECISIONS = [0.9, 0.95, 0.99];

const NO_VECTORS =
  "The learner compares boxes by their vectors, and there are none here: run mast detect with --embed, " +
  "or mast embed with --out in this folder.";

export class LearnerPanel {
  /** @param {(filters: Object<string, any>) => void} show shows events in the queue */
  constructor(show) {
    this.show = show;
    this.precision = 0.95;
    this.root = byId("panel-learner");
    this.load = debounce(() => this.fetch(), 300);
    on("saved", () => this.load());
    on("taken back", () => this.takenBack());
  }

  /** Fetch what it has learnt and, while the panel is shown, what it would decide. */
  async fetch() {
    try {
      const found = await api.learner();
      tell("learner", found);
      const enough = found.available && this.missing(found) === "";
      this.draw(found, null);
      if (enough && !found.applied && !this.root.hidden) this.draw(found, await api.learnerPlan(this.precision));
    } catch (error) {
      readFailed(error, (refused) => toast(refused.message, { error: true }));
    }
  }

  /** What it needs before it may decide; empty where it has that. */
  missing({ accepted, rejected, least, least_of_each }) {
    const wishes = [
      [least - accepted - rejected, "more"],
      [least_of_each - accepted, "accepted"],
      [least_of_each - rejected, "rejected"],
    ].filter(([n]) => n > 0);
    if (!wishes.length) return "";
    const list = wishes.map(([n, what]) => (what === "more" ? `${n} more decisions` : `${n} more ${what} boxes`));
    return `It decides about other boxes once it knows enough: ${list.join(", ")} to go.`;
  }

  draw(found, plan) {
    const { available, accepted, rejected, labels, applied } = found;
    if (!available) {
      this.root.replaceChildren(element("h2", {}, "Learner"), element("p", { class: "soft" }, NO_VECTORS));
      return;
    }
    const known = accepted + rejected;
    const text = known
      ? `It has learnt from ${many(known, "decision")} by people: ${accepted} accepted, ${rejected} rejected.`
      : "It learns from what you accept and reject. So far it only knows the detector's scores.";
    this.root.replaceChildren(
      element("h2", {}, "Learner"),
      element("p", { class: "soft" }, text),
      element("h3", {}, "Show first"),
      this.orders(labels),
      element("h3", {}, "The rest"),
      ...(applied ? this.applied(applied) : this.offer(found, plan)),
    );
  }

  orders(labels) {
    const choices = [
      ["what it is least sure of", "unsure"],
      ["what is most likely a call", "likely"],
      ...labels.map((label) => [`what is most likely ${label}`, `likely:${label}`]),
    ];
    const chips = choices.map(([name, order]) =>
      element(
        "button",
        { type: "button", class: "chip", onclick: () => this.show({ order, status: "open" }) },
        name,
      ),
    );
    return element("div", { class: "chips plain" }, ...chips);
  }

  offer(found, plan) {
    const missing = this.missing(found);
    if (missing) return [element("p", { class: "soft" }, missing)];
    const choice = element(
      "select",
      { id: "learner-precision", onchange: (event) => this.choose(Number(event.target.value)) },
      ...PRECISIONS.map((share) => element("option", { value: share }, percent(share))),
    );
    choice.value = String(this.precision);
    const label = element("label", { class: "tight" }, "Share that should be right ", choice);
    if (!plan) return [label, element("p", { class: "soft" }, "Working out what it would decide…")];
    const decided = plan.accepted + plan.rejected;
    if (!decided) {
      const none = `It is not sure enough of any of the ${many(plan.left, "open event")}. Review more, or ask for less.`;
      return [label, element("p", { class: "soft", id: "learner-plan" }, none)];
    }
    const named = plan.named ? `, and name ${plan.named.toLocaleString("en")} of them` : "";
    const text =
      `It would accept ${many(plan.accepted, "open event")}${named}, and reject ${plan.rejected.toLocaleString("en")}. ` +
      `About ${plan.right.toLocaleString("en")} of these ${decided.toLocaleString("en")} will be right. ` +
      `${plan.left ? plan.left.toLocaleString("en") : "None"} will stay open.`;
    return [
      label,
      element("p", { class: "soft", id: "learner-plan" }, text),
      element(
        "p",
        { class: "buttons" },
        element(
          "button",
          { type: "button", class: "primary", id: "learner-apply", onclick: () => this.apply() },
          `Decide about ${many(decided, "event")}`,
        ),
      ),
      element("p", { class: "soft" }, "Your own decisions stay as they are, and one click takes all of this back."),
    ];
  }

  applied({ by, precision, accepted, rejected, named, right }) {
    const decided = accepted + rejected;
    const text =
      `The learner has accepted ${many(accepted, "event")} and rejected ${rejected.toLocaleString("en")}, ` +
      `because ${by} asked for ${percent(precision)} right. About ${right.toLocaleString("en")} of these ` +
      `${decided.toLocaleString("en")} should be right. ${named ? `It named ${named.toLocaleString("en")}. ` : ""}` +
      "Nobody has checked them: look at some.";
    const check = (status) => () => this.show({ order: "random", status });
    return [
      element("p", { class: "soft", id: "learner-applied" }, text),
      element(
        "p",
        { class: "buttons" },
        element("button", { type: "button", onclick: check("learner_accepted") }, "Check accepted"),
        element("button", { type: "button", onclick: check("learner_rejected") }, "Check rejected"),
        element("button", { type: "button", id: "learner-undo", onclick: () => this.undo() }, "Undo all of it"),
      ),
    ];
  }

  choose(precision) {
    this.precision = precision;
    return this.fetch();
  }

  async apply() {
    if (!state.reviewer) return tell("nameless");
    return this.ask(async () => {
      const { accepted, rejected } = await api.learnerApply(this.precision);
      toast(`The learner has decided about ${many(accepted + rejected, "event")}.`, {
        choices: [{ name: "Undo", action: () => this.undo() }],
      });
      tell("applied");
    });
  }

  async undo() {
    if (!state.reviewer) return tell("nameless");
    return this.ask(async () => {
      const { taken_back } = await api.learnerUndo();
      toast(`${many(taken_back, "decision")} by the learner taken back.`);
      this.takenBack();
    });
  }

  /** What was decided about many boxes at once is open again: show that. */
  takenBack() {
    if (/^(learner|group)_/.test(state.filters.status)) this.show({ status: "open" });
    tell("applied");
  }

  /** Do something that changes many events, and show the result. */
  async ask(action) {
    for (const button of this.root.querySelectorAll("button")) button.disabled = true;
    try {
      await action();
    } catch (error) {
      readFailed(error, (refused) => toast(refused.message, { error: true }));
    }
    return this.fetch();
  }
}
