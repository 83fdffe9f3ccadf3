"""The stages that decide how boxes are drawn: by the start, then by what was trained from it. Nothing is trained here.

The boxes to learn from and those of validation choose the habit and the start's threshold together, with the start's
detections: nothing is trained, so all of them may be used. A trained detector has seen the boxes to learn from, so
validation decides whether it still needs the habit: it may have learnt to draw that way by itself.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from accelerate.utils import broadcast_object_list

from mast.annotations.redraw import redraw_events
from mast.evaluation.evidence import tally_of
from mast.evaluation.part_tables import PartTables, merge_parts
from mast.evaluation.threshold import steady_threshold_of
from mast.files import replace_folder
from mast.fit.fit_run import FitRun, format_f1
from mast.fit.habit_choice import HabitChoice, choose_habit
from mast.fit.threshold_choice import ThresholdChoice, choose_threshold
from mast.habit import Habit
from mast.models.card import ModelCard, load_card
from mast.models.checkpoint import update_card
from mast.reports.fit_verdict import HABIT, START
from mast.training.chosen_chunks import Chunks
from mast.training.chunk_scores import detect_by_plan

FOLDER = "habit"  # next to the model that draws otherwise


def apply_habit(run: FitRun) -> None:
    """Replace the start by one that draws boxes as the user does, if held-back boxes show that it should."""
    if START not in run.detectors:
        return
    folder = run.out / FOLDER

    def work() -> dict[str, Any]:
        card = load_card(run.detectors[START])
        drawing, sure = broadcast_object_list([_choose(run, card)])[0]
        if run.machine.is_main:
            replace_folder(run.detectors[START], folder)
            known = {
                "habit": None if drawing.habit == Habit() else drawing.habit,
                "thresholds": {**card.thresholds, "score": sure.value},
            }
            update_card(folder, card.model_copy(update=known))
        run.machine.accelerator.wait_for_everyone()
        shown = (float(card.probabilities.apply(value)) for value in (sure.value, sure.start))
        return {
            "sentences": [drawing.sentence, sure.sentence(*shown)],
            "changed": drawing.habit != drawing.start or sure.value != sure.start,
        }

    chosen = "habit and threshold, on train and validation"
    inputs = {**run.common, **run.labels, **run.upstream("start"), "chosen": chosen}
    found = run.do("habit", inputs, (folder / "model.json",), work)
    card = load_card(folder)
    run.habit, run.threshold = card.habit or Habit(), card.thresholds["score"]
    for sentence in filter(None, found["sentences"]):
        run.say(sentence)
    if found["changed"]:
        run.add_detector(HABIT, folder, "habit")
        run.say(f"habit: validation F1 {format_f1(run.tallies[HABIT].f1)}")


def _choose(run: FitRun, card: ModelCard) -> tuple[HabitChoice, ThresholdChoice]:
    """What the boxes of train and validation say about how they are drawn, and about the minimum score."""
    own, labelled = card.thresholds["score"], run.sources.labelled
    # of overlapping chunks, every box would count twice
    parts = (run.parts["train"].without_overlap(labelled, run.recipe.front_end), run.parts["val"])
    low = min(own, run.recipe.train.score_threshold)
    measured = merge_parts(
        [_detect_as_given(run, run.detectors[START], own_part, min_score=low) for own_part in parts]
    )
    drawing = choose_habit(replace(measured, threshold=own), card.habit or Habit(), labelled.path)
    events = redraw_events(measured.found, drawing.habit, measured.front_end, labelled.path, threshold=own)
    return drawing, choose_threshold(replace(measured, found=events), own)


def with_habit(run: FitRun, stage: str, model: Path) -> tuple[Path, str]:
    """A trained detector as it is to be used, and the stage that made it.

    It draws by the habit of the user's boxes if that is better on validation, and is unchanged otherwise.

    Args:
        run: the run, after the habit was chosen.
        stage: the stage that trained the detector.
        model: the detector's folder.
    """
    if run.habit.changes_nothing or load_card(model).habit == run.habit:
        return model, stage
    folder, name = model.with_name(FOLDER), f"{stage}-habit"

    def work() -> dict[str, Any]:
        found: _HabitComparison = broadcast_object_list([_compare_habit(run, model)])[0]
        if run.machine.is_main:
            replace_folder(model, folder)
            if found.better:
                _write_habit(run, folder, found.threshold)
        run.machine.accelerator.wait_for_everyone()
        return {"better": found.better, "f1": found.f1, "without": found.without}

    inputs = {**run.common, **run.labels, **run.upstream(stage), **run.upstream("habit")}
    found = run.do(name, inputs, (folder / "model.json",), work)
    numbers = f"validation F1 {found['f1']:.3f}, {found['without']:.3f} without"
    if found["better"]:
        run.say(f"{stage}: the model draws {run.habit} ({numbers})")
    else:
        run.say(
            f"{stage}: drawing {run.habit} no longer helps the model, so its boxes stay as they are ({numbers})"
        )
    return folder, name


class _HabitComparison(NamedTuple):
    """A detector on validation, with the habit and without."""

    better: bool  # with it
    threshold: float  # for it
    f1: float
    without: float


def _compare_habit(run: FitRun, model: Path) -> _HabitComparison:
    """Whether the habit helps a trained detector on validation."""
    val_chunks, card = run.parts["val"], load_card(model)
    own = card.thresholds["score"]
    min_score = run.recipe.train.score_threshold
    given = replace(_detect_as_given(run, model, val_chunks, min_score=min_score), threshold=own)
    events = redraw_events(given.found, run.habit, given.front_end, val_chunks.path_of, threshold=own)
    drawn = replace(given, found=events)
    chosen = _threshold(run, drawn, own)
    f1, without = (tally_of(part).f1 or 0.0 for part in (replace(drawn, threshold=chosen), given))
    # the higher F1 wins, however few boxes there are: held-back boxes have shown the habit, so neither is safer
    return _HabitComparison(f1 > without, chosen, f1, without)


def _threshold(run: FitRun, drawn: PartTables, own: float) -> float:
    """A threshold for boxes as drawn; the model's own where validation has too few boxes to choose one."""
    few = run.sources.start.threshold(run.parts["val"]) is not None
    return own if few or drawn.truth.empty or drawn.found.empty else steady_threshold_of(drawn.match()).value


def _write_habit(run: FitRun, folder: Path, threshold: float) -> None:
    """Write the habit into a model; what its scores mean is measured on boxes as they are drawn now."""
    card = load_card(folder)
    thresholds = {**card.thresholds, "score": threshold}
    update_card(folder, card.model_copy(update={"habit": run.habit, "thresholds": thresholds}))
    run.calibrate(folder)


def _detect_as_given(run: FitRun, folder: Path, chunks: Chunks, *, min_score: float) -> PartTables:
    """Boxes as the model gives them, whatever its habit."""
    machine = run.machine
    model = machine.load(folder)
    model.card = model.card.model_copy(update={"habit": None})
    return detect_by_plan(model, chunks, run.recipe.train, machine, score_threshold=min_score)
