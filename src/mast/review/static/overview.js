/** The strip that shows the whole recording: sound, how many events, what was heard, where the window is. */

import * as api from "./api.js";
import { FLOOR_DB, RANGE_DB, STATUS, backgroundOf, palette } from "./colours.js";
import { debounce } from "./dom.js";
import { paintLevels, readLevels } from "./levels.js";
import { on, state } from "./state.js";

const LONGEST_S = 3600; // of one picture
const SOUND = 34; // pixels of sound; the rest counts events
const HEIGHT = 56;
const MARGIN = { left: 48, right: 10 }; // in line with the spectrogram

export class Overview {
  /** @param {HTMLCanvasElement} canvas @param {import("./spectrogram.js").Spectrogram} spectrogram */
  constructor(canvas, spectrogram) {
    this.canvas = canvas;
    this.spectrogram = spectrogram;
    this.pictures = [];
    this.counts = [];
    this.abort = new AbortController();
    new ResizeObserver(() => this.resize()).observe(canvas);
    on("events", debounce(() => this.count(), 120));
    for (const topic of ["painted", "spans", "look"]) on(topic, () => this.draw());
    this.watch();
  }

  get width() {
    return Math.max(1, this.canvas.clientWidth - MARGIN.left - MARGIN.right);
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(this.canvas.clientWidth * ratio);
    this.canvas.height = Math.round(HEIGHT * ratio);
    this.count();
  }

  /** Fetch pictures of the whole, one after another, so that decisions and tiles come first. */
  async open(recording) {
    this.abort.abort();
    this.abort = new AbortController();
    this.pictures = [];
    this.count();
    const { signal } = this.abort;
    const { id, duration_s, sample_rate } = recording;
    const parts = Math.max(1, Math.ceil(duration_s / LONGEST_S));
    await new Promise((resolve) => setTimeout(resolve, 250)); // the window first
    for (let part = 0; part < parts && !signal.aborted; part++) {
      const start_s = part * LONGEST_S;
      const end_s = Math.min(duration_s, start_s + LONGEST_S);
      const width = Math.max(16, Math.min(2048, Math.round((1200 * (end_s - start_s)) / duration_s)));
      const query = {
        start_s,
        end_s,
        low_hz: 0,
        high_hz: sample_rate / 2,
        width,
        height: 48,
        floor_db: FLOOR_DB,
        range_db: RANGE_DB,
        colours: "grey",
      };
      try {
        const { levels, ...size } = await readLevels(await api.tile(id, query, signal));
        if (!signal.aborted) this.pictures.push({ start_s, end_s, levels, ...size, look: null, canvas: null });
      } catch {
        return; // the strip stays empty; the window's own tiles say what is wrong
      }
      this.draw();
    }
  }

  count() {
    const bins = Math.max(1, Math.floor(this.width / 3));
    const recording = state.recording;
    this.counts = Array.from({ length: bins }, () => ({ open: 0, accepted: 0, rejected: 0 }));
    if (recording) {
      for (const event of state.events.values()) {
        const bin = Math.min(bins - 1, Math.floor((bins * (event.start_s + event.end_s)) / 2 / recording.duration_s));
        if (event.status in this.counts[0]) this.counts[bin][event.status]++;
      }
    }
    this.draw();
  }

  draw() {
    const recording = state.recording;
    if (!recording || !this.canvas.width) return;
    const context = this.canvas.getContext("2d");
    const ratio = this.canvas.width / this.canvas.clientWidth;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.canvas.clientWidth, HEIGHT);
    const x = (s) => MARGIN.left + (s / recording.duration_s) * this.width;
    context.fillStyle = backgroundOf(state.display.colours);
    context.fillRect(MARGIN.left, 0, this.width, SOUND);
    for (const picture of this.pictures) {
      this.colour(picture);
      context.drawImage(picture.canvas, x(picture.start_s), 0, x(picture.end_s) - x(picture.start_s), SOUND);
    }
    context.fillStyle = "rgb(160 160 160 / 60%)";
    for (const [start_s, end_s] of recording.silent_spans || []) context.fillRect(
      x(start_s),
      0,
      Math.max(1, x(end_s) - x(start_s)),
      SOUND,
    );
    this.drawCounts(context);
    context.fillStyle = "#5be38f";
    for (const [start_s, end_s] of recording.reviewed_spans || []) context.fillRect(
      x(start_s),
      SOUND,
      Math.max(1, x(end_s) - x(start_s)),
      3,
    );
    this.drawWindow(context, x);
  }

  colour(picture) {
    const look = this.spectrogram.tiles.look;
    if (picture.look === look) return;
    picture.canvas ||= new OffscreenCanvas(picture.width, picture.height);
    paintLevels(picture.canvas, picture, palette(look));
    picture.look = look;
  }

  drawCounts(context) {
    const peak = Math.max(1, ...this.counts.map((bin) => bin.open + bin.accepted + bin.rejected));
    const room = HEIGHT - SOUND - 4;
    const step = this.width / this.counts.length;
    this.counts.forEach((bin, i) => {
      let bottom = HEIGHT;
      for (const status of ["accepted", "open", "rejected"]) {
        if (!bin[status]) continue;
        const height = Math.max(2, (bin[status] / peak) * room);
        context.fillStyle = STATUS[status].line;
        context.fillRect(MARGIN.left + i * step, bottom - height, Math.max(1, step - 1), height);
        bottom -= height;
      }
    });
  }

  drawWindow(context, x) {
    const { start_s, end_s } = this.spectrogram.view;
    const left = x(start_s);
    const width = Math.max(4, x(end_s) - left);
    context.fillStyle = "rgb(0 0 0 / 35%)";
    context.fillRect(MARGIN.left, 0, left - MARGIN.left, SOUND);
    context.fillRect(left + width, 0, MARGIN.left + this.width - left - width, SOUND);
    context.strokeStyle = getComputedStyle(this.canvas).color;
    context.lineWidth = 1.5;
    context.strokeRect(left, 0.75, width, HEIGHT - 1.5);
    const head = this.spectrogram.playhead_s;
    if (head !== null) {
      context.fillStyle = "#ffffff";
      context.fillRect(x(head) - 0.5, 0, 1.5, SOUND);
    }
  }

  watch() {
    let held = false;
    const go = (event) => {
      if (!state.recording) return;
      const frame = this.canvas.getBoundingClientRect();
      const s = ((event.clientX - frame.left - MARGIN.left) / this.width) * state.recording.duration_s;
      const { viewport } = this.spectrogram;
      viewport.go({ start_s: s - viewport.span_s / 2, end_s: s + viewport.span_s / 2 });
      this.spectrogram.redraw();
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      held = true;
      this.canvas.setPointerCapture(event.pointerId);
      go(event);
    });
    this.canvas.addEventListener("pointermove", (event) => held && go(event));
    for (const name of ["pointerup", "pointercancel"]) this.canvas.addEventListener(name, () => (held = false));
  }
}
