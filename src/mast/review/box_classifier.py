"""A small classifier that learns from decisions: which boxes are right.

Logistic regression on a box's vector and the logit of its score. A normal prior keeps it near "the score is the
probability": without decisions it says what the detector says, and a few decisions move it only a little. The vectors
are centred and scaled to a mean squared length of 1, so that one width of the prior suits every model.

The widths of the priors were chosen on simulated recordings and on bats, neither of which is among the sets that
docs/review.md reports.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mast.arrays import BoolArray, FloatArray, IntArray, Vectors
from mast.evaluation.calibration import folds_of
from mast.probability import expit, logits

_PRIOR_SD = 2.0  # of every weight
_SLOPE_SD, _INTERCEPT_SD = 0.5, 1.0  # of the calibration of held-out logits
_SEED = 0  # which decisions are held out together


class Scaling(NamedTuple):
    """How vectors are brought to a common size."""

    centre: Vectors  # (D,)
    length: float  # root of the mean squared length, once centred


def fit_scaling(vectors: Vectors) -> Scaling:
    """The scaling that suits some (n, D) vectors."""
    known = vectors[np.isfinite(vectors).all(axis=1)]
    if not len(known):
        return Scaling(np.zeros(vectors.shape[1], np.float32), 1.0)
    centre = known.mean(axis=0)
    length = float(np.sqrt(np.square(known - centre).sum(axis=1).mean()))
    return Scaling(centre, length if length > 0 else 1.0)


def build_features(vectors: Vectors, scores: FloatArray, scaling: Scaling) -> Vectors:
    """(n, D + 2): the vectors, the logits of the scores, and ones; an unknown vector becomes zeros."""
    n, width = vectors.shape
    features = np.empty((n, width + 2), np.float32)
    features[:, :width] = np.nan_to_num((vectors - scaling.centre) / scaling.length)
    features[:, width] = logits(scores)
    features[:, width + 1] = 1.0
    return features


def prior_weights(width: int) -> FloatArray:
    """The weights before any decision, for this many features: the logit of the score, unchanged."""
    weights = np.zeros(width)
    weights[-2] = 1.0
    return weights


def fit_weights(features: Vectors, right: BoolArray) -> FloatArray:
    """The most probable weights.

    Args:
        features: (n, F), of boxes that people decided about.
        right: (n,) what they said.
    """
    from scipy.optimize import minimize  # takes half a second to import

    x, y = features.astype(np.float64), right.astype(np.float64)
    centre = prior_weights(x.shape[1])

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        z = x @ weights
        off = (weights - centre) / _PRIOR_SD
        value = (np.logaddexp(0.0, z) - y * z).sum() + (off**2).sum() / 2
        return float(value), x.T @ (expit(z) - y) + off / _PRIOR_SD

    found = minimize(loss, centre, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return np.asarray(found.x, dtype=np.float64)


def held_out_logits(features: Vectors, right: BoolArray, groups: IntArray) -> FloatArray:
    """(n,) logits of the decisions, each from weights that were fitted without its group.

    Args:
        features: (n, F).
        right: (n,) what people said.
        groups: (n,) boxes of a group are held out together.
    """
    fold = folds_of(groups, _SEED)
    found = np.empty(len(right))
    for one in np.unique(fold):
        own = fold == one
        found[own] = features[own] @ fit_weights(features[~own], right[~own])
    return found


class LogitCalibration(NamedTuple):
    """From logits to probabilities that are valid for boxes nobody has seen."""

    logits: FloatArray  # (K,), rising
    probabilities: FloatArray  # (K,)

    def probability(self, z: FloatArray) -> FloatArray:
        """Probabilities of logits."""
        return np.asarray(np.interp(z, self.logits, self.probabilities), dtype=np.float64)


def fit_logit_calibration(z: FloatArray, right: BoolArray) -> LogitCalibration:
    """Learn what held-out logits mean: ``sigmoid(slope · z + intercept)``, the mean over all slopes and intercepts.

    Each pair is weighted by its probability, given the decisions and a normal prior around (1, 0). So few decisions
    never give certainty.
    """
    slopes, intercepts = np.linspace(0.05, 6.0, 60), np.linspace(-5.0, 5.0, 51)
    sign = np.where(right, 1.0, -1.0)
    log = np.stack(
        [-np.logaddexp(0.0, -sign[:, None] * (a * z[:, None] + intercepts)).sum(axis=0) for a in slopes]
    )
    log -= ((slopes[:, None] - 1) / _SLOPE_SD) ** 2 / 2 + (intercepts / _INTERCEPT_SD) ** 2 / 2
    share = np.exp(log - log.max())
    share /= share.sum()
    at = np.linspace(-15.0, 15.0, 301)
    mean = sum(
        (expit(a * at[:, None] + intercepts) * own).sum(axis=1) for a, own in zip(slopes, share, strict=True)
    )
    return LogitCalibration(at, np.asarray(mean, dtype=np.float64))


class Verdicts(NamedTuple):
    """The learner's decisions about boxes that nobody has seen."""

    accepted: BoolArray  # (n,)
    rejected: BoolArray  # (n,)
    expected: float  # how many of both are right, by the probabilities


def verdicts(probability: FloatArray, precision: float) -> Verdicts:
    """Accept what is likelier right than wrong and reject what is not, each only as far as ``precision`` allows."""
    accepted = select_confident(probability, precision) & (probability > 0.5)
    rejected = select_confident(1 - probability, precision) & (probability < 0.5)
    return Verdicts(
        accepted, rejected, float(probability[accepted].sum() + (1 - probability[rejected]).sum())
    )


def select_confident(probability: FloatArray, precision: float) -> BoolArray:
    """The most probable boxes, as many as possible while their mean probability is at least ``precision``.

    >>> select_confident(np.array([0.2, 0.99, 0.9, 0.6]), 0.9).tolist()
    [False, True, True, False]
    """
    order = np.argsort(-probability, kind="stable")
    mean = np.cumsum(probability[order]) / np.arange(1, len(order) + 1)
    enough = np.flatnonzero(mean >= precision)
    chosen = np.zeros(len(order), dtype=bool)
    chosen[order[: enough[-1] + 1 if len(enough) else 0]] = True
    return chosen
