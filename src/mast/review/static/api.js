/** The server, as functions. Every failure is one of two kinds: it answered "no", or it did not answer. */

import { state } from "./state.js";

/** The server answered with an error; `message` is its sentence, `status` the number, `body` the rest. */
export class Refused extends Error {
  constructor(status, body) {
    super((body && body.error) || `The server answered with error ${status}.`);
    this.status = status;
    this.body = body || {};
  }
}

/** The server could not write it down, through no fault of what was asked; `message` says why. */
export class Unsaved extends Refused {}

/** The server did not answer. */
export class Away extends Error {
  constructor() {
    super("The server does not answer.");
  }
}

const AWAY = new Set([502, 503, 504]);
const NO_SPACE = 507; // the disk is full, read-only or the like: the same may succeed later

function address(path, query) {
  const wanted = Object.entries(query || {}).filter(([, value]) => value !== undefined);
  const text = new URLSearchParams(wanted.map(([name, value]) => [name, String(value)])).toString();
  return text ? `api/${path}?${text}` : `api/${path}`;
}

async function call(method, path, { query, body, signal } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET") headers["X-Reviewer"] = encodeURIComponent(state.reviewer);
  const options = { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(address(path, query), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Away();
  }
  if (AWAY.has(answer.status)) throw new Away();
  if (!answer.ok) {
    const Kind = answer.status === NO_SPACE ? Unsaved : Refused;
    throw new Kind(answer.status, await answer.json().catch(() => null));
  }
  return answer;
}

async function json(method, path, options) {
  const answer = await call(method, path, options);
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Away(); // cut off in the middle
  }
}

const of = (eid) => `events/${encodeURIComponent(eid)}`;

export const session = () => json("GET", "session");
export const progress = () => json("GET", "progress");
export const activity = () => json("GET", "activity");
export const recordings = (query, signal) => json("GET", "recordings", { query, signal });
export const recording = (rid, signal) => json("GET", `recordings/${rid}`, { signal });
export const events = (rid, query, signal) => json("GET", `recordings/${rid}/events`, { query, signal });
export const event = (eid, signal) => json("GET", of(eid), { signal });
export const queue = (query, signal) => json("GET", "queue", { query, signal });
export const similar = (eid, k, signal) => json("GET", `${of(eid)}/similar`, { query: { k }, signal });
export const create = (rid, box) => json("POST", `recordings/${rid}/events`, { body: box });
export const change = (eid, change) => json("PATCH", of(eid), { body: change });
export const remove = (eid, version) => json("DELETE", of(eid), { query: { version } });
export const undo = () => json("POST", "undo");
export const redo = () => json("POST", "redo");
export const reviewed = (rid, span) => json("POST", `recordings/${rid}/reviewed`, { body: span });
export const exportFolder = (wanted) => json("POST", "export", { body: wanted });
export const exportZip = (query) => call("GET", "export", { query });
export const soundAddress = (rid) => address(`recordings/${rid}/audio`);

/** A picture of a stretch and band, as a blob. */
export const tile = async (rid, query, signal) =>
  (await call("GET", `recordings/${rid}/tile`, { query, signal })).blob();

/** Sound of a stretch as the bytes of a WAV file. */
export const clip = async (rid, query, signal) =>
  (await call("GET", `recordings/${rid}/clip`, { query, signal })).arrayBuffer();
