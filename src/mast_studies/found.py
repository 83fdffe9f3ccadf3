"""What a system found in each part of a dataset, on disk: all that tables and figures are made from.

    WORK/<dataset>-<seed>/found/<system>/<part>.truth.parquet, .predictions.parquet, .reviewed.parquet
                                        threshold.json     the score that validation chose
                                        about.json         what it is, what it cost; written last

Boxes are in cells of the front end (frames and mel bins), as :func:`mast.training.measure.detect_chunks` gives them.
Models are not needed any more once this is there, so it is what has to come home from a borrowed GPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from mast.errors import MastError
from mast.files import whole_file, write_whole
from mast.training.measure import Measured

KINDS = Measured._fields
FOUND = "found"
NOT_TESTS = frozenset({"train", "val"})


@dataclass(frozen=True)
class Trial:
    """One dataset and seed below a work folder."""

    dataset: str
    seed: int
    folder: Path

    @classmethod
    def at(cls, work: Path, dataset: str, seed: int) -> Trial:
        """The trial of that name, whether there is anything yet or not."""
        return cls(dataset, seed, work / f"{dataset}-{seed}")

    def system(self, name: str) -> Path:
        """The folder of a system's tables."""
        return self.folder / FOUND / name

    def systems(self) -> list[str]:
        """Those with tables of at least one part."""
        tables = sorted(self.folder.glob(f"{FOUND}/*/*.{KINDS[0]}.parquet"))
        return list(dict.fromkeys(path.parent.name for path in tables))

    def parts(self, system: str) -> list[str]:
        """The parts it was measured on, by name."""
        suffix = f".{KINDS[0]}.parquet"
        return sorted(path.name.removesuffix(suffix) for path in self.system(system).glob(f"*{suffix}"))


def trials(work: Path) -> list[Trial]:
    """Every dataset and seed of a work folder, by name and number."""
    found = []
    for folder in work.glob(f"*/{FOUND}"):
        dataset, dash, seed = folder.parent.name.rpartition("-")
        if dash and seed.isdigit():
            found.append(Trial(dataset, int(seed), folder.parent))
    return sorted(found, key=lambda trial: (trial.dataset, trial.seed))


def save_part(folder: Path, part: str, measured: Measured) -> None:
    """Keep the tables of one part; the truth last, as it says that the others are there."""
    for kind in sorted(KINDS, key=lambda kind: kind == KINDS[0]):
        with whole_file(folder / f"{part}.{kind}.parquet") as path:
            getattr(measured, kind).to_parquet(path, index=False, compression="zstd")


def load_part(folder: Path, part: str) -> Measured:
    """The tables of one part."""
    return Measured(*(pd.read_parquet(folder / f"{part}.{kind}.parquet") for kind in KINDS))


def has_part(folder: Path, part: str) -> bool:
    """Whether the tables of a part are there."""
    return (folder / f"{part}.{KINDS[0]}.parquet").is_file()


def save_threshold(folder: Path, threshold: float) -> None:
    """Keep the threshold; before any part, so that a part that is there can be measured."""
    write_whole(folder / "threshold.json", json.dumps({"score": threshold}).encode())


def save_about(folder: Path, about: Mapping[str, Any]) -> None:
    """Keep what else is known of the system; after all parts."""
    write_whole(folder / "about.json", json.dumps(dict(about), indent=2).encode())


def load_threshold(folder: Path) -> float:
    """The score from which a box counts; chosen on validation."""
    try:
        return float(json.loads((folder / "threshold.json").read_text(encoding="utf-8"))["score"])
    except (OSError, ValueError, KeyError, TypeError):
        raise MastError(
            f"{folder / 'threshold.json'}: is not there or holds no score; delete {folder} and run the system again"
        ) from None


def load_about(folder: Path) -> dict[str, Any]:
    """What is known of a system; nothing where it was not written down."""
    try:
        about: dict[str, Any] = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    except OSError:
        return {}
    return about
