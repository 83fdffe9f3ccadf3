"""The review page where speech is listed: the box beside it can be heard, the speech cannot, and the page says so."""

from __future__ import annotations

import io
from pathlib import Path

from browser_reviewer import Reviewer, Server, make_results, open_browser
from PIL import Image

from mast.classifiers.voice_lists import VOICES, write_voices


def _is_marked(ana: Reviewer, at_s: float) -> bool:
    """Whether the white line of a silent stretch is above that moment."""
    x, _ = ana.place(at_s, 0.0)
    y = ana.page.locator("#spectrogram").bounding_box()["y"] + ana.evaluate("r.spectrogram.plot.top") + 1
    shot = ana.page.screenshot(clip={"x": round(x), "y": round(y), "width": 1, "height": 1})
    return min(Image.open(io.BytesIO(shot)).convert("RGB").getpixel((0, 0))) > 190


def test_speech_is_marked_told_and_not_heard(tmp_path: Path) -> None:
    folder = make_results(tmp_path)
    write_voices(folder / VOICES, {"N1_20240501_050000.wav": [(0.5, 2.5)]})
    server = Server(folder)
    try:
        with open_browser() as browser:
            ana = Reviewer(browser, server, "Ana")
            spoken, calling = sorted(server.events(1), key=lambda event: event["start_s"])[:2]
            ana.select(spoken)
            note = "Speech was found in 1 stretch of this recording, marked grey; it is silenced."
            assert ana.page.inner_text("#silence-note") == note
            assert _is_marked(ana, 1.5)
            assert not _is_marked(ana, 3.5)
            with ana.page.expect_response(lambda answer: "/clip?" in answer.url):
                ana.press("Space")
            ana.wait_until("!r.player.playing")
            assert ana.evaluate("r.player.peak") == 0
            ana.select(calling)
            ana.press("Space")
            ana.wait_until("r.player.peak > 0.02")
            ana.select(server.events(2)[0])
            assert ana.page.is_hidden("#silence-note")
            ana.close()
    finally:
        server.kill()
