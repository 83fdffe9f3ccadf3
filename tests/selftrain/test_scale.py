"""Scores on the scale of the detector that a model was before it learnt from its own boxes."""

from __future__ import annotations

import numpy as np
import pytest
from toy_calibration import stored_calibration

from mast.probability import Calibration, OperatingPoint, StoredCalibration, expit, logits
from mast.selftrain.scale import Shift, match_box_counts, shift_calibration

BEFORE = np.random.default_rng(0).uniform(0.02, 0.95, 200)


def _stored(scale: Calibration) -> StoredCalibration:
    point = OperatingPoint(threshold=0.6, precision=0.9, low=0.8, high=0.95, recall=0.2, n_kept=30)
    return stored_calibration(scale, curve=(point,))


@pytest.mark.parametrize("slope", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("intercept", [-1.0, 0.0, 1.5])
def test_scores_that_were_distorted_are_what_they_were(slope: float, intercept: float) -> None:
    now = expit((logits(BEFORE) - intercept) / slope)
    shift = match_box_counts(BEFORE, np.random.default_rng(1).permutation(now), 0.3)
    assert shift.slope == pytest.approx(slope, rel=1e-3)
    assert shift.intercept == pytest.approx(intercept, abs=0.05)
    threshold = shift.to_new_score(0.3)
    assert (now >= threshold).sum() == (BEFORE >= 0.3).sum()


def test_as_many_boxes_pass_whatever_the_scores() -> None:
    rng = np.random.default_rng(2)
    for n in (12, 50, 400):
        now = rng.beta(2, 3, n)
        shift = match_box_counts(BEFORE, now, 0.8)
        assert (now >= shift.to_new_score(0.8)).sum() == min(n, (BEFORE >= 0.8).sum())
        assert 0.25 <= shift.slope <= 4


@pytest.mark.parametrize(("before", "now"), [([], [0.5]), ([0.1], [0.5]), ([0.9], [])])
def test_where_nothing_was_found_nothing_moves(before: list[float], now: list[float]) -> None:
    assert match_box_counts(np.array(before), np.array(now), 0.3) == Shift()


def test_a_few_boxes_move_the_threshold_alone() -> None:
    shift = match_box_counts(np.array([0.9, 0.5, 0.1]), np.array([0.99, 0.8, 0.3]), 0.4)
    assert shift.slope == 1
    assert 0.3 < shift.to_new_score(0.4) < 0.8


@pytest.mark.parametrize(
    "scale",
    [
        Calibration(),
        Calibration(method="temperature", slope=0.7),
        Calibration(method="platt", slope=2.1, intercept=-0.4),
        Calibration(method="isotonic", knot_scores=(0.1, 0.4, 0.9), knot_probabilities=(0.05, 0.3, 0.8)),
    ],
)
def test_probabilities_go_with_the_scores(scale: Calibration) -> None:
    shift = Shift(1.5, -0.8)
    now = shift_calibration(_stored(scale), shift)
    for score in (0.1, 0.25, 0.4, 0.9):
        expected = float(scale.apply(score))
        tolerance = 0.05 if scale.method == "isotonic" else 1e-9  # between knots the line is another one
        assert float(now.calibration.apply(shift.to_new_score(score))) == pytest.approx(
            expected, abs=tolerance
        )
    assert now.curve[0].threshold == pytest.approx(shift.to_new_score(0.6))
    assert now.curve[0].precision == 0.9
    assert now.least_score == pytest.approx(shift.to_new_score(0.05))
