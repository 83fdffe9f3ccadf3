"""Whether the paper's propositions about self-training hold in real figures.

    python -m mast_studies.propositions runs/premise/soundscape-bench-4/found --out results/propositions.json

Prop. "Self-training reduces distributional gap" and the first condition of Prop. "monotonic OOD improvement" speak of
π_q · ρ_q: it should rise from round to round. It was measured on the unlabelled sound while training, and is read from
what the self-trained system left. Prop. "Confidence weighting" assumes that errors fall as confidence rises, and
concludes that weighting chunks by ḡ(S) lowers the noise in training. Both are measured here: the boxes of the
first teacher from its threshold up, in the test parts, stand for pseudo-labels.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from mast.errors import MastError
from mast.evaluation.outcome import Outcome
from mast.evaluation.part_tables import PartTables, parts_in
from mast_studies.found import NOT_TESTS, load_about
from mast_studies.record import TrainingRecord, write_result
from mast_studies.script import run_script

GROUPS = 5
TEACHER, STUDENT = "from_scratch", "from_scratch_st"


def error_by_confidence(outcome: Outcome, threshold: float | None, *, groups: int = GROUPS) -> list[float]:
    """The share of wrong boxes in groups of equal size, from the least to the most confident."""
    kept = outcome.kept(threshold)
    wrong = ~outcome.hit[:kept][::-1]  # scores descend
    return [float(own.mean()) for own in np.array_split(wrong, groups) if len(own)]


def noise(outcome: Outcome, threshold: float | None) -> dict[str, float]:
    """The share of wrong boxes in a chunk, averaged over chunks: unweighted, and with the paper's weight ḡ(S)."""
    kept = outcome.kept(threshold)
    where = np.stack([outcome.recording[:kept], outcome.chunk[:kept]], axis=1)
    _, chunk = np.unique(where, axis=0, return_inverse=True)
    boxes = np.bincount(chunk)
    wrong = np.bincount(chunk, weights=~outcome.hit[:kept]) / boxes
    confidence = np.bincount(chunk, weights=outcome.scores[:kept]) / boxes
    return {
        "chunks": len(boxes),
        "uniform": float(wrong.mean()),
        "weighted": float(np.average(wrong, weights=confidence)),
    }


def rounds_of(about: dict[str, Any]) -> list[dict[str, float]]:
    """π_q, ρ_q and their product in every round of a self-trained system."""
    return [
        {
            "round": row["round"],
            "precision": round(row["precision"], 4),
            "recall": round(row["recall"], 4),
            "product": round(row["precision"] * row["recall"], 4),
        }
        for row in about.get("pseudo_labels", [])
    ]


def check(found: Path) -> dict[str, Any]:
    """All figures of one world, from the folder of what systems found in it."""
    parts = [part for part in parts_in(found / TEACHER) if part not in NOT_TESTS]
    if not parts:
        raise MastError(f"{found}: has no tables of {TEACHER}; run `mast experiment premise` with it first")
    figures: dict[str, Any] = {"rounds": rounds_of(load_about(found / STUDENT)), "parts": {}}
    for part in parts:
        tables = PartTables.load(found / TEACHER, part)
        outcome = tables.match()
        figures["parts"][part] = {
            "boxes": outcome.kept(tables.threshold),
            "error, least to most confident": [
                round(value, 4) for value in error_by_confidence(outcome, tables.threshold)
            ],
            "noise": {name: round(value, 4) for name, value in noise(outcome, tables.threshold).items()},
        }
    return figures


def main() -> None:
    """Check the propositions on one world and write the result."""
    parser = argparse.ArgumentParser(description="The propositions about self-training, on real figures.")
    parser.add_argument("found", type=Path, help="what systems found in one world")
    parser.add_argument("--out", type=Path, default=Path("results/propositions.json"))
    args = parser.parse_args()
    figures = check(args.found)
    abouts = {name: load_about(args.found / name) for name in (TEACHER, STUDENT)}
    trained = [
        TrainingRecord(name, int(about["seed"]), str(about.get("commit", "")), about.get("recipe"))
        for name, about in abouts.items()
        if about
    ]
    write_result(args.out, figures, seed=[one.seed for one in trained][:1], trainings=trained)
    print(args.out)


if __name__ == "__main__":
    run_script(main)
