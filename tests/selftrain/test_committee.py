"""Boxes of several detectors as one list, beside a naive reference, and what a committee makes of its members."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from untrained_detector import gain_recipe, save_untrained

from mast.arrays import FloatArray
from mast.errors import MastError
from mast.events import pairwise_iou
from mast.hearing import HearingModel
from mast.models.card import load_card
from mast.models.checkpoint import load_checkpoint, save_checkpoint
from mast.probability import Calibration, StoredCalibration
from mast.selftrain.committee import SAME_BOX, Committee, fuse_boxes

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


def calibrated(folder: Path, *, seed: int, slope: float) -> HearingModel:
    """An untrained detector whose scores are not probabilities."""
    save_untrained(folder, seed=seed)
    model, card = load_checkpoint(folder)
    known = StoredCalibration(
        calibration=Calibration(method="temperature", slope=slope),
        n_recordings=1,
        n_truth=1,
        least_score=0.0,
        iou_threshold=0.5,
    )
    save_checkpoint(folder, model, card.model_copy(update={"calibration": known}))
    return HearingModel.load(folder, device="cpu")


def test_a_committee_gives_mean_probabilities_best_first(tmp_path: Path) -> None:
    members = [calibrated(tmp_path / str(n), seed=n, slope=0.3 + n) for n in (1, 2)]
    sound = torch.randn(2, gain_recipe().front_end.chunk_samples, generator=torch.Generator().manual_seed(0))
    together = Committee(members).detect(sound, score_threshold=0.2, nms_iou=0.5)
    for chunk, (boxes, scores) in enumerate(together):
        found: list[Found] = []
        for member in members:
            own = member.detect(sound, score_threshold=0.0, nms_iou=0.5)[chunk]
            chance = member.card.probabilities.apply(own.scores.double().numpy())
            seen = chance >= 0.01
            found.append((own.boxes.double().numpy()[seen], chance[seen]))
        all_boxes, all_scores = fuse_boxes(found)
        rows = {tuple(box): score for box, score in zip(all_boxes.round(3).tolist(), all_scores, strict=True)}
        assert len(boxes) > 3
        assert (scores.diff() <= 0).all()
        assert scores.min() >= 0.2
        for box, score in zip(boxes.numpy().round(3).tolist(), scores.tolist(), strict=True):
            assert rows[tuple(box)] == pytest.approx(score)
        overlap = pairwise_iou(boxes.numpy(), boxes.numpy())
        np.fill_diagonal(overlap, 0)
        assert overlap.max() <= 0.5


def test_a_committee_hears_one_band(tmp_path: Path) -> None:
    first = HearingModel.load(save_untrained(tmp_path / "a"), device="cpu")
    other = HearingModel.load(
        save_untrained(tmp_path / "b", seed=1),
        device="cpu",
        band_hz=load_card(tmp_path / "a").front_end.high_hz * 2,
    )
    with pytest.raises(MastError, match="hears another band"):
        Committee([first, other])
