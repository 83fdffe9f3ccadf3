/** Puts the page together: choose a folder, see what is in it, find, follow what runs. */

import { byId, element } from "../static/dom.js";
import { kilohertz } from "../static/format.js";
import { banner, toast } from "../static/notices.js";
import { Away, Locked } from "../static/request.js";
import { Chooser, rememberFolder } from "./chooser.js";
import { showContents } from "./contents.js";
import { Results } from "./results.js";
import * as api from "./window_api.js";

const ASK_MS = 1000;
const NAMES = { birds: "Birds", frogs: "Frogs", fish: "Fish", bats: "Bats" };
const ORDER = ["birds", "frogs", "fish", "bats"];

const state = { folder: "", bands: [], work: null, contents: null };
const results = new Results(byId("results"), () => follow());
const chooser = new Chooser((path) => open(path));

/** Open a folder: of recordings, or of results. */
async function open(path) {
  let work;
  try {
    work = await api.work(path);
  } catch (error) {
    toast(error.message, { error: true });
    return;
  }
  state.folder = path;
  state.work = work;
  state.contents = null;
  rememberFolder(path);
  history.replaceState(null, "", `#folder=${encodeURIComponent(path)}`);
  byId("chosen").textContent = work.recordings;
  document.title = `${work.recordings.split(/[\\/]/).pop()} – mast`;
  byId("choose").hidden = true;
  byId("work").hidden = false;
  byId("change").hidden = false;
  byId("find").disabled = true;
  byId("goes-to").textContent = `Results go to ${work.root}`;
  byId("results").replaceChildren();
  results.cards.clear();
  showSought();
  showWork(work);
  showContents(work.recordings, (found) => {
    state.contents = found;
    showSought();
    byId("find").disabled = false;
    byId("find").focus({ preventScroll: true });
  }, () => state.folder === path);
}

function choose() {
  state.folder = "";
  history.replaceState(null, "", "#");
  byId("choose").hidden = false;
  byId("work").hidden = true;
  byId("change").hidden = true;
  byId("chosen").textContent = "";
  chooser.show(chooser.here || chooser.first);
}

/** What to look for; what suits the sample rates is preselected. */
function showSought() {
  const rates = state.contents ? state.contents.sample_rates.map(({ hz }) => hz) : [];
  const highest = Math.max(0, ...rates) / 2;
  const suited = highest >= 60_000 ? "bats" : highest && highest <= 4_000 ? "fish" : "birds";
  const options = ORDER.map((name) => {
    const { high_hz } = state.bands.find((band) => band.name === name);
    return { value: name, name: NAMES[name], text: `up to ${kilohertz(high_hz)} kHz` };
  });
  options.push({ value: "whole", name: "Whole band", text: highest ? `up to ${kilohertz(highest)} kHz` : "all there is" });
  const nodes = options.map(({ value, name, text }) => {
    const box = element("input", { type: "radio", name: "sought", value });
    box.checked = value === suited;
    return element("label", {}, box, element("b", {}, name), element("span", {}, text));
  });
  byId("sought").replaceChildren(...nodes);
}

function showWork(work) {
  results.show(work.results);
  const select = byId("model");
  const chosen = select.value;
  const models = [{ name: "the detector that comes with mast", folder: "" }, ...work.models];
  if (select.options.length !== models.length) {
    select.replaceChildren(...models.map(({ name, folder }) => element("option", { value: folder }, name)));
    select.value = chosen;
    if (select.selectedIndex < 0) select.selectedIndex = 0;
  }
  byId("model-row").hidden = models.length < 2;
  byId("sought").hidden = Boolean(select.value);
}

async function find(event) {
  event.preventDefault();
  const sought = byId("sought").querySelector("input:checked").value;
  byId("find").disabled = true;
  try {
    await api.find({ path: state.folder, sought, model: byId("model").value });
    await follow();
  } catch (error) {
    toast(error.message, { error: true });
  }
  byId("find").disabled = false;
}

/** Request the state of everything, and show it. */
async function follow() {
  const { folder } = state;
  if (!folder) return;
  try {
    const work = await api.work(folder);
    if (state.folder !== folder) return;
    banner(null);
    state.work = work;
    showWork(work);
  } catch (error) {
    const gone = "The server does not answer. Commands that it has started keep running; run mast app again to see them.";
    banner(error instanceof Away && !(error instanceof Locked) ? gone : error.message);
  }
}

async function begin() {
  byId("change").addEventListener("click", choose);
  byId("find-form").addEventListener("submit", find);
  byId("model").addEventListener("change", () => showWork(state.work));
  const { folder, places, bands, formats } = await api.start();
  state.bands = bands;
  results.formats = formats;
  chooser.first = places[0].path;
  chooser.fill(places);
  const named = new URLSearchParams(location.hash.slice(1)).get("folder") || folder;
  await chooser.show(chooser.first);
  if (named) await open(named);
  else byId("path").focus();
  setInterval(() => !document.hidden && follow(), ASK_MS);
}

begin().catch((error) => banner(error.message));

// for tests and for the curious
globalThis.mastWindow = { state, results };
