/** A field for a label that completes what is typed from the labels already in use. */

import { element } from "./dom.js";
import { state } from "./state.js";

const SHOWN = 8;

/**
 * @param {string} value the label now
 * @param {(label: string) => void} chosen called when a label is settled on
 * @returns {{node: HTMLElement, focus: () => void}}
 */
export function labelField(value, chosen) {
  let active = -1;
  let offered = [];
  const list = element(
    "ul",
    { class: "choices", role: "listbox", id: "label-choices", "aria-label": "Known labels", hidden: true },
  );
  const input = element("input", {
    id: "label-field",
    type: "text",
    maxlength: "200",
    autocomplete: "off",
    spellcheck: "false",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": "label-choices",
    "aria-autocomplete": "list",
    placeholder: "what is it?",
  });
  input.value = value;

  const close = () => {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const settle = (label) => {
    close();
    input.value = label.trim();
    input.blur();
    if (label.trim() !== value) chosen(label.trim());
  };
  const offer = () => {
    const text = input.value.trim().toLowerCase();
    const all = state.session ? state.session.labels : [];
    const fits = text === value.toLowerCase() ? all : all.filter((label) => label.toLowerCase().includes(text));
    const begins = (label) => (label.toLowerCase().startsWith(text) ? 0 : 1);
    offered = [...fits].sort((a, b) => begins(a) - begins(b)).slice(0, SHOWN);
    active = -1;
    show();
  };
  const show = () => {
    list.replaceChildren(
      ...offered.map((label, i) =>
        element(
          "li",
          {
            role: "option",
            id: `choice-${i}`,
            "aria-selected": String(i === active),
            onpointerdown: (e) => (e.preventDefault(), settle(label)),
          },
          label,
        ),
      ),
    );
    list.hidden = offered.length === 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
    if (active >= 0) input.setAttribute("aria-activedescendant", `choice-${active}`);
    else input.removeAttribute("aria-activedescendant");
  };

  input.addEventListener("focus", () => (input.select(), offer()));
  input.addEventListener("input", offer);
  input.addEventListener("blur", () => {
    close();
    input.value = input.value.trim() === value ? value : input.value;
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") settle(active >= 0 ? offered[active] : input.value);
    else if (event.key === "Escape") {
      input.value = value;
      close();
      input.blur();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && offered.length) {
      const step = event.key === "ArrowDown" ? 1 : -1;
      active = (active + step + offered.length) % offered.length;
      show();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const node = element("div", { class: "label-field" }, element("label", { for: "label-field" }, "Label"), input, list);
  return { node, focus: () => input.focus() };
}
