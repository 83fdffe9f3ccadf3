"""The score threshold that is best on one set, to be applied to another.

Tune on in-domain validation data; a threshold tuned on the set it is reported on flatters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from mast.errors import ConfigError
from mast.evaluation.outcome import Outcome, match_scene
from mast.evaluation.scene import Scoring, build_scene


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
    n_truth, scores = len(outcome.scene.truth), outcome.scores
    if not n_truth or not len(scores):
        raise ConfigError(
            f"a threshold cannot be tuned on {n_truth} truth boxes and {len(scores)} predictions; "
            f"expected some of both in the reviewed recordings"
        )
    hits = outcome.hit.cumsum()
    kept = np.arange(1, len(scores) + 1)
    f1 = 2 * hits / (kept + n_truth)
    # equal scores are kept or dropped together
    last_of_equals = np.append(scores[1:] < scores[:-1], True)
    best = int(np.argmax(np.where(last_of_equals, f1, -1.0)))
    return Threshold(
        value=float(scores[best]),
        f1=float(f1[best]),
        precision=float(hits[best] / kept[best]),
        recall=float(hits[best] / n_truth),
        n_truth=n_truth,
        n_predictions=int(kept[best]),
    )
