"""Which detectors should label together: how good the boxes of two systems are when they are fused.

    python -m mast_studies.fused_systems runs/premise/soundscape-bench-4/found --out results/fused_systems.json

Each folder is what systems found in one world (``<system>/<part>.*``, as ``mast experiment`` keeps them). Scores become
probabilities by Platt scaling on validation, boxes are fused as those of teachers are in self-training
(:mod:`mast.selftrain.committee`), and the threshold is chosen on validation, as every system's is.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mast.errors import MastError
from mast.evaluation.calibration import calibrate
from mast.evaluation.part_tables import PartTables, has_part
from mast.evaluation.threshold import steady_threshold_of
from mast.events import BOX_COLUMNS, as_events, boxes_of
from mast.grid import events_to_cells, grid_to_events
from mast.inference.fusion import MIN_PROBABILITY, fuse_boxes
from mast.probability import Calibration
from mast_studies.other_sites import training_of
from mast_studies.record import write_result
from mast_studies.script import run_script

VALIDATION = "val"
PARTS = ("test", "temporal_ood", "site_ood")

Parts = dict[str, PartTables]


def fuse_systems(systems: Sequence[PartTables]) -> PartTables:
    """The detections of several systems in the same part, as one list; scores are probabilities already."""
    first = systems[0]
    tables = []
    for name in first.recordings:
        own = [system.found[system.found["recording"] == name] for system in systems]
        boxes, scores = fuse_boxes(
            [
                (events_to_cells(boxes_of(events), first.front_end), events["score"].to_numpy(dtype=float))
                for events in own
            ]
        )
        events = pd.DataFrame(grid_to_events(boxes, first.front_end), columns=BOX_COLUMNS)
        tables.append(events.assign(recording=name, score=scores))
    return replace(first, found=as_events(pd.concat(tables, ignore_index=True)), calibration=Calibration())


def with_probabilities(parts: Mapping[str, PartTables]) -> Parts:
    """A system's parts with probabilities for scores, learnt on validation."""
    scale = calibrate(parts[VALIDATION].match(), "platt")
    changed = {}
    for name, part in parts.items():
        chance = scale.apply(part.found["score"].to_numpy(dtype=np.float64))
        found = part.found.assign(score=chance)[chance >= MIN_PROBABILITY]
        changed[name] = replace(part, found=found.reset_index(drop=True), calibration=Calibration())
    return changed


def measure_parts(parts: Mapping[str, PartTables]) -> dict[str, dict[str, float]]:
    """F1 and AP50 of each part at the threshold that validation chooses."""
    threshold = steady_threshold_of(parts[VALIDATION].match()).value
    figures = {}
    for name, part in parts.items():
        metrics = replace(part, threshold=threshold).evaluate().metrics
        figures[name] = {key: round(float(metrics[key]), 4) for key in ("f1", "precision", "recall", "ap50")}
    return figures


def measure_world(folders: Sequence[Path]) -> dict[str, Any]:
    """Each system of a world alone, and every pair of them; pairs are named with ``+``."""
    systems = {
        folder.name: {part: PartTables.load(folder, part) for part in (VALIDATION, *PARTS)}
        for folder in folders
    }
    likely = {name: with_probabilities(parts) for name, parts in systems.items()}
    found = {name: measure_parts(parts) for name, parts in systems.items()}
    for pair in combinations(systems, 2):
        together = {
            part: fuse_systems([likely[name][part] for name in pair]) for part in (VALIDATION, *PARTS)
        }
        found["+".join(pair)] = measure_parts(together)
    return found


def seed_of(found: Path) -> int:
    """The world's seed, which is at the end of the parent folder's name."""
    _, dash, seed = found.parent.name.rpartition("-")
    if not dash or not seed.isdigit():
        raise MastError(f"{found}: expected a folder named found, inside one such as soundscape-bench-4")
    return int(seed)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "found", type=Path, nargs="+", help="folders of what systems found, one for each world"
    )
    parser.add_argument("--systems", default="", help="names separated by commas; all by default")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    wanted = [name for name in options.systems.split(",") if name]
    worlds, trainings = {}, []
    for found in options.found:
        folders = [
            folder
            for folder in sorted(found.iterdir())
            if all(has_part(folder, part) for part in (VALIDATION, *PARTS))
            and (not wanted or folder.name in wanted)
        ]
        if len(folders) < 2:
            raise MastError(f"{found}: holds fewer than two such systems; there is nothing to fuse")
        seed = seed_of(found)
        worlds[str(seed)] = measure_world(folders)
        trainings += [training_of(folder, seed) for folder in folders]
        for name, parts in worlds[str(seed)].items():
            figures = "  ".join(f"{part} {own['f1']:.3f}/{own['ap50']:.3f}" for part, own in parts.items())
            print(f"world {seed}, {name}: {figures}")
    write_result(options.out, {"worlds": worlds}, seed=[int(seed) for seed in worlds], trainings=trainings)


if __name__ == "__main__":
    run_script(main)
