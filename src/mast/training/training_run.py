"""What decides a training run, apart from the chunks that it sees; pretraining and self-training alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mast.normalisation import Normalisation
from mast.training.machine import Machine
from mast.training.recipe import Recipe
from mast.training.start import Start


@dataclass(frozen=True)
class TrainingRun:
    """A training and its folder.

    Attributes:
        recipe: all settings.
        machine: where it happens.
        out: the folder.
        about: data, seed and origin, for the checkpoints.
        start: what it starts from.
        seed: of everything random.
        normalisation: of the sound, where the start has none; measured by default.
    """

    recipe: Recipe
    machine: Machine
    out: Path
    about: dict[str, Any]
    start: Start
    seed: int
    normalisation: Normalisation | None = None
