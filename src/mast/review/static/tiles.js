/**
 * Pictures of the sound on a fixed grid: spans of 2^k seconds, bands of 1/2^j of all frequencies.
 * The server sends loudness as grey levels; colours are applied here, so gain and contrast take effect at once.
 * While a fine tile is on its way, coarser or finer ones stand in. Requests nobody waits for are cancelled.
 */

import * as api from "./api.js";
import { FLOOR_DB, RANGE_DB, palette } from "./colours.js";
import { paintLevels, readLevels } from "./levels.js";

const WIDTH = 512;
const HEIGHT = 512;
const FINEST = -3; // spans of 1/8 s
const COARSEST = 9; // spans of 512 s
const FINEST_BAND = 5;
const AT_ONCE = 3; // the browser opens six connections: leave some for decisions
const KEPT = 160; // tiles in memory, about 1.3 MB each

const keyOf = ({ k, i, j, m }) => `${k}/${i}/${j}/${m}`;
const limit = (value, low, high) => Math.min(high, Math.max(low, value));

export class Tiles {
  /** @param {() => void} changed called when there is something new to draw */
  constructor(changed) {
    this.changed = changed;
    this.recording = null;
    this.kept = new Map(); // key → tile, the longest unused first
    this.underWay = new Map(); // key → AbortController
    this.wanted = [];
    this.failed = new Set();
    this.look = null;
    this.words = null;
  }

  /** Forget the tiles of the recording before. */
  open(recording) {
    this.recording = recording;
    for (const controller of this.underWay.values()) controller.abort();
    this.underWay.clear();
    this.kept.clear();
    this.failed.clear();
    this.wanted = [];
  }

  /** @param {{floor_db: number, range_db: number, colours: string}} look */
  setLook(look) {
    this.look = look;
    this.words = palette(look);
  }

  get busy() {
    return this.wanted.some((tile) => tile.seen && !this.kept.has(keyOf(tile)) && !this.failed.has(keyOf(tile)));
  }

  /** How finely sound is shown, as a name; empty before anything is. */
  get zoom() {
    const [target] = this.wanted;
    return target ? `${target.k}/${target.j}` : "";
  }

  /** Levels of the tiles in view that are there, for choosing gain and contrast. */
  levelsInView() {
    return this.wanted.filter((t) => t.seen && this.kept.has(keyOf(t))).map((t) => this.kept.get(keyOf(t)).levels);
  }

  /** Seconds and hertz a tile covers; the last one ends with the recording. */
  extent({ k, i, j, m }) {
    const span = 2 ** k;
    const band = this.recording.sample_rate / 2 / 2 ** j;
    const end_s = Math.min((i + 1) * span, this.recording.duration_s);
    return { start_s: i * span, end_s, low_hz: m * band, high_hz: (m + 1) * band };
  }

  /**
   * Draw the tiles that are there, and request the missing ones.
   * @param {CanvasRenderingContext2D} context
   * @param {{start_s: number, end_s: number, low_hz: number, high_hz: number}} view
   * @param {{left: number, top: number, width: number, height: number}} plot in device pixels
   */
  draw(context, view, plot) {
    if (!this.recording || !this.look) return;
    this.plan(view, plot);
    this.ask();
    const target = this.wanted[0];
    if (!target) return;
    const order = (tile) => {
      const finer = tile.k < target.k || tile.j > target.j;
      const exact = tile.k === target.k && tile.j === target.j;
      return exact ? 1e6 : finer ? 1e5 - tile.k : -tile.k * 10 + tile.j; // coarse, then finer, then as wanted
    };
    const shown = [...this.kept.values()].filter((tile) => overlaps(this.extent(tile), view));
    shown.sort((a, b) => order(a) - order(b));
    for (const tile of shown) this.paint(context, tile, view, plot);
  }

  paint(context, tile, view, plot) {
    if (tile.look !== this.look) this.colour(tile);
    const { start_s, end_s, low_hz, high_hz } = this.extent(tile);
    const x = (s) => plot.left + ((s - view.start_s) / (view.end_s - view.start_s)) * plot.width;
    const y = (hz) => plot.top + ((view.high_hz - hz) / (view.high_hz - view.low_hz)) * plot.height;
    // whole pixels, so that neighbours meet without a seam
    const [left, right, top, bottom] = [x(start_s), x(end_s), y(high_hz), y(low_hz)].map(Math.round);
    context.drawImage(tile.canvas, left, top, Math.max(1, right - left), Math.max(1, bottom - top));
  }

  colour(tile) {
    tile.canvas ||= new OffscreenCanvas(tile.width, tile.height);
    paintLevels(tile.canvas, tile, this.words);
    tile.look = this.look;
  }

  /** Which tiles are wanted, the most urgent first: in view from the middle out, then beside, then coarser. */
  plan(view, plot) {
    const { duration_s, sample_rate } = this.recording;
    const top_hz = sample_rate / 2;
    const s_per_pixel = (view.end_s - view.start_s) / plot.width;
    const k = limit(Math.round(Math.log2(WIDTH * s_per_pixel)), FINEST, COARSEST);
    const hz_per_pixel = (view.high_hz - view.low_hz) / plot.height;
    const j = limit(Math.round(Math.log2(top_hz / (HEIGHT * hz_per_pixel))), 0, FINEST_BAND);
    const grid = (level, band, margin) => {
      const span = 2 ** level;
      const width_hz = top_hz / 2 ** band;
      const last = Math.ceil(duration_s / span) - 1;
      const from = limit(Math.floor(view.start_s / span) - margin, 0, last);
      const to = limit(Math.ceil(view.end_s / span) - 1 + margin, 0, last);
      const lowest = limit(Math.floor(view.low_hz / width_hz), 0, 2 ** band - 1);
      const highest = limit(Math.ceil(view.high_hz / width_hz) - 1, 0, 2 ** band - 1);
      const tiles = [];
      for (let i = from; i <= to; i++) for (let m = lowest; m <= highest; m++) tiles.push({ k: level, i, j: band, m });
      return tiles;
    };
    const middle = (view.start_s + view.end_s) / 2;
    const distance = (tile) => Math.abs((tile.i + 0.5) * 2 ** tile.k - middle);
    const seen = grid(k, j, 0).sort((a, b) => distance(a) - distance(b));
    const names = new Set(seen.map(keyOf));
    const beside = grid(k, j, 1).filter((tile) => !names.has(keyOf(tile)));
    const coarser = k < COARSEST && 2 ** k < duration_s ? grid(k + 1, Math.max(0, j - 1), 0) : [];
    this.wanted = [...seen.map((tile) => ({ ...tile, seen: true })), ...beside, ...coarser];
  }

  /** Fetch only what will be in view, for somebody who will look there next. */
  prepare(view, plot) {
    this.changed = () => this.ask();
    this.plan(view, plot);
    this.wanted = this.wanted.filter((tile) => tile.seen);
    this.ask();
  }

  ask() {
    const names = new Set(this.wanted.map(keyOf));
    for (const [key, controller] of this.underWay) {
      if (!names.has(key)) {
        controller.abort();
        this.underWay.delete(key);
      }
    }
    for (const tile of this.wanted) {
      if (this.underWay.size >= AT_ONCE) return;
      const key = keyOf(tile);
      if (this.kept.has(key)) {
        const held = this.kept.get(key); // used again: dropped last
        this.kept.delete(key);
        this.kept.set(key, held);
      } else if (!this.underWay.has(key) && !this.failed.has(key)) this.load(tile, key);
    }
  }

  async load(tile, key) {
    const controller = new AbortController();
    this.underWay.set(key, controller);
    const { start_s, end_s, low_hz, high_hz } = this.extent(tile);
    const width = Math.max(1, Math.ceil((WIDTH * (end_s - start_s)) / 2 ** tile.k));
    const query = { start_s, end_s, low_hz, high_hz, width, height: HEIGHT };
    const recording = this.recording;
    try {
      const blob = await api.tile(
        recording.id,
        { ...query, floor_db: FLOOR_DB, range_db: RANGE_DB, colours: "grey" },
        controller.signal,
      );
      const { levels, ...size } = await readLevels(blob);
      if (controller.signal.aborted || recording !== this.recording) return;
      this.kept.set(key, { ...tile, ...size, levels, canvas: null, look: null });
      while (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value);
    } catch (error) {
      if (error.name === "AbortError" || controller.signal.aborted) return;
      this.failed.add(key);
      if (error instanceof api.Away) setTimeout(() => this.failed.delete(key) && this.changed(), 3000);
      else this.refused?.(error);
    } finally {
      if (this.underWay.get(key) === controller) this.underWay.delete(key);
    }
    this.changed();
  }
}

const overlaps = (a, b) =>
  a.start_s < b.end_s && a.end_s > b.start_s && a.low_hz < b.high_hz && a.high_hz > b.low_hz;
