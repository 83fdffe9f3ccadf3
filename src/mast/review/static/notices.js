/** Short messages at the foot of the page, the banner at its head, and what screen readers are told. */

import { byId, element } from "./dom.js";

/**
 * Show a sentence. Errors stay until they are closed; anything else disappears by itself.
 * @param {string} text
 * @param {{error?: boolean, choices?: {name: string, action: () => void}[], seconds?: number}} [options]
 */
export function toast(text, { error = false, choices = [], seconds = 4 } = {}) {
  const close = () => node.remove();
  const buttons = choices.map(({ name, action }) =>
    element("button", { type: "button", onclick: () => (close(), action()) }, name),
  );
  const cross = element("button", { type: "button", class: "cross", "aria-label": "Close", onclick: close }, "×");
  const kind = error || choices.length ? "alert" : "status";
  const node = element(
    "div",
    { class: error ? "toast error" : "toast", role: kind },
    element("span", {}, text),
    ...buttons,
    cross,
  );
  const same = [...byId("toasts").children].find((other) => other.firstChild.textContent === text);
  if (same) same.remove();
  byId("toasts").append(node);
  while (byId("toasts").children.length > 4) byId("toasts").firstChild.remove();
  if (!error && !choices.length) setTimeout(close, 1000 * seconds);
}

/** A line across the page for as long as something is wrong; null takes it away. */
export function banner(text, choice = null) {
  const node = byId("banner");
  node.hidden = text === null;
  node.replaceChildren(...(text === null ? [] : [element("span", {}, text)]));
  if (text !== null && choice) node.append(element("button", { type: "button", onclick: choice.action }, choice.name));
}

/** For those who listen to the page instead of looking at it; the same is not said twice. */
export function speak(text) {
  if (byId("spoken").textContent !== text) byId("spoken").textContent = text;
}
