"""Clips that nobody has listened to, cut where training chunks begin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mast.annotations import AnnotationSet
from mast.data.chunks import chunk_table
from mast.data.recordings import Dataset
from mast.errors import ConfigError
from mast.grid import FrontEnd
from mast.planning.candidates import candidate_clips, default_clip_s, heard_clips, training_chunks

PAPER = FrontEnd()


def dataset(durations: dict[str, float], heard: list[tuple[str, float, float]] = ()) -> Dataset:  # type: ignore[assignment]
    table = pd.DataFrame(
        {
            "file": list(durations),
            "site": [name[:2] for name in durations],
            "datetime": ["" if "x" in name else "2024-05-12T06:59:40" for name in durations],
            "split": "",
            "duration_s": list(durations.values()),
            "sample_rate": 16_000.0,
        }
    )
    reviewed = pd.DataFrame(list(heard), columns=["recording", "start_s", "end_s"])
    return Dataset(Path("nowhere"), table, AnnotationSet(reviewed=reviewed))


def spans(clips: pd.DataFrame) -> list[tuple[str, float, float]]:
    return [
        (r, round(a, 4), round(b, 4))
        for r, a, b in zip(clips["recording"], clips["start_s"], clips["end_s"], strict=True)
    ]


def test_clips_lie_end_to_end_and_the_rest_is_a_clip_too() -> None:
    clips = candidate_clips(dataset({"S1a": 60.0, "S1b": 20.0, "S1x": 3.0}), PAPER, 30.72)
    assert spans(clips) == [
        ("S1a", 0.0, 30.72),
        ("S1a", 30.72, 60.0),
        ("S1b", 0.0, 20.0),
        ("S1x", 0.0, 3.0),  # shorter than half a chunk, but all there is of it
    ]
    assert clips["hour"].tolist() == [6, 7, 6, -1]
    assert clips["datetime"].tolist()[1] == "2024-05-12T07:00:10.720"
    assert clips["datetime"].tolist()[3] == ""


def test_what_was_heard_is_left_out_and_clips_stay_on_the_grid() -> None:
    heard = [("S1a", 8.0, 20.0), ("S1a", 20.0, 31.0), ("S1b", 0.0, 60.0)]
    clips = candidate_clips(dataset({"S1a": 100.0, "S1b": 60.0}, heard), PAPER, 10.24)
    for name, start, end in spans(clips):
        assert name == "S1a"
        assert (start / 5.12) % 1 == pytest.approx(0, abs=1e-9)
        assert end <= 8.0 + 0.01 or start >= 31.0 - 0.01
    # 0–8 holds one short clip; from 31 the first half chunk begins at 35.84 (7 × 5.12)
    assert spans(clips)[:2] == [("S1a", 0.0, 8.0), ("S1a", 35.84, 46.08)]


def test_no_two_clips_share_a_moment_whatever_was_heard() -> None:
    rng = np.random.default_rng(0)
    for _ in range(15):
        heard = []
        for name in ("S1a", "S2b"):
            for _ in range(rng.integers(0, 4)):
                start = rng.uniform(0, 200)
                heard.append((name, start, start + rng.uniform(0, 60)))
        clip_s = float(rng.uniform(1, 50))
        clips = candidate_clips(dataset({"S1a": 200.0, "S2b": 77.0}, heard), PAPER, clip_s)
        taken = [(n, a, b) for n, a, b in heard] + spans(clips)
        assert (clips["end_s"] - clips["start_s"]).max() <= clip_s + 1e-6
        for name, start, end in spans(clips):
            others = [(a, b) for n, a, b in taken if n == name and (a, b) != (start, end)]
            assert all(b <= start + 0.011 or a >= end - 0.011 for a, b in others)


def test_a_default_clip_holds_five_training_chunks() -> None:
    """Counted by the table that training uses, on a recording of which only that clip was heard."""
    clip_s = default_clip_s(PAPER)
    for length, expected in ((clip_s, 5), (30.0, 4), (10.24, 1), (9.0, 0)):
        heard = [("S1a", 51.2, 51.2 + length)]
        labelled = int(chunk_table(dataset({"S1a": 200.0}, heard), PAPER)["labelled"].sum())
        assert labelled == training_chunks(length, PAPER) == expected


def test_heard_clips_cover_what_was_heard() -> None:
    heard = [("S1a", 0.0, 30.0), ("S1a", 30.0, 65.0), ("gone", 0.0, 5.0)]
    clips = heard_clips(dataset({"S1a": 100.0}, heard), 20.0)
    assert spans(clips) == [("S1a", 0.0, 20.0), ("S1a", 20.0, 40.0), ("S1a", 40.0, 60.0), ("S1a", 60.0, 65.0)]
    assert heard_clips(dataset({"S1a": 100.0}), 20.0).empty


def test_nothing_left_and_senseless_lengths() -> None:
    assert candidate_clips(dataset({"S1a": 60.0}, [("S1a", 0.0, 60.0)]), PAPER, 10.24).empty
    with pytest.raises(ConfigError, match="expected a length above 0"):
        candidate_clips(dataset({"S1a": 60.0}), PAPER, 0.0)
