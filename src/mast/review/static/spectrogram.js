/** The canvas in the middle: tiles, boxes, axes and playhead, drawn when something has changed. */

import { drawAxes } from "./axes.js";
import { drawBoxes } from "./boxes.js";
import { autoLook, backgroundOf, floorOf, gainOf } from "./colours.js";
import { isShown, on, state, tell } from "./state.js";
import { Tiles } from "./tiles.js";
import { Viewport } from "./viewport.js";

const LEFT = 48;
const BOTTOM = 38;
const TOP = 6;
const RIGHT = 10;

export class Spectrogram {
  /** @param {HTMLCanvasElement} canvas @param {HTMLElement} stage the box that gives it its size */
  constructor(canvas, stage) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.viewport = new Viewport();
    this.tiles = new Tiles(() => this.redraw());
    this.hovered = null;
    this.ahead = null; // tiles of what will be looked at next
    this.draft = null; // a box being drawn, moved or resized: {id|null, box}
    this.playhead_s = null;
    this.autoLook = null; // gain and contrast that suit the sound
    this.chosen = ""; // the zoom that they were chosen at: noise is louder where a pixel holds more sound
    this.width = this.height = 0;
    this.frame = 0;
    this.last_ms = 0;
    new ResizeObserver(() => this.resize(stage)).observe(stage);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    for (const topic of ["events", "selection", "boxes", "spans"]) on(topic, () => this.redraw());
    on("display", () => this.applyLook());
  }

  /** Show a recording from its beginning. */
  open(recording) {
    this.viewport.open(recording.duration_s, recording.sample_rate / 2);
    this.tiles.open(recording);
    if (this.ahead && this.ahead.recording.id === recording.id) this.tiles.kept = this.ahead.kept;
    this.autoLook = null;
    this.chosen = "";
    this.draft = null;
    this.applyLook();
    tell("view", this.viewport);
  }

  /** Fetch the tiles of an event that will be looked at next. */
  prepare(recording, event) {
    const viewport = new Viewport();
    viewport.open(recording.duration_s, recording.sample_rate / 2);
    viewport.reveal(event, { glide: false });
    this.ahead?.open(null);
    this.ahead = new Tiles(() => {});
    this.ahead.open(recording);
    this.ahead.prepare(viewport.now, this.pixels);
  }

  resize(stage) {
    const ratio = devicePixelRatio || 1;
    this.width = stage.clientWidth;
    this.height = stage.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.redraw();
  }

  /** The area of the sound, in page pixels. */
  get plot() {
    const width = Math.max(1, this.width - LEFT - RIGHT);
    return { left: LEFT, top: TOP, width, height: Math.max(1, this.height - TOP - BOTTOM) };
  }

  get view() {
    return this.viewport.now;
  }

  secondsAt(x) {
    return this.view.start_s + ((x - this.plot.left) / this.plot.width) * (this.view.end_s - this.view.start_s);
  }

  hertzAt(y) {
    return this.view.high_hz - ((y - this.plot.top) / this.plot.height) * (this.view.high_hz - this.view.low_hz);
  }

  /** Gain and contrast from the display choices, or from the sound where none was made. */
  applyLook() {
    const { gain_db, range_db, colours } = state.display;
    const found = gain_db === null ? this.autoLook : null;
    this.tiles.setLook({
      floor_db: found ? found.floor_db : floorOf(gain_db ?? 20),
      range_db: found ? found.range_db : range_db,
      colours,
    });
    this.redraw();
  }

  /** The gain and contrast in use, for the sliders. */
  get look() {
    const { floor_db, range_db } = this.tiles.look || { floor_db: floorOf(20), range_db: 50 };
    return { gain_db: gainOf(floor_db), range_db };
  }

  /** Choose gain and contrast from what is in view. */
  chooseLook() {
    this.chosen = this.tiles.zoom;
    this.autoLook = autoLook(this.tiles.levelsInView());
    this.applyLook();
    tell("look");
  }

  redraw() {
    if (!this.frame) this.frame = requestAnimationFrame((now) => this.paint(now));
  }

  paint(now_ms) {
    this.frame = 0;
    const moving = this.viewport.step(Math.min(64, now_ms - this.last_ms || 16));
    this.last_ms = now_ms;
    if (!this.width || !state.recording) return;
    const ratio = this.canvas.width / this.width;
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.paintSound();
    if (state.display.gain_db === null && this.chosen !== this.tiles.zoom && !this.tiles.busy) this.chooseLook();
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paintOver();
    tell("painted", moving);
    if (moving) this.redraw();
    else this.last_ms = 0;
  }

  /** The area of the sound, in the canvas's own pixels. */
  get pixels() {
    const ratio = this.canvas.width / Math.max(1, this.width);
    return Object.fromEntries(Object.entries(this.plot).map(([name, value]) => [name, Math.round(value * ratio)]));
  }

  paintSound() {
    const plot = this.pixels;
    this.context.save();
    this.context.beginPath();
    this.context.rect(plot.left, plot.top, plot.width, plot.height);
    this.context.clip();
    this.context.fillStyle = backgroundOf(state.display.colours);
    this.context.fillRect(plot.left, plot.top, plot.width, plot.height);
    this.tiles.draw(this.context, this.view, plot);
    this.context.restore();
  }

  paintOver() {
    const { context, plot, view } = this;
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    this.paintSilence();
    this.paintSpans();
    const events = [...state.events.values()].filter((e) => isShown(e) || e.id === state.selected);
    const drawn = events.map((e) => (this.draft && this.draft.id === e.id ? { ...e, ...this.draft.box } : e));
    const visible = drawn.filter((e) => e.status !== "deleted");
    if (this.draft && !this.draft.id) visible.push({ ...this.draft.box, id: "draft", status: "open", label: "new" });
    drawBoxes(
      context,
      visible,
      view,
      plot,
      { selected: this.draft?.id === null ? "draft" : state.selected, hovered: this.hovered },
    );
    if (this.playhead_s !== null) {
      const x = plot.left + ((this.playhead_s - view.start_s) / (view.end_s - view.start_s)) * plot.width;
      context.fillStyle = "rgb(0 0 0 / 55%)";
      context.fillRect(x - 2, plot.top, 4, plot.height);
      context.fillStyle = "#ffffff";
      context.fillRect(x - 1, plot.top, 2, plot.height);
    }
    context.restore();
    const style = getComputedStyle(this.canvas);
    const theme = { ink: style.color, soft: style.getPropertyValue("--soft"), line: style.getPropertyValue("--line") };
    drawAxes(context, view, plot, state.recording, theme);
  }

  /** Speech that is not played: grey over the whole height, named where there is room. */
  paintSilence() {
    const { context, plot, view } = this;
    const x = (s) => plot.left + ((s - view.start_s) / (view.end_s - view.start_s)) * plot.width;
    const seen = (state.recording.silent_spans || []).filter(([a, b]) => b > view.start_s && a < view.end_s);
    for (const [start_s, end_s] of seen) {
      const left = Math.max(plot.left, x(start_s));
      const right = Math.min(plot.left + plot.width, x(end_s));
      context.fillStyle = "rgb(128 128 128 / 35%)";
      context.fillRect(left, plot.top, Math.max(1, right - left), plot.height);
      context.fillStyle = "rgb(255 255 255 / 80%)";
      context.fillRect(left, plot.top, Math.max(1, right - left), 3);
      context.font = "11px system-ui, sans-serif";
      const text = "speech, silenced";
      const width = context.measureText(text).width;
      if (right - left < width + 14) continue;
      context.fillStyle = "rgb(0 0 0 / 60%)";
      context.fillRect(left + 3, plot.top + 6, width + 8, 16);
      context.fillStyle = "#ffffff";
      context.textAlign = "left";
      context.textBaseline = "middle";
      context.fillText(text, left + 7, plot.top + 14);
    }
  }

  /** What has been heard: a green line along the bottom edge. */
  paintSpans() {
    const { context, plot, view } = this;
    const x = (s) => plot.left + ((s - view.start_s) / (view.end_s - view.start_s)) * plot.width;
    context.fillStyle = "#5be38f";
    for (const [start_s, end_s] of state.recording.reviewed_spans || []) {
      if (end_s < view.start_s || start_s > view.end_s) continue;
      context.fillRect(x(start_s), plot.top + plot.height - 5, x(end_s) - x(start_s), 5);
    }
  }
}
