/** What a reviewer can do. Every decision is shown at once, sent at once, and kept until the server has it. */

import * as api from "./api.js";
import { readFailed } from "./connection.js";
import { byId } from "./dom.js";
import { elapsed, fileName, labelText } from "./format.js";
import { toast } from "./notices.js";
import * as outbox from "./outbox.js";
import { isOpen, isShown, lowestSought, remember, selectedEvent, speedHeard, state, tell } from "./state.js";

const PAGE = 2000; // events fetched at once
const SPEEDS = [1, 0.5, 0.25, 0.1];
const PAD_S = 0.03; // heard before and after a box

export class Actions {
  /** @param {{spectrogram: any, overview: any, player: any, queue: any, recordings: any}} parts */
  constructor(parts) {
    Object.assign(this, parts);
    this.travelling = false; // whether another recording is being opened
    this.fresh = 0; // number of the last box drawn here
    this.opening = new AbortController();
    outbox.answers.done = (job, answer) => this.saved(job, answer);
    outbox.answers.conflict = (job, theirs, text) => this.conflict(job, theirs, text);
    outbox.answers.refused = (job, error) => this.refused(job, error);
  }

  // ---- where we are

  /** Whether a key pressed now was meant for something that is not shown yet. */
  get arriving() {
    return this.travelling || this.queue.starting;
  }

  /** Show a recording; with an event, go to it and select it. */
  async openRecording(id, { event = null, start_s = null } = {}) {
    this.opening.abort();
    this.opening = new AbortController();
    const { signal } = this.opening;
    this.player.stop();
    this.travelling = true;
    try {
      const recording = await api.recording(id, signal);
      if (signal.aborted) return;
      state.recording = recording;
      state.events = new Map();
      state.selected = null;
      this.spectrogram.draft = null;
      const unknown = !recording.duration_s || !recording.sample_rate;
      const broken = recording.error || (unknown ? "This recording cannot be read." : "");
      byId("empty").hidden = !broken;
      byId("empty").textContent = broken;
      if (broken) Object.assign(
        recording,
        { duration_s: recording.duration_s || 1, sample_rate: recording.sample_rate || 2000 },
      );
      this.spectrogram.open(recording);
      if (event) this.spectrogram.viewport.reveal(event, { glide: false });
      else if (start_s !== null) this.spectrogram.viewport.moveTime(start_s, { glide: false });
      tell("recording");
      if (event) {
        state.events.set(event.id, outbox.overlaid(event));
        this.select(event.id, { reveal: false });
      } else tell("selection");
      this.travelling = false;
      this.recordings.mark();
      if (!broken) this.overview.open(recording);
      await this.fetchEvents(recording, signal);
      if (!signal.aborted) this.lookAhead();
    } catch (error) {
      if (!signal.aborted) this.travelling = false;
      readFailed(error, (refused) => toast(refused.message, { error: true }));
    }
  }

  /** Fetch the sound of the next event in the queue ahead of time. */
  async lookAhead() {
    const next = state.list === "queue" ? this.queue.items[this.queue.last + 1] : null;
    if (!next || next.recording_id === state.recording.id) return;
    const { signal } = this.opening;
    try {
      const recording = await api.recording(next.recording_id, signal);
      while (!signal.aborted && this.spectrogram.tiles.busy) await new Promise((resolve) => setTimeout(resolve, 100));
      if (!signal.aborted && !recording.error) this.spectrogram.prepare(recording, next);
    } catch {
      /* it will be fetched when it is needed */
    }
  }

  /** Events of the window first, then all others in the background, for J, K and the overview. */
  async fetchEvents(recording, signal) {
    const { start_s, end_s } = this.spectrogram.viewport.goal;
    const window = await api.events(recording.id, { start_s, end_s, limit: PAGE }, signal);
    this.take(window.events);
    for (let from_s = 0, more = true; more && !signal.aborted; ) {
      const page = await api.events(
        recording.id,
        { start_s: from_s, end_s: recording.duration_s + 1, limit: PAGE },
        signal,
      );
      this.take(page.events);
      const last_s = page.events.length ? page.events[page.events.length - 1].start_s : from_s;
      more = page.more && last_s > from_s;
      from_s = last_s;
    }
  }

  /** See what has been decided about many boxes at once. */
  async reread() {
    if (!state.recording) return;
    try {
      await this.fetchEvents(state.recording, this.opening.signal);
    } catch (error) {
      readFailed(error, () => {});
    }
  }

  /** See what others have done in the window. */
  async refresh() {
    const recording = state.recording;
    if (!recording || outbox.waiting() || document.hidden) return;
    const { start_s, end_s } = this.spectrogram.viewport.goal;
    try {
      const { events, more } = await api.events(recording.id, { start_s, end_s, limit: PAGE }, this.opening.signal);
      if (recording !== state.recording || outbox.waiting()) return;
      const there = new Set(events.map((event) => event.id));
      const expected = (e) => !more && e.end_s > start_s && e.start_s < end_s && e.status !== "deleted";
      const gone = [...state.events.values()].filter((e) => expected(e) && !there.has(e.id));
      for (const event of gone) state.events.delete(event.id);
      if (gone.some((event) => event.id === state.selected)) this.select(null);
      this.take(events);
    } catch (error) {
      readFailed(error, () => {});
    }
  }

  /** Take over events from the server, keeping the decisions still on their way. */
  take(events) {
    for (const event of events) {
      const known = state.events.get(event.id);
      if (known && known.version > event.version) continue;
      if (event.recording_id === state.recording?.id) state.events.set(event.id, outbox.overlaid(event));
    }
    tell("events");
  }

  select(id, { reveal = true } = {}) {
    state.selected = id;
    const event = selectedEvent();
    if (event && reveal) this.spectrogram.viewport.reveal(event);
    this.player.stop();
    tell("selection");
    this.queue.mark();
    this.spectrogram.redraw();
    this.note();
  }

  /** Go to an event wherever it is. */
  async goTo(event) {
    const elsewhere = this.travelling || state.recording?.id !== event.recording_id; // the latest request counts
    if (elsewhere) return this.openRecording(event.recording_id, { event });
    if (!state.events.has(event.id)) this.take([event]);
    return this.select(event.id);
  }

  /** Keep the place in the address, so that it can be sent to a colleague. */
  note() {
    const { selected, recording } = state;
    let place = location.pathname;
    if (selected && !selected.startsWith("new-")) place = `#event=${encodeURIComponent(selected)}`;
    else if (recording) place = `#recording=${recording.id}`;
    history.replaceState(null, "", place);
  }

  // ---- from one to the next

  /** The queue is a new one: begin with its first open event, or with the first where none is open. */
  begin() {
    const first = this.queue.items.find(isOpen) || this.queue.items[0];
    return first ? this.goTo(first) : this.select(null);
  }

  async step(by) {
    if (state.list !== "queue") return this.stepInTime(by, () => true);
    const event = await this.queue.neighbour(by);
    if (event) return this.goTo(event);
    return by > 0 ? this.endOfQueue() : toast("This is the first one in the queue.");
  }

  /** The queue has ended; events that were passed over come once more. */
  endOfQueue() {
    if (!this.queue.ended) return undefined; // the rest could not be fetched, which the banner says
    const above = this.queue.items.filter((event) => isOpen(event) && event.id !== state.selected);
    if (!above.length) return toast("That was the last one in this queue.");
    const count = above.length.toLocaleString("en");
    toast(above.length > 1 ? `${count} are still open above; this is the first.` : "One is still open above: this one.");
    return this.goTo(above[0]);
  }

  /** The next box of this recording by time that fits. */
  stepInTime(by, fits) {
    const shown = [...state.events.values()].filter((e) => isShown(e) || e.id === state.selected);
    const order = shown.sort((a, b) => a.start_s - b.start_s || a.low_hz - b.low_hz);
    const here = order.findIndex((e) => e.id === state.selected);
    const { start_s } = this.spectrogram.viewport.goal;
    const first = here < 0 ? order.findIndex((e) => e.end_s >= start_s) : here + by;
    for (let i = first; i >= 0 && i < order.length; i += by) if (fits(order[i])) return this.select(order[i].id);
    return toast(by > 0 ? "That was the last box in this recording." : "This is the first box in this recording.");
  }

  /** After a decision about an open event, the next open one; after a second thought, simply the next. */
  async advance(event) {
    if (!state.advance) return undefined;
    if (state.list === "recordings") return this.stepInTime(1, (other) => other.status === "open");
    if (this.queue.indexOf(event.id) < 0) return undefined;
    if (!isOpen(event)) return this.step(1);
    const next = await this.queue.nextOpen();
    return next ? this.goTo(next) : this.endOfQueue();
  }

  // ---- decisions

  /** Accept or reject the selected event. */
  decide(status) {
    if (this.arriving) return undefined;
    const event = selectedEvent();
    if (!event) return toast("Choose a box first: click it, or press J.");
    const verb = status === "accepted" ? "accepted" : "rejected";
    if (event.status !== status) this.change(event, { status }, `${verb} ${labelText(event)}`);
    return this.advance(event);
  }

  /** Name the selected event, which also accepts it. */
  relabel(label) {
    if (this.arriving) return undefined;
    const event = selectedEvent();
    if (!event) return toast("Choose a box first: click it, or press J.");
    if (!label) return toast("A label needs at least one letter.");
    if (event.label === label && event.status === "accepted") return undefined;
    this.learn(label);
    this.change(event, { label, status: "accepted" }, `named ${label}`);
    return this.advance(event);
  }

  learn(label) {
    if (state.session.labels.includes(label)) return;
    state.session.labels.push(label);
    tell("labels");
  }

  /** The nine labels used most, for the number keys. */
  quickLabels() {
    return state.session ? state.session.labels.slice(0, 9) : [];
  }

  change(event, change, what) {
    this.show({ ...event, ...change, reviewer: state.reviewer });
    outbox.post({ kind: "change", what, id: event.id, change, base: event.version });
  }

  /** A box the reviewer drew: it gets the name of the last one drawn in this recording. */
  create(box) {
    const id = `new-${++this.fresh}`;
    const { id: recording_id, name, site } = state.recording;
    const label = this.lastLabel || "";
    const facts = {
      score: null,
      label,
      original_label: label,
      source: "expert",
      status: "accepted",
      version: 0,
      datetime: "",
    };
    state.events.set(id, { id, recording_id, recording: name, ...box, ...facts, reviewer: state.reviewer, site });
    this.setMode("select");
    this.select(id, { reveal: false });
    tell("events");
    outbox.post({ kind: "create", what: "drew a box", id, recording_id, change: { ...box, label } });
  }

  /** Move or resize; what was corrected is right, so it is accepted. */
  reshape(id, box) {
    const event = state.events.get(id);
    const status = event.status === "open" ? "accepted" : event.status;
    this.change(event, { ...box, status }, "changed a box");
  }

  remove() {
    if (this.arriving) return undefined;
    const event = selectedEvent();
    if (!event) return toast("Choose a box first: click it, or press J.");
    this.show({ ...event, status: "deleted", reviewer: state.reviewer });
    outbox.post({ kind: "remove", what: "deleted a box", id: event.id, base: event.version });
    if (state.advance && state.list === "queue" && this.queue.indexOf(event.id) >= 0) return this.advance(event);
    return this.select(null);
  }

  undo() {
    outbox.post({ kind: "undo", what: "undo" });
  }

  redo() {
    outbox.post({ kind: "redo", what: "redo" });
  }

  /** The window, or the whole recording, was listened to; where it was marked already, the mark is taken back. */
  listened(whole) {
    const recording = state.recording;
    if (!recording) return;
    const { start_s, end_s } = whole ? { start_s: 0, end_s: recording.duration_s } : this.spectrogram.viewport.goal;
    const reviewed = !(recording.reviewed_spans || []).some(([a, b]) => a <= start_s + 0.01 && b >= end_s - 0.01);
    const what = reviewed ? "marked as heard" : "no longer marked as heard";
    outbox.post({ kind: "reviewed", what, recording_id: recording.id, change: { start_s, end_s, reviewed } });
  }

  // ---- results

  show(event) {
    if (event.recording_id === state.recording?.id) state.events.set(event.id, event);
    this.queue.update(event);
    tell("events");
  }

  saved(job, answer) {
    if (job.kind === "reviewed") this.spans(job.recording_id, answer.reviewed_spans, job);
    else if (job.kind === "undo" || job.kind === "redo") this.undone(answer);
    else this.adopt(job, answer);
    tell("saved", job.what);
  }

  adopt(job, event) {
    if (job.kind === "create") {
      state.events.delete(job.id);
      if (state.selected === job.id) state.selected = event.id;
      this.note();
    }
    if (job.change?.label) this.lastLabel = job.change.label;
    this.show(outbox.overlaid(event));
    if (job.kind === "create") tell("selection");
  }

  spans(recording_id, spans, job) {
    if (state.recording?.id !== recording_id) return;
    state.recording.reviewed_spans = spans;
    const { start_s, end_s } = job.change;
    const meaning = job.change.reviewed ? ": where it has no box, nothing calls" : "";
    toast(`${elapsed(start_s, 0)} – ${elapsed(end_s, 0)} ${job.what}${meaning}.`);
    tell("spans");
  }

  async undone({ done, what, events, recording_id, many }) {
    toast(done ? sentence(what) : what.startsWith("nothing") ? `There is ${what}.` : sentence(what));
    if (!done) return;
    if (many) {
      tell("taken back");
      return;
    }
    for (const event of events) this.show(outbox.overlaid(event));
    const last = events[0];
    if (!last) {
      if (recording_id === undefined || recording_id === state.recording?.id) await this.refreshSpans();
    } else if (last.status === "deleted") {
      if (state.selected === last.id) this.select(null);
    } else await this.goTo(last);
  }

  async refreshSpans() {
    if (!state.recording) return;
    try {
      const { reviewed_spans } = await api.recording(state.recording.id, this.opening.signal);
      state.recording.reviewed_spans = reviewed_spans;
      tell("spans");
    } catch (error) {
      readFailed(error, () => {});
    }
  }

  /** Somebody else was there first: show theirs, offer ours. */
  conflict(job, theirs) {
    this.show(theirs);
    const who = theirs.reviewer || "Somebody";
    const now = theirs.status === "deleted" ? "deleted" : `${theirs.status} as ${labelText(theirs)}`;
    const where = `${fileName(theirs.recording)} at ${elapsed(theirs.start_s)}`;
    const mine = job.kind === "remove" ? "delete it" : job.what;
    const sentence = `${who} changed this box in ${where} while you were looking at it: it is now ${now}.`;
    toast(`${sentence} Your change (${mine}) was not saved.`, {
      choices: [
        { name: "Keep theirs", action: () => this.goTo(theirs) },
        { name: "Use mine", action: () => this.insist(job, theirs) },
      ],
    });
  }

  insist(job, theirs) {
    const change = job.kind === "remove" ? { status: "deleted" } : job.change;
    this.show({ ...theirs, ...change, reviewer: state.reviewer });
    outbox.post({ kind: "change", what: job.what, id: theirs.id, change, base: theirs.version });
  }

  /** The server refused: take the decision back, and say why. */
  async refused(job, error) {
    const text = error instanceof api.Refused ? error.message : `Something went wrong on this page: ${error.message}`;
    toast(`Not saved (${job.what}): ${text}`, { error: true });
    if (job.kind === "create") {
      state.events.delete(job.id);
      if (state.selected === job.id) this.select(null);
      tell("events");
    } else if (job.id) {
      try {
        this.show(await api.event(outbox.nameOf(job.id)));
      } catch {
        /* it is gone, and the sentence has said so */
      }
    }
  }

  // ---- tools

  setMode(mode) {
    state.mode = mode;
    tell("mode");
  }

  setAdvance(advance) {
    state.advance = advance;
    remember();
  }

  playBox() {
    if (this.player.playing) return this.player.stop();
    const event = selectedEvent();
    if (!event) return toast("Choose a box to play: click it, or press J.");
    const { recording_id, low_hz, high_hz } = event;
    const start_s = Math.max(0, event.start_s - PAD_S);
    const end_s = Math.min(state.recording.duration_s, event.end_s + PAD_S);
    return this.player.play({ recording_id, start_s, end_s, low_hz, high_hz, speed: speedHeard(low_hz) });
  }

  playWindow() {
    if (this.player.playing) return this.player.stop();
    if (!state.recording) return undefined;
    const { start_s, end_s } = this.spectrogram.viewport.goal;
    return this.player.play({ recording_id: state.recording.id, start_s, end_s, speed: speedHeard(lowestSought()) });
  }

  nextSpeed() {
    this.setSpeed(SPEEDS[(SPEEDS.indexOf(state.speed) + 1) % SPEEDS.length]);
  }

  setSpeed(speed) {
    state.speed = speed;
    remember();
    tell("speed");
  }

  toggleBoxes() {
    state.boxesShown = state.boxesShown === "none" ? "all" : "none";
    tell("boxes");
  }
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
