"""A threshold tuned on one set and applied to another."""

from __future__ import annotations

import numpy as np
import pytest

from mast.errors import ConfigError
from mast.evaluation import best_threshold, evaluate


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
