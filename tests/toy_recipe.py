"""A recipe that trains on short chunks in seconds."""

from __future__ import annotations

from pathlib import Path

import torch

from mast.grid import FrontEnd
from mast.models.checkpoint import ModelCard, save_checkpoint
from mast.models.mast_detector import DetectorConfig, MastDetector
from mast.normalisation import Normalisation
from mast.training.recipe import Recipe, load_recipe

FRONT_END = FrontEnd(n_bins=64, chunk_frames=256)  # 2.56 s


def small_recipe(**overrides: object) -> Recipe:
    """The tiny preset on short chunks with a few steps; overrides as in ``train.epochs``."""
    settings: dict[str, object] = {
        "front_end": FRONT_END.model_dump(),
        "pretrain.batch_size": 8,
        "pretrain.epochs": 3,
        "pretrain.held_out": 0.2,
        "pretrain.validate_every_epochs": 1,
        "train.batch_size": 8,
        "train.epochs": 2,
        "train.lr": 1e-3,
        "train.validate_every_epochs": 1,
        "train.detector.channels": 32,
        "train.detector.levels": 3,
        "train.detector.head_convs": 1,
    }
    return load_recipe("tiny", settings | {k.replace("__", "."): v for k, v in overrides.items()})


def save_small_detector(folder: Path, *, score: float) -> Path:
    """The recipe's detector as it starts, as a model folder with this threshold."""
    config = small_recipe().detector
    assert isinstance(config, DetectorConfig)
    card = ModelCard(
        kind="detector",
        architecture=config,
        front_end=FRONT_END,
        normalisation=Normalisation(mean=-7.0, std=3.0),
        thresholds={"score": score, "nms_iou": 0.5},
    )
    torch.manual_seed(0)
    save_checkpoint(folder, MastDetector(config), card)
    return folder
