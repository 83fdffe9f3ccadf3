"""The review page on recordings of bats: nothing named yet, and nothing that ears could hear."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import soundfile as sf
from browser_reviewer import Reviewer, Server, open_browser

from mast.events import as_events
from mast.inference import Searched, Source
from mast.inference.results import ResultsFolder

RATE = 384_000


def _bats(root: Path) -> Path:
    audio = root / "audio"
    audio.mkdir()
    sf.write(audio / "bat.wav", np.random.default_rng(0).normal(0, 0.01, RATE), RATE)
    columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score", "label"]
    rows = [
        ("bat.wav", 0.1, 0.2, 40_000.0, 60_000.0, 0.9, ""),
        ("bat.wav", 0.5, 0.6, 2_000.0, 3_000.0, 0.6, ""),
    ]
    events = as_events(pd.DataFrame(rows, columns=columns).assign(source="detector"))
    results = ResultsFolder(root / "results", {"model": "tones", "threshold": 0.5}, audio)
    results.add(Searched(Source(audio / "bat.wav", "bat.wav", audio), events, 1.0, RATE))
    results.combine([])
    return root / "results"


def test_bats_are_played_slowed_and_the_button_says_so(tmp_path: Path) -> None:
    server = Server(_bats(tmp_path))
    with open_browser() as browser:
        ana = Reviewer(browser, server, "Ana")
        events = {event["low_hz"]: event for event in server.events()}
        ana.select(events[40_000.0])
        assert ana.page.inner_text("#play-box") == "▶ Box, slowed ⅒×"
        with ana.page.expect_request(lambda request: "/clip?" in request.url) as clip:
            ana.press("Space")
        assert "speed=0.1" in clip.value.url
        ana.select(events[2_000.0])
        assert ana.page.inner_text("#play-box") == "▶ Box"
        ana.page.evaluate("globalThis.mastReview.actions.setSpeed(0.5)")  # what was chosen is kept to
        ana.select(events[40_000.0])
        assert ana.page.inner_text("#play-box") == "▶ Box"

        rows = ana.page.locator(".event-row b").all_inner_texts()
        assert sorted(rows) == ["2–3 kHz", "40–60 kHz"]  # not "unnamed" on each
        ana.page.fill("#high-khz", "192.0")
        field = ana.page.locator("#high-khz")
        assert field.evaluate("(node) => node.scrollWidth <= node.clientWidth")
        ana.close()
    server.kill()
