"""The classifier that learns from decisions."""

from __future__ import annotations

import numpy as np
import pytest

from mast.arrays import BoolArray, FloatArray
from mast.probability import expit, logits
from mast.review.box_classifier import (
    build_features,
    fit_logit_calibration,
    fit_scaling,
    fit_weights,
    held_out_logits,
    select_confident,
)


def world(n: int, seed: int = 0, width: int = 12) -> tuple[np.ndarray, FloatArray, BoolArray]:
    """Vectors, scores and truth: the score tells a little, one direction of the vectors much more."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, width)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = rng.uniform(0.1, 0.9, n)
    right = rng.random(n) < expit(logits(scores) + 12 * vectors[:, 0].astype(np.float64))
    return vectors, scores, right


def test_without_decisions_it_says_what_the_detector_says() -> None:
    vectors, scores, right = world(50)
    made = build_features(vectors, scores, fit_scaling(vectors))
    weights = fit_weights(made[:0], right[:0])
    np.testing.assert_allclose(expit(made @ weights), scores, atol=1e-6)


def test_features_are_of_mean_squared_length_one() -> None:
    vectors, scores, _ = world(200)
    made = build_features(vectors, scores, fit_scaling(vectors))
    assert made.shape == (200, 14)
    np.testing.assert_allclose(np.square(made[:, :12]).sum(axis=1).mean(), 1.0, rtol=1e-4)
    np.testing.assert_allclose(made[:, :12].mean(axis=0), 0.0, atol=1e-6)
    equal = np.ones((3, 4), np.float32)
    assert np.isfinite(build_features(equal, scores[:3], fit_scaling(equal))).all()


def test_a_vector_that_is_not_known_says_nothing() -> None:
    vectors, scores, _ = world(20)
    known = build_features(vectors[1:], scores[1:], fit_scaling(vectors[1:]))
    vectors[0] = np.nan
    made = build_features(vectors, scores, fit_scaling(vectors))
    assert made[0, :12].tolist() == [0.0] * 12
    np.testing.assert_array_equal(made[1:], known)
    nothing = build_features(vectors[:1], scores[:1], fit_scaling(vectors[:1]))
    assert nothing[0, :12].tolist() == [0.0] * 12


def test_the_weights_are_the_most_probable_ones() -> None:
    """At the optimum, what the prior pulls equals what the data pulls."""
    vectors, scores, right = world(80)
    made = build_features(vectors, scores, fit_scaling(vectors)).astype(np.float64)
    weights = fit_weights(made.astype(np.float32), right)
    prior = np.zeros(14)
    prior[12] = 1.0
    gradient = made.T @ (expit(made @ weights) - right) + (weights - prior) / 4.0
    np.testing.assert_allclose(gradient, 0.0, atol=2e-2)
    np.testing.assert_array_equal(weights, fit_weights(made.astype(np.float32), right))


def test_it_learns_what_the_score_does_not_tell() -> None:
    vectors, scores, right = world(600)
    made = build_features(vectors, scores, fit_scaling(vectors))
    learnt = made[100:] @ fit_weights(made[:100], right[:100])

    def errors(z: FloatArray) -> float:
        return float(((z > 0) != right[100:]).mean())

    assert errors(learnt) < errors(logits(scores[100:])) - 0.1


def test_a_held_out_decision_does_not_know_itself() -> None:
    """One decision is turned round: what is said of its own group stays, what is said of others changes."""
    vectors, scores, right = world(60)
    made = build_features(vectors, scores, fit_scaling(vectors))
    groups = np.arange(60) // 6
    before = held_out_logits(made, right, groups)
    right[0] = not right[0]
    after = held_out_logits(made, right, groups)
    np.testing.assert_array_equal(before[:6], after[:6])
    assert (before != after).sum() >= 60 - 2 * 6  # a fold is two groups


@pytest.mark.parametrize("precision", [0.8, 0.95])
def test_what_is_promised_holds_for_the_rest(precision: float) -> None:
    """Over several reviewers: of what it is sure enough of, about as many are right as it says."""
    promised, reached, chosen = 0.0, 0, 0
    for seed in range(10):
        vectors, scores, right = world(1_100, seed)
        made = build_features(vectors, scores, fit_scaling(vectors))
        z = held_out_logits(made[:100], right[:100], np.arange(100))
        probability = fit_logit_calibration(z, right[:100]).probability(
            made[100:] @ fit_weights(made[:100], right[:100])
        )
        sure = select_confident(probability, precision)
        promised += probability[sure].sum()
        reached += int(right[100:][sure].sum())
        chosen += int(sure.sum())
    assert chosen > 1_000
    assert promised / chosen >= precision
    assert abs(reached / chosen - promised / chosen) < 0.04


def test_few_decisions_leave_it_doubtful() -> None:
    z = np.array([3.0, -3.0] * 30)
    right = z > 0
    few, many = fit_logit_calibration(z[:10], right[:10]), fit_logit_calibration(z, right)
    assert 0.5 < few.probability(np.array([3.0]))[0] < many.probability(np.array([3.0]))[0] < 1.0


def test_sure_enough_of_nothing() -> None:
    assert select_confident(np.array([0.3, 0.2]), 0.9).tolist() == [False, False]
    assert select_confident(np.zeros(0), 0.9).tolist() == []
    assert select_confident(np.array([0.91, 0.91]), 0.9).tolist() == [True, True]
