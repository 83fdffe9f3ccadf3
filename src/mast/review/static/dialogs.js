/** Who is reviewing, export, help. */

import * as api from "./api.js";
import { byId, element } from "./dom.js";
import { saveAnswer } from "./download.js";
import { many, stretch } from "./format.js";
import { FORMAT_NAMES } from "./format_names.js";
import { on, remember, state, tell } from "./state.js";

export function watchDialogs() {
  const name = byId("name-dialog");
  const shown = () => (byId("who").textContent = state.reviewer || "Your name");

  byId("name-form").addEventListener("submit", (event) => {
    const text = byId("name-field").value.trim();
    if (!text) return event.preventDefault();
    state.reviewer = text;
    remember();
    shown();
    return tell("reviewer");
  });
  name.addEventListener("cancel", (event) => !state.reviewer && event.preventDefault());
  const changeName = () => {
    byId("name-field").value = state.reviewer;
    byId("known-names").replaceChildren(...(state.session?.reviewers || []).map((value) => element(
      "option",
      { value },
    )));
    name.showModal();
    byId("name-field").select();
  };
  byId("who").addEventListener("click", changeName);
  on("nameless", () => !name.open && changeName());
  shown();

  const answer = (text, error = false) => {
    byId("export-answer").textContent = text;
    byId("export-answer").className = error ? "failed" : "";
  };
  const wanted = () => ({ complete: byId("export-complete").checked, learner: byId("export-learner").checked });
  const unchecked = ({ learner_accepted, group_accepted }) => learner_accepted + group_accepted > 0;
  on("progress", (found) => (byId("export-learner-row").hidden = !unchecked(found)));
  byId("export").addEventListener("click", () => (answer(""), byId("export-dialog").showModal()));
  byId("export-download").addEventListener("click", async () => {
    const format = byId("export-format").value;
    answer("Preparing…");
    try {
      const found = await api.exportZip({ format, ...wanted() });
      await saveAnswer(found, `${state.session.title}_${format}.zip`);
      answer("The download has started.");
    } catch (error) {
      answer(error.message, true);
    }
  });
  byId("export-write").addEventListener("click", async () => {
    if (!state.reviewer) return tell("nameless");
    answer("Writing…");
    try {
      const [format, folder] = [byId("export-format").value, byId("export-folder").value.trim()];
      const done = await api.exportFolder({ format, folder, ...wanted() });
      const boxes = `${many(done.events, "box", "boxes")} in ${many(done.recordings, "recording")}`;
      answer(`${boxes}, ${stretch(done.reviewed_s)} heard. Written to ${done.path}. ${done.note || ""}`);
    } catch (error) {
      answer(error.message, true);
    }
    return undefined;
  });
  byId("help").addEventListener("click", () => byId("help-dialog").showModal());
  on("back", () => answer(""));

  return {
    help: () => byId("help-dialog").showModal(),
    askName: () => !state.reviewer && changeName(),
    /** Offer the formats the server knows. */
    fill: () => {
      const options = state.session.formats.map((format) => element(
        "option",
        { value: format },
        FORMAT_NAMES[format] || format,
      ));
      byId("export-format").replaceChildren(...options);
    },
  };
}
