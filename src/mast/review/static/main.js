/** Puts the page together. */

import { Actions } from "./actions.js";
import { ActivityPanel } from "./activity_panel.js";
import * as api from "./api.js";
import { readFailed } from "./connection.js";
import { watchDialogs } from "./dialogs.js";
import { byId } from "./dom.js";
import { EventPanel } from "./event_panel.js";
import { watchFilters } from "./filters.js";
import { watchPointer } from "./gestures.js";
import { watchGroupDecision } from "./group_decision.js";
import { GroupsDialog } from "./groups_dialog.js";
import { watchKeys } from "./keys.js";
import { LearnerPanel } from "./learner_panel.js";
import { toast } from "./notices.js";
import * as outbox from "./outbox.js";
import { Overview } from "./overview.js";
import { Player } from "./player.js";
import { ProgressPanel } from "./progress_panel.js";
import { Queue } from "./queue.js";
import { Recordings } from "./recordings.js";
import { Spectrogram } from "./spectrogram.js";
import { on, recall, state, tell } from "./state.js";
import { SummaryPanel } from "./summary_panel.js";
import { watchTools } from "./tools.js";

const REFRESH_MS = 10_000;

recall();
const spectrogram = new Spectrogram(byId("spectrogram"), byId("stage"));
const overview = new Overview(byId("overview"), spectrogram);
const player = new Player({
  moved: (s) => {
    spectrogram.playhead_s = s;
    const { viewport } = spectrogram;
    if (s !== null && s > viewport.goal.end_s) viewport.moveTime(0.9 * viewport.span_s); // turn the page
    spectrogram.redraw();
    tell("playing");
  },
  stopped: () => tell("playing"),
  failed: (error) => readFailed(error, (refused) => toast(refused.message, { error: true })),
});
player.setVolume(state.volume_db);
const queue = new Queue(byId("left-body"), (event) => actions.goTo(event));
const recordings = new Recordings(byId("left-body"), (id) => actions.openRecording(id));
const actions = new Actions({ spectrogram, overview, player, queue, recordings });
const eventPanel = new EventPanel(actions);
const filters = watchFilters({ actions, queue, recordings });
const activity = new ActivityPanel((chosen) => filters.set(chosen));
const progress = new ProgressPanel(() => filters.set({ order: "random", status: "open" }, "queue"));
const learner = new LearnerPanel((chosen) => filters.set(chosen, "queue"));
const groups = new GroupsDialog((chosen) => filters.set(chosen, "queue"));
watchGroupDecision({ actions, queue });
const dialogs = watchDialogs();
watchTools({ actions, spectrogram, player, panels: { activity, progress, learner, summary: new SummaryPanel() } });
watchPointer(spectrogram, actions);
watchKeys({ actions, spectrogram, eventPanel, groups, help: dialogs.help });
spectrogram.tiles.refused = (error) => toast(error.message, { error: true });

/** The place named in the address, or the first event of the queue, or the first recording. */
async function begin() {
  state.session = await api.session();
  byId("title").textContent = state.session.title;
  byId("home").hidden = !state.session.home;
  byId("home").href = state.session.home;
  document.title = `${state.session.title} – mast review`;
  filters.fill();
  dialogs.fill();
  dialogs.askName();
  progress.load();
  learner.load();
  groups.load();
  const place = new URLSearchParams(location.hash.slice(1));
  state.list = state.session.events ? "queue" : "recordings";
  await filters.show();
  if (state.list === "queue" && !queue.items.length) {
    state.list = "recordings"; // everything is decided, or drawn by people in the first place
    await filters.show();
  }
  if (place.has("event")) {
    const event = await api.event(place.get("event")).catch(() => null);
    if (event) return actions.goTo(event);
  }
  if (place.has("recording")) return actions.openRecording(Number(place.get("recording")));
  if (state.list === "queue" && queue.items.length) return actions.goTo(queue.items[0]);
  if (!recordings.total) await recordings.fetchPage(0);
  const first = recordings.item(0);
  if (first) return actions.openRecording(first.id);
  byId("empty").hidden = false;
  byId("empty").textContent = "There are no recordings in this folder.";
  return undefined;
}

async function start() {
  try {
    await begin();
  } catch (error) {
    readFailed(error, (refused) => toast(refused.message, { error: true }));
  }
}

on("back", async () => {
  if (!state.session) return start();
  spectrogram.tiles.failed.clear();
  spectrogram.redraw();
  progress.load();
  return filters.show({ keep: true });
});
on("saved", () => queue.decided());
on("applied", () => {
  groups.load();
  actions.reread();
  progress.load();
  filters.show();
});
setInterval(() => {
  if (document.hidden) return;
  actions.refresh();
  if (!outbox.waiting()) progress.load();
}, REFRESH_MS);
start();

// for tests and for the curious
globalThis.mastReview = { state, spectrogram, overview, player, actions, queue, recordings, outbox };
