"""Self-training without training: a detector with large random weights, and a recipe of a few chunks."""

from __future__ import annotations

from pathlib import Path

import torch
from spread_scores import spread_scores
from toy_recipe import small_recipe

from mast.models.architecture import DetectorConfig
from mast.models.card import ModelCard
from mast.models.checkpoint import save_checkpoint
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation
from mast.training.recipe import Recipe


def gain_recipe(**more: object) -> Recipe:
    stage = {"epochs": 1, "validate_every_epochs": 1, "batch_size": 8}
    stages = {f"selftrain__stage{n}__{key}": value for n in (1, 2) for key, value in stage.items()}
    return small_recipe(**{"selftrain__threshold": 0.3, "selftrain__max_chunks": 8, **stages, **more})


def save_untrained(
    folder: Path, *, seed: int = 0, threshold: float = 0.5, channels: int | None = None
) -> Path:
    """A model folder with a detector that was never trained; a large last layer spreads its scores over (0, 1)."""
    recipe = gain_recipe()
    torch.manual_seed(seed)
    config = recipe.detector_for(recipe.selftrain.stage1)
    assert isinstance(config, DetectorConfig)
    model = MastDetector(config if channels is None else config.model_copy(update={"channels": channels}))
    spread_scores(model)
    card = ModelCard(
        kind="detector",
        architecture=model.config,
        front_end=recipe.front_end,
        normalisation=Normalisation(mean=-8.0, std=4.0),
        thresholds={"score": threshold, "nms_iou": 0.5},
    )
    save_checkpoint(folder, model, card)
    return folder
