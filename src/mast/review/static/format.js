/** Numbers as people read them. */

/** 83.4 → "1:23.4"; with hours where there are some. */
export function elapsed(seconds, decimals = 1) {
  const unit = 10 ** decimals;
  const total = Math.round(Math.max(0, seconds) * unit) / unit;
  const h = Math.floor(total / 3600);
  const m = Math.floor((total % 3600) / 60);
  const rest = (total % 60).toFixed(decimals);
  const padded = rest.padStart(decimals ? 3 + decimals : 2, "0");
  return h ? `${h}:${String(m).padStart(2, "0")}:${padded}` : `${m}:${padded}`;
}

/** Boxes that are shorter, such as bats', are given in milliseconds. */
const SHORT_S = 0.1;

/** From when to when, and how long: "0:02.371 – 0:02.378 (6.9 ms)". */
export function span(start_s, end_s) {
  const decimals = end_s - start_s < SHORT_S ? 3 : 2;
  return `${elapsed(start_s, decimals)} – ${elapsed(end_s, decimals)} (${stretch(end_s - start_s)})`;
}

/** Length of a stretch of sound: "6.9 ms", "0.84 s", "12 min", "1.5 h". */
export function stretch(seconds) {
  if (seconds > 0 && seconds < SHORT_S) return `${trim((1000 * seconds).toFixed(1))} ms`;
  if (seconds < 1) return `${seconds.toFixed(2)} s`;
  if (seconds < 90) return `${trim(seconds.toFixed(1))} s`;
  if (seconds < 5400) return `${trim((seconds / 60).toFixed(1))} min`;
  return `${trim((seconds / 3600).toFixed(1))} h`;
}

/** 3450 → "3.45" kHz */
export const kilohertz = (hz, decimals = 2) => trim((hz / 1000).toFixed(decimals));

export const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

export const score = (value) => (value === null || value === undefined ? "" : value.toFixed(2));

export const percent = (share) => `${Math.round(100 * share)} %`;

export const many = (n, one, more = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : more}`;

/**
 * Wall clock of a moment in a recording, as the recorder's own clock showed it.
 * The zone is ignored: a recorder's 06:00 stays 06:00 wherever the page is opened.
 * @returns {Date|null} to be read with getUTC… functions
 */
export function wallClock(datetime, offset_s = 0) {
  const found = /^(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d(?:\.\d+)?))?/.exec(datetime || "");
  if (!found) return null;
  const [, year, month, day, hour, minute, second] = found;
  const start_ms = Date.UTC(+year, +month - 1, +day, +hour, +minute) + 1000 * parseFloat(second || "0");
  return new Date(start_ms + 1000 * offset_s);
}

const two = (n) => String(n).padStart(2, "0");

/** "06:12:03", with fractions of a second on request */
export function clockText(date, decimals = 0) {
  const seconds = date.getUTCSeconds() + date.getUTCMilliseconds() / 1000;
  const text = decimals ? seconds.toFixed(decimals).padStart(3 + decimals, "0") : two(Math.floor(seconds));
  return `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${text}`;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** "1 May" */
export const shortDayText = (date) => `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}`;

/** "1 May 2024" */
export const dayText = (date) => `${shortDayText(date)} ${date.getUTCFullYear()}`;

/** The last part of a path; recordings are named by paths. */
export const fileName = (path) => path.split("/").pop() || path;

/** What to call an event, if there is one. */
export const labelText = (event) => event.label || "unnamed";

/** The state of an event, in the words of the filter by status. */
export const statusText = ({ status, learned }) =>
  status === "open" && learned ? `${learned.status} ${learned.by ? "with group" : "by learner"}` : status;

/** What to call an event among many, most of which may have no label: its name, or its band. */
export const shortText = (event) =>
  event.label || `${kilohertz(event.low_hz, 1)}–${kilohertz(event.high_hz, 1)} kHz`;

/** What most of a group of look-alikes is called. */
export const groupName = ({ names }) => (names.length ? names[0].label : "unnamed");
