"""The learner end to end on simulated sound: pretrain, train from it and from scratch, measure on unseen recordings.

    python scripts/learner.py --preset tiny --out results/learner_tiny.json

One site on one day; 35 labelled minutes at most go into training and validation (70/15 of them), the test minutes are
other recordings. Nothing is chosen on the test recordings: the threshold comes from validation.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.record import write_result
from mast.cli.recipes import recipe_from
from mast.data.recordings import load_dataset
from mast.data.simulate import Simulation, simulate_dataset
from mast.evaluation import Scoring, evaluate
from mast.models.checkpoint import load_checkpoint
from mast.reports.reconstruction import draw_reconstructions
from mast.training.detector import train_detector
from mast.training.measure import detect_chunks
from mast.training.pretrain import pretrain
from mast.training.recipe import Recipe
from mast.training.sources import labelled_chunks
from mast.training.spectrograms import FrontEndPipeline


def main() -> None:
    """Simulate, pretrain, train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--set", action="append", default=[], help="as in mast train")
    parser.add_argument("--labelled", type=int, default=35, help="minutes for training and validation")
    parser.add_argument("--test", type=int, default=20, help="minutes to measure on")
    parser.add_argument("--unlabelled", type=int, default=20, help="further minutes for pretraining")
    parser.add_argument("--no-scratch", action="store_true", help="only the pretrained detector")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("runs/learner"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    recipe = recipe_from(options.preset, None, options.set)
    labelled, unlabelled = make_data(options)
    figures: dict[str, Any] = {"preset": options.preset, "settings": options.set, "seed": options.seed}

    started = time.perf_counter()
    pretrained = options.work / "pretrain"
    result = pretrain([labelled, unlabelled], pretrained, recipe, seed=options.seed, progress=say("pretrain"))
    figures["pretraining"] = {**result.best, "minutes": minutes_since(started)}
    figures["pretraining"]["times_better_than_mean_patch"] = (
        result.best["mean_patch_error"] / result.best["error"]
    )
    draw_reconstructions(
        pretrained / "best", labelled, options.work / "reconstruction.png", seed=options.seed
    )
    print(json.dumps(figures["pretraining"]), flush=True)
    record(options, figures)

    starts = {"pretrained": pretrained / "best", "from_scratch": None}
    for name, init in list(starts.items())[: 1 if options.no_scratch else 2]:
        started = time.perf_counter()
        run = options.work / name
        result = train_detector(labelled, run, recipe, init=init, seed=options.seed, progress=say(name))
        figures[name] = {
            "minutes": minutes_since(started),
            "validation": result.best,
            "test": test_metrics(run / "best", labelled, recipe, options.seed),
        }
        print(name, json.dumps(figures[name]), flush=True)
        record(options, figures)


def record(options: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Write what is known so far: a run cut short keeps it."""
    if options.out:
        write_result(options.out, figures, seed=options.seed)


def make_data(options: argparse.Namespace) -> tuple[Path, Path]:
    """A labelled dataset with its test recordings marked, and unlabelled sound of the same world."""
    labelled, unlabelled = options.work / "labelled", options.work / "unlabelled"
    common = {"duration_s": 60.0, "days": 1, "hours": (5.0, 9.0), "ood_sites": 0, "ood_days": 0}
    if not (labelled / "boxes.csv").exists():
        total = options.labelled + options.test
        simulate_dataset(labelled, Simulation(recordings=total, sites=1, seed=options.seed, **common))
        listing = pd.read_csv(labelled / "recordings.csv", dtype=str)
        listing["split"] = ["test" if i % total >= options.labelled else "" for i in range(total)]
        listing.to_csv(labelled / "recordings.csv", index=False)
    if not (unlabelled / "boxes.csv").exists():
        simulate_dataset(
            unlabelled, Simulation(recordings=options.unlabelled, sites=3, seed=options.seed, **common)
        )
    return labelled, unlabelled


def test_metrics(model_folder: Path, data: Path, recipe: Recipe, seed: int) -> dict[str, Any]:
    """Metrics with intervals on the test part, at the threshold stored with the model."""
    model, card = load_checkpoint(model_folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pipeline = FrontEndPipeline.of(card).to(device)
    part = labelled_chunks(load_dataset(data), recipe.front_end, seed=seed)["test"]
    measured = detect_chunks(model.to(device), part, pipeline)
    found = evaluate(
        measured.truth,
        measured.predictions,
        reviewed=measured.reviewed,
        scoring=Scoring(space="hz"),
        threshold=card.thresholds["score"],
        seed=seed,
    ).as_dict()
    keys = ("precision", "recall", "f1", "ap50", "ap50_voc11", "ap50_95", "miou", "threshold", "n_truth")
    return {key: found[key] for key in (*keys, "n_predictions", "intervals")}


def say(name: str) -> Any:
    """A line of progress every two hundred steps."""

    def show(done: int, total: int, text: str) -> None:
        if done % 200 < 10 or done == total:
            print(f"{name} {done}/{total} {text}", flush=True)

    return show


def minutes_since(started: float) -> float:
    """Rounded to a tenth."""
    return round((time.perf_counter() - started) / 60, 1)


if __name__ == "__main__":
    main()
