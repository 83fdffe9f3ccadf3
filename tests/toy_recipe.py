"""A recipe that trains on short chunks in seconds."""

from __future__ import annotations

from mast.grid import FrontEnd
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
