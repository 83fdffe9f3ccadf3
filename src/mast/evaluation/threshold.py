"""The score threshold that is best on one set, to be applied to another.

Tune on in-domain validation data; a threshold tuned on the set it is reported on gives flattering results.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from mast.arrays import BoolArray, FloatArray
from mast.errors import ConfigError
from mast.evaluation.outcome import Outcome, match_scene
from mast.evaluation.scene import Scoring, build_scene

NEARLY_BEST = 0.01  # of F1


class Threshold(NamedTuple):
    """A score threshold (predictions at or above are kept) and what it gives on the set it was tuned on."""

    value: float
    f1: float
    precision: float
    recall: float
    n_truth: int
    n_predictions: int


def best_threshold(
    truth: pd.DataFrame,
    predictions: pd.DataFrame,
    *,
    reviewed: pd.DataFrame | None = None,
    scoring: Scoring | None = None,
) -> Threshold:
    """The threshold with the highest pooled F1; of equals, the highest threshold.

    Arguments are those of :func:`mast.evaluation.evaluate`.

    >>> columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score"]
    >>> truth = pd.DataFrame([["a.wav", 1, 2, 2000, 3000, 1], ["a.wav", 4, 4.5, 500, 900, 1]], columns=columns)
    >>> found = pd.DataFrame([["a.wav", 1.1, 2, 2000, 3000, 0.9], ["a.wav", 7, 7.5, 500, 900, 0.4]], columns=columns)
    >>> best_threshold(truth, found).value
    0.9
    """
    return best_threshold_of(match_scene(build_scene(truth, predictions, reviewed=reviewed, scoring=scoring)))


def best_threshold_of(outcome: Outcome) -> Threshold:
    """:func:`best_threshold` of a scene that is matched already."""
    scores, f1 = _f1_by_threshold(outcome.scores, outcome.hit, len(outcome.scene.truth))
    return _threshold_at(outcome, float(scores[np.argmax(f1)]))


def steady_threshold_of(outcome: Outcome) -> Threshold:
    """The middle of all thresholds whose F1 is within 0.01 of the best, for use on other recordings.

    On a few hundred boxes many thresholds are nearly as good as the best. Which of them wins is luck, and those at the
    edge fail elsewhere: docs/results_worlds.md has an example.
    """
    return _threshold_at(outcome, steady_score(outcome.scores, outcome.hit, len(outcome.scene.truth)))


def steady_score(scores: FloatArray, hit: BoolArray, n_truth: int) -> float:
    """:func:`steady_threshold_of` from scores (highest first), which of them are right, and the number of truths."""
    values, f1 = _f1_by_threshold(scores, hit, n_truth)
    # each F1 holds from its score down to just above the next; below the last there is nothing to lose
    lower = np.append(values[1:], values[-1])
    good = f1 >= f1.max() - NEARLY_BEST
    weight = np.where(good, values - lower, 0.0)
    return float(np.average((values + lower) / 2, weights=weight) if weight.any() else values[np.argmax(f1)])


def _f1_by_threshold(scores: FloatArray, hit: BoolArray, n_truth: int) -> tuple[FloatArray, FloatArray]:
    """Every score that occurs, highest first, and the F1 with it as threshold."""
    if not n_truth or not len(scores):
        raise ConfigError(
            f"a threshold cannot be tuned on {n_truth} truth boxes and {len(scores)} predictions; "
            f"expected some of both in the reviewed recordings"
        )
    f1 = 2 * hit.cumsum() / (np.arange(1, len(scores) + 1) + n_truth)
    last_of_equals = np.append(scores[1:] < scores[:-1], True)  # equal scores are kept or dropped together
    return scores[last_of_equals], f1[last_of_equals]


def _threshold_at(outcome: Outcome, value: float) -> Threshold:
    """A threshold, and what it gives on these boxes."""
    n_truth, kept = len(outcome.scene.truth), int((outcome.scores >= value).sum())
    hits = int(outcome.hit[:kept].sum())
    return Threshold(
        value=value,
        f1=2 * hits / (kept + n_truth),
        precision=hits / kept if kept else 0.0,
        recall=hits / n_truth,
        n_truth=n_truth,
        n_predictions=kept,
    )
