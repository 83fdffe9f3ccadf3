"""What is right and wrong at other sites: by site, by length of songs, by species, and by kind of false alarm.

    python -m mast_studies.other_sites --world data/bench-1 runs/premise/soundscape-bench-1/found \\
        --out results/other_sites.json

Each world is a folder of soundscape-bench and a folder of what systems found in it (``<system>/site_ood.*``, as
``mast experiment`` keeps them).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mast.data.recordings import Dataset, load_dataset
from mast.data.soundscape_bench import MARK
from mast.evaluation.outcome import Outcome
from mast.evaluation.part_tables import PartTables, has_part
from mast.evaluation.threshold import best_threshold_of
from mast.events import boxes_of, pairwise_overlap
from mast_studies.found import load_about
from mast_studies.record import TrainingRecord, write_result
from mast_studies.script import run_script

PART = "site_ood"
LONG_S = 5.0  # results are also given without recordings that hold a longer call
# overlaps that tell kinds of false alarm apart
DUPLICATE_IOU, NEAR_IOU, INSIDE_SHARE, TOUCHING_IOU = 0.5, 0.3, 0.7, 0.05
KINDS = ("again", "badly fitting", "part of a call", "round several", "beside a call", "nothing there")


def kinds_of_false_alarms(outcome: Outcome, threshold: float | None) -> dict[str, int]:
    """How many boxes from the threshold up are wrong, by what they are; the first kind that applies.

    again: IoU of 0.5 with a call that a better box has found; badly fitting: IoU of 0.3; part of a call: seven tenths
    of the box lie in a call; round several: it holds seven tenths of a call; beside a call: IoU of 0.05; nothing
    there: less.
    """
    scene, kept = outcome.scene, outcome.kept(threshold)
    order = np.argsort(-scene.scores, kind="stable")[:kept]
    wrong = order[~outcome.hit[:kept]]
    counts: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
    for recording in np.unique(scene.predictions.recording[wrong]):
        own = scene.predictions.boxes[wrong[scene.predictions.recording[wrong] == recording]]
        calls = scene.truth.boxes[scene.truth.recording == recording]
        if not len(calls):
            counts["nothing there"] += len(own)
            continue
        shared, size, call_size = pairwise_overlap(own, calls)
        iou = (shared / (size + call_size - shared)).max(axis=1)
        inside, holds = (shared / size).max(axis=1), (shared / call_size).max(axis=1)
        tests = (
            iou >= DUPLICATE_IOU,
            iou >= NEAR_IOU,
            inside >= INSIDE_SHARE,
            holds >= INSIDE_SHARE,
            iou >= TOUCHING_IOU,
        )
        counts.update(np.select(tests, KINDS[:-1], KINDS[-1]).tolist())
    return dict(counts)


def evaluate_recordings(tables: PartTables, recordings: pd.Series) -> dict[str, Any]:
    """F1 and AP50 in some recordings alone, at the threshold chosen on validation."""
    truth, found, heard = (
        table[table["recording"].isin(recordings)] for table in (tables.truth, tables.found, tables.heard)
    )
    metrics = replace(tables, truth=truth, found=found, heard=heard).evaluate().metrics
    return {
        "recordings": int(heard["recording"].nunique()),
        "boxes": len(truth),
        **{name: round(float(metrics[name]), 4) for name in ("f1", "precision", "recall", "ap50")},
    }


def recall_by_species(tables: PartTables, outcome: Outcome, bench: Dataset) -> dict[str, dict[str, Any]]:
    """The share of calls found, for species with calls in train and for the others.

    Args:
        tables: the tables of one system.
        outcome: its matches.
        bench: the labelled dataset, whose boxes give the species.
    """
    calls, recordings = bench.annotations.events, bench.recordings
    trained_on = calls["recording"].isin(recordings.loc[recordings["split"] == "train", "file"])
    at_home = calls["label"].isin(calls.loc[trained_on, "label"].unique()).to_numpy()
    found = np.zeros(len(tables.truth), dtype=bool)
    matched = outcome.truth[: outcome.kept(tables.threshold)]
    found[outcome.scene.truth.row[matched[matched >= 0]]] = True
    known = np.zeros(len(tables.truth), dtype=bool)
    for name, rows in tables.truth.reset_index(drop=True).groupby("recording").groups.items():
        own = np.flatnonzero(calls["recording"] == name)
        # chunks cut calls, so a box lies in its call; where calls overlap, the best fit counts
        shared, size, call_size = pairwise_overlap(
            boxes_of(tables.truth.iloc[rows]), boxes_of(calls.iloc[own])
        )
        fit = shared / size + shared / (size + call_size - shared)
        known[rows] = at_home[own[fit.argmax(axis=1)]]
    return {
        where: {"boxes": int(chosen.sum()), "recall": round(float(found[chosen].mean()), 4)}
        for where, chosen in (("at home, too", known), ("not at home", ~known))
        if chosen.any()
    }


def analyse_system(tables: PartTables, never_heard: list[str], bench: Dataset) -> dict[str, Any]:
    """All figures of one system; sites are the first part of a recording's name."""
    names = tables.heard["recording"].astype(str).drop_duplicates()
    unheard = names.str.split("_").str[0].isin(never_heard)
    length_s = tables.truth["end_s"] - tables.truth["start_s"]
    outcome = tables.match()
    best = best_threshold_of(outcome)
    long = names.isin(tables.truth.loc[length_s > LONG_S, "recording"])
    return {
        "all": evaluate_recordings(tables, names),
        "heard without labels": evaluate_recordings(tables, names[~unheard]),
        "never heard": evaluate_recordings(tables, names[unheard]),
        f"without calls over {LONG_S:g} s": evaluate_recordings(tables, names[~long]),
        "species": recall_by_species(tables, outcome, bench),
        "false alarms": kinds_of_false_alarms(outcome, tables.threshold),
        "threshold": {
            "chosen at home": None if tables.threshold is None else round(tables.threshold, 3),
            "best here": round(best.value, 3),
            "f1 with the best": round(best.f1, 4),
        },
    }


def analyse_world(bench: Path, found: Path) -> dict[str, Any]:
    """The figures of each system below ``found``, by name."""
    about = json.loads((bench / MARK).read_text(encoding="utf-8"))
    never_heard = about["found"]["never_heard"]
    labelled = load_dataset(bench / "labelled")
    return {
        "seed": about["seed"],
        "never heard": never_heard,
        "systems": {
            one.name: analyse_system(PartTables.load(one, PART), never_heard, labelled)
            for one in systems_in(found)
        },
    }


def systems_in(found: Path) -> list[Path]:
    """Folders of the systems that were measured at other sites."""
    return sorted(folder for folder in found.iterdir() if has_part(folder, PART))


def training_of(system: Path, seed: int) -> TrainingRecord:
    """Where a system came from, as far as it was recorded."""
    about = load_about(system)
    return TrainingRecord(
        f"world {seed}, {system.name}", seed, str(about.get("commit", "")), about.get("recipe")
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--world", type=Path, nargs=2, action="append", required=True, metavar=("BENCH", "FOUND")
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    worlds = [analyse_world(bench, found) for bench, found in options.world]
    write_result(
        options.out,
        {"worlds": worlds},
        seed=[world["seed"] for world in worlds],
        trainings=[
            training_of(system, world["seed"])
            for world, (_, found) in zip(worlds, options.world, strict=True)
            for system in systems_in(found)
        ],
    )


if __name__ == "__main__":
    run_script(main)
