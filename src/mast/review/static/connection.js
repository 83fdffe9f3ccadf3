/**
 * Whether decisions can be saved. When the server stops, or its disk is full, a banner says so; listeners are told
 * when it is back, or when it is time to try again.
 */

import * as api from "./api.js";
import { banner } from "./notices.js";
import { tell } from "./state.js";

let away = false; // nobody answers, or nothing can be saved
let silence = ""; // why there is no answer
let trouble = ""; // what the server says if it answers but cannot save; empty if it does not answer
let timer = 0;
let wait_ms = 1000;
let waiting = () => 0; // how many decisions wait to be saved

export const isAway = () => away;

/** @param {() => number} count of decisions that wait */
export const countWaiting = (count) => (waiting = count);

/** To be called whenever the server did not answer a request, with the error. */
export function lost(error) {
  silence = error.message;
  stop("");
}

/** To be called whenever the server could not save something, with its sentence. */
export const unsaved = (sentence) => stop(sentence);

/** To be called whenever something was saved. */
export function saved() {
  if (!trouble) return;
  trouble = "";
  wait_ms = 1000;
  banner(null);
}

function stop(sentence) {
  if (!away) {
    away = true;
    wait_ms = trouble ? Math.min(8000, wait_ms * 1.5) : 1000;
    timer = setTimeout(ask, wait_ms);
  }
  trouble = sentence;
  show();
}

/** Bring the banner up to date. */
export function show() {
  if (!away) return;
  const n = waiting();
  const which = n === 1 ? "One decision is" : `${n} decisions are`;
  const kept = n ? `${which} kept here and saved as soon as possible: leave this page open.` : "Trying again.";
  banner(`${trouble ? `Not saved: ${trouble}.` : silence} ${kept}`, {
    name: "Try now",
    action: ask,
  });
}

async function ask() {
  clearTimeout(timer);
  try {
    await api.progress();
  } catch (error) {
    if (error instanceof api.Away) {
      silence = error.message;
      show();
      wait_ms = Math.min(8000, wait_ms * 1.5);
      timer = setTimeout(ask, wait_ms);
      return;
    }
  }
  away = false;
  if (trouble) {
    tell("retry"); // the banner stays until something is saved
    return;
  }
  banner(null);
  tell("back");
}

/** Say what went wrong with reading: a missing server becomes the banner, a refusal is handed on. */
export function readFailed(error, refused) {
  if (error.name === "AbortError") return;
  if (error instanceof api.Away) lost(error);
  else refused(error);
}
