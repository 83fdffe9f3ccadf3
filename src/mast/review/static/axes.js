/** Axes of the spectrogram: wall clock and seconds below, kilohertz at the left. */

import { clockText, elapsed, kilohertz, wallClock } from "./format.js";

const TIME_STEPS_S = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];
const LABEL_WIDTH = 86; // pixels a time label needs, with the distance to its neighbours
const LABEL_HEIGHT = 34;

/** The step of labels, such that they do not touch. */
export function timeStep(span_s, width) {
  const minimum = (LABEL_WIDTH * span_s) / width;
  return TIME_STEPS_S.find((step) => step >= minimum) || 7200;
}

export function frequencyStep(band_hz, height) {
  const minimum = (LABEL_HEIGHT * band_hz) / height;
  const power = 10 ** Math.floor(Math.log10(minimum));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= minimum) || 10 * power;
}

/** Multiples of a step within a range, without rounding errors adding up. */
export function ticks(low, high, step) {
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) found.push(n * step);
  return found;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {{start_s: number, end_s: number, low_hz: number, high_hz: number}} view
 * @param {{left: number, top: number, width: number, height: number}} plot in page pixels
 * @param {{datetime: string}} recording
 * @param {{ink: string, soft: string, line: string}} theme
 */
export function drawAxes(context, view, plot, recording, theme) {
  const bottom = plot.top + plot.height;
  context.font = "11.5px system-ui, sans-serif";
  context.lineWidth = 1;
  context.strokeStyle = theme.line;
  context.textBaseline = "middle";
  drawTime(context, view, plot, recording, theme, bottom);
  drawFrequency(context, view, plot, theme);
  context.strokeRect(plot.left - 0.5, plot.top - 0.5, plot.width + 1, plot.height + 1);
}

function drawTime(context, view, plot, recording, theme, bottom) {
  const span = view.end_s - view.start_s;
  const step = timeStep(span, plot.width);
  const decimals = step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3;
  context.textAlign = "center";
  for (const s of ticks(view.start_s, view.end_s, step)) {
    const x = plot.left + ((s - view.start_s) / span) * plot.width;
    line(context, x, bottom, x, bottom + 5);
    // near the corners a centred label would leave the canvas or meet the frequencies
    const room = Math.min(x - plot.left + 30, plot.left + plot.width + 8 - x);
    if (room < 26) continue;
    const clock = wallClock(recording.datetime, s);
    context.fillStyle = theme.ink;
    context.fillText(elapsed(s, decimals), x, bottom + 13);
    if (clock) {
      context.fillStyle = theme.soft;
      context.fillText(clockText(clock, decimals), x, bottom + 28);
    }
  }
}

function drawFrequency(context, view, plot, theme) {
  const band = view.high_hz - view.low_hz;
  const step = frequencyStep(band, plot.height);
  const decimals = step >= 1000 ? 0 : step >= 100 ? 1 : step >= 10 ? 2 : 3;
  context.textAlign = "right";
  context.fillStyle = theme.ink;
  for (const hz of ticks(view.low_hz, view.high_hz, step)) {
    const y = plot.top + ((view.high_hz - hz) / band) * plot.height;
    line(context, plot.left - 5, y, plot.left, y);
    if (y < plot.top + 22) continue; // the unit stands there
    context.fillText(kilohertz(hz, decimals), plot.left - 8, Math.min(y, plot.top + plot.height - 5));
  }
  context.fillStyle = theme.soft;
  context.fillText("kHz", plot.left - 8, plot.top + 8);
}

function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}
