"""Names for boxes: who is heard, who decides together, and that nothing is heard twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
from hypothesis import given
from hypothesis import strategies as st

from mast.classifiers import box_names
from mast.classifiers.box_names import NamingOptions, name_boxes, same_song
from mast.classifiers.classifier import Classifier

RATE = 8_000
HZ = np.array([1_000.0, 2_000.0, 3_000.0])


def tone_classifier(heard: list[int]) -> Classifier:
    """Logits: how many dB each of three tones has above −20 dB of full scale; counts the windows it hears."""

    def run(windows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        heard.append(len(windows))
        power = abs(np.fft.rfft(windows)) / RATE  # bins of 1 Hz
        return (20 * np.log10(power[:, HZ.astype(int)] + 1e-6) + 20).astype(np.float32)

    return Classifier("tones", RATE, RATE, ("low", "middle", "high"), 4, run)


def boxes(*rows: tuple[float, float, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["start_s", "end_s", "low_hz", "high_hz"])


def write(path: Path, seconds: float, *spans: tuple[float, float, float, float]) -> Path:
    """Tones (start_s, end_s, hertz, amplitude)."""
    time = np.arange(round(seconds * RATE)) / RATE
    sound = np.random.default_rng(0).normal(0, 1e-4, len(time))
    for start_s, end_s, hz, amplitude in spans:
        sound += amplitude * np.sin(2 * np.pi * hz * time) * ((time >= start_s) & (time < end_s))
    sf.write(path, sound, RATE, subtype="FLOAT")
    return path


def names(table: pd.DataFrame) -> list[str]:
    return [("low", "middle", "high", "")[row] for row in table["likely"]]


def test_each_box_gets_the_name_of_its_own_sound(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", 60, (2, 3, 1_000, 0.3), (30, 31, 2_000, 0.3), (58, 59, 3_000, 0.3))
    table = boxes(
        (58.2, 58.8, 2_900, 3_100), (2.2, 2.8, 900, 1_100), (70, 71, 0, 1), (30.2, 30.8, 1_900, 2_100)
    )
    table.index = pd.Index([7, 3, 5, 1])
    found = name_boxes(path, table, tone_classifier([]), NamingOptions(np.arange(3)))
    assert names(found) == ["high", "low", "", "middle"]
    assert found.index.tolist() == [7, 3, 5, 1]
    assert np.isnan(found.loc[5, "label_score"])
    assert (found["label_score"].dropna() > 0.5).all()


def test_names_that_are_not_possible_are_not_given(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", 5, (2, 3, 1_000, 0.3), (2, 3, 3_000, 0.01))
    found = name_boxes(
        path, boxes((2.2, 2.8, 1_900, 2_100)), tone_classifier([]), NamingOptions(np.array([1, 2]))
    )
    assert names(found) == ["high"]


def test_in_its_band_a_box_hears_itself_only(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", 5, (2, 3, 1_000, 0.3), (2, 3, 3_000, 0.1))
    faint = boxes((2.2, 2.8, 2_800, 3_200))
    how = NamingOptions(np.arange(3))
    assert names(name_boxes(path, faint, tone_classifier([]), how)) == ["low"]
    assert names(name_boxes(path, faint, tone_classifier([]), replace(how, band=True))) == ["high"]


def test_boxes_of_a_song_decide_together_and_keep_their_own_scores(tmp_path: Path) -> None:
    loud = [(1.0 + 2 * k, 1.5 + 2 * k, 2_000.0, 0.5) for k in range(3)]
    path = write(tmp_path / "a.wav", 20, *loud, (7.0, 7.5, 2_000, 0.1), (7.0, 7.5, 3_000, 0.12))
    song = boxes(*((start, end, 1_800.0, 2_200.0) for start, end, *_ in [*loud, (7.0, 7.5, 0, 0)]))
    how = NamingOptions(np.arange(3))
    alone = name_boxes(path, song, tone_classifier([]), replace(how, song_gap_s=-1.0))
    assert names(alone) == ["middle"] * 3 + ["high"]
    together = name_boxes(path, song, tone_classifier([]), how)
    assert names(together) == ["middle"] * 4
    assert together["label_score"].tolist()[:3] == alone["label_score"].tolist()[:3]
    assert together["label_score"].iloc[3] < alone["label_score"].iloc[3]


def test_windows_are_shared_and_heard_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.wav", 40, (5, 6, 1_000, 0.3), (20, 21, 2_000, 0.07))
    close = boxes(*((t, t + 0.1, 900.0, 1_100.0) for t in np.arange(0.0, 38.0, 0.05)))
    heard: list[int] = []
    whole = name_boxes(path, close, tone_classifier(heard), NamingOptions(np.arange(3)))
    assert sum(heard) <= 39 * 2 + 1  # every window of the recording at most once
    monkeypatch.setattr(box_names, "_BLOCK", 7)
    again: list[int] = []
    pieces = name_boxes(
        path, close.sample(frac=1, random_state=1), tone_classifier(again), NamingOptions(np.arange(3))
    )
    pd.testing.assert_frame_equal(pieces.sort_index(), whole, check_exact=False, atol=1e-5)
    assert sum(again) == sum(heard)


def test_memory_is_that_of_a_neighbourhood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.wav", 200)
    spread = boxes(*((t, t + 0.1, 900.0, 1_100.0) for t in np.arange(0.0, 199.0, 1.0)))
    monkeypatch.setattr(box_names, "_BLOCK", 4)
    kept: list[int] = []
    forget = box_names._RecordingClassifier.drop_except

    def counted(self: box_names._RecordingClassifier, *given: Any) -> None:
        forget(self, *given)
        kept.append(max(len(self.boxes), len(self.windows)))

    monkeypatch.setattr(box_names._RecordingClassifier, "drop_except", counted)
    name_boxes(path, spread, tone_classifier([]), NamingOptions(np.arange(3)))
    assert len(kept) == 50
    assert max(kept) < 110  # of 399 windows


box = st.tuples(st.floats(0, 30), st.floats(0, 3), st.floats(0, 5_000), st.floats(1, 3_000))


@given(st.lists(box, min_size=1, max_size=6), st.floats(0, 12))
def test_a_song_by_a_naive_twin(rows: list[tuple[float, float, float, float]], gap_s: float) -> None:
    given_boxes = np.array([(a, low, a + length, low + height) for a, length, low, height in rows])
    for i, (a1, a3, a2, a4) in enumerate(given_boxes):
        for j, (b1, b3, b2, b4) in enumerate(given_boxes):
            apart = b1 - a2 if b1 > a2 else a1 - b2 if a1 > b2 else 0.0
            shared = max(0.0, min(a4, b4) - max(a3, b3))
            alike = shared / (max(a4, b4) - min(a3, b3)) >= 0.25
            found = same_song(given_boxes, given_boxes, gap_s)[i, j]
            if abs(shared / (max(a4, b4) - min(a3, b3)) - 0.25) > 1e-9:
                assert found == (apart <= gap_s and alike)
