"""What is found at several speeds as one list: hand-made cases; the search itself is in test_detector.py."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mast.grid import FrontEnd
from mast.inference.speed_passes import Events, combine_speeds

BIRDS = FrontEnd()
LOWER, HIGHER = (BIRDS.at_band(8_000.0 * speed) for speed in (0.8, 1.25))
NOTHING = Events(np.empty((0, 4)), np.empty(0))


def events(*rows: tuple[float, ...]) -> Events:
    """Rows ``start_s, low_hz, end_s, high_hz, score``."""
    table = np.array(rows, dtype=np.float64)
    return Events(table[:, :4], table[:, 4])


def shown(mean: float) -> float:
    """The odds of the mean, raised by half a unit of the logit."""
    odds = mean / (1 - mean) * math.exp(0.5)
    return odds / (1 + odds)


def test_what_all_speeds_find_is_the_mean_and_what_one_finds_counts_less() -> None:
    call, alarm = (1.0, 2_000.0, 2.0, 3_000.0), (5.0, 1_000.0, 6.0, 2_000.0)
    boxes, scores, _ = combine_speeds(
        [events((*call, 0.9)), events((*call, 0.6), (*alarm, 0.6)), events((*call, 0.3))],
        [BIRDS, LOWER, HIGHER],
    )
    order = np.argsort(-scores)
    np.testing.assert_allclose(boxes[order], [call, alarm], rtol=1e-5)
    np.testing.assert_allclose(scores[order], [shown(0.6), shown(0.2)])


def test_a_box_is_the_mean_weighted_by_probability() -> None:
    early, late = (1.0, 2_000.0, 2.0, 3_000.0, 0.75), (1.2, 2_000.0, 2.2, 3_000.0, 0.25)
    boxes, _, _ = combine_speeds([events(early), events(late)], [BIRDS, HIGHER])
    np.testing.assert_allclose(boxes, [[1.05, 2_000.0, 2.05, 3_000.0]], rtol=1e-5)


@pytest.mark.parametrize(("low_hz", "share"), [(7_000.0, 1 / 2), (3_000.0, 1 / 3), (6_000.0, 1 / 3)])
def test_a_speed_that_plays_a_call_above_the_band_has_not_missed_it(low_hz: float, share: float) -> None:
    # the lower band ends at 6400 Hz: most of a call from 6000 Hz on lies above it only if it reaches high
    high_hz = min(low_hz + 500.0, 8_000.0)
    call = (1.0, low_hz, 2.0, high_hz, 0.9)
    _, scores, _ = combine_speeds([events(call), NOTHING, NOTHING], [BIRDS, LOWER, HIGHER])
    np.testing.assert_allclose(scores, [shown(0.9 * share)])


def test_what_lies_above_the_band_that_was_asked_for_is_left_out_or_cut() -> None:
    above = events((1.0, 8_500.0, 2.0, 9_500.0, 0.9), (3.0, 6_000.0, 4.0, 9_000.0, 0.9))
    boxes, _, _ = combine_speeds([NOTHING, above], [BIRDS, HIGHER])
    np.testing.assert_allclose(boxes, [[3.0, 6_000.0, 4.0, 8_000.0]], rtol=1e-5)


def test_nothing_found_at_any_speed() -> None:
    boxes, scores, embeddings = combine_speeds([NOTHING] * 3, [BIRDS, LOWER, HIGHER])
    assert boxes.shape == (0, 4)
    assert scores.shape == (0,)
    assert embeddings is None
