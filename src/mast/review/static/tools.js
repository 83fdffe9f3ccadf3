/** Buttons, sliders and small texts around the spectrogram. */

import * as api from "./api.js";
import { byId, debounce, element } from "./dom.js";
import { clockText, dayText, elapsed, kilohertz, many, stretch, wallClock } from "./format.js";
import * as outbox from "./outbox.js";
import { lowestSought, on, remember, speedHeard, state, tell } from "./state.js";

const MIN_RANGE_DB = 20;
const MAX_RANGE_DB = 90;

/** @param {any} page */
export function watchTools({ actions, spectrogram, player, panels }) {
  const click = (id, action) => byId(id).addEventListener("click", action);
  const view = (move) => () => {
    move(spectrogram.viewport);
    spectrogram.redraw();
  };
  click("undo", () => actions.undo());
  click("redo", () => actions.redo());
  click("draw", () => actions.setMode(state.mode === "draw" ? "select" : "draw"));
  click("play-box", () => actions.playBox());
  click("play-window", () => actions.playWindow());
  click("time-in", view((v) => v.zoomTime(1.6)));
  click("time-out", view((v) => v.zoomTime(1 / 1.6)));
  click("hz-in", view((v) => v.zoomFrequency(1.5)));
  click("hz-out", view((v) => v.zoomFrequency(1 / 1.5)));
  click("fit", view((v) => v.fit()));
  click("listened-window", () => actions.listened(false));
  click("listened-all", () => actions.listened(true));
  // a button clicked with the mouse must not take the Space key from playing
  addEventListener("click", (event) => event.detail > 0 && event.target.closest("button")?.blur());

  watchPicture(spectrogram);
  watchTabs(panels);

  byId("speed").addEventListener("change", (event) => actions.setSpeed(Number(event.target.value)));
  byId("volume").value = state.volume_db;
  byId("volume").addEventListener("input", (event) => {
    state.volume_db = Number(event.target.value);
    player.setVolume(state.volume_db);
    remember();
  });
  byId("boxes-shown").addEventListener("change", (event) => {
    state.boxesShown = event.target.value;
    tell("boxes");
  });

  const reflect = () => {
    byId("speed").value = String(state.speed);
    byId("boxes-shown").value = state.boxesShown;
    byId("draw").setAttribute("aria-pressed", String(state.mode === "draw"));
    byId("mode-hint").hidden = state.mode !== "draw";
    spectrogram.canvas.style.cursor = state.mode === "draw" ? "crosshair" : "grab";
  };
  for (const topic of ["speed", "boxes", "mode"]) on(topic, reflect);
  reflect();

  const namePlaying = () => {
    const slowed = speedHeard(lowestSought()) !== state.speed ? ", slowed ⅒×" : "";
    byId("play-box-name").textContent = `Box${slowed}`;
    byId("play-window-name").textContent = `Window${slowed}`;
  };
  for (const topic of ["speed", "selection", "recording", "events"]) on(topic, namePlaying);

  const showLoading = debounce(() => (byId("loading").hidden = !spectrogram.tiles.busy), 150);
  on("painted", showLoading);
  for (const topic of ["recording", "spans"]) on(topic, describeRecording);
  on("playing", () => {
    const sign = player.playing ? "■" : "▶";
    for (const id of ["play-box", "play-window"]) byId(id).firstElementChild.textContent = sign;
  });
  watchSaving();
}

/** Gain, contrast, colours, frequency range. */
function watchPicture(spectrogram) {
  const toRange = (contrast) => MAX_RANGE_DB - (contrast / 100) * (MAX_RANGE_DB - MIN_RANGE_DB);
  const toContrast = (range_db) => Math.round((100 * (MAX_RANGE_DB - range_db)) / (MAX_RANGE_DB - MIN_RANGE_DB));
  const sliders = () => {
    const { gain_db, range_db } = spectrogram.look;
    byId("gain").value = String(Math.round(gain_db));
    byId("contrast").value = String(toContrast(range_db));
    byId("colours").value = state.display.colours;
    byId("auto").setAttribute("aria-pressed", String(state.display.gain_db === null));
  };
  const take = () => {
    state.display = {
      gain_db: Number(byId("gain").value),
      range_db: toRange(Number(byId("contrast").value)),
      colours: byId("colours").value,
    };
    remember();
    tell("display");
    sliders();
  };
  byId("gain").addEventListener("input", take);
  byId("contrast").addEventListener("input", take);
  byId("colours").addEventListener("change", (event) => {
    state.display.colours = event.target.value;
    remember();
    tell("display");
  });
  byId("auto").addEventListener("click", () => {
    state.display.gain_db = null;
    remember();
    spectrogram.chooseLook();
  });
  for (const topic of ["look", "recording"]) on(topic, sliders);

  const fields = [byId("low-khz"), byId("high-khz")];
  const range = () => {
    const { low_hz, high_hz } = spectrogram.viewport.goal;
    if (!fields.includes(document.activeElement)) [
      low_hz,
      high_hz,
    ].forEach((hz, i) => (fields[i].value = kilohertz(hz)));
  };
  on("painted", range);
  for (const field of fields) {
    field.addEventListener("change", () => {
      const [low, high] = fields.map((each) => 1000 * Number(each.value));
      if (!(high > low)) return range();
      spectrogram.viewport.go({ low_hz: low, high_hz: high });
      return spectrogram.redraw();
    });
    field.addEventListener("keydown", (event) => event.key === "Enter" && field.blur());
  }
}

function watchTabs(panels) {
  const names = ["event", "activity", "progress", "learner", "summary"];
  const open = (chosen) => {
    for (const name of names) {
      byId(`tab-${name}`).setAttribute("aria-selected", String(name === chosen));
      byId(`panel-${name}`).hidden = name !== chosen;
    }
    panels[chosen]?.load();
  };
  for (const name of names) byId(`tab-${name}`).addEventListener("click", () => open(name));
}

function describeRecording() {
  const { id, name, site, datetime, duration_s, sample_rate, reviewed_spans, silent_spans } = state.recording;
  const clock = wallClock(datetime);
  const heard_s = (reviewed_spans || []).reduce((sum, [a, b]) => sum + b - a, 0);
  const facts = [
    site,
    clock && `${dayText(clock)} ${clockText(clock)}`,
    stretch(duration_s),
    `${kilohertz(sample_rate)} kHz`,
    heard_s >= duration_s - 0.1 ? "all heard" : heard_s ? `${stretch(heard_s)} heard` : "",
  ];
  byId("recording-name").textContent = name;
  byId("recording-name").title = name;
  const sound = element(
    "a",
    { href: api.soundAddress(id), target: "_blank", rel: "noopener", title: "The whole recording as sound alone" },
    "listen to all",
  );
  byId("recording-facts").replaceChildren(facts.filter(Boolean).join(" · "), " · ", sound);
  const spoken = (silent_spans || []).length;
  byId("silence-note").hidden = !spoken;
  byId("silence-note").textContent = spoken
    ? `Speech was found in ${many(spoken, "stretch", "stretches")} of this recording, marked grey; it is silenced.`
    : "";
}

/** "saved", or what is still being sent. */
function watchSaving() {
  const node = byId("saved");
  let timer = 0;
  on("outbox", () => {
    if (outbox.waiting()) {
      node.textContent = state.reviewer ? "saving…" : "not saved: no name";
      node.className = "saved busy";
    } else if (node.classList.contains("busy")) {
      node.textContent = ""; // refused: a message says so
      node.className = "saved";
    }
  });
  on("saved", () => {
    clearTimeout(timer);
    node.textContent = "✓ saved";
    node.className = "saved done";
    timer = setTimeout(() => node.classList.remove("done"), 2500); // still there, no longer green
  });
  on("pointer", (at) => {
    const text = at ? `${elapsed(at.s, 2)}, ${kilohertz(at.hz)} kHz` : "";
    byId("place").textContent = text;
  });
}

