"""Boxes as a habit draws them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf

from mast.annotations.redraw import redraw, redraw_events
from mast.events import as_events, boxes_of
from mast.features.strongest import strongest_parts
from mast.grid import FrontEnd
from mast.habit import Habit

RATE = 16_000


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four tones of 0.3 s, at 2 kHz: at 1, 1.5, 4 and 6 s, the third with a weaker one at 4 kHz."""
    seconds = np.arange(8 * RATE) / RATE
    sound = np.random.default_rng(0).normal(0, 1e-4, len(seconds))
    for at in (1.0, 1.5, 4.0, 6.0):
        swell = np.clip(np.minimum(seconds - at, at + 0.3 - seconds) / 0.02, 0, 1)
        sound += 0.1 * swell * np.sin(2 * np.pi * 2_000 * seconds)
        if at == 4.0:
            sound += 0.02 * swell * np.sin(2 * np.pi * 4_000 * seconds)
    path = tmp_path_factory.mktemp("sound") / "tones.wav"
    sf.write(path, sound, RATE, subtype="FLOAT")
    return path


BOXES = np.array(
    [
        [1.0, 1_500, 1.3, 2_500],
        [1.5, 1_500, 1.8, 2_500],
        [3.9, 1_500, 4.6, 2_600],  # two boxes that are one call, cut to its strongest part
        [3.8, 1_400, 4.4, 5_000],
        [6.0, 1_500, 6.3, 2_500],
    ]
)
SCORES = np.array([0.9, 0.5, 0.6, 0.7, 0.3])


def test_two_boxes_of_one_part_are_one_and_the_better_one(recording: Path) -> None:
    found = redraw(BOXES, SCORES, Habit(box="strongest"), recording, FrontEnd())
    assert found.rows.tolist() == [0, 1, 3, 4]
    cut = strongest_parts(recording, BOXES, FrontEnd(), band_db=25, time_db=15)
    np.testing.assert_array_equal(found.boxes, cut[found.rows])
    start_s, low_hz, end_s, high_hz = found.boxes[2]
    assert (start_s, end_s) == pytest.approx((4.0, 4.3), abs=0.03)
    assert low_hz > 1_700
    assert high_hz < 2_300


def test_boxes_are_joined_from_the_threshold_on(recording: Path) -> None:
    found = redraw(BOXES, SCORES, Habit(join_s=0.3), recording, FrontEnd())
    assert found.rows.tolist() == [0, 3, 4]
    assert found.boxes[0].tolist() == [1.0, 1_500, 1.8, 2_500]
    found = redraw(BOXES, SCORES, Habit(join_s=0.3), recording, FrontEnd(), threshold=0.65)
    assert sorted(found.rows.tolist()) == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(found.boxes, BOXES[found.rows])
    both = redraw(BOXES, SCORES, Habit(box="strongest", join_s=5.0), recording, FrontEnd())
    assert both.rows.tolist() == [0]
    assert both.boxes[0, 2] == pytest.approx(6.3, abs=0.03)


def test_a_table_of_several_recordings(recording: Path) -> None:
    columns = ["start_s", "low_hz", "end_s", "high_hz"]
    one = pd.DataFrame(BOXES, columns=columns).assign(score=SCORES, label="tone")
    events = as_events(pd.concat([one.assign(recording="a"), one.assign(recording="b")], ignore_index=True))
    habit = Habit(box="strongest", join_s=0.3)
    drawn = redraw_events(events, habit, FrontEnd(), lambda name: recording)
    expected = redraw(BOXES, SCORES, habit, recording, FrontEnd())
    for name in ("a", "b"):
        own = drawn[drawn["recording"] == name]
        np.testing.assert_array_equal(boxes_of(own), expected.boxes)
        assert own["score"].tolist() == SCORES[expected.rows].tolist()
    assert redraw_events(events, Habit(), FrontEnd(), lambda name: recording) is events
    assert redraw_events(events.iloc[:0], habit, FrontEnd(), lambda name: recording).empty


def test_nothing_to_draw(recording: Path) -> None:
    habit = Habit(box="strongest", join_s=1.0)
    found = redraw(np.zeros((0, 4)), np.zeros(0), habit, recording, FrontEnd())
    assert found.boxes.shape == (0, 4)
    assert found.rows.shape == (0,)
