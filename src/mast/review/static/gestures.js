/** What the pointer does on the spectrogram: select, draw, move, resize, pan, zoom. */

import { boxAt, handleAt, ordered, rectangleOf, resized } from "./boxes.js";
import { isShown, selectedEvent, state, tell } from "./state.js";

const CLICK = 4; // pixels a click may wander
const SMALLEST = 5; // pixels of a drawn box

/**
 * @param {import("./spectrogram.js").Spectrogram} spectrogram
 * @param {{create: Function, reshape: Function, select: Function, setMode: Function}} actions
 */
export function watchPointer(spectrogram, actions) {
  const { canvas, viewport } = spectrogram;
  let drag = null;

  const spot = (event) => {
    const frame = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    const plot = spectrogram.plot;
    const s = clamp(spectrogram.secondsAt(x), 0, viewport.duration_s);
    const hz = clamp(spectrogram.hertzAt(y), 0, viewport.top_hz);
    const area = x < plot.left ? "frequency" : y > plot.top + plot.height ? "time" : "plot";
    return { x, y, s, hz, area };
  };
  const shown = () => [...state.events.values()].filter((e) => isShown(e));
  const under = (at) => boxAt(shown(), spectrogram.view, spectrogram.plot, at.x, at.y);
  const handleUnder = (at) => {
    const event = selectedEvent();
    return event && isShown(event) ? handleAt(
      rectangleOf(event, spectrogram.view, spectrogram.plot),
      at.x,
      at.y,
    ) : null;
  };

  /** What a drag that begins here would do. */
  const intent = (at, draws) => {
    if (at.area !== "plot") return { kind: at.area };
    const handle = handleUnder(at);
    if (handle) return { kind: "resize", handle };
    if (draws) return { kind: "draw" };
    const hit = under(at);
    if (hit && hit.id === state.selected) return { kind: "move", hit };
    return { kind: "pan", hit };
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (!state.recording || event.button > 1) return;
    const at = spot(event);
    const draws = event.button === 0 && (state.mode === "draw" || event.altKey);
    const plan = event.button === 1 ? { kind: "pan" } : intent(at, draws);
    drag = { ...plan, at, last: at, box: boxOf(selectedEvent()), id: state.selected, moved: false };
    canvas.setPointerCapture(event.pointerId);
    document.activeElement?.blur(); // a click outside a field leaves it, and keys work again
  });

  canvas.addEventListener("mousedown", (event) => event.preventDefault()); // the focus ring is only for the Tab key

  canvas.addEventListener("pointermove", (event) => {
    if (!state.recording) return;
    const at = spot(event);
    if (!drag) return hover(at, event.altKey);
    if (Math.hypot(at.x - drag.at.x, at.y - drag.at.y) > CLICK) drag.moved = true;
    if (drag.moved) pull(at);
    drag.last = at;
  });

  const pull = (at) => {
    const plot = spectrogram.plot;
    const by_s = ((at.x - drag.last.x) / plot.width) * viewport.span_s;
    const by_hz = ((at.y - drag.last.y) / plot.height) * viewport.band_hz;
    if (drag.kind === "pan" || drag.kind === "time") viewport.moveTime(-by_s, { glide: false });
    if (drag.kind === "pan" || drag.kind === "frequency") viewport.moveFrequency(by_hz, { glide: false });
    if (drag.kind === "draw") {
      const box = ordered({ start_s: drag.at.s, end_s: at.s, low_hz: drag.at.hz, high_hz: at.hz });
      spectrogram.draft = { id: null, box };
    }
    if (drag.kind === "resize") spectrogram.draft = { id: drag.id, box: resized(drag.box, drag.handle, at.s, at.hz) };
    if (drag.kind === "move") spectrogram.draft = { id: drag.id, box: shifted(drag, at) };
    tell("view", viewport);
    spectrogram.redraw();
  };

  const shifted = ({ box, at: from }, at) => {
    const s = clamp(at.s - from.s, -box.start_s, viewport.duration_s - box.end_s);
    const hz = clamp(at.hz - from.hz, -box.low_hz, viewport.top_hz - box.high_hz);
    return { start_s: box.start_s + s, end_s: box.end_s + s, low_hz: box.low_hz + hz, high_hz: box.high_hz + hz };
  };

  canvas.addEventListener("pointerup", () => {
    const done = drag;
    drag = null;
    if (!done) return;
    const draft = spectrogram.draft;
    spectrogram.draft = null;
    if (!done.moved) {
      if (done.kind === "pan" || done.kind === "move" || done.kind === "draw") {
        const hit = under(done.at);
        actions.select(hit ? hit.id : null, { reveal: false });
      }
    } else if (draft && draft.id) actions.reshape(draft.id, draft.box);
    else if (draft) {
      const r = rectangleOf(draft.box, spectrogram.view, spectrogram.plot);
      if (r.width >= SMALLEST && r.height >= SMALLEST) actions.create(draft.box);
    }
    spectrogram.redraw();
  });

  const drop = () => {
    drag = null;
    spectrogram.draft = null;
    spectrogram.redraw();
  };
  canvas.addEventListener("pointercancel", drop);
  addEventListener("keydown", (event) => event.key === "Escape" && drag && drop());

  canvas.addEventListener("pointerleave", () => {
    spectrogram.hovered = null;
    tell("pointer", null);
    spectrogram.redraw();
  });

  const hover = (at, alt) => {
    const plan = intent(at, state.mode === "draw" || alt);
    const hit = at.area === "plot" ? under(at) : null;
    const cursors = { frequency: "ns-resize", time: "ew-resize", draw: "crosshair", move: "move" };
    canvas.style.cursor = plan.handle ? plan.handle.cursor : cursors[plan.kind] || (hit ? "pointer" : "grab");
    const name = hit ? hit.id : null;
    if (name !== spectrogram.hovered) {
      spectrogram.hovered = name;
      spectrogram.redraw();
    }
    tell("pointer", at.area === "plot" ? at : null);
  };

  canvas.addEventListener("dblclick", (event) => {
    if (!state.recording || state.mode === "draw") return;
    const hit = under(spot(event));
    if (hit) viewport.closeUp(hit);
    else viewport.zoomTime(2, spot(event).s);
    tell("view", viewport);
    spectrogram.redraw();
  });

  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!state.recording) return;
      event.preventDefault();
      const at = spot(event);
      const unit = event.deltaMode === 1 ? 33 : event.deltaMode === 2 ? 400 : 1;
      // a mouse whose wheel is turned with Shift held reports it as sideways on some systems
      const turn = unit * (event.shiftKey ? event.deltaY || event.deltaX : event.deltaY);
      const factor = Math.exp(-clamp(turn, -300, 300) / 300);
      if (event.shiftKey || at.area === "frequency") viewport.zoomFrequency(factor, at.hz);
      else if (event.ctrlKey || event.metaKey || at.area === "time") viewport.zoomTime(
        event.ctrlKey ? factor ** 2 : factor,
        at.s,
      );
      else if (event.altKey) viewport.moveFrequency((-turn / 800) * viewport.band_hz);
      else {
        const along = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? unit * event.deltaX : turn;
        viewport.moveTime((along / 800) * viewport.span_s);
      }
      tell("view", viewport);
      spectrogram.redraw();
    },
    { passive: false },
  );
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const boxOf = (event) =>
  event && { start_s: event.start_s, end_s: event.end_s, low_hz: event.low_hz, high_hz: event.high_hz };
