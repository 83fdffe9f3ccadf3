/** The server of a review, as functions; what can go wrong is in request.js. */

import { address, call, json as ask } from "./request.js";
import { state } from "./state.js";

export { Away, Refused, Unsaved } from "./request.js";

/** A decision is sent with the name of its reviewer. */
const json = (method, path, options = {}) =>
  ask(method, path, method === "GET" ? options : { ...options, headers: { "X-Reviewer": encodeURIComponent(state.reviewer) } });

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
export const groups = () => json("GET", "groups");
export const findGroups = () => json("POST", "groups");
export const decideGroup = ({ group, site, day, hour, min_score }, decision) =>
  json("POST", `groups/${group}`, { query: { site, day, hour, min_score }, body: decision });
export const learner = () => json("GET", "learner");
export const learnerPlan = (precision) => json("GET", "learner/plan", { query: { precision } });
export const learnerApply = (precision) => json("POST", "learner/apply", { body: { precision } });
export const learnerUndo = () => json("POST", "learner/undo");
export const summary = () => json("GET", "summary");
export const makeSummary = () => json("POST", "summary");
export const summaryAddress = () => address("summary/page");
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
