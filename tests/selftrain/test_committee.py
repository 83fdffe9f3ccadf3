"""What a committee makes of its members."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from toy_calibration import stored_calibration
from untrained_detector import gain_recipe, save_untrained

from mast.errors import MastError
from mast.events import pairwise_iou
from mast.inference.fusion import fuse_boxes
from mast.loaded_model import LoadedModel
from mast.models.card import load_card
from mast.models.checkpoint import load_checkpoint, save_checkpoint
from mast.probability import Calibration
from mast.selftrain.committee import Committee


def calibrated(folder: Path, *, seed: int, slope: float) -> LoadedModel:
    """An untrained detector whose scores are not probabilities."""
    save_untrained(folder, seed=seed)
    model, card = load_checkpoint(folder)
    known = stored_calibration(Calibration(method="temperature", slope=slope), least_score=0.0)
    save_checkpoint(folder, model, card.model_copy(update={"calibration": known}))
    return LoadedModel.load(folder, device="cpu")


def test_a_committee_gives_mean_probabilities_best_first(tmp_path: Path) -> None:
    members = [calibrated(tmp_path / str(n), seed=n, slope=0.3 + n) for n in (1, 2)]
    sound = torch.randn(2, gain_recipe().front_end.chunk_samples, generator=torch.Generator().manual_seed(0))
    together = Committee(members).detect(sound, score_threshold=0.2, nms_iou=0.5)
    for chunk, (boxes, scores) in enumerate(together):
        found = []
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
    first = LoadedModel.load(save_untrained(tmp_path / "a"), device="cpu")
    other = LoadedModel.load(
        save_untrained(tmp_path / "b", seed=1),
        device="cpu",
        band_hz=load_card(tmp_path / "a").front_end.high_hz * 2,
    )
    with pytest.raises(MastError, match="searches another band"):
        Committee([first, other])
