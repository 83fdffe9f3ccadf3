"""The review page in a real browser: look, listen, draw, decide, export."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from browser_reviewer import LAPTOP, LENGTH_S, RATE, TABLET, WIDE, Reviewer, Server, make_results, reviewing

from mast.annotations import read_annotations


@pytest.fixture
def ana(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Reviewer]:
    with reviewing(browser, Server(make_results(tmp_path_factory.mktemp("browser")))) as reviewer:
        yield reviewer


OVERFULL = """
[...document.querySelectorAll("header *, .bar *, .tabs *, .decide *, .filters *")].filter((node) => {
  const style = getComputedStyle(node);
  const shown = node.offsetParent !== null && style.position !== "absolute";
  return shown && node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0
    && style.textOverflow !== "ellipsis" && !node.matches("select, input, option");
}).map((node) => node.id || node.className || node.tagName)
"""
OVERLAPPING = """
[...document.querySelectorAll("header, .bar, .group, .decide, .tabs")].flatMap((row) => {
  const frames = [...row.children].filter((n) => n.offsetParent !== null && n.getBoundingClientRect().width > 0);
  return frames.slice(1).filter((node, i) => {
    const [a, b] = [frames[i].getBoundingClientRect(), node.getBoundingClientRect()];
    return a.right > b.left + 0.5 && b.right > a.left + 0.5 && a.bottom > b.top + 0.5 && b.bottom > a.top + 0.5;
  }).map((node) => node.id || node.className || node.textContent);
})
"""
NAMELESS = """
[...document.querySelectorAll("button, select, input, canvas, [role=listbox], [role=tabpanel]")].filter((node) => {
  const named = ["aria-label", "aria-labelledby", "title", "aria-hidden"].some((name) => node.getAttribute(name));
  return !(named || node.textContent.trim() || (node.labels && node.labels.length));
}).map((node) => node.outerHTML.slice(0, 80))
"""


@pytest.mark.parametrize(
    ("viewport", "scheme", "across", "down"),
    [(LAPTOP, "light", 0.5, 0.55), (WIDE, "dark", 0.5, 0.55), (TABLET, "light", 0.9, 0.3)],
    ids=["laptop", "wide", "tablet"],
)
def test_page_fits_its_window(
    ana: Reviewer, viewport: dict[str, int], scheme: str, across: float, down: float
) -> None:
    ana.page.set_viewport_size(viewport)
    ana.page.emulate_media(color_scheme=scheme)
    ana.select(ana.server.events()[0])
    for tab in ("#tab-recordings", "#tab-activity", "#tab-progress", "#tab-queue", "#tab-event"):
        ana.page.click(tab)
        ana.page.wait_for_timeout(150)
        width, height = ana.page.evaluate("[document.body.scrollWidth, document.body.scrollHeight]")
        assert (width, height) == (viewport["width"], viewport["height"]), tab
        assert ana.page.evaluate(OVERFULL) == [], tab
        assert ana.page.evaluate(OVERLAPPING) == [], tab
    plot = ana.evaluate("r.spectrogram.plot")
    assert plot["width"] > across * viewport["width"]
    assert plot["height"] > down * viewport["height"]
    ground = ana.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(17, 19, 24)") == (scheme == "dark")
    assert ana.hosts == {f"127.0.0.1:{ana.server.port}"}  # nobody else is asked for anything
    ana.page.set_viewport_size(LAPTOP)


def test_every_control_has_a_name(ana: Reviewer) -> None:
    nameless = ana.page.evaluate(NAMELESS)
    assert nameless == []


def test_spectrogram_is_drawn_and_tiles_lie_on_the_grid(ana: Reviewer) -> None:
    colours = ana.page.evaluate(
        """() => { const c = document.querySelector("#spectrogram"); const g = c.getContext("2d");
        const d = g.getImageData(60, 20, c.width - 90, c.height - 80).data; const seen = new Set();
        for (let i = 0; i < d.length; i += 4) seen.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]);
        return seen.size; }"""
    )
    assert colours > 50
    x, y = ana.place(5.0, 4_000)
    ana.page.mouse.move(x, y)
    ana.page.keyboard.down("Control")
    for _ in range(4):
        ana.page.mouse.wheel(0, -300)
    ana.page.keyboard.up("Control")
    ana.settle()
    view = ana.evaluate("r.spectrogram.viewport.goal")
    assert view["end_s"] - view["start_s"] < 1
    assert view["start_s"] < 5.0 < view["end_s"]  # the moment under the pointer stays there
    ana.page.keyboard.down("Shift")
    ana.page.mouse.wheel(0, -300)
    ana.page.keyboard.up("Shift")
    ana.settle()
    view = ana.evaluate("r.spectrogram.viewport.goal")
    assert view["high_hz"] - view["low_hz"] < RATE / 2 / 2
    assert view["low_hz"] < 4_000 < view["high_hz"]
    tiles = [
        parse_qs(urlsplit(url).query) for url in ana.requests if "colours=grey" in url and "height=512" in url
    ]
    assert len(tiles) >= 6
    for tile in tiles:
        start, end = float(tile["start_s"][0]), float(tile["end_s"][0])
        span = 2 ** math.ceil(math.log2(end - start) - 1e-9) if end < LENGTH_S else None
        if span is not None:
            assert -3 <= math.log2(span) <= 9
            assert end - start == span
            assert start % span == 0


_REMEMBER_PLAYHEAD = """(() => {
  let now = null;
  globalThis.furthest_s = -1;
  const remember = (s) => {
    now = s;
    if (s !== null) globalThis.furthest_s = Math.max(globalThis.furthest_s, s);
  };
  Object.defineProperty(r.spectrogram, "playhead_s", { get: () => now, set: remember });
})()"""


def test_box_is_heard_in_its_band_and_slowed_down(ana: Reviewer) -> None:
    event = ana.server.events()[1]
    ana.select(event)
    ana.press("s", "s")  # slowed down: a busy machine, too, draws the playhead while it moves
    assert ana.page.input_value("#speed") == "0.25"
    ana.evaluate(_REMEMBER_PLAYHEAD)
    ana.page.keyboard.press("Space")
    ana.wait_until("r.player.peak > 0.02 && globalThis.furthest_s > argument", event["start_s"])
    ana.wait_until("!r.player.playing && r.spectrogram.playhead_s === null")
    clip = parse_qs(urlsplit([url for url in ana.requests if "/clip?" in url][-1]).query)
    assert float(clip["low_hz"][0]) == event["low_hz"]
    assert float(clip["high_hz"][0]) == event["high_hz"]
    ana.page.keyboard.press("Shift+Space")
    ana.wait_until("r.player.peak > 0.02")
    clip = parse_qs(urlsplit([url for url in ana.requests if "/clip?" in url][-1]).query)
    assert clip["speed"] == ["0.25"]
    assert "low_hz" not in clip
    ana.page.keyboard.press("Space")
    ana.wait_until("!r.player.playing")


def test_draw_undo_redo_relabel_export(ana: Reviewer, tmp_path: Path) -> None:
    server = ana.server
    ana.select(server.events()[0])
    before = {event["id"] for event in server.events()}
    ana.page.keyboard.press("d")
    assert ana.page.get_attribute("#draw", "aria-pressed") == "true"
    ana.drag((2.2, 3_000), (3.4, 5_200))
    (drawn,) = [event for event in server.events() if event["id"] not in before]
    assert ana.selected == drawn["id"]
    assert [drawn["start_s"], drawn["end_s"]] == pytest.approx([2.2, 3.4], abs=0.05)
    assert [drawn["low_hz"], drawn["high_hz"]] == pytest.approx([3_000, 5_200], abs=40)
    assert (drawn["source"], drawn["status"], drawn["reviewer"]) == ("expert", "accepted", "Ana")
    ana.press("z")
    assert drawn["id"] not in {event["id"] for event in server.events()}
    assert (
        ana.evaluate(
            "[...r.state.events.values()].filter((e) => e.id === argument && e.status !== 'deleted').length",
            drawn["id"],
        )
        == 0
    )
    ana.press("Shift+Z")
    assert drawn["id"] in {event["id"] for event in server.events()}
    ana.select(server.event(drawn["id"]))
    ana.page.keyboard.press("l")
    ana.page.keyboard.type("Parus major")
    ana.page.keyboard.press("Enter")
    ana.wait_until("r.outbox.waiting() === 0")
    assert server.event(drawn["id"])["label"] == "Parus major"
    ana.press("m")  # the window was listened to
    ana.page.click("#export")
    ana.page.select_option("#export-format", "raven")
    with ana.page.expect_download() as download:
        ana.page.click("#export-download")
    download.value.save_as(tmp_path / "tables.zip")
    with zipfile.ZipFile(tmp_path / "tables.zip") as archive:
        archive.extractall(tmp_path / "tables")
    read = read_annotations(tmp_path / "tables", "raven")
    found = read.events[read.events["label"] == "Parus major"]
    assert len(found) == 1
    row = found.iloc[0]
    assert row["recording"].endswith(drawn["recording"])
    assert [row["start_s"], row["end_s"]] == pytest.approx([drawn["start_s"], drawn["end_s"]], abs=1e-3)
    assert [row["low_hz"], row["high_hz"]] == pytest.approx([drawn["low_hz"], drawn["high_hz"]], abs=1)


def test_box_is_moved_resized_and_deleted(ana: Reviewer) -> None:
    server = ana.server
    event = next(e for e in server.events(2) if e["start_s"] == 4)
    ana.select(event)
    ana.drag((4.4, 1_800), (5.4, 2_600))  # by its middle
    moved = server.event(event["id"])
    assert [moved["start_s"], moved["end_s"]] == pytest.approx([5.0, 5.8], abs=0.05)
    assert [moved["low_hz"], moved["high_hz"]] == pytest.approx([2_400, 2_800], abs=40)
    ana.drag((moved["end_s"], moved["high_hz"]), (6.5, 3_500))  # by its corner
    larger = server.event(event["id"])
    assert [larger["end_s"], larger["high_hz"]] == pytest.approx([6.5, 3_500], abs=50)
    assert [larger["start_s"], larger["low_hz"]] == [moved["start_s"], moved["low_hz"]]
    ana.press("Delete")
    assert server.event(event["id"])["status"] == "deleted"
    ana.press("z", "z", "z")
    restored = server.event(event["id"])
    assert [restored[name] for name in ("start_s", "end_s", "low_hz", "high_hz", "status")] == [
        event[name] for name in ("start_s", "end_s", "low_hz", "high_hz", "status")
    ]


def test_keys_decide_and_the_queue_goes_on(ana: Reviewer) -> None:
    server = ana.server
    ana.page.select_option("[name=order]", "score")
    ana.wait_until("r.queue.items.length > 5 && r.queue.items[0].score >= r.queue.items[1].score")
    order = ana.evaluate("r.queue.items.map((e) => e.id)")
    scores = ana.evaluate("r.queue.items.map((e) => e.score)")
    assert scores == sorted(scores, reverse=True)
    ana.wait_until("r.state.selected === argument", order[0])
    ana.page.keyboard.press("j")
    ana.wait_until("r.state.selected === argument", order[1])
    ana.page.keyboard.press("k")
    ana.wait_until("r.state.selected === argument", order[0])
    ana.page.keyboard.press("a")
    ana.wait_until("r.state.selected === argument", order[1])
    ana.page.keyboard.press("r")
    ana.wait_until("r.state.selected === argument", order[2])
    ana.wait_until("r.outbox.waiting() === 0")
    assert server.event(order[0])["status"] == "accepted"
    assert server.event(order[1])["status"] == "rejected"
    assert ana.page.inner_text("#saved") == "✓ saved"
    ana.page.keyboard.press("k")
    ana.wait_until("r.state.selected === argument", order[1])
    ana.page.click("#tab-progress")
    ana.page.wait_for_selector("#panel-progress h2")
    assert "Ana (you)" in ana.page.inner_text("#panel-progress")


def test_keys_do_nothing_while_typing(ana: Reviewer) -> None:
    ana.select(ana.server.events(3)[0])
    before = ana.server.get("progress")
    ana.page.focus("#label-field")
    ana.page.keyboard.type("arzd jk")
    ana.page.keyboard.press("Escape")
    ana.page.click("#tab-recordings")
    ana.page.focus("[name=search]")
    ana.page.keyboard.type("ar")
    ana.page.wait_for_timeout(300)
    after = ana.server.get("progress")
    assert (after["accepted"], after["rejected"]) == (before["accepted"], before["rejected"])
    assert ana.evaluate("r.state.mode") == "select"
    ana.page.keyboard.press("Tab")
    ana.page.click("#help")
    ana.page.keyboard.press("r")  # nor behind a dialog
    ana.page.keyboard.press("Escape")
    assert ana.server.get("progress")["rejected"] == before["rejected"]


def test_filters_search_and_recordings(ana: Reviewer) -> None:
    ana.page.click("#tab-recordings")
    ana.page.wait_for_selector(".recording-row >> nth=2")
    ana.page.fill("[name=search]", "0601_060")
    ana.page.wait_for_function(
        "() => document.querySelector('#list-count').textContent === 'No matching recordings'"
    )
    ana.page.fill("[name=search]", "_06")
    ana.page.wait_for_function("() => document.querySelectorAll('.recording-row').length === 1")
    ana.page.click(".recording-row")
    ana.wait_until("r.state.recording.name === 'N1_20240501_060000.wav'")
    ana.page.click("#clear-filters")
    ana.page.select_option("[name=site]", "N2")
    ana.page.wait_for_function("() => document.querySelector('#list-count').textContent === '1 recording'")
    ana.page.click("#tab-queue")
    ana.page.click("#reload-list")
    ana.wait_until("r.queue.items.length > 0 && r.queue.items.every((e) => e.site === 'N2')")
    ana.page.select_option("[name=site]", "")
    ana.page.locator("[name=min_score]").fill("0.75")
    ana.wait_until("r.queue.items.length > 0 && r.queue.items.every((e) => e.score >= 0.75)")


def test_look_alikes_lead_to_other_recordings(ana: Reviewer) -> None:
    ana.select(ana.server.events()[2])
    ana.page.wait_for_selector(".similar .card")
    other = ana.server.get(f"events/{ana.selected}/similar?k=12")["events"][0]
    ana.page.click(".similar .card >> nth=0")
    ana.wait_until("r.state.selected === argument", other["id"])
    assert ana.evaluate("r.state.recording.id") == other["recording_id"]


def test_heard_spans_and_activity(ana: Reviewer) -> None:
    ana.select(ana.server.events(3)[1])
    ana.page.click("#listened-all")
    ana.wait_until("r.outbox.waiting() === 0 && r.state.recording.reviewed_spans.length === 1")
    assert ana.server.get("recordings/3")["reviewed_spans"] == [[0, LENGTH_S]]
    assert "all heard" in ana.page.inner_text("#recording-facts")
    ana.page.wait_for_selector(".toast >> text=where it has no box, nothing calls")  # what heard means
    ana.press("z")
    ana.wait_until("r.state.recording.reviewed_spans.length === 0")
    ana.press("m")  # the window alone
    ana.wait_until("r.state.recording.reviewed_spans.length === 1")
    start_s, end_s = ana.server.get("recordings/3")["reviewed_spans"][0]
    assert 0 < end_s - start_s < LENGTH_S
    facts = ana.page.inner_text("#recording-facts")
    assert " heard" in facts
    assert "all heard" not in facts
    for button in ("#listened-window", "#listened-all"):
        assert "outside its boxes nothing calls" in ana.page.get_attribute(button, "title")
    ana.page.click("#export")
    assert "There, no box means that nothing calls" in ana.page.inner_text("#export-dialog")
    ana.page.keyboard.press("Escape")
    ana.page.click("#tab-activity")
    ana.page.wait_for_selector("#panel-activity .cell:not(.none)")
    assert ana.page.locator("#panel-activity .site-row").count() == 2


def test_small_functions(ana: Reviewer) -> None:
    """Numbers as text, ticks, geometry and sound headers, in the browser that runs them."""
    found = ana.page.evaluate(
        """async () => {
        const f = await import("/static/format.js"), a = await import("/static/axes.js");
        const b = await import("/static/boxes.js"), p = await import("/static/player.js");
        const v = new (await import("/static/viewport.js")).Viewport();
        v.open(7200, 24000);
        v.go({start_s: -5, end_s: 9000}); const whole = {...v.goal};
        v.go({start_s: 7199.99, end_s: 7200.5, low_hz: 30000, high_hz: 31000}); const end = {...v.goal};
        return {
          elapsed: [f.elapsed(83.44), f.elapsed(3725.6, 0), f.elapsed(59.96), f.elapsed(0, 2)],
          span: [f.span(2.3712, 2.3781), f.span(62, 62.5)],
          stretch: [f.stretch(0.5), f.stretch(12), f.stretch(600), f.stretch(43200)],
          clock: f.clockText(f.wallClock("2024-05-01T23:59:58", 3)), none: f.wallClock(""),
          ticks: a.ticks(0.95, 1.35, 0.1).map((x) => +x.toFixed(6)), step: a.timeStep(15, 800),
          resized: b.resized({start_s: 1, end_s: 2, low_hz: 10, high_hz: 20}, {x: 1, y: 0}, 0.5, 5),
          wav: p.readWav(new ArrayBuffer(8)), whole, end,
        }; }"""
    )
    assert found["elapsed"] == ["1:23.4", "1:02:06", "1:00.0", "0:00.00"]
    assert found["span"] == ["0:02.371 – 0:02.378 (6.9 ms)", "1:02.00 – 1:02.50 (0.50 s)"]
    assert found["stretch"] == ["0.50 s", "12 s", "10 min", "12 h"]
    assert found["clock"] == "00:00:01"
    assert found["none"] is None
    assert found["ticks"] == [1.0, 1.1, 1.2, 1.3]
    assert found["step"] == 2
    assert found["resized"] == {"start_s": 0.5, "end_s": 1, "low_hz": 5, "high_hz": 10}
    assert found["wav"] is None
    assert found["whole"]["end_s"] - found["whole"]["start_s"] == 3_600  # the overview shows the rest
    assert found["end"]["end_s"] == 7_200
    assert found["end"]["high_hz"] == 24_000
