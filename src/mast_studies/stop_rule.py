"""What `selftrain.stop_when_no_gain` would have kept, and what that costs, when all rounds were trained anyway.

    python -m mast_studies.stop_rule --work runs/exp --out results/stop_rule.json

The rule looks at in-domain validation alone: a round whose F1 is not above the best so far is the last, and the best
model is kept. Here every round was trained, so what the rule would have kept can be compared with what it would have
thrown away.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mast_studies.collect import training_records
from mast_studies.record import write_result
from mast_studies.script import run_script
from mast_studies.study_tables import PARTS, Archive, Line

ROUNDS = ("mast", "mast_st_1", "mast_st")


def kept_round(validation: list[float]) -> int:
    """The round the rule keeps, given validation F1 before self-training and after each round.

    >>> kept_round([0.70, 0.73, 0.72]), kept_round([0.70, 0.69, 0.75]), kept_round([0.70, 0.71, 0.72])
    (1, 0, 2)
    """
    best = 0
    for number in range(1, len(validation)):
        if validation[number] <= validation[best]:
            break
        best = number
    return best


def main() -> None:
    """Read the options, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="of mast experiment rounds")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    archive = Archive(options.work, resamples=2)  # no intervals are needed
    figures = {name: measure_dataset(archive, name) for name in archive.dataset_names()}
    for name, found in figures.items():
        print(f"{name}: keeps round {found['kept']} of seeds {found['seeds']}")
        for part, row in found["f1"].items():
            print("  ", PARTS[part], {way: round(value, 3) for way, value in row.items()})
    seeds = sorted({trial.seed for trial in archive.trials})
    write_result(options.out, figures, seed=seeds, trainings=training_records(archive, ROUNDS))


def measure_dataset(archive: Archive, name: str) -> dict[str, Any]:
    """By part: mean F1 over seeds of what the rule keeps, of no round and of all rounds."""
    f1: dict[str, list[list[float]]] = {}
    seeds: tuple[int, ...] = ()
    for part in ("val", *(p for p in archive.parts(name) if p in PARTS)):
        rows = {row.system: row for row in archive.rows(name, part, [Line(system) for system in ROUNDS])}
        seeds = rows[ROUNDS[0]].seeds
        f1[part] = [[rows[system].by_seed["f1"][k] for system in ROUNDS] for k in range(len(seeds))]
    validation = f1.pop("val")
    kept = [kept_round(one) for one in validation]

    def mean(by_seed: list[list[float]], rounds: list[int]) -> float:
        return sum(one[number] for one, number in zip(by_seed, rounds, strict=True)) / len(rounds)

    table = {
        part: {
            "no round": mean(by_seed, [0] * len(kept)),
            "all rounds": mean(by_seed, [len(ROUNDS) - 1] * len(kept)),
            "the rule": mean(by_seed, kept),
        }
        for part, by_seed in f1.items()
    }
    return {"seeds": list(seeds), "kept": kept, "validation_f1": validation, "f1": table}


if __name__ == "__main__":
    run_script(main)
