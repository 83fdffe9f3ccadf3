/** The stretch and band in view: moves, zooms, and glides to where it was sent. */

const SHORTEST_S = 0.05;
const LONGEST_S = 3600; // the overview shows the rest
const NARROWEST_HZ = 100;
const DEFAULT_S = 15;
const GLIDE_MS = 55; // time constant of the glide

const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export class Viewport {
  constructor() {
    this.duration_s = 1;
    this.top_hz = 1000; // half the sample rate
    this.now = { start_s: 0, end_s: 1, low_hz: 0, high_hz: 1000 };
    this.goal = { ...this.now };
  }

  /** Begin with another recording. */
  open(duration_s, top_hz) {
    this.duration_s = Math.max(duration_s, SHORTEST_S);
    this.top_hz = top_hz;
    this.goal = { start_s: 0, end_s: Math.min(DEFAULT_S, this.duration_s), low_hz: 0, high_hz: top_hz };
    this.now = { ...this.goal };
  }

  get span_s() {
    return this.goal.end_s - this.goal.start_s;
  }

  get band_hz() {
    return this.goal.high_hz - this.goal.low_hz;
  }

  /** Go to a stretch and band, within the recording. */
  go(wanted, { glide = true } = {}) {
    const { start_s, end_s, low_hz, high_hz } = { ...this.goal, ...wanted };
    const longest = Math.min(this.duration_s, LONGEST_S);
    const [a, b] = within(start_s, end_s, Math.min(SHORTEST_S, longest), longest, this.duration_s);
    const [c, d] = within(low_hz, high_hz, Math.min(NARROWEST_HZ, this.top_hz), this.top_hz, this.top_hz);
    this.goal = { start_s: a, end_s: b, low_hz: c, high_hz: d };
    if (!glide || still()) this.now = { ...this.goal };
  }

  /** Zoom by a factor (above 1: closer), keeping `at_s` where it is on the screen. */
  zoomTime(factor, at_s = (this.goal.start_s + this.goal.end_s) / 2) {
    const [start_s, end_s] = scaled(this.goal.start_s, this.goal.end_s, factor, at_s);
    this.go({ start_s, end_s });
  }

  zoomFrequency(factor, at_hz = (this.goal.low_hz + this.goal.high_hz) / 2) {
    const [low_hz, high_hz] = scaled(this.goal.low_hz, this.goal.high_hz, factor, at_hz);
    this.go({ low_hz, high_hz });
  }

  moveTime(by_s, options) {
    this.go({ start_s: this.goal.start_s + by_s, end_s: this.goal.end_s + by_s }, options);
  }

  moveFrequency(by_hz, options) {
    this.go({ low_hz: this.goal.low_hz + by_hz, high_hz: this.goal.high_hz + by_hz }, options);
  }

  /** All frequencies and the default length, around the middle. */
  fit() {
    const middle = (this.goal.start_s + this.goal.end_s) / 2;
    this.go({ start_s: middle - DEFAULT_S / 2, end_s: middle + DEFAULT_S / 2, low_hz: 0, high_hz: this.top_hz });
  }

  /** Bring a box into view, moving and zooming only as far as it needs. */
  reveal(box, options) {
    const wanted = {};
    const length = box.end_s - box.start_s;
    const share = length / this.span_s;
    const inside = box.start_s >= this.goal.start_s && box.end_s <= this.goal.end_s;
    if (!inside || share > 0.7 || share < 0.01) {
      const span = share > 0.5 ? length * 3 : share < 0.01 ? Math.max(length * 25, 0.5) : this.span_s;
      const middle = (box.start_s + box.end_s) / 2;
      Object.assign(wanted, { start_s: middle - span / 2, end_s: middle + span / 2 });
    }
    if (box.low_hz < this.goal.low_hz || box.high_hz > this.goal.high_hz) {
      const margin = 0.1 * (box.high_hz - box.low_hz);
      wanted.low_hz = Math.min(this.goal.low_hz, box.low_hz - margin);
      wanted.high_hz = Math.max(this.goal.high_hz, box.high_hz + margin);
    }
    this.go(wanted, options);
  }

  /** Close up on a box, in both axes. */
  closeUp(box) {
    const t = Math.max(0.3 * (box.end_s - box.start_s), 0.05);
    const f = Math.max(0.5 * (box.high_hz - box.low_hz), 100);
    const wanted = { start_s: box.start_s - t, end_s: box.end_s + t };
    this.go({ ...wanted, low_hz: Math.max(0, box.low_hz - f), high_hz: Math.min(this.top_hz, box.high_hz + f) });
  }

  /** One step of the glide. @returns {boolean} whether it continues */
  step(elapsed_ms) {
    const share = 1 - Math.exp(-elapsed_ms / GLIDE_MS);
    let moving = false;
    for (const [name, size] of [
      ["start_s", this.span_s],
      ["end_s", this.span_s],
      ["low_hz", this.band_hz],
      ["high_hz", this.band_hz],
    ]) {
      const left = this.goal[name] - this.now[name];
      if (Math.abs(left) < size * 5e-4) this.now[name] = this.goal[name];
      else {
        this.now[name] += left * share;
        moving = true;
      }
    }
    return moving;
  }
}

const scaled = (low, high, factor, at) => [at - (at - low) / factor, at + (high - at) / factor];

/** Shift, then squeeze a range into 0…limit, between the smallest and the largest size. */
function within(low, high, smallest, largest, limit) {
  const size = Math.min(Math.max(high - low, smallest), largest, limit);
  const start = Math.min(Math.max((low + high) / 2 - size / 2, 0), limit - size);
  return [start, start + size];
}
