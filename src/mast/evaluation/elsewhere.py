"""What a precision may be at another place, judged by how the places of validation differ.

An interval over recordings says how sure the precision of *these* places is. Another place differs from all of them,
as they differ from each other: that is a prediction interval, as in meta-analyses of several studies (DerSimonian and
Laird's spread between them, Higgins' interval for the next).
"""

from __future__ import annotations

import numpy as np

from mast.arrays import FloatArray, IntArray
from mast.evaluation.bootstrap import Interval
from mast.evaluation.outcome import Outcome
from mast.probability import LEAST_KEPT, expit

FEWEST_PLACES = 3  # from two places no spread between places can be told


def precision_elsewhere(outcome: Outcome, kept: int, place: IntArray) -> Interval | None:
    """The 95 % prediction interval of the precision at another place; None from fewer than three places.

    Args:
        outcome: validation data, matched.
        kept: how many of the predictions, from the highest score down, are kept.
        place: (recordings,) number of the place that each recording of the scene is from.
    """
    if not len(place):
        return None
    of_prediction = place[outcome.recording[:kept]]
    n = np.bincount(of_prediction, minlength=int(place.max()) + 1).astype(np.float64)
    right = np.bincount(of_prediction[outcome.hit[:kept]], minlength=len(n)).astype(np.float64)
    enough = n >= LEAST_KEPT
    return predicted_share(right[enough], n[enough]) if enough.sum() >= FEWEST_PLACES else None


def predicted_share(right: FloatArray, n: FloatArray) -> Interval:
    """The 95 % prediction interval of a share from those of three places or more, ``right`` of ``n`` in each."""
    from scipy.stats import t  # a third of a second to import, and needed after training alone

    wrong = n - right
    logit = np.log((right + 0.5) / (wrong + 0.5))  # a half each, so that none right and all right are finite
    within = 1 / (right + 0.5) + 1 / (wrong + 0.5)
    weight = 1 / within
    excess = (weight * (logit - np.average(logit, weights=weight)) ** 2).sum() - (len(n) - 1)
    between = max(0.0, excess / (weight.sum() - (weight**2).sum() / weight.sum()))
    weight = 1 / (within + between)
    middle = np.average(logit, weights=weight)
    reach = t.ppf(0.975, len(n) - 2) * np.sqrt(between + 1 / weight.sum())
    low, high = expit(np.array([middle - reach, middle + reach]))
    return float(low), float(high)
