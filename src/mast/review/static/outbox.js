/**
 * Decisions on their way to the server: sent at once, one after another, never dropped while the server is away.
 * The page shows each decision from the moment it is made; the server's answers go beneath the decisions still waiting.
 */

import * as api from "./api.js";
import * as connection from "./connection.js";
import { on, state, tell } from "./state.js";

/**
 * @typedef {Object} Job
 * @property {"create"|"change"|"remove"|"undo"|"redo"|"reviewed"} kind
 * @property {string} what a phrase such as "accepted Robin"
 * @property {string} [id] the event, which may be a new one the server has not named yet
 * @property {number} [recording_id]
 * @property {Object} [change] fields to write
 * @property {number} [base] the version the reviewer looked at
 * @property {boolean} [tried] whether it was sent before without an answer
 */

/** @type {Job[]} */
const jobs = [];
const names = new Map(); // our name of a new event → the server's
let sending = false;

/** Handlers set by actions.js: what to do with answers. */
export const answers = {
  done: (_job, _answer) => {},
  conflict: (_job, _event, _text) => {},
  refused: (_job, _error) => {},
};

export const waiting = () => jobs.length;

/** The server's name of an event. */
export const nameOf = (id) => names.get(id) || id;

connection.countWaiting(waiting);
for (const topic of ["back", "retry", "reviewer"]) on(topic, () => flush());
addEventListener("beforeunload", (event) => jobs.length && event.preventDefault());

/** @param {Job} job */
export function post(job) {
  jobs.push(job);
  tell("outbox");
  connection.show();
  flush();
}

/** An event as the reviewer sees it: the server's, with the decisions that are still on their way. */
export function overlaid(event) {
  let seen = event;
  for (const job of jobs) {
    if (nameOf(job.id) !== event.id) continue;
    if (job.kind === "change") seen = { ...seen, ...job.change, reviewer: state.reviewer };
    if (job.kind === "remove") seen = { ...seen, status: "deleted", reviewer: state.reviewer };
  }
  return seen;
}

async function flush() {
  if (sending || connection.isAway()) return;
  if (jobs.length && !state.reviewer) {
    tell("nameless"); // kept until somebody says who decided
    return;
  }
  sending = true;
  while (jobs.length && !connection.isAway()) await sendFirst();
  sending = false;
  tell("outbox");
}

async function sendFirst() {
  const job = jobs[0];
  try {
    const answer = await send(job);
    jobs.shift();
    connection.saved();
    for (const event of answer.events || (answer.id ? [answer] : [])) rebase(event);
    answers.done(job, answer);
  } catch (error) {
    if (error instanceof api.Away) {
      job.tried = true;
      connection.lost(error);
      return;
    }
    if (error instanceof api.Unsaved) {
      connection.unsaved(error.message);
      return;
    }
    jobs.shift();
    if (error instanceof api.Refused && error.status === 409 && error.body.event) clash(job, error);
    else answers.refused(job, error);
  }
  tell("outbox");
}

/** Later decisions on the same event build on this answer. */
function rebase(event) {
  for (const job of jobs) if (nameOf(job.id) === event.id) job.base = event.version;
}

function send(job) {
  const id = nameOf(job.id);
  if (job.kind === "create") return create(job);
  if (job.kind === "change") return api.change(id, { version: job.base, ...job.change });
  if (job.kind === "remove") return api.remove(id, job.base);
  if (job.kind === "reviewed") return api.reviewed(job.recording_id, job.change);
  return job.kind === "undo" ? api.undo() : api.redo();
}

/** A new box; if an earlier try may have arrived without an answer, check first, so as not to write it twice. */
async function create(job) {
  const event = (job.tried && (await arrived(job))) || (await api.create(job.recording_id, job.change));
  names.set(job.id, event.id);
  return event;
}

async function arrived({ recording_id, change }) {
  const { events } = await api.events(recording_id, { start_s: change.start_s, end_s: change.end_s, limit: 2000 });
  const same = (a, b) => Math.abs(a - b) < 1e-3;
  const sides = ["start_s", "end_s", "low_hz", "high_hz"];
  return events.find((e) => e.reviewer === state.reviewer && sides.every((side) => same(e[side], change[side])));
}

/** Somebody else was faster, unless it was this page, and the answer was lost on the way. */
function clash(job, error) {
  const theirs = error.body.event;
  const wanted = job.kind === "remove" ? { status: "deleted" } : job.change;
  const ours = job.tried && theirs.reviewer === state.reviewer;
  if (ours && Object.entries(wanted).every(([field, value]) => theirs[field] === value)) {
    rebase(theirs);
    answers.done(job, theirs);
    return;
  }
  // what was decided after it, on the same event, was decided on the same old version
  const together = { ...job, change: { ...wanted } };
  for (let i = jobs.length - 1; i >= 0; i--) {
    if (jobs[i].kind === "change" && nameOf(jobs[i].id) === theirs.id) Object.assign(
      together.change,
      jobs.splice(i, 1)[0].change,
    );
  }
  answers.conflict(together, theirs, error.message);
}
