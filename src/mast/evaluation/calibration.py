"""Scores that mean something: probabilities from scores, and the threshold that reached a precision.

A calibrated score of 0.8 means: of predictions like this one, eight in ten match a truth at the scene's IoU
threshold. Fit on in-domain validation data that the detector was not trained on.

Little data never gives certainty. The logistic methods are fitted by maximum likelihood with a weak prior
that scores are already probabilities, and isotonic regression counts one more hit and one more miss in
each of its steps. So a hundred hits and no miss give about 0.99, not 1; where all scores are equal, Platt and
isotonic give about the share matched (temperature cannot move a score across 0.5); where high scores are no
better than low ones, probabilities are almost equal; and no predictions at all give method ``none``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from mast.arrays import BoolArray, FloatArray, IntArray
from mast.errors import ConfigError
from mast.evaluation.metrics import ratio
from mast.evaluation.outcome import Outcome
from mast.probability import CLIP, Calibration, Method, checked_scores, expit, logits

FOLDS = 5  # our choice, the usual one
MIN_FOR_ISOTONIC = 50  # hits, and as many misses: with fewer its steps follow the noise; our choice

_SLOPES = (0.01, 100.0)  # above 0: a calibration never reverses the ranking, nor makes all scores equal
_PRIOR_SD = 2.0  # of slope and intercept; our choice: n hits of n at score 0.5 give about (n + 1) / (n + 2)


class BestCalibration(NamedTuple):
    """The calibration that predicts held-out recordings best, fitted on all of them.

    ``log_loss`` holds the held-out log-loss of each method that was tried, in nats per prediction; it is empty,
    and the method ``none``, where there was nothing to hold out.
    """

    calibration: Calibration
    log_loss: dict[Method, float]
    n_folds: int


def calibrate(outcome: Outcome, method: Method) -> Calibration:
    """:func:`fit_calibration` on the predictions of a matched scene."""
    return fit_calibration(outcome.scores, outcome.hit, method)


def calibrated(outcome: Outcome, calibration: Calibration) -> Outcome:
    """The same outcome with probabilities for scores, for ECE and reliability after calibration."""
    scene = replace(outcome.scene, scores=calibration.apply(outcome.scene.scores))
    return replace(outcome, scene=scene, scores=calibration.apply(outcome.scores))


def fit_calibration(scores: ArrayLike, hits: ArrayLike, method: Method) -> Calibration:
    """Learn what share of predictions at each score is right; see the module docstring for little data.

    Args:
        scores: (P,) in 0–1.
        hits: (P,) whether each prediction matched a truth.
        method: ``none``, ``temperature``, ``platt`` or ``isotonic``.
    """
    if method not in get_args(Method):
        raise ConfigError(f"calibration method is {method!r}; expected one of {', '.join(get_args(Method))}")
    x, y = checked_scores(scores), np.asarray(hits, dtype=bool)
    if x.ndim != 1 or x.shape != y.shape:
        raise ConfigError(
            f"calibration: scores of shape {x.shape} and hits of shape {y.shape}; expected one hit per score"
        )
    if method == "none" or not len(x):
        return Calibration(n_predictions=len(x), n_hits=int(y.sum()))
    if method == "isotonic":
        knots = _fit_isotonic(x, y)
        shape = {"knot_scores": tuple(knots[0].tolist()), "knot_probabilities": tuple(knots[1].tolist())}
        return Calibration(method=method, n_predictions=len(x), n_hits=int(y.sum()), **shape)
    slope, intercept = _fit_logistic(x, y, with_intercept=method == "platt")
    return Calibration(
        method=method, slope=slope, intercept=intercept, n_predictions=len(x), n_hits=int(y.sum())
    )


def fit_best(outcome: Outcome, seed: int) -> BestCalibration:
    """Choose the method by log-loss on held-out recordings, then fit it on all; of equals, the simplest.

    Recordings are held out whole, since predictions of one recording are not independent; where only one recording
    has predictions, its chunks are held out instead. Isotonic regression is tried from
    :data:`MIN_FOR_ISOTONIC` hits and as many misses.

    Args:
        outcome: validation data, matched.
        seed: which recordings fall into which of the :data:`FOLDS` folds.
    """
    fold = _folds(outcome, seed)
    n_folds = int(fold.max(initial=-1)) + 1
    n_hits = int(outcome.hit.sum())
    methods: list[Method] = ["none", "temperature", "platt"]
    if min(n_hits, len(outcome.hit) - n_hits) >= MIN_FOR_ISOTONIC:
        methods.append("isotonic")
    if n_folds < 2:
        return BestCalibration(calibrate(outcome, "none"), {}, 0)
    losses: dict[Method, float] = {}
    for method in methods:
        held_out = np.zeros(len(fold))
        for k in range(n_folds):
            fitted = fit_calibration(outcome.scores[fold != k], outcome.hit[fold != k], method)
            held_out[fold == k] = fitted.apply(outcome.scores[fold == k])
        losses[method] = _log_loss(held_out, outcome.hit)
    return BestCalibration(calibrate(outcome, min(methods, key=losses.__getitem__)), losses, n_folds)


def _log_loss(probabilities: FloatArray, hits: BoolArray) -> float:
    """Mean of −log of the probability given to what happened."""
    p = np.clip(probabilities, CLIP, 1 - CLIP)
    return float(-np.log(np.where(hits, p, 1 - p)).mean())


def _fit_logistic(scores: FloatArray, hits: BoolArray, *, with_intercept: bool) -> tuple[float, float]:
    """Slope and intercept on the logit, with normal priors centred on 1 and 0; a convex problem."""
    x, y = logits(scores), hits.astype(np.float64)
    centre = np.array([1.0, 0.0])

    def loss(theta: FloatArray) -> tuple[float, FloatArray]:
        z = theta[0] * x + theta[1]
        off = (theta - centre) / _PRIOR_SD
        value = (np.logaddexp(0.0, z) - y * z).sum() + (off**2).sum() / 2
        excess = expit(z) - y
        gradient = np.array([(excess * x).sum(), excess.sum()]) + off / _PRIOR_SD
        return float(value / len(x)), gradient / len(x)  # a mean, so that the tolerances suit any P

    from scipy.optimize import minimize  # takes half a second to import, and detecting never fits

    found = minimize(
        loss,
        centre,
        jac=True,
        method="L-BFGS-B",
        bounds=[_SLOPES, (None, None) if with_intercept else (0.0, 0.0)],
        options={"ftol": 1e-14, "gtol": 1e-9, "maxiter": 1_000},
    )
    return float(found.x[0]), float(found.x[1])


def _fit_isotonic(scores: FloatArray, hits: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Knots: the mean score of each step of the best non-decreasing fit, and its smoothed share of hits.

    A step of n predictions with h hits gets (h + 1) / (n + 2). That pulls small steps towards one half, perhaps
    past a neighbour; so neighbours out of order are pooled a second time.
    """
    values, at = np.unique(scores.round(9), return_inverse=True)  # this far apart, step means stay distinct
    counts = np.stack([np.bincount(at), np.bincount(at, weights=hits)]).astype(np.float64)
    n, h, total = _sum_by_step(_steps(counts[1] / counts[0], counts[0]), *counts, values * counts[0])
    step = _steps((h + 1) / (n + 2), n + 2)
    smoothed_n, smoothed_h, n, total = _sum_by_step(step, n + 2, h + 1, n, total)
    # the accumulation undoes rounding only: steps that differ by less than that may come out reversed
    return total / n, np.maximum.accumulate(smoothed_h / smoothed_n)


def _steps(values: FloatArray, weights: FloatArray) -> IntArray:
    """Which step of the isotonic fit each value falls into."""
    from scipy.optimize import isotonic_regression

    blocks = isotonic_regression(values, weights=weights).blocks  # where each begins, and the end
    return np.repeat(np.arange(len(blocks) - 1), np.diff(blocks))


def _sum_by_step(step: IntArray, *amounts: FloatArray) -> list[FloatArray]:
    """Each amount summed over each step."""
    return [np.bincount(step, weights=amount).astype(np.float64) for amount in amounts]


def folds_of(groups: IntArray, seed: int) -> IntArray:
    """(n,) → (n,) fold of each: whole groups, divided at random."""
    known, of_each = np.unique(groups, return_inverse=True)
    fold = np.random.default_rng(seed).permutation(len(known)) % FOLDS
    return np.asarray(fold[of_each], dtype=np.int64)


def _folds(outcome: Outcome, seed: int) -> IntArray:
    """(P,) fold of each prediction: recordings, or chunks of the only one, stay whole."""
    several = len(np.unique(outcome.recording)) > 1
    return folds_of(outcome.recording if several else outcome.chunk, seed)


def resampled_precision(outcome: Outcome, kept: int, weights: FloatArray) -> FloatArray:
    """(B,) precision of the first predictions, each recording counted by its weight."""
    recording, n_recordings = outcome.recording[:kept], len(outcome.scene.recordings)
    hits = np.bincount(recording, weights=outcome.hit[:kept], minlength=n_recordings)
    return ratio(weights @ hits, weights @ np.bincount(recording, minlength=n_recordings))
