"""Boxes of several detectors as one list, beside a naive reference."""

from __future__ import annotations

import numpy as np
import pytest
from toy_calibration import stored_calibration

from mast.arrays import FloatArray
from mast.events import pairwise_iou
from mast.inference.fusion import SAME_BOX, fuse_boxes, fusion_threshold
from mast.models.architecture import DetectorConfig
from mast.models.card import ModelCard
from mast.normalisation import Normalisation
from mast.probability import Calibration

Found = tuple[FloatArray, FloatArray]


def naive_fusion(found: list[Found]) -> list[tuple[list[float], float]]:
    """Groups of boxes, grown one detector at a time, best first; each compared with the mean of every free group."""
    groups: list[list[tuple[FloatArray, float]]] = []
    for boxes, probabilities in found:
        free = list(range(len(groups)))
        means = [sum(w * b for b, w in group) / sum(w for _, w in group) for group in groups]
        for k in np.argsort(-probabilities, kind="stable"):
            overlaps = {g: float(pairwise_iou(means[g][None], boxes[k][None])[0, 0]) for g in free}
            best = max(overlaps, key=lambda g: overlaps[g], default=None)
            if best is not None and overlaps[best] >= SAME_BOX:
                groups[best].append((boxes[k], probabilities[k]))
                free.remove(best)
            else:
                groups.append([(boxes[k], probabilities[k])])
    return [
        (
            (sum(w * b for b, w in group) / sum(w for _, w in group)).tolist(),  # type: ignore[union-attr]
            sum(w for _, w in group) / len(found),
        )
        for group in groups
    ]


def crowd(rng: np.random.Generator, calls: FloatArray) -> Found:
    """Boxes near some of the calls, and a few elsewhere."""
    near = calls[rng.random(len(calls)) < 0.8]
    near = near + rng.normal(0, 1.0, near.shape)
    corner = rng.uniform(0, 100, (3, 2))
    boxes = np.concatenate([near, np.concatenate([corner, corner + rng.uniform(4, 20, (3, 2))], axis=1)])
    return boxes, rng.uniform(0.02, 1, len(boxes))


@pytest.mark.parametrize("n_detectors", [1, 2, 3])
def test_fusion_agrees_with_the_naive_one(n_detectors: int) -> None:
    rng = np.random.default_rng(n_detectors)
    for _ in range(20):
        corner = rng.uniform(0, 100, (8, 2))
        calls = np.concatenate([corner, corner + rng.uniform(6, 30, (8, 2))], axis=1)
        found = [crowd(rng, calls) for _ in range(n_detectors)]
        boxes, scores = fuse_boxes(found)
        expected = sorted(naive_fusion(found), key=lambda one: (one[1], one[0]))
        order = np.lexsort((boxes[:, 0], scores))
        np.testing.assert_allclose(scores[order], [score for _, score in expected], atol=1e-12)
        np.testing.assert_allclose(boxes[order], [box for box, _ in expected], atol=1e-9)


def test_nothing_found_by_one_or_by_all() -> None:
    nothing = np.empty((0, 4)), np.empty(0)
    box = np.array([[1.0, 2, 3, 4]]), np.array([0.8])
    for found in ([nothing, box], [box, nothing]):
        boxes, scores = fuse_boxes(found)
        assert boxes.tolist() == box[0].tolist()
        assert scores.tolist() == [0.4]
    assert fuse_boxes([nothing, nothing])[0].shape == (0, 4)


def test_boxes_without_any_probability_are_fused_halfway() -> None:
    first, second = (np.array([[start, 0.0, start + 10, 4.0]]) for start in (0.0, 1.0))
    boxes, scores = fuse_boxes([(first, np.zeros(1)), (second, np.zeros(1))])
    assert boxes.tolist() == [[0.5, 0.0, 10.5, 4.0]]
    assert scores.tolist() == [0.0]


@pytest.mark.parametrize(("measured_from", "expected"), [(0.0, 0.01), (0.05, 0.05)])
def test_no_score_counts_that_no_calibration_was_measured_for(measured_from: float, expected: float) -> None:
    known = stored_calibration(Calibration(method="temperature", slope=1.0), least_score=measured_from)
    card = ModelCard(
        kind="detector",
        architecture=DetectorConfig.named("tiny"),
        normalisation=Normalisation(mean=0.0, std=1.0),
        calibration=known,
    )
    assert fusion_threshold(card) == pytest.approx(expected)
    assert fusion_threshold(card.model_copy(update={"calibration": None})) == 0.01
