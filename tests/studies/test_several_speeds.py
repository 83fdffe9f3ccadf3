"""A model at several speeds: which bands are asked for, and that the fused boxes are measured, too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

from mast.data.recordings import Dataset
from mast.detect_options import DetectOptions
from mast_studies import several_speeds
from mast_studies.zero_shot_sets import load_set


class Listener(NamedTuple):
    """Stands for a detector."""

    model: Path
    options: DetectOptions


def test_boxes_of_all_speeds_are_measured_alone_and_together(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tones, tmp_path / "tones")
    own = load_set(tmp_path / "tones")
    asked = list[float | None]()

    def search(listener: Listener, dataset: Dataset) -> pd.DataFrame:
        """All calls, and a false alarm in each recording, at another time for every speed."""
        asked.append(listener.options.band_hz)
        calls = own.truth.assign(score=0.6)
        noise = calls.drop_duplicates("recording")
        noise = noise.assign(start_s=0.01 * len(asked), end_s=0.01 * len(asked) + 0.004, score=0.9)
        return pd.concat([calls, noise], ignore_index=True)

    monkeypatch.setattr(several_speeds, "Detector", Listener)
    monkeypatch.setattr(several_speeds, "search", search)
    found = several_speeds.measure_set(own, tmp_path / "model", threshold=0.5)
    assert asked == [own.band_hz * speed for speed in (1.0, 0.88, 1.13)]
    assert list(found) == ["1", "0.88", "1.13", "together"]
    assert found["together"]["own threshold"]["f1"] == 1.0
    assert found["together"]["own threshold"]["ap50"] == 1.0
    for speed in ("1", "0.88", "1.13"):
        assert found[speed]["own threshold"]["f1"] < 1.0
        assert found[speed]["own threshold"]["ap50"] < 1.0
