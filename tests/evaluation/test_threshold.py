"""A threshold tuned on one set and applied to another."""

from __future__ import annotations

import numpy as np
import pytest

from mast.errors import ConfigError
from mast.evaluation import best_threshold, evaluate
from mast.evaluation.outcome import match_scene
from mast.evaluation.scene import build_scene
from mast.evaluation.threshold import NEARLY_BEST, steady_threshold_of


def test_best_threshold_by_hand(make_table):
    truth = make_table([("a", 10 * k, 10 * k + 1, 1000, 2000) for k in range(4)])
    predictions = make_table(
        [
            ("a", 0, 1, 1000, 2000, 0.9),
            ("a", 10, 11, 1000, 2000, 0.8),
            ("a", 55, 56, 1000, 2000, 0.8),  # tied with a right one: kept or dropped together
            ("a", 20, 21, 1000, 2000, 0.5),
            ("a", 65, 66, 1000, 2000, 0.1),
            ("a", 75, 76, 1000, 2000, 0.1),
        ]
    )
    best = best_threshold(truth, predictions)
    assert best.value == 0.5
    assert best.f1 == pytest.approx(2 * 3 / (4 + 4))
    assert (best.precision, best.recall) == pytest.approx((3 / 4, 3 / 4))
    assert (best.n_truth, best.n_predictions) == (4, 4)


@pytest.mark.parametrize("seed", range(4))
def test_no_other_threshold_is_better(make_random, seed):
    truth, predictions, reviewed = make_random(seed)
    best = best_threshold(truth, predictions, reviewed=reviewed)
    f1 = {
        score: evaluate(truth, predictions, reviewed=reviewed, threshold=score, resamples=0).metrics["f1"]
        for score in predictions["score"].unique()
    }
    assert best.f1 == pytest.approx(max(f1.values()))
    assert f1[best.value] == pytest.approx(best.f1)
    assert best.value == max(score for score, value in f1.items() if np.isclose(value, best.f1))


def test_tuned_on_one_set_and_applied_to_another(make_random):
    tune, test = make_random(20, n_recordings=12), make_random(21, n_recordings=12)
    best = best_threshold(tune[0], tune[1], reviewed=tune[2])
    result = evaluate(test[0], test[1], reviewed=test[2], threshold=best.value, resamples=0)
    assert result.threshold == best.value
    assert result.n_predictions == (test[1]["score"] >= best.value).sum()


@pytest.mark.parametrize("missing", ["truth", "predictions"])
def test_nothing_to_tune_on_is_said(make_table, missing):
    some, none = make_table([("a", 0, 1, 1000, 2000)]), make_table([])
    truth, predictions = (none, some) if missing == "truth" else (some, none)
    with pytest.raises(ConfigError, match="cannot be tuned on"):
        best_threshold(truth, predictions)


def test_the_steady_threshold_lies_between_calls_and_false_alarms(make_table):
    truth = make_table([("a", 10 * k, 10 * k + 1, 1000, 2000) for k in range(3)])
    found = [("a", 0, 1, 1000, 2000, 0.9), ("a", 10, 11, 1000, 2000, 0.8), ("a", 55, 56, 1000, 2000, 0.2)]
    steady = steady_threshold_of(match_scene(build_scene(truth, make_table(found))))
    assert steady.value == pytest.approx(0.5)  # the best is 0.8, and everything down to 0.2 is as good
    assert (steady.f1, steady.precision, steady.recall) == pytest.approx((0.8, 1, 2 / 3))
    assert (steady.n_truth, steady.n_predictions) == (3, 2)


@pytest.mark.parametrize("seed", range(4))
def test_the_steady_threshold_against_the_mean_of_a_fine_grid(make_random, seed):
    truth, predictions, reviewed = make_random(seed, n_recordings=12)
    outcome = match_scene(build_scene(truth, predictions, reviewed=reviewed))
    grid = np.linspace(outcome.scores.min(), outcome.scores.max(), 20_001)
    kept = [(outcome.scores >= value) for value in grid]
    f1 = np.array([2 * (outcome.hit & own).sum() / (own.sum() + len(outcome.scene.truth)) for own in kept])
    expected = grid[f1 >= f1.max() - NEARLY_BEST].mean()
    assert steady_threshold_of(outcome).value == pytest.approx(expected, abs=1e-3)


def test_one_score_for_all_is_the_steady_threshold(make_table):
    truth = make_table([("a", 10 * k, 10 * k + 1, 1000, 2000) for k in range(3)])
    found = make_table([("a", 0, 1, 1000, 2000, 0.5), ("a", 10, 11, 1000, 2000, 0.5)])
    assert steady_threshold_of(match_scene(build_scene(truth, found))).value == 0.5
