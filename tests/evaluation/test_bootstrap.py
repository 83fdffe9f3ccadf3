"""Intervals over recordings: against tables drawn again, and deterministic by seed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mast.evaluation import Scoring, compare, evaluate
from mast.evaluation.bootstrap import draw_weights, interval, round_interval
from mast.evaluation.metrics import METRICS, metrics_of
from mast.evaluation.outcome import match_scene
from mast.evaluation.scene import build_scene

HZ = Scoring(space="hz")


def test_weights_are_draws_with_replacement():
    weights = draw_weights(7, 50, seed=1)
    assert weights.shape == (50, 7)
    assert (weights.sum(axis=1) == 7).all()
    assert (weights != 1).any()
    assert (draw_weights(7, 50, seed=1) == weights).all()
    assert (draw_weights(7, 50, seed=2) != weights).any()


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_a_weighted_resample_is_the_resampled_table(make_random, threshold):
    """Copies of a recording under new names give what its weight gives."""
    truth, predictions, reviewed = make_random(5, n_recordings=8)
    # distinct scores: copies of one recording tie in any order, which average precision can see
    predictions["score"] = np.random.default_rng(0).permutation(len(predictions)) / len(predictions)
    outcome = match_scene(build_scene(truth, predictions, reviewed=reviewed, scoring=HZ))
    weights = draw_weights(8, 12, seed=3)
    fast = metrics_of(outcome, threshold, weights)
    for b, row in enumerate(weights):
        copies = [
            (r, c) for r, times in zip(outcome.scene.recordings, row, strict=True) for c in range(int(times))
        ]

        def drawn(table, copies=copies):
            parts = [table[table["recording"] == r].assign(recording=f"{c}-{r}") for r, c in copies]
            return pd.concat(parts, ignore_index=True)

        slow = evaluate(
            drawn(truth),
            drawn(predictions),
            reviewed=drawn(reviewed),
            scoring=HZ,
            threshold=threshold,
            resamples=0,
        ).metrics
        assert {name: fast[name][b] for name in METRICS} == pytest.approx(slow, nan_ok=True)


def test_intervals_hold_the_value_and_are_deterministic(make_random):
    truth, predictions, reviewed = make_random(6, n_recordings=20)
    options = {"reviewed": reviewed, "threshold": 0.3, "resamples": 200}
    first = evaluate(truth, predictions, **options, seed=1)
    assert set(first.intervals) == set(METRICS)
    for name, (low, high) in first.intervals.items():
        assert low < high
        assert low - 0.05 < first.metrics[name] < high + 0.05
    assert evaluate(truth, predictions, **options, seed=1).intervals == first.intervals
    assert evaluate(truth, predictions, **options, seed=2).intervals != first.intervals


def test_one_recording_has_no_interval(make_random):
    truth, predictions, _ = make_random(6)
    one = truth["recording"].iloc[0]
    result = evaluate(
        truth[truth["recording"] == one], predictions[predictions["recording"] == one], resamples=50
    )
    assert np.isfinite(result.metrics["f1"])
    assert np.isnan([bound for bounds in result.intervals.values() for bound in bounds]).all()


def test_a_system_compared_with_itself_differs_by_nothing(make_random):
    truth, predictions, reviewed = make_random(7)
    result = compare(truth, predictions, predictions, reviewed=reviewed, resamples=100)
    for difference in result.differences.values():
        assert difference.difference == 0
        assert np.isnan([difference.low, difference.high]).all()


def test_pairing_sees_a_small_but_steady_gain(make_random):
    """One more truth found in every recording: the two intervals overlap, the paired one excludes zero."""
    truth, predictions, reviewed = make_random(8, n_recordings=20)
    worse = predictions[predictions["score"] >= 0.2]
    found_more = truth.groupby("recording").head(1)
    better = pd.concat([worse, found_more.assign(score=0.95)], ignore_index=True)
    result = compare(truth, worse, better, reviewed=reviewed, resamples=300, seed=4)
    recall = result.differences["recall"]
    assert 0 < recall.low <= recall.difference <= recall.high
    assert result.a.intervals["recall"][1] > result.b.intervals["recall"][0]
    assert recall.difference == pytest.approx(result.b.metrics["recall"] - result.a.metrics["recall"])
    alone = evaluate(truth, worse, reviewed=reviewed, resamples=300, seed=4)
    assert result.a.intervals == alone.intervals


def test_each_system_keeps_its_own_threshold(make_random):
    truth, predictions, reviewed = make_random(9)
    result = compare(truth, predictions, predictions, reviewed=reviewed, thresholds=(None, 0.7), resamples=10)
    assert (result.a.threshold, result.b.threshold) == (None, 0.7)
    assert result.differences["recall"].difference < 0
    assert result.differences["ap50"].difference == 0


def test_an_interval_is_the_middle_95_percent():
    values = np.random.default_rng(0).permutation(np.arange(1_001.0))
    assert interval(values) == pytest.approx((25.0, 975.0))
    assert interval(np.append(values, [np.nan, np.inf])) == pytest.approx((25.0, 975.0))  # left out
    assert np.isnan(interval(np.array([np.nan]))).all()


@pytest.mark.parametrize("value", [0.0, 1 / 3, 1.0])
def test_resamples_that_do_not_differ_are_no_interval(value):
    """That all recordings agree is not certainty."""
    assert np.isnan(interval(np.append(np.full(100, value), value + 1e-16))).all()
    assert round_interval(interval(np.full(100, value))) is None
    assert round_interval(interval(np.array([value, value + 0.5]))) is not None
