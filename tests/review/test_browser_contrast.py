"""The picture by default: a call 6 dB above the noise is seen, also beside loud ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
from browser_reviewer import RATE, Reviewer, Server

from mast.events import as_events
from mast.inference import Searched, Source
from mast.inference.results import ResultsFolder

FAINT = (4.7, 5.7, 2_800.0, 3_200.0)  # s, s, Hz, Hz; loud tones begin and end at other moments
NOISE = (8.7, 9.8, 1_000.0, 4_500.0)
ABOVE_DB = 6.0
LENGTH_S = 16.0
SIZES = ((1024, 640), (1270, 720), (2200, 1200), (768, 1024))

# luminance of the picture between two moments and frequencies, a mean for each tile of 8 × 8 pixels
LUMINANCE = """\
((s0, s1, hz0, hz1) => {
  const canvas = document.querySelector("#spectrogram");
  const ratio = canvas.width / r.spectrogram.width;
  const { plot, view } = r.spectrogram;
  const x = (s) => ratio * (plot.left + ((s - view.start_s) / (view.end_s - view.start_s)) * plot.width);
  const y = (hz) => ratio * (plot.top + ((view.high_hz - hz) / (view.high_hz - view.low_hz)) * plot.height);
  const [left, top] = [Math.ceil(x(s0)), Math.ceil(y(hz1))];
  const [width, height] = [Math.floor(x(s1)) - left, Math.floor(y(hz0)) - top];
  const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, -left, -top);
  const { data } = copy.getImageData(0, 0, width, height);
  const tiles = [];
  for (let ty = 0; ty + 8 <= height; ty += 8) for (let tx = 0; tx + 8 <= width; tx += 8) {
    let sum = 0;
    for (let dy = 0; dy < 8; dy++) for (let dx = 0; dx < 8; dx++) {
      const at = 4 * ((ty + dy) * width + tx + dx);
      sum += 0.2126 * data[at] + 0.7152 * data[at + 1] + 0.0722 * data[at + 2];
    }
    tiles.push(sum / 64);
  }
  return tiles;
})(...argument)
"""


def recording(loud: float) -> np.ndarray[Any, Any]:
    """Noise, a band of it 6 dB louder for a second, and loud tones of some amplitude higher up."""
    rng = np.random.default_rng(0)
    n = int(RATE * LENGTH_S)
    sound = rng.normal(0, 0.003, n)
    time = np.arange(n) / RATE
    spectrum = np.fft.rfft(rng.normal(0, 0.003 * np.sqrt(10 ** (ABOVE_DB / 10) - 1), n))
    hz = np.fft.rfftfreq(n, 1 / RATE)
    spectrum[(hz < FAINT[2]) | (hz > FAINT[3])] = 0
    sound += np.fft.irfft(spectrum, n) * ((time >= FAINT[0]) & (time < FAINT[1]))
    sound += loud * np.sin(2 * np.pi * 6_000 * time) * (time % 2 < 0.5)
    return sound


def results(root: Path, loud: float) -> Path:
    audio, out = root / "audio", root / "results"
    audio.mkdir(parents=True)
    sf.write(audio / "a.wav", recording(loud), RATE, subtype="FLOAT")
    written = ResultsFolder(out, {"model": "m", "threshold": 0.5, "embeddings": 0}, audio)
    box = {
        "recording": "a.wav",
        "start_s": [12.0],
        "end_s": [12.4],
        "low_hz": [5_800.0],
        "high_hz": [6_200.0],
    }
    events = as_events(pd.DataFrame({**box, "score": [0.6]}).assign(source="detector"))
    written.add(Searched(Source(audio / "a.wav", "a.wav", audio), events, LENGTH_S, RATE))
    written.combine([])
    return out


@pytest.mark.parametrize(
    "loud", [0.0, 0.05, 0.5], ids=["alone", "beside a loud one", "beside a very loud one"]
)
def test_a_faint_call_is_seen_at_any_size(tmp_path: Path, browser: Any, loud: float) -> None:
    server = Server(results(tmp_path, loud))
    for width, height in SIZES:
        ana = Reviewer(browser, server, "Ana", {"width": width, "height": height})
        ana.page.evaluate("globalThis.mastReview.actions.toggleBoxes()")
        for start_s, end_s in ((0, 16), (3, 11)):
            ana.page.evaluate(
                "(span) => globalThis.mastReview.spectrogram.viewport.go(span)",
                {"start_s": start_s, "end_s": end_s},
            )
            ana.page.evaluate("globalThis.mastReview.spectrogram.redraw()")
            ana.settle()
            call, noise = (np.array(ana.evaluate(LUMINANCE, list(where))) for where in (FAINT, NOISE))
            # a difference that an eye sees on a dark ground, and beyond what the noise itself does
            seen = f"{width} x {height}, {end_s - start_s} s"
            assert call.mean() - noise.mean() > 25, seen
            assert call.mean() > np.percentile(noise, 99), seen
        ana.close()
    server.kill()


def test_gain_and_contrast_are_remembered(tmp_path: Path, browser: Any) -> None:
    server = Server(results(tmp_path, 0.0))
    ana = Reviewer(browser, server, "Ana")
    chosen = {"#gain": "17", "#contrast": "63"}
    for slider, value in chosen.items():
        ana.page.fill(slider, value)
    look = ana.evaluate("r.spectrogram.look")
    ana.page.reload()
    ana.settle()
    assert {slider: ana.page.input_value(slider) for slider in chosen} == chosen
    assert ana.evaluate("r.spectrogram.look") == look
    assert ana.page.get_attribute("#auto", "aria-pressed") == "false"
    ana.page.click("#auto")
    assert ana.evaluate("r.spectrogram.look") != look
    ana.close()
    server.kill()
