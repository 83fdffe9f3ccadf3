/** Small helpers to build and find elements. */

/** @param {string} id @returns {any} the element with this id, which the page is known to hold */
export const byId = (id) => document.getElementById(id);

/**
 * An element with properties, attributes and children; text children are escaped by construction.
 * @param {string} tag
 * @param {Object<string, any>} [properties] `class`, `dataset`, `on…` listeners, attributes
 * @param {...(Node|string|null|undefined|false)} children
 */
export function element(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Call `action` once, `wait_ms` after the last call. */
export function debounce(action, wait_ms) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), wait_ms);
  };
}

/** Whether keys typed now belong to a field. */
export function isTyping(target) {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.matches("textarea")) return true;
  return target.matches("input") && !target.matches("[type=checkbox], [type=button], [type=range]");
}
