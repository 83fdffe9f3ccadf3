"""A recipe that trains on short chunks in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mast.grid import FrontEnd
from mast.models.architecture import DECODER_SIZES, ENCODER_SIZES, DetectorConfig
from mast.models.card import ModelCard
from mast.models.checkpoint import save_checkpoint
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation
from mast.training.recipe import Recipe, load_recipe

FRONT_END = FrontEnd(n_bins=64, chunk_frames=256)  # 2.56 s


def use_smaller_models(patch: pytest.MonkeyPatch) -> None:
    """Let the tiny preset have 0.1 million weights, not 2: they are read, written and compared many times in a run."""
    patch.setitem(ENCODER_SIZES, "tiny", {"width": 48, "depth": 2, "heads": 3})
    patch.setitem(DECODER_SIZES, "tiny", {"decoder_width": 32, "decoder_depth": 1, "decoder_heads": 2})


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
