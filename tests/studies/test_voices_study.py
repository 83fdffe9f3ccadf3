"""The study of speech: how clips are counted, and which threshold is chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf

from mast.arrays import FloatArray
from mast_studies import voices_study
from mast_studies.voices_study import measure_boxes, measure_pool, share


class Loudness:
    """A clip's loudest sample is how likely speech is, throughout; in a recording, people speak after 5 s."""

    def probabilities(self, sound: FloatArray) -> FloatArray:
        return np.full(20, float(np.abs(sound).max()))

    def __call__(self, path: Path, start_s: float, end_s: float) -> list[tuple[float, float]]:
        return [(5.0, 6.0)] if end_s > 5 else []


def test_the_lowest_threshold_that_leaves_birds_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voices_study, "GROUPS", {"speech": ("Speaking",), "birds": ("crow",)})
    rows = []
    for k in range(20):
        for label, loud in (("Speaking", 0.9), ("crow", 0.25)):
            sf.write(tmp_path / f"{label}{k}.wav", np.full(800, loud), 16_000, subtype="FLOAT")
            rows.append((f"{label}{k}.wav", "esc50", label))
    rows.append(("Speaking0.wav", "other", "Speaking"))
    pd.DataFrame(rows, columns=["file", "source", "label"]).to_csv(tmp_path / "clips.csv", index=False)
    found = measure_pool(tmp_path, Loudness(), seed=0)  # type: ignore[arg-type]
    assert found["chosen_on_the_first_half"] == 0.3
    second = found["second_half"]
    assert (second["0.3"]["speech"]["share"], second["0.3"]["birds"]["share"]) == (1.0, 0.0)
    assert second["0.2"]["birds"]["share"] == 1.0
    assert sum(found[half]["0.3"][group]["clips"] for half in ("first_half", "second_half")
               for group in ("speech", "birds")) == 40  # fmt: skip


def test_boxes_that_would_be_left_out(tmp_path: Path) -> None:
    sf.write(tmp_path / "a.wav", np.zeros(160_000), 16_000)
    boxes = {
        "file": "a.wav",
        "start_s": [1.0, 4.0, 8.0],
        "end_s": [2.0, 4.6, 9.0],
        "low_hz": 0,
        "high_hz": 99,
    }
    pd.DataFrame(boxes).to_csv(tmp_path / "boxes.csv", index=False)
    found = measure_boxes(tmp_path, Loudness(), seed=0)  # type: ignore[arg-type]
    assert (found["clips"], found["share"]) == (3, round(2 / 3, 4))


def test_a_share_and_its_interval() -> None:
    found = share([True] * 50 + [False] * 50, seed=0)
    assert found["share"] == 0.5
    assert found["interval"] == pytest.approx([0.4, 0.6], abs=0.02)
    assert share([False] * 3, seed=0) == {"clips": 3, "share": 0.0, "interval": None}  # too few to tell
