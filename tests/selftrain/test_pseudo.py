from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from mast.selftrain.pseudo import is_valid, labels_by_chunk
from mast.training.recipe import SelfTrainRecipe, load_recipe


def test_validity() -> None:
    boxes = torch.tensor(
        [
            [100.0, 10, 130, 20],  # fine
            [100.0, 10, 109, 20],  # too short
            [100.0, 10, 130, 11],  # too low
            [0.0, 10, 16, 20],  # a remnant at the start
            [240.0, 10, 256, 20],  # a remnant at the end
            [0.0, 10, 40, 20],  # cut by the edge, but most of it is here
        ]
    )
    found = is_valid(boxes, chunk_frames=256, min_frames=10, min_bins=2, border_frames=16)
    assert found.tolist() == [True, False, False, False, False, True]
    assert is_valid(torch.zeros(0, 4), chunk_frames=256, min_frames=1, min_bins=1, border_frames=0).shape == (
        0,
    )


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {"chunk": [2, 0, 2], "score": [0.2, 0.9, 0.6], "t1": [1.0, 2, 3], "f1": 0.0, "t2": 50.0, "f2": 9.0}
    )


def test_weight_is_the_mean_confidence_of_the_chunk() -> None:
    boxes, weights = labels_by_chunk(table(), 4, SelfTrainRecipe(empty_weight=0.05))
    assert weights == pytest.approx([0.9, 0.05, 0.4, 0.05])
    assert [len(b) for b in boxes] == [1, 0, 2, 0]
    assert np.array_equal(boxes[2], [[1, 0, 50, 9], [3, 0, 50, 9]])
    assert labels_by_chunk(table().iloc[:0], 2, SelfTrainRecipe()).weights == [0.1, 0.1]
    plain = labels_by_chunk(table(), 3, SelfTrainRecipe(confidence_weighting=False, empty_weight=1.0))
    assert plain.weights == [1.0, 1.0, 1.0]


def test_paper_is_the_table() -> None:
    s = load_recipe("paper").selftrain
    one, two = s.stage1, s.stage2
    assert (s.threshold, one.epochs, two.epochs, one.lr, two.lr) == (0.10, 80, 40, 1e-4, 5e-5)
    assert (one.warmup_epochs, two.warmup_epochs) == (8, 4)
    assert (one.backbone_lr_multiplier, two.backbone_lr_multiplier) == (0.1, 0.02)
    assert one.unfreezing is not None
    assert two.unfreezing is not None
    schedule = [
        (u.warmup_epochs, u.interval_epochs, u.blocks_per_stage, u.lr_multiplier)
        for u in (one.unfreezing, two.unfreezing)
    ]
    assert schedule == [(20, 10, 3, 0.005), (3, 6, 6, 0.05)]
    assert one.augmentation is not None
    assert two.augmentation is not None
    assert (one.augmentation.probability, two.augmentation.probability) == (0.9, 0.8)
    weights = [load_recipe("paper").detector_for(stage).contrastive_weight for stage in (one, two)]
    assert weights == [0.3, 0.2]


def test_switched_off_stays_off() -> None:
    recipe = load_recipe("tiny", {"train.detector.contrastive_weight": 0})
    assert recipe.detector_for(recipe.selftrain.stage1).contrastive_weight == 0
