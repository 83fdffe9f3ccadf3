/** One decision about the open boxes of a group that the queue shows: a name for all, or none of them right. */

import * as api from "./api.js";
import { readFailed } from "./connection.js";
import { byId, element } from "./dom.js";
import { many } from "./format.js";
import { toast } from "./notices.js";
import { on, state, tell } from "./state.js";

/** @param {{actions: any, queue: any}} parts */
export function watchGroupDecision({ actions, queue }) {
  const dialog = byId("decide-group-dialog");
  const field = byId("decide-group-name");
  let status = "accepted";
  const left = () => queue.total - queue.items.filter((event) => event.status !== "open").length;
  const isGroup = () => state.list === "queue" && state.filters.status === "open" && Number(state.filters.group || -1) >= 0;

  const offer = () => {
    byId("group-decisions").hidden = !isGroup() || !left();
    byId("name-all").textContent = `Name all ${left().toLocaleString("en")}…`;
    byId("reject-all").textContent = `Reject all ${left().toLocaleString("en")}…`;
  };
  for (const topic of ["listed", "saved"]) on(topic, offer);

  const open = (wanted) => {
    if (!state.reviewer) return tell("nameless");
    status = wanted;
    const verb = status === "accepted" ? "Name" : "Reject";
    byId("decide-group-title").textContent = `${verb} ${many(left(), "open box", "open boxes")} of this group`;
    byId("decide-group-do").textContent = `${verb} ${left().toLocaleString("en")}`;
    byId("decide-group-label").hidden = status !== "accepted";
    byId("decide-group-names").replaceChildren(...state.session.labels.map((value) => element("option", { value })));
    field.required = status === "accepted";
    field.value = "";
    return dialog.showModal();
  };

  const decide = async () => {
    const label = status === "accepted" ? field.value.trim() : "";
    try {
      const { decided } = await api.decideGroup(queue.wish(), { status, label });
      if (label) actions.learn(label);
      const what = label ? `named ${label}` : "rejected";
      toast(`${many(decided, "box", "boxes")} ${what}.`, { choices: [{ name: "Undo", action: () => actions.undo() }] });
      tell("applied");
    } catch (error) {
      readFailed(error, (refused) => toast(`Nothing was decided: ${refused.message}`, { error: true }));
    }
  };

  byId("name-all").addEventListener("click", () => open("accepted"));
  byId("reject-all").addEventListener("click", () => open("rejected"));
  byId("decide-group-close").addEventListener("click", () => dialog.close());
  byId("decide-group-form").addEventListener("submit", decide);
}
