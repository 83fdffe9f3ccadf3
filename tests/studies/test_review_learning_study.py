"""The study of learning while reviewing: simulated reviewers on made-up boxes."""

from __future__ import annotations

import numpy as np
import pytest

from mast.probability import expit, logits
from mast.review.box_classifier import build_features, fit_scaling
from mast_studies import review_learning
from mast_studies.review_learning import (
    WAYS,
    DetectedBoxes,
    measure,
    press_button,
    reaches_targets,
    simulate_review,
)


def made_up(n: int = 240, strength: float = 12.0, seed: int = 0) -> DetectedBoxes:
    """Boxes whose vectors tell what their scores do not, as far as ``strength`` goes."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = rng.uniform(0.1, 0.9, n)
    right = rng.random(n) < expit(logits(scores) + strength * vectors[:, 0].astype(np.float64))
    nothing = np.zeros((n, 1), np.float32)
    return DetectedBoxes(
        scores,
        build_features(vectors, scores, fit_scaling(vectors)),
        build_features(nothing, scores, fit_scaling(nothing)),
        right,
        np.arange(n) % 8,
    )


def test_enough_by_hand() -> None:
    """Ten right and ten wrong ones; a ranking that puts one wrong box above all."""
    boxes = made_up(20)
    object.__setattr__(boxes, "right", np.arange(20) < 10)
    z = -np.arange(20.0)
    nobody = np.zeros(0, dtype=np.int64)
    assert reaches_targets(boxes, nobody, z)
    z[19] = 1.0
    assert not reaches_targets(boxes, nobody, z)  # 10 of 11 at best
    assert reaches_targets(boxes, np.array([19]), z)  # once it is rejected


@pytest.mark.parametrize("way", WAYS)
def test_every_way_ends(way: str) -> None:
    boxes = made_up()
    needed, after = simulate_review(boxes, way, np.random.default_rng(0))
    assert 0 < needed <= 240
    assert set(after) == set(review_learning.CHECKPOINTS)
    assert all(0 <= value <= 1 for pair in after.values() for value in pair)
    assert simulate_review(boxes, way, np.random.default_rng(0)) == (needed, after)


def test_where_the_vectors_tell_more_the_learner_saves_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review_learning, "REVIEWERS", 4)
    found = measure(made_up(400), 0)
    assert found["saved_against_best_score"]["mean"] > 50
    assert found["saved_against_best_score"]["reviewers_who_save"] == 4
    button = found["button"]
    assert button["learner"]["120"]["share_decided"] > 2 * button["score_alone"]["120"]["share_decided"]
    assert abs(button["learner"]["160"]["promised"] - button["learner"]["160"]["right"]) < 0.05


def test_the_button_needs_something_to_decide_about() -> None:
    boxes = made_up(100)
    assert press_button(boxes, np.arange(80), boxes.features) is None
    done = press_button(boxes, np.arange(60), boxes.features)
    assert done is not None
    assert done["rest"] == 40
    assert done["right"] <= done["decided"] <= 40
