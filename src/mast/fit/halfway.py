"""Half of the way from the start to the trained detector: the mean of their weights.

Training from a few boxes learns what they show and forgets some of what the start knew of other sites and animals. The
mean of both keeps most of either (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models"), and costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from mast.evaluation.threshold import steady_threshold_of
from mast.fit.fit_run import FitRun, f1_words
from mast.models.checkpoint import load_card, load_checkpoint, save_checkpoint, update_card
from mast.reports.fit_verdict import HALFWAY, START
from mast.training.chunk_scores import look_at

FOLDER = "halfway"


def average(run: FitRun) -> None:
    """The mean of start and trained detector, where they have the same weights; it draws boxes as the start does."""
    if START not in run.detectors or not run.start_fits:
        return
    trained, folder = run.out / "train" / "best", run.out / FOLDER

    def work() -> dict[str, Any]:
        if run.machine.main:
            known = {"habit": None if run.habit.changes_nothing else run.habit, "calibration": None}
            save_mean(run.detectors[START], trained, folder, known)
            card = load_card(folder)
            thresholds = {**card.thresholds, "score": _threshold(run, folder)}
            update_card(folder, card.model_copy(update={"thresholds": thresholds}))
        run.machine.accelerator.wait_for_everyone()
        return {}

    inputs = {**run.common, **run.labels, **run.after("train"), **run.after("habit")}
    run.do(FOLDER, inputs, (folder / "model.json",), work)
    run.made(HALFWAY, folder, FOLDER)
    run.say(
        f"half-way: the mean of start and trained detector: validation F1 {f1_words(run.tallies[HALFWAY].f1)}"
    )


def save_mean(start: Path, trained: Path, out: Path, known: Mapping[str, Any]) -> None:
    """Write a detector whose weights are the mean of two; what only the trained one has is taken from there.

    Args:
        start: a model folder.
        trained: another, which started from it.
        out: for the mean.
        known: fields of its card; the others are those of the trained one.
    """
    theirs, found = load_checkpoint(start).model.state_dict(), load_checkpoint(trained)
    model, card = found.model, found.card
    with torch.no_grad():
        for name, own in model.state_dict().items():
            if name in theirs and own.is_floating_point():
                own.copy_(torch.lerp(theirs[name].to(own), own, 0.5))
    note = f"mean of the weights with those of {start}"
    provenance = {**card.provenance, "notes": [*card.provenance.get("notes", []), note]}
    save_checkpoint(out, model, card.model_copy(update={**known, "provenance": provenance}))


def _threshold(run: FitRun, folder: Path) -> float:
    """The start's, where validation has too few boxes to choose one."""
    if run.given_threshold is not None:
        return run.given_threshold
    held = run.parts["val"]
    measured = look_at(run.machine.load(folder), held, run.recipe.train, run.machine)
    if measured.truth.empty or measured.found.empty:
        return load_card(run.detectors[START]).thresholds["score"]
    return float(steady_threshold_of(measured.match()).value)
