/** Boxes over the spectrogram: drawing them, and finding the one under the pointer. */

import { boxStyle } from "./colours.js";
import { labelText, score } from "./format.js";

const HANDLE = 8; // pixels
const MAX_NAMES = 250; // more could not be read
const REACH = 7; // how far from a handle the pointer may be

/** @typedef {{x: number, y: number, width: number, height: number}} Rectangle in page pixels */

/** Where a box stands on the screen. @returns {Rectangle} */
export function rectangleOf(box, view, plot) {
  const x = (s) => plot.left + ((s - view.start_s) / (view.end_s - view.start_s)) * plot.width;
  const y = (hz) => plot.top + ((view.high_hz - hz) / (view.high_hz - view.low_hz)) * plot.height;
  const [left, top] = [x(box.start_s), y(box.high_hz)];
  return { x: left, y: top, width: Math.max(2, x(box.end_s) - left), height: Math.max(2, y(box.low_hz) - top) };
}

/** The eight places a box can be pulled at: which edges each one moves. */
export const HANDLES = [
  { x: 0, y: 0, cursor: "nwse-resize" },
  { x: 0.5, y: 0, cursor: "ns-resize" },
  { x: 1, y: 0, cursor: "nesw-resize" },
  { x: 1, y: 0.5, cursor: "ew-resize" },
  { x: 1, y: 1, cursor: "nwse-resize" },
  { x: 0.5, y: 1, cursor: "ns-resize" },
  { x: 0, y: 1, cursor: "nesw-resize" },
  { x: 0, y: 0.5, cursor: "ew-resize" },
];

const place = (r, handle) => [r.x + r.width * handle.x, r.y + r.height * handle.y];

/** The handle under the pointer; corners win over sides, which small boxes do not offer. */
export function handleAt(r, px, py) {
  const roomy = (h) => (h.x !== 0.5 || r.width > 30) && (h.y !== 0.5 || r.height > 30);
  const near = HANDLES.filter((h) => {
    const [x, y] = place(r, h);
    return roomy(h) && Math.abs(px - x) <= REACH && Math.abs(py - y) <= REACH;
  });
  return near.find((h) => h.x !== 0.5 && h.y !== 0.5) || near[0] || null;
}

/** Move the edges that a handle holds. */
export function resized(box, handle, s, hz) {
  const next = { ...box };
  if (handle.x === 0) next.start_s = s;
  if (handle.x === 1) next.end_s = s;
  if (handle.y === 0) next.high_hz = hz;
  if (handle.y === 1) next.low_hz = hz;
  return ordered(next);
}

/** A box whose start is before its end and whose low is below its high. */
export function ordered(box) {
  return {
    ...box,
    start_s: Math.min(box.start_s, box.end_s),
    end_s: Math.max(box.start_s, box.end_s),
    low_hz: Math.min(box.low_hz, box.high_hz),
    high_hz: Math.max(box.low_hz, box.high_hz),
  };
}

const holds = (r, x, y) => x >= r.x - 2 && x <= r.x + r.width + 2 && y >= r.y - 2 && y <= r.y + r.height + 2;

/** The smallest box under the pointer, so that a box within a box can be selected. */
export function boxAt(events, view, plot, x, y) {
  let best = null;
  let smallest = Infinity;
  for (const event of events) {
    const r = rectangleOf(event, view, plot);
    const area = r.width * r.height * (event.status === "rejected" ? 4 : 1);
    if (area < smallest && holds(r, x, y)) [best, smallest] = [event, area];
  }
  return best;
}

/**
 * Draw all boxes and as many names as fit without covering one another.
 * @param {{selected: string|null, hovered: string|null}} marked
 */
export function drawBoxes(context, events, view, plot, marked) {
  const inTime = (e) => e.end_s >= view.start_s && e.start_s <= view.end_s;
  const near = events.filter((e) => inTime(e) && e.high_hz >= view.low_hz && e.low_hz <= view.high_hz);
  const rank = (e) => (e.id === marked.selected ? 3 : e.id === marked.hovered ? 2 : e.status === "rejected" ? 0 : 1);
  near.sort((a, b) => rank(a) - rank(b));
  for (const event of near) drawBox(context, event, rectangleOf(event, view, plot), rank(event));
  const taken = [];
  for (const event of near.reverse().slice(0, MAX_NAMES)) drawName(
    context,
    event,
    rectangleOf(event, view, plot),
    plot,
    taken,
    rank(event),
  );
}

function drawBox(context, event, r, rank) {
  const style = boxStyle(event);
  context.save();
  const outline = (colour, width) => {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.strokeRect(Math.round(r.x) + 0.5, Math.round(r.y) + 0.5, Math.round(r.width), Math.round(r.height));
  };
  if (rank === 3) {
    outline("rgb(0 0 0 / 60%)", 6);
    outline("#ffffff", 3.5);
  } else outline("rgb(0 0 0 / 45%)", rank ? 3.5 : 2.5); // a dark edge keeps lines visible on any colour map
  context.setLineDash(style.dash);
  if (rank === 0) context.globalAlpha = 0.8;
  outline(style.line, rank >= 2 ? 2 : rank ? 1.75 : 1.25);
  context.restore();
  if (rank === 3) drawHandles(context, r, style.line);
}

function drawHandles(context, r, colour) {
  context.fillStyle = "#ffffff";
  context.strokeStyle = "#000000";
  context.lineWidth = 1;
  for (const handle of HANDLES) {
    if ((handle.x === 0.5 && r.width <= 30) || (handle.y === 0.5 && r.height <= 30)) continue;
    const [x, y] = place(r, handle).map(Math.round);
    context.fillStyle = handle.x === 0.5 || handle.y === 0.5 ? "#ffffff" : colour;
    context.fillRect(x - HANDLE / 2, y - HANDLE / 2, HANDLE, HANDLE);
    context.strokeRect(x - HANDLE / 2 + 0.5, y - HANDLE / 2 + 0.5, HANDLE - 1, HANDLE - 1);
  }
}

function drawName(context, event, r, plot, taken, rank) {
  const style = boxStyle(event);
  const points = score(event.status === "open" ? event.score : null);
  const words = [event.label, points].filter(Boolean).join(" ");
  const text = `${style.sign}${words || (rank === 3 ? labelText(event) : "")}`;
  if (!text) return;
  context.font = `${rank === 3 ? "600 " : ""}12px system-ui, sans-serif`;
  const width = Math.ceil(context.measureText(text).width) + 8;
  if (rank < 2 && width > 60 + 2.5 * r.width) return; // too small to be named: hovering shows the name
  const gap = rank === 3 ? 6 : 2;
  const x = Math.min(Math.max(r.x, plot.left), plot.left + plot.width - width);
  const places = [r.y - 17 - gap, r.y + r.height + gap, r.y + gap].map((y) => ({ x, y, width, height: 17 }));
  const inside = (p) => p.y >= plot.top && p.y + p.height <= plot.top + plot.height;
  const free = places.find((p) => inside(p) && !taken.some((t) => touches(
    t,
    p,
  ))) || (rank >= 2 ? places.find(inside) : null);
  if (!free) return;
  taken.push(free);
  context.fillStyle = rank === 3 ? style.line : "rgb(10 10 14 / 78%)";
  context.fillRect(free.x, free.y, free.width, free.height);
  context.fillStyle = rank === 3 ? "#101014" : style.line;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(text, free.x + 4, free.y + 9);
}

const touches = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
