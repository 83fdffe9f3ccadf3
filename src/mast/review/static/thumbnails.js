/** Small pictures of events: the box with a little sound around it, each with the contrast that suits it. */

import * as api from "./api.js";
import { FLOOR_DB, RANGE_DB, autoLook, palette } from "./colours.js";
import { element } from "./dom.js";
import { paintLevels, readLevels } from "./levels.js";

const snap = (value, step) => Math.round(value / step) * step;

/** The stretch and band around an event. */
function around(event) {
  const band = event.high_hz - event.low_hz;
  const span = Math.max(1.6 * (event.end_s - event.start_s), 0.4);
  const start_s = Math.max(0, snap((event.start_s + event.end_s) / 2 - span / 2, 0.01));
  const margin = Math.max(0.6 * band, 400);
  const [low_hz, high_hz] = [Math.max(0, snap(event.low_hz - margin, 10)), snap(event.high_hz + margin, 10)];
  return { start_s, end_s: start_s + span, low_hz, high_hz };
}

/**
 * A picture of an event and its surroundings, with the box marked.
 * @param {number} width in pixels; 0 fills the available width
 */
export function thumbnail(event, width, height) {
  const view = around(event);
  const canvas = element("canvas", { width: 2 * (width || 84), height: 2 * height, "aria-hidden": "true" });
  const frame = element("i", {});
  const share = (part, whole) => `${Math.max(0, (100 * part) / whole).toFixed(1)}%`;
  const [span, band] = [view.end_s - view.start_s, view.high_hz - view.low_hz];
  frame.style.left = share(event.start_s - view.start_s, span);
  frame.style.width = share(event.end_s - event.start_s, span);
  frame.style.top = share(view.high_hz - event.high_hz, band);
  frame.style.height = share(event.high_hz - event.low_hz, band);
  const node = element("span", { class: "thumbnail" }, canvas, frame);
  node.style.width = width ? `${width}px` : "";
  node.style.height = `${height}px`;
  paint(canvas, event.recording_id, view);
  return node;
}

async function paint(canvas, recording_id, view) {
  const size = { width: canvas.width, height: canvas.height };
  const query = { ...view, ...size, floor_db: FLOOR_DB, range_db: RANGE_DB, colours: "grey" };
  try {
    const picture = await readLevels(await api.tile(recording_id, query));
    const look = autoLook([picture.levels]);
    if (look) paintLevels(canvas, picture, palette({ ...look, colours: "magma" }));
  } catch {
    /* the frame alone; the spectrogram says what is wrong with the recording */
  }
}
