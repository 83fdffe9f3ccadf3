/** One request to the server. Every failure is one of two kinds: the server refused, or it did not answer. */

/** The server answered with an error; `message` is its sentence, `status` the number, `body` the rest. */
export class Refused extends Error {
  constructor(status, body) {
    super((body && body.error) || `The server answered with error ${status}.`);
    this.status = status;
    this.body = body || {};
  }
}

/** The server could not save it, though nothing was wrong with the request; `message` says why. */
export class Unsaved extends Refused {}

/** The server did not answer. */
export class Away extends Error {
  constructor(sentence = "The server does not answer.") {
    super(sentence);
  }
}

/** The server does not know this browser: it was restarted, with a new link. `message` says what to do. */
export class Locked extends Away {
  constructor(body) {
    const sentence = (body && body.error) || "this page is private";
    super(`${sentence[0].toUpperCase()}${sentence.slice(1)}.`);
  }
}

const AWAY = new Set([502, 503, 504]);
const LOCKED = 403;
const NO_SPACE = 507; // the disk is full, read-only or the like: the same may succeed later

/** The address of a request; `base` is the page that a path is relative to, this one by default. */
export function address(path, query, base = "") {
  const wanted = Object.entries(query || {}).filter(([, value]) => value !== undefined);
  const text = new URLSearchParams(wanted.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${base}api/${path}?${text}` : `${base}api/${path}`;
}

export async function call(method, path, { query, body, signal, base, headers = {} } = {}) {
  const sent = body === undefined ? headers : { ...headers, "Content-Type": "application/json" };
  const keepalive = method !== "GET"; // a decision is sent completely, even if the page is closed meanwhile
  const options = { method, headers: sent, signal, keepalive, body: body === undefined ? undefined : JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(address(path, query, base), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Away();
  }
  if (AWAY.has(answer.status)) throw new Away();
  if (!answer.ok) {
    const said = await answer.json().catch(() => null);
    if (answer.status === LOCKED) throw new Locked(said);
    throw new (answer.status === NO_SPACE ? Unsaved : Refused)(answer.status, said);
  }
  return answer;
}

/** The same, where the answer is JSON. */
export async function json(method, path, options) {
  const answer = await call(method, path, options);
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Away(); // cut off in the middle
  }
}
