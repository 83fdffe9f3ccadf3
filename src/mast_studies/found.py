"""What a system found in each part of a dataset, on disk: all that tables and figures are made from.

    WORK/<dataset>-<seed>/found/<system>/<part>.*      tables of each part, as mast.evaluation.PartTables keeps them
                                        about.json     what it is, what it cost; written last

Once this exists, the models are no longer needed, so it is all that has to be copied back from a borrowed GPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mast.evaluation.part_tables import has_part, parts_in
from mast.files import write_atomic

FOUND = "found"
NOT_TESTS = frozenset({"train", "val"})


@dataclass(frozen=True)
class Trial:
    """One dataset and seed below a work folder; systems in ``left_out`` are ignored, whatever they found."""

    dataset: str
    seed: int
    folder: Path
    left_out: frozenset[str] = frozenset()

    @classmethod
    def at(cls, work: Path, dataset: str, seed: int) -> Trial:
        """The trial of that name, whether anything was found yet or not."""
        return cls(dataset, seed, work / f"{dataset}-{seed}")

    def system(self, name: str) -> Path:
        """The folder of a system's tables."""
        return self.folder / FOUND / name

    def systems(self) -> list[str]:
        """The systems with tables for at least one part."""
        folders = sorted(path for path in self.folder.glob(f"{FOUND}/*") if path.is_dir())
        return [folder.name for folder in folders if folder.name not in self.left_out and parts_in(folder)]

    def has(self, system: str, part: str) -> bool:
        """Whether a system was measured on a part."""
        return system not in self.left_out and has_part(self.system(system), part)

    def parts(self, system: str) -> list[str]:
        """The parts it was measured on, by name."""
        return parts_in(self.system(system))


def trials(work: Path) -> list[Trial]:
    """Every dataset and seed of a work folder, by name and number."""
    found = []
    for folder in work.glob(f"*/{FOUND}"):
        dataset, dash, seed = folder.parent.name.rpartition("-")
        if dash and seed.isdigit():
            found.append(Trial(dataset, int(seed), folder.parent))
    return sorted(found, key=lambda trial: (trial.dataset, trial.seed))


def save_about(folder: Path, about: Mapping[str, Any]) -> None:
    """Save what else is known about a system or its embeddings; called last, after their tables."""
    write_atomic(folder / "about.json", json.dumps(dict(about), indent=2).encode())


def load_about(folder: Path) -> dict[str, Any]:
    """What is known about a system or its embeddings; empty where nothing was recorded."""
    try:
        about: dict[str, Any] = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    except OSError:
        return {}
    return about
