/** Whether the server is there. When it goes, a banner says so; when it is back, those who wait are told. */

import * as api from "./api.js";
import { banner } from "./notices.js";
import { tell } from "./state.js";

let away = false;
let timer = 0;
let wait_ms = 1000;
let waiting = () => 0; // how many decisions wait to be saved

export const isAway = () => away;

/** @param {() => number} count of decisions that wait */
export const countWaiting = (count) => (waiting = count);

/** To be called whenever a request found nobody. */
export function lost() {
  if (!away) {
    away = true;
    wait_ms = 1000;
    timer = setTimeout(ask, wait_ms);
  }
  show();
}

/** Bring the banner up to date. */
export function show() {
  if (!away) return;
  const n = waiting();
  const which = n === 1 ? "One decision is" : `${n} decisions are`;
  const kept = n ? `${which} kept here and saved as soon as it is back: leave this page open.` : "Trying again.";
  banner(`The server does not answer. ${kept}`, { name: "Try now", action: ask });
}

async function ask() {
  clearTimeout(timer);
  try {
    await api.progress();
  } catch (error) {
    if (error instanceof api.Away) {
      wait_ms = Math.min(8000, wait_ms * 1.5);
      timer = setTimeout(ask, wait_ms);
      return;
    }
  }
  away = false;
  banner(null);
  tell("back");
}

/** Say what went wrong with reading: a missing server becomes the banner, a refusal is handed on. */
export function readFailed(error, refused) {
  if (error.name === "AbortError") return;
  if (error instanceof api.Away) lost();
  else refused(error);
}
