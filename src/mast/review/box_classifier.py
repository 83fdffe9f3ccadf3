"""A small classifier that learns from decisions: which boxes are right.

Logistic regression on a box's vector and the logit of its score. A normal prior keeps it near "the score is the
probability": without decisions it says what the detector says, and a few decisions move it only a little. The vectors
are centred and scaled to a mean squared length of 1, so that one width of the prior suits every model.

The width was chosen by log-loss on simulated recordings and on bats, neither of which is among the sets that
docs/review.md reports.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mast.arrays import BoolArray, FloatArray, IntArray, Vectors
from mast.evaluation.calibration import FOLDS, fit_calibration
from mast.probability import expit, logits

_PRIOR_SD = 2.0  # of every weight
_SEED = 0  # which decisions are held out together


class Scaling(NamedTuple):
    """How vectors are brought to a common size."""

    centre: Vectors  # (D,)
    length: float  # root of the mean squared length, once centred


def scaling_of(vectors: Vectors) -> Scaling:
    """The scaling that some (n, D) vectors ask for."""
    known = vectors[np.isfinite(vectors).all(axis=1)]
    if not len(known):
        return Scaling(np.zeros(vectors.shape[1], np.float32), 1.0)
    centre = known.mean(axis=0)
    length = float(np.sqrt(np.square(known - centre).sum(axis=1).mean()))
    return Scaling(centre, length if length > 0 else 1.0)


def features(vectors: Vectors, scores: FloatArray, scaling: Scaling) -> Vectors:
    """(n, D + 2): the vectors, the logits of the scores, and ones; a vector that is not known says nothing."""
    n, width = vectors.shape
    made = np.empty((n, width + 2), np.float32)
    made[:, :width] = np.nan_to_num((vectors - scaling.centre) / scaling.length)
    made[:, width] = logits(scores)
    made[:, width + 1] = 1.0
    return made


def prior(width: int) -> FloatArray:
    """The weights before any decision, for so many features: the logit of the score, as it is."""
    weights = np.zeros(width)
    weights[-2] = 1.0
    return weights


def fit_weights(given: Vectors, right: BoolArray) -> FloatArray:
    """The most probable weights.

    Args:
        given: (n, F) features of boxes that people decided about.
        right: (n,) what they said.
    """
    from scipy.optimize import minimize  # takes half a second to import

    x, y = given.astype(np.float64), right.astype(np.float64)
    centre = prior(x.shape[1])

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        z = x @ weights
        off = (weights - centre) / _PRIOR_SD
        value = (np.logaddexp(0.0, z) - y * z).sum() + (off**2).sum() / 2
        return float(value), x.T @ (expit(z) - y) + off / _PRIOR_SD

    found = minimize(loss, centre, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return np.asarray(found.x, dtype=np.float64)


def held_out(given: Vectors, right: BoolArray, groups: IntArray) -> FloatArray:
    """(n,) logits of the decisions, each from weights that were fitted without its group.

    Args:
        given: (n, F) features.
        right: (n,) what people said.
        groups: (n,) boxes of a group are held out together.
    """
    known, group = np.unique(groups, return_inverse=True)
    fold = (np.random.default_rng(_SEED).permutation(len(known)) % FOLDS)[group]
    found = np.empty(len(right))
    for one in np.unique(fold):
        own = fold == one
        found[own] = given[own] @ fit_weights(given[~own], right[~own])
    return found


class Sureness(NamedTuple):
    """From logits to probabilities that hold for boxes nobody has seen; the fewer decisions, the more doubtful."""

    slope: float
    intercept: float
    covariance: FloatArray  # (2, 2) of the two

    def probability(self, z: FloatArray) -> FloatArray:
        """Of logits: the mean over what slope and intercept may be (MacKay's approximation)."""
        mean = self.slope * z + self.intercept
        (a, b), (_, d) = self.covariance
        variance = a * z**2 + 2 * b * z + d
        return expit(mean / np.sqrt(1 + np.pi * variance / 8))


def fit_sureness(z: FloatArray, right: BoolArray) -> Sureness:
    """Learn what held-out logits mean; the same fit that calibrates detectors."""
    found = fit_calibration(expit(z), right, "platt")
    x = np.stack([z, np.ones_like(z)], axis=1)
    p = expit(found.slope * z + found.intercept)
    information = (x * (p * (1 - p))[:, None]).T @ x + np.eye(2) / _PRIOR_SD**2
    return Sureness(found.slope, found.intercept, np.asarray(np.linalg.inv(information), np.float64))


def sure_enough(probability: FloatArray, precision: float) -> BoolArray:
    """The most probable boxes, as many as possible while their mean probability is at least ``precision``.

    >>> sure_enough(np.array([0.2, 0.99, 0.9, 0.6]), 0.9).tolist()
    [False, True, True, False]
    """
    order = np.argsort(-probability, kind="stable")
    mean = np.cumsum(probability[order]) / np.arange(1, len(order) + 1)
    enough = np.flatnonzero(mean >= precision)
    chosen = np.zeros(len(order), dtype=bool)
    chosen[order[: enough[-1] + 1 if len(enough) else 0]] = True
    return chosen
