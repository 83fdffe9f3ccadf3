"""A reviewer at a real browser, and the server in a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
from review_starter import start_review

from mast.events import as_events
from mast.inference import Searched, Source
from mast.inference.results import ResultsFolder

CHROMIUM = Path("/usr/bin/chromium")
CHROMIUM_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
LAPTOP, WIDE = {"width": 1280, "height": 720}, {"width": 2200, "height": 1200}
TABLET = {"width": 820, "height": 1180}  # held upright
RATE = 16_000
LENGTH_S = 20.0
WAIT_MS = 90_000  # patience on a busy machine; nothing waits that long on an idle one


def make_results(root: Path) -> Path:
    """Three recordings at two sites, six tones each, found by a detector with scores and embeddings."""
    audio, out = root / "audio", root / "results"
    audio.mkdir(parents=True)
    rng = np.random.default_rng(0)
    names = ["N1_20240501_050000.wav", "N1_20240501_060000.wav", "N2_20240502_070000.wav"]
    results = ResultsFolder(out, {"model": "tones", "threshold": 0.5, "embeddings": 4}, audio)
    for k, name in enumerate(names):
        sound = rng.normal(0, 0.003, int(RATE * LENGTH_S))
        rows = []
        for n in range(6):
            start, hz = 1.0 + 3 * n, 1_000.0 + 800 * n
            a, length = int(start * RATE), int(0.8 * RATE)
            sound[a : a + length] += 0.3 * np.sin(2 * np.pi * hz * np.arange(length) / RATE)
            # scores all differ, so that every order is defined
            rows.append((name, start, start + 0.8, hz - 200, hz + 200, 0.52 + 0.06 * n + 0.01 * k, "tone"))
        sf.write(audio / name, sound, RATE)
        columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score", "label"]
        events = pd.DataFrame(rows, columns=columns).assign(site=name[:2], source="detector")
        when = f"2024-05-0{1 + k // 2}T0{5 + k}:00:00"
        vectors = rng.normal(size=(6, 4)).astype(np.float16)
        source = Source(audio / name, name, audio)
        results.add(Searched(source, as_events(events), LENGTH_S, RATE, name[:2], when, embeddings=vectors))
    results.combine([])
    return out


class Server:
    """`mast review` on a folder; can be killed and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start it, and wait until it says where it is."""
        with tempfile.TemporaryDirectory() as place:
            pipe = Path(place) / "said"
            os.mkfifo(pipe)
            words = (str(self.folder), "--port", str(self.port), "--no-browser", "--quiet")
            self.process = start_review(str(pipe), *words)
            self.output = open(pipe, encoding="utf-8")  # noqa: SIM115 (until it is killed)
        line = self.output.readline()
        found = re.search(r"(http://127\.0\.0\.1:(\d+)/)\?token=(\S+)", line)
        if found is None:
            raise AssertionError(f"the server did not start: {line!r} {self.output.read()[-2000:]}")
        self.link, self.address, self.port = found[0], found[1], int(found[2])
        self.token = {"Authorization": f"Bearer {found[3]}"}

    def kill(self) -> None:
        """End it without a chance to tidy up."""
        if self.output.closed:  # it was killed before
            return
        os.kill(self.process, signal.SIGKILL)
        with self.output:
            self.output.read()  # to the end, which is its end

    def get(self, path: str) -> Any:
        """What the server has, asked past the browser."""
        request = urllib.request.Request(f"{self.address}api/{path}", headers=self.token)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def events(self, recording: int = 1) -> list[dict[str, Any]]:
        """Events of a recording that are not deleted."""
        found: list[dict[str, Any]] = self.get(f"recordings/{recording}/events")["events"]
        return found

    def event(self, event_id: str) -> dict[str, Any]:
        """One event."""
        found: dict[str, Any] = self.get(f"events/{event_id}")
        return found


class Reviewer:
    """Somebody at a browser window."""

    def __init__(
        self, browser: Any, server: Server, name: str, viewport: dict[str, int] = LAPTOP, **more: Any
    ) -> None:
        self.server = server
        self.complaints: list[str] = []
        self.context = browser.new_context(viewport=viewport, accept_downloads=True, **more)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.requests: list[str] = []
        self.hosts: set[str] = set()  # of all requests ever made
        self.page.on("request", self._on_request)
        self.page.goto(server.link)
        self.page.wait_for_selector("#name-dialog[open]")
        if name:
            self.page.fill("#name-field", name)
            self.page.keyboard.press("Enter")
        self.settle()

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _on_request(self, request: Any) -> None:
        self.requests.append(request.url)
        if not request.url.startswith(("data:", "blob:")):
            self.hosts.add(urlsplit(request.url).netloc)

    def evaluate(self, expression: str, argument: Any = None) -> Any:
        """Evaluate in the page; ``r`` is what the page shows of itself."""
        return self.page.evaluate(
            f"(argument) => {{ const r = globalThis.mastReview; return {expression}; }}", argument
        )

    def wait_until(self, expression: str, argument: Any = None) -> None:
        """Wait for something to be true in the page."""
        code = f"(argument) => {{ const r = globalThis.mastReview; return {expression}; }}"
        self.page.wait_for_function(code, arg=argument, timeout=WAIT_MS)

    def settle(self) -> None:
        """Wait until the recording, its tiles and events are there, nothing glides and nothing waits to be saved."""
        self.wait_until(
            "r && r.state.recording && r.state.events.size > 0 && !r.spectrogram.tiles.busy && !r.spectrogram.frame"
            " && r.outbox.waiting() === 0 && !r.actions.arriving"
        )

    def press(self, *keys: str) -> None:
        """Press keys one after the other, each decision saved before the next."""
        for key in keys:
            self.page.keyboard.press(key)
            self.wait_until("r.outbox.waiting() === 0")

    @property
    def selected(self) -> str:
        """The id of the selected event."""
        return str(self.evaluate("r.state.selected"))

    def select(self, event: dict[str, Any]) -> None:
        """Go to an event, as a click in the queue does."""
        self.page.evaluate("(event) => { globalThis.mastReview.actions.goTo(event); }", event)
        self.wait_until("r.state.selected === argument", event["id"])
        self.settle()

    def stay_on_event(self) -> None:
        """Do not go on to the next event after a decision."""
        self.page.evaluate("globalThis.mastReview.actions.setAdvance(false)")

    def place(self, start_s: float, hz: float) -> tuple[float, float]:
        """Where a moment and frequency are on the screen."""
        frame = self.page.locator("#spectrogram").bounding_box()
        view, plot = self.evaluate("r.spectrogram.view"), self.evaluate("r.spectrogram.plot")
        x = plot["left"] + (start_s - view["start_s"]) / (view["end_s"] - view["start_s"]) * plot["width"]
        y = plot["top"] + (view["high_hz"] - hz) / (view["high_hz"] - view["low_hz"]) * plot["height"]
        return frame["x"] + x, frame["y"] + y

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """From one place (s, Hz) to another."""
        self.page.mouse.move(*self.place(*begin))
        self.page.mouse.down()
        self.page.mouse.move(*self.place(*end), steps=5)
        self.page.mouse.up()
        self.wait_until("r.outbox.waiting() === 0")

    def try_now(self) -> None:
        """Press "Try now", also where the page has tried by itself by now and taken its banner away."""
        self.page.evaluate("() => document.querySelector('#banner button')?.click()")

    def close(self) -> None:
        """Leave, and complain about what the browser complained about."""
        self.context.close()
        assert self.complaints == []


@contextmanager
def reviewing(browser: Any, server: Server) -> Iterator[Reviewer]:
    """Ana at a laptop, with a server of her own that ends with it; the browser must have nothing to complain about."""
    ana = Reviewer(browser, server, "Ana")
    yield ana
    ana.context.close()
    server.kill()
    assert ana.complaints == []


@contextmanager
def open_browser() -> Iterator[Any]:
    """Chromium without a window; the test is skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()
