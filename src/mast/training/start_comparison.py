"""Whether training helped: it has to beat the detector that it started from, unchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from mast.data.recordings import Dataset
from mast.evaluation.evidence import Finding, Tally, TrainingEvidence, judge_training, tally_of
from mast.grid import FrontEnd
from mast.training.chosen_chunks import Chunks, labelled_chunks
from mast.training.chunk_scores import detect_by_plan
from mast.training.machine import Machine, prepare_machine
from mast.training.recipe import Recipe, TrainRecipe
from mast.training.start import Start


def validation_tally(
    folder: Path,
    val_chunks: Chunks,
    plan: TrainRecipe,
    machine: Machine,
    *,
    front_end: FrontEnd | None = None,
) -> Tally:
    """What a detector gets right on validation chunks, at the threshold that it carries: what its user would get.

    Args:
        folder: a detector's model folder.
        val_chunks: labelled chunks that do not overlap.
        plan: lowest score, batch size.
        machine: where.
        front_end: of the chunks, where it is not the model's own but that one played at another speed.
    """
    model = machine.load(folder, band_hz=None if front_end is None else front_end.high_hz)
    measured = detect_by_plan(model, val_chunks, plan, machine)
    return tally_of(replace(measured, threshold=model.card.thresholds["score"]))


class StartComparison(NamedTuple):
    """What both get right on validation, and what that says."""

    as_is: Tally
    trained: Tally
    finding: Finding


def compare_with_start(
    dataset: Dataset, best: Path, start: Start, recipe: Recipe, *, seed: int = 0
) -> StartComparison:
    """The detector that a training started from and the one that it ended in, on validation.

    Args:
        dataset: as it was trained on.
        best: the trained detector's model folder.
        start: a detector.
        recipe: as it was trained with.
        seed: of the division into parts.
    """
    assert start.path is not None
    recipe = start.adapt_recipe(recipe)
    machine, parts = prepare_machine(recipe), labelled_chunks(dataset, recipe.front_end, seed=seed)
    val_chunks, learnt = parts["val"], learnt_from(parts["train"], dataset, recipe.front_end)
    learnt = learnt._replace(averaged=start.gentle_plan(recipe).start_share > 0)
    as_is = validation_tally(start.path, val_chunks, recipe.train, machine, front_end=recipe.front_end)
    trained = validation_tally(best, val_chunks, recipe.train, machine)
    return StartComparison(as_is, trained, judge_training(trained, as_is, learnt))


def learnt_from(train: Chunks, dataset: Dataset, front_end: FrontEnd) -> TrainingEvidence:
    """What a training on these chunks of a dataset learns from, each box once."""
    own = train.without_overlap(dataset, front_end)
    boxed = {name for name, boxes in zip(own.table["recording"], own.boxes, strict=True) if len(boxes)}
    return TrainingEvidence(own.n_boxes, len(boxed))
