"""The study of names: what is compared, and how it is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import soundfile as sf

from mast.classifiers.box_names import NamingOptions
from mast.classifiers.classifier import Classifier
from mast_studies.naming_study import (
    WARBLERS,
    around_the_box,
    birdnet_alone,
    box_namers,
    cached_classifier,
    difference,
    judge_names,
    shares,
    warbler_clips,
)

RATE = 1_000
HOW = NamingOptions(np.arange(2))


def loudness(heard: list[int]) -> Classifier:
    """A window is "loud_Loud" by its loudest sample in tenths, else "soft_Soft"."""

    def run(windows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        heard.append(len(windows))
        peak = abs(windows).max(axis=1)
        return np.stack([10 * peak - 5, np.zeros(len(windows))], axis=1).astype(np.float32)

    return Classifier("loudness", RATE, 3 * RATE, ("loud_Loud", "soft_Soft"), 4, run)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Ten seconds, loud from 5.9 s to 6.1 s."""
    sound = np.full(10 * RATE, 0.1)
    sound[5_900:6_100] = 0.9
    sf.write(tmp_path / "a.wav", sound, RATE, subtype="FLOAT")
    return tmp_path / "a.wav"


def test_frames_that_a_box_touches_and_windows_around_it(path: Path) -> None:
    boxes = pd.DataFrame(
        {"start_s": [1.0, 5.0, 2.5, 8.0], "end_s": [2.0, 5.5, 3.5, 9.9], "low_hz": 0, "high_hz": 9}
    )
    # frames begin at 0, 3, 6 and 9 s
    assert birdnet_alone(loudness([]), HOW)(path, boxes)["likely"].tolist() == [1, 0, 0, 0]
    # windows from 0, 3.75, 1.5 and 7 s on
    assert around_the_box(loudness([]), HOW)(path, boxes)["likely"].tolist() == [1, 0, 1, 1]


def test_no_window_is_heard_twice(path: Path) -> None:
    heard: list[int] = []
    classifier = cached_classifier(loudness(heard))
    boxes = pd.DataFrame(
        {"recording": "a", "start_s": [5.0], "end_s": [5.5], "low_hz": 0, "high_hz": 9, "label": "loud"}
    )
    compared = box_namers(classifier, HOW)
    outcome = {name: judge_names(boxes, {"a": path}, way, classifier) for name, way in compared.items()}
    assert outcome["birdnet_alone"]["right"].tolist() == [True]
    before = sum(heard)
    judge_names(boxes, {"a": path}, compared["6 windows, alone"], classifier)
    assert sum(heard) == before


def test_shares_by_hand() -> None:
    outcome = pd.DataFrame(
        {
            "recording": ["a", "a", "b", "b", "b"],
            "right": [True, True, False, True, False],
            "named": [True, False, True, True, False],
        }
    )
    found = shares(outcome, seed=0)
    assert (found["boxes"], found["recordings"]) == (5, 2)
    assert (found["likeliest_right"], found["right"], found["wrong"], found["unknown"]) == (
        0.6,
        0.4,
        0.2,
        0.4,
    )
    assert found["right_of_named"] == round(2 / 3, 4)
    assert found["right_interval"] == [round(1 / 3, 4), 0.5]
    nobody = shares(outcome.assign(named=False), seed=0)
    assert (nobody["unknown"], nobody["right_of_named"]) == (1.0, None)


def test_differences_by_hand() -> None:
    ours = pd.DataFrame(
        {"recording": ["a", "a", "b"], "right": [True, True, False], "named": [True, False, True]}
    )
    theirs = ours.assign(right=[False, True, False], named=[True, True, True])
    found = difference(ours, theirs, seed=0)
    assert found["likeliest_right"] == round(1 / 3, 4)
    assert (found["right"], found["wrong"], found["unknown"]) == (0.0, round(-1 / 3, 4), round(1 / 3, 4))
    assert found["likeliest_right_interval"] == [0.0, 0.5]


def test_some_clips_of_each_warbler(tmp_path: Path) -> None:
    files = [f"clo43sd/{code}{k:03}.flac" for code in ("AMRE", "OVEN", "XXXX") for k in range(12)]
    pd.DataFrame(
        {"file": [*files, "esc50/AMRE.flac"], "source": ["clo43sd"] * 36 + ["esc50"], "duration_s": 0.2}
    ).to_csv(tmp_path / "clips.csv", index=False)
    boxes, paths = warbler_clips(tmp_path, seed=0)
    assert boxes["label"].value_counts().to_dict() == {"Setophaga ruticilla": 10, "Seiurus aurocapilla": 10}
    assert set(paths) == set(boxes["recording"])
    assert len(set(WARBLERS.values())) == len(WARBLERS) == 42
