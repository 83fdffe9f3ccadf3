"""What a precision may be at another place, judged by how the places of validation differ.

An interval over recordings says how certain the precision at *these* places is. Another place differs from all of them,
as they differ from each other: that is a prediction interval, as in meta-analyses of several studies (DerSimonian and
Laird's spread between them, Higgins' interval for the next).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mast.arrays import FloatArray, IntArray
from mast.evaluation.bootstrap import Interval
from mast.evaluation.outcome import Outcome
from mast.probability import MIN_KEPT, expit

MIN_PLACES = 3  # from two places no spread between places can be estimated


class PlaceCount(NamedTuple):
    """Predictions kept at one place, by recording."""

    right: FloatArray  # (recordings,)
    kept: FloatArray  # (recordings,)


def counts_by_place(outcome: Outcome, kept: int, place: IntArray) -> list[PlaceCount]:
    """What is kept at each place.

    Args:
        outcome: data of several places, matched.
        kept: how many of the predictions, from the highest score down.
        place: (recordings,) number of the place that each recording of the scene is from.
    """
    n_recordings = len(outcome.scene.recordings)
    recording, hit = outcome.recording[:kept], outcome.hit[:kept]
    n = np.bincount(recording, minlength=n_recordings).astype(np.float64)
    right = np.bincount(recording[hit], minlength=n_recordings).astype(np.float64)
    return [PlaceCount(right[place == one], n[place == one]) for one in np.unique(place)]


def precision_elsewhere(places: Sequence[PlaceCount]) -> Interval | None:
    """The 95 % prediction interval of the precision at another place.

    Only places that keep :data:`mast.probability.MIN_KEPT` predictions count; None where fewer than three do.
    """
    enough = [one for one in places if one.kept.sum() >= MIN_KEPT]
    if len(enough) < MIN_PLACES:
        return None
    from scipy.stats import t  # a third of a second to import, and needed only after training

    logit, within = np.array([_logit(one) for one in enough]).T
    weight = 1 / within
    excess = (weight * (logit - np.average(logit, weights=weight)) ** 2).sum() - (len(enough) - 1)
    between = max(0.0, excess / (weight.sum() - (weight**2).sum() / weight.sum()))
    weight = 1 / (within + between)
    middle = np.average(logit, weights=weight)
    reach = t.ppf(0.975, len(enough) - 2) * np.sqrt(between + 1 / weight.sum())
    low, high = expit(np.array([middle - reach, middle + reach]))
    return float(low), float(high)


def _logit(place: PlaceCount) -> tuple[float, float]:
    """Log-odds of a place's precision and their variance; boxes of one recording are not independent, so it may be
    larger than that of as many boxes drawn one by one."""
    # a half more of each, so that none right and all right are finite, too
    right, wrong = float(place.right.sum()) + 0.5, float((place.kept - place.right).sum()) + 0.5
    variance, n = 1 / right + 1 / wrong, right + wrong
    n_recordings = int((place.kept > 0).sum())
    if n_recordings > 1:
        residual = place.right - right / n * place.kept
        together = float((residual**2).sum()) * n_recordings / (n_recordings - 1) / (right * wrong / n) ** 2
        variance = max(variance, together)
    return float(np.log(right / wrong)), variance
