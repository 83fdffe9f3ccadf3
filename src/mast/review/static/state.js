/** What the page knows, and who listens for changes. One object, plain topics. */

const KEPT = "mast-review";

/**
 * @typedef {Object} Event
 * @property {string} id
 * @property {number} recording_id
 * @property {string} recording
 * @property {number} start_s
 * @property {number} end_s
 * @property {number} low_hz
 * @property {number} high_hz
 * @property {number|null} score
 * @property {string} label
 * @property {string} original_label
 * @property {string} source
 * @property {"open"|"accepted"|"rejected"|"deleted"} status
 * @property {string} reviewer
 * @property {number} version
 * @property {string} site
 * @property {string} datetime
 */

export const state = {
  session: null,
  reviewer: "",
  recording: null, // the recording shown
  /** @type {Map<string, Event>} every event seen of the recording shown */
  events: new Map(),
  selected: null, // the id of the selected event
  mode: "select", // or "draw"
  list: "queue", // or "recordings"
  boxesShown: "all",
  filters: {
    order: "uncertain", // "likely:LABEL" seeks a label
    group: "",
    search: "",
    site: "",
    day: "",
    hour: "",
    status: "open",
    recording_status: "",
    sort: "name",
    min_score: 0,
  },
  display: { gain_db: null, range_db: 50, colours: "magma" }, // gain null: chosen from the sound
  speed: 1,
  volume_db: 0,
  advance: true, // go to the next event after a decision
};

const listeners = new Map();

/** Call `listener` whenever `topic` is announced. */
export function on(topic, listener) {
  if (!listeners.has(topic)) listeners.set(topic, []);
  listeners.get(topic).push(listener);
}

export function tell(topic, value) {
  for (const listener of listeners.get(topic) || []) listener(value);
}

/** @returns {Event|null} */
export const selectedEvent = () => state.events.get(state.selected) || null;

/** Whether nobody has decided about an event, the learner included. */
export const isOpen = (event) => event.status === "open" && !event.learned;

/** Whether an event is drawn, by the choice "Boxes". */
export function isShown(event) {
  if (event.status === "deleted" || state.boxesShown === "none") return false;
  return state.boxesShown === "all" || event.status !== "rejected";
}

const INAUDIBLE_HZ = 15_000; // most people hear nothing above; our choice
const MAX_AUDIBLE_RATE = 96_000; // bat recorders use higher rates
const SLOWED = 0.1;

/** The speed to play at: the one chosen, but a tenth where what begins at `low_hz` would not be heard at all. */
export const speedHeard = (low_hz) => (state.speed === 1 && low_hz >= INAUDIBLE_HZ ? SLOWED : state.speed);

/** Where the sound begins that the window is played for: the selected box, or all that a recorder for bats heard. */
export function lowestSought() {
  const event = selectedEvent();
  if (event) return event.low_hz;
  return state.recording?.sample_rate > MAX_AUDIBLE_RATE ? INAUDIBLE_HZ : 0;
}

const REMEMBERED = ["reviewer", "display", "speed", "volume_db", "advance"];

/** Restore the choices of last time; a broken or forbidden store must not stop the page. */
export function recall() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) || "{}");
    for (const name of REMEMBERED) if (name in kept) state[name] = kept[name];
  } catch {
    /* begin afresh */
  }
}

export function remember() {
  try {
    localStorage.setItem(KEPT, JSON.stringify(Object.fromEntries(REMEMBERED.map((name) => [name, state[name]]))));
  } catch {
    /* private windows may refuse */
  }
}
