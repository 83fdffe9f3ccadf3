/** Single keys. They do nothing while a field is being typed in or a dialog is open; lists leave them the letters. */

import { byId, element, isTyping } from "./dom.js";
import { state } from "./state.js";

/**
 * Key → what it does. Letters are compared in lower case; `shift` where Shift must be held,
 * `any` where it does not matter, because some keyboards need it to type the sign.
 * @param {any} page the parts of the page: actions, spectrogram, eventPanel, groups, help
 */
function table({ actions, spectrogram, eventPanel, groups, help }) {
  const view = (move) => () => {
    move(spectrogram.viewport);
    spectrogram.redraw();
  };
  return [
    { keys: ["a"], name: "A", text: "Accept", run: () => actions.decide("accepted") },
    { keys: ["r"], name: "R", text: "Reject", run: () => actions.decide("rejected") },
    { keys: ["l"], name: "L", text: "Give it a label (and accept it)", run: () => eventPanel.focusLabel() },
    {
      keys: [..."123456789"],
      name: "1 … 9",
      text: "Give it one of the most used labels",
      run: (key) => quick(actions, key),
    },
    { keys: ["delete", "backspace"], name: "Del", text: "Delete the box", run: () => actions.remove() },
    {
      keys: ["d"],
      name: "D",
      text: "Draw a box",
      run: () => actions.setMode(state.mode === "draw" ? "select" : "draw"),
    },
    { keys: ["escape"], name: "Esc", text: "Stop drawing, deselect, stop playing", run: () => stop(actions) },
    { keys: ["j", "arrowdown"], name: "J ↓", text: "Next", run: () => actions.step(1) },
    { keys: ["k", "arrowup"], name: "K ↑", text: "Previous", run: () => actions.step(-1) },
    { keys: [" "], name: "Space", text: "Play the box, filtered to its band; stop", run: () => actions.playBox() },
    {
      keys: [" "],
      shift: true,
      name: "Shift Space",
      text: "Play everything in the window",
      run: () => actions.playWindow(),
    },
    { keys: ["s"], name: "S", text: "Slower: 1, ½, ¼, ⅒ (bats become audible)", run: () => actions.nextSpeed() },
    { keys: ["z"], name: "Z", text: "Undo", run: () => actions.undo() },
    { keys: ["z"], shift: true, name: "Shift Z", text: "Redo", run: () => actions.redo() },
    { keys: ["+", "=", "*"], any: true, name: "+", text: "Zoom in in time", run: view((v) => v.zoomTime(1.6)) },
    { keys: ["-", "_"], any: true, name: "−", text: "Zoom out in time", run: view((v) => v.zoomTime(1 / 1.6)) },
    { keys: ["n"], name: "N", text: "Narrower band: zoom in in frequency", run: view((v) => v.zoomFrequency(1.5)) },
    { keys: ["w"], name: "W", text: "Wider band: zoom out in frequency", run: view((v) => v.zoomFrequency(1 / 1.5)) },
    { keys: ["arrowleft"], name: "←", text: "Back in time", run: view((v) => v.moveTime(-0.3 * v.span_s)) },
    { keys: ["arrowright"], name: "→", text: "Forward in time", run: view((v) => v.moveTime(0.3 * v.span_s)) },
    { keys: ["0"], name: "0", text: "All frequencies, default length", run: view((v) => v.fit()) },
    { keys: ["f"], name: "F", text: "Zoom in on the box", run: () => closeUp(spectrogram) },
    { keys: ["h"], name: "H", text: "Hide and show the boxes", run: () => actions.toggleBoxes() },
    { keys: ["g"], name: "G", text: "Groups of look-alikes", run: () => groups.open() },
    { keys: ["m"], name: "M", text: "Mark the window as heard, or take that back", run: () => actions.listened(false) },
    {
      keys: ["m"],
      shift: true,
      name: "Shift M",
      text: "Mark the whole recording as heard",
      run: () => actions.listened(true),
    },
    { keys: ["?"], any: true, name: "?", text: "These keys", run: () => help() },
  ];
}

const MOUSE = [
  ["Click", "Select a box"],
  ["Drag", "Scroll in time and frequency; move the selected box, or resize it by its corners and sides"],
  ["Alt drag", "Draw a box at any time"],
  ["Double click", "Zoom in on a box, or at the pointer"],
  ["Wheel", "Scroll in time"],
  ["Ctrl wheel", "Zoom time at the pointer (also by pinching, or over the time axis)"],
  ["Shift wheel", "Zoom frequency at the pointer (also over the frequency axis)"],
  ["Alt wheel", "Scroll in frequency"],
];

function quick(actions, key) {
  const label = actions.quickLabels()[Number(key) - 1];
  if (label) actions.relabel(label);
}

function stop(actions) {
  if (actions.player.playing) actions.player.stop();
  else if (state.mode === "draw") actions.setMode("select");
  else actions.select(null);
}

function closeUp(spectrogram) {
  const event = state.events.get(state.selected);
  if (!event) return;
  spectrogram.viewport.closeUp(event);
  spectrogram.redraw();
}

/**
 * Once a choice was made in a list, keys are for the page again. Arrows on a closed list choose one entry after the other,
 * so the list keeps the focus for the next arrow.
 */
function watchLists() {
  let stepping = null; // the list in which an arrow was pressed last
  addEventListener("pointerdown", () => (stepping = null));
  addEventListener("keydown", ({ key, altKey, target }) => (stepping = key.startsWith("Arrow") && !altKey ? target : null));
  addEventListener("change", ({ target }) => {
    if (target.matches("select") && target !== stepping && !target.closest("dialog")) target.blur();
  });
}

/** Listen to keys, and write the list of them. */
export function watchKeys(page) {
  const rows = table(page);
  const parts = rows.map(({ name, text }) => [name, text]);
  const list = (entries) => element(
    "dl",
    {},
    ...entries.flatMap(([name, text]) => [element("dt", {}, element("kbd", {}, name)), element("dd", {}, text)]),
  );
  byId("help-keys").append(list(parts.slice(0, 14)), list(parts.slice(14)), list(MOUSE));

  watchLists();
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const key = event.key.toLowerCase();
    // a button reached with Tab keeps its own Space, a slider its arrows
    if (key === " " && event.target.matches("button, [role=tab]") && event.target.matches(":focus-visible")) return;
    if (key.startsWith("arrow") && event.target.matches("input[type=range], [role=tab]")) return;
    if (event.target.matches("select")) {
      if (key === " " || key.length > 1) return; // they open the list, choose and close it
      event.target.blur();
    }
    const row = rows.find((each) => each.keys.includes(key) && (each.any || Boolean(each.shift) === event.shiftKey));
    if (!row) return;
    event.preventDefault();
    row.run(key);
  });
}
