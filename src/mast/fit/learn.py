"""The stages that make detectors: plan → statistics → pretrain → start → train → self-train."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd
from accelerate.utils import broadcast_object_list

from mast.detect_options import DetectOptions
from mast.errors import MastError
from mast.files import replace_folder, write_atomic
from mast.fit.draw import with_habit
from mast.fit.fit_run import FitRun, format_f1
from mast.fit.inputs import start_fingerprint
from mast.fit.time_estimate import ChunkCounts, describe_estimate
from mast.habit import Habit
from mast.models.checkpoint import update_card
from mast.normalisation import Normalisation
from mast.reports.fit_verdict import NAMES, SELF_TRAINED, START, TRAINED
from mast.reports.reconstruction import draw_reconstructions
from mast.runs import Progress, flatten
from mast.selftrain.pseudo import sure_pseudo_labels
from mast.selftrain.rounds import RoundsRun, about_self_training, fit_rounds
from mast.selftrain.unlabelled import NothingUnlabelledError
from mast.training.chosen_chunks import STATISTICS_CHUNKS, measure_normalisation, unlabelled_chunks
from mast.training.detector_training import DetectorRun, about_detector, fit_detector
from mast.training.effort import Rates, adjust_recipe, measure_rates
from mast.training.pretraining import about_pretraining, fit_encoder
from mast.training.recipe import Recipe, save_recipe
from mast.training.start import Start
from mast.training.training_run import TrainingRun
from mast.wording import counted


def plan(run: FitRun, fixed: Collection[str] | None) -> None:
    """How long this run trains, and how long that takes here, measured; a resumed run keeps its plan."""
    start, train_chunks = run.sources.start, run.parts["train"]
    free = fixed is not None and start.is_detector
    inputs = {**run.common, **run.recipe_section("train"), **run.labels}
    if start.path is not None:
        inputs["init"] = start_fingerprint(start)
    if free:
        inputs["chosen"] = sorted(name for name in fixed or () if name.startswith("train."))

    def fitting(rates: Rates) -> Recipe:
        if not free:
            return run.recipe
        val_chunks = run.parts["val"]
        share = start.share(run.learnt, val_chunks, run.recipe.front_end)
        return adjust_recipe(
            run.recipe,
            len(train_chunks),
            held_boxes=val_chunks.n_boxes,
            start_share=share,
            fixed=fixed or (),
            rates=rates,
        )

    def work() -> dict[str, Any]:
        run.say("plan: measuring a few steps")
        rates = measure_rates(train_chunks, run.recipe, run.machine, pretrain=start.path is None)
        rates = Rates(*broadcast_object_list(list(rates)))
        device = "this GPU" if run.machine.device.type == "cuda" else "this machine without a GPU"
        run.say(f"plan: {describe_estimate(fitting(rates), _count_chunks(run), rates, device=device)}")
        return dict(rates._asdict())

    found = run.do("plan", inputs, (), work)
    run.recipe = fitting(Rates(**found))


def _count_chunks(run: FitRun) -> ChunkCounts:
    others = sum(len(chunks) for name, chunks in run.parts.items() if name not in ("train", "val"))
    sound_s = sum(float(d.recordings["duration_s"].sum()) for d in run.sources.unlabelled)
    unlabelled = round(2 * sound_s / run.recipe.front_end.chunk_s)  # chunks overlap by half
    n_pretrain = len(run.all_chunks[0]) if run.sources.start.path is None else 0
    return ChunkCounts(len(run.parts["train"]), len(run.parts["val"]), others, unlabelled, n_pretrain)


def statistics(run: FitRun) -> None:
    """μ and σ of the sound, for the first stage that trains."""
    if run.sources.start.card is not None:
        run.say(f"statistics: those of {run.sources.start.path} are kept")
        return
    path = run.out / "statistics" / "normalisation.json"
    inputs = {
        **run.common,
        **run.recipe_section("pretrain", only=("held_out", "max_chunks")),
        **run.sound,
    }

    def work() -> dict[str, Any]:
        n_chunks = min(sum(map(len, run.all_chunks)), STATISTICS_CHUNKS)
        run.say(f"statistics: mean and spread of {n_chunks:,} chunks")
        with run.bar("statistics") as progress:
            found = measure_normalisation(
                run.all_chunks, run.recipe, run.machine, seed=run.seed, progress=progress
            )
        if run.machine.is_main:
            write_atomic(path, found.model_dump_json().encode())
        run.say(f"statistics: mean {found.mean:.3f}, standard deviation {found.std:.3f}")
        return {"mean": found.mean, "std": found.std}

    run.do("statistics", inputs, (path,), work)
    run.normalisation = Normalisation.model_validate_json(path.read_text(encoding="utf-8"))


def pretrain(run: FitRun) -> None:
    """The encoder, where there is nothing to start from."""
    if run.sources.start.path is not None:
        run.say(f"pretrain: skipped, starting from {run.sources.start.path}")
        return
    folder = run.out / "pretrain"
    inputs = {**run.common, **run.recipe_section("pretrain"), **run.sound, **run.upstream("statistics")}

    def work() -> dict[str, Any]:
        train_chunks, val_chunks = run.all_chunks
        if not run.sources.unlabelled:
            run.say(
                "pretrain: no --unlabelled sound, so the labelled recordings are all there is to learn from"
            )
        run.say(
            f"pretrain: {counted(len(train_chunks), 'chunk')} of {run.recipe.front_end.chunk_s:g} s, "
            f"{len(val_chunks):,} held out, {counted(run.recipe.pretrain.epochs, 'epoch')}"
        )
        about = about_pretraining(run.sources.folders, Start(), seed=run.seed)
        _keep_recipe(run, folder, about)
        job = TrainingRun(run.recipe, run.machine, folder, about, Start(), run.seed, run.normalisation)
        with run.bar("pretrain") as progress:
            result = fit_encoder(train_chunks, val_chunks, job, progress=progress)
        if run.machine.is_main:
            picture = folder / "reconstruction.png"
            draw_reconstructions(folder / "best", run.sources.labelled.root, picture, seed=run.seed)
        run.say(
            f"pretrain: held-out error {result.best['error']:.3f} (guessing the mean: "
            f"{result.best['mean_patch_error']:.3f}), best after epoch {result.best_epoch}"
        )
        return {**result.best, "epoch": result.best_epoch}

    run.do("pretrain", inputs, (folder / "best" / "model.safetensors",), work, folder)


def start(run: FitRun, drawn: DetectOptions) -> None:
    """The detector to start from as is: training has to beat it.

    Args:
        run: so far.
        drawn: how it draws boxes, if that was requested.
    """
    start, folder = run.sources.start, run.out / "start"
    if not start.is_detector:
        return
    init, card = start.path, start.card
    assert init is not None
    assert card is not None
    start.check_front_end(run.recipe.front_end)
    here = card.at_band(run.recipe.front_end.high_hz)
    habit = drawn.resolve_habit(here.habit)

    def work() -> dict[str, Any]:
        if run.machine.is_main:
            replace_folder(init, folder)
            known = {"front_end": run.recipe.front_end, "habit": None if habit == Habit() else habit}
            update_card(folder, here.model_copy(update=known))
        return {}

    inputs = {**run.common, "init": start_fingerprint(start)}
    if habit != Habit():
        inputs["habit"] = str(habit)
    run.do("start", inputs, (folder / "model.json",), work)
    run.add_detector(START, folder, "start")
    run.say(f"start: {init}, as is: validation F1 {format_f1(run.tallies[START].f1)}")


def train(run: FitRun) -> None:
    """The detector on the expert's boxes."""
    folder, given = run.out / "train", run.sources.start
    begins = run.upstream("pretrain") if given.path is None else {"init": start_fingerprint(given)}
    # weights from elsewhere, without statistics of sound
    if given.path is not None and given.card is None:
        begins |= run.upstream("statistics")
    inputs = {**run.common, **run.recipe_section("train"), **run.labels, **begins}
    if run.given_threshold is not None:
        inputs["threshold"] = run.given_threshold

    def work() -> dict[str, Any]:
        run.say(
            f"train: {counted(len(run.parts['train']), 'chunk')}, {len(run.parts['val']):,} to validate on, "
            f"{counted(run.recipe.train.epochs, 'epoch')}"
        )
        start = given if given.path is not None else Start.find(run.out / "pretrain" / "best")
        train_chunks, val_chunks = run.parts["train"], run.parts["val"]
        about = about_detector(run.sources.labelled, start, seed=run.seed)
        _keep_recipe(run, folder, about)
        job = DetectorRun(
            run.recipe,
            run.machine,
            folder,
            about,
            start,
            run.seed,
            run.normalisation,
            plan=start.gentle_plan(run.recipe),
            threshold=run.given_threshold,
        )
        with run.bar("train") as progress:
            result = fit_detector(train_chunks, val_chunks, job, progress=progress)
        if job.plan.start_share:
            run.say(
                f"train: {run.learnt.size} are few, so the trained weights are averaged with the starting model's"
            )
        if run.given_threshold is None:
            run.say(f"train: validation F1 {result.best['f1']:.3f} after epoch {result.best_epoch}")
        else:  # the F1 at a threshold that these boxes chose would flatter
            run.say("train: done; validation has too few boxes to choose another threshold")
        return {**result.best, "epoch": result.best_epoch}

    run.do("train", inputs, (folder / "best" / "model.safetensors",), work, folder)
    run.add_detector(TRAINED, *with_habit(run, "train", folder / "best"))


def self_train(run: FitRun) -> None:
    """The detector on unlabelled sound."""
    if not run.sources.unlabelled:
        run.say("self-train: skipped, it needs sound without labels (--unlabelled FOLDER)")
        return
    folder = run.out / "selftrain"
    teacher = run.teacher = run.recommended if run.tallies and run.start_fits else TRAINED
    inputs = {
        **run.common,
        **run.recipe_section("selftrain"),
        **flatten({"train.detector": run.recipe.train.detector}),
        **run.labels,
        **{name: value for name, value in run.sound.items() if name.startswith("unlabelled")},
        **run.upstream(run.made_by[teacher]),
    }

    def work() -> dict[str, Any]:
        n_rounds = run.recipe.selftrain.rounds
        run.say(
            f"self-train: at most {n_rounds} round{'s' if n_rounds > 1 else ''}"
            f"{', from the starting model, which training did not beat' if teacher != TRAINED else ''}"
        )
        try:
            with run.bar("self-train") as progress:
                rows = _rounds(run, run.detectors[teacher], folder, progress)
        except MastError as error:
            if not (isinstance(error, NothingUnlabelledError) or _found_nothing(folder)):
                raise
            # after hours of training a detector and a report are worth more than a refusal
            if run.machine.is_main:
                replace_folder(run.detectors[teacher], folder / "best")
            name = "starting" if teacher == START else NAMES[teacher]
            run.say(f"self-train: skipped ({error}); continuing with the {name} detector")
            return {"left_out": str(error)}
        kept = rows[rows["kept"]].iloc[0]
        run.say(f"self-train: validation F1 {kept['f1']:.3f}, {rows['f1'].iloc[0]:.3f} before")
        return {"f1": float(kept["f1"]), "before": float(rows["f1"].iloc[0])}

    result = run.do("self-train", inputs, (folder / "best" / "model.safetensors",), work, folder)
    if "left_out" not in result:
        run.add_detector(SELF_TRAINED, *with_habit(run, "self-train", folder / "best"))


def _rounds(run: FitRun, initial: Path, folder: Path, progress: Progress) -> pd.DataFrame:
    """All rounds of self-training, from a detector on."""
    labelled, others = run.sources.labelled, [dataset.root for dataset in run.sources.unlabelled]
    start = Start.find(initial)
    about = about_self_training(labelled, others, start, seed=run.seed)
    _keep_recipe(run, folder, about)
    job = RoundsRun(run.recipe, run.machine, folder, about, start, run.seed)
    sources = unlabelled_chunks(others, run.recipe.front_end)
    return fit_rounds(
        labelled, run.parts, sources, job, progress=progress, say=lambda text: run.say(f"self-train: {text}")
    )


def _keep_recipe(run: FitRun, folder: Path, about: dict[str, Any]) -> None:
    """Write all settings next to the results; the ledger has decided already that the folder may be continued."""
    if run.machine.is_main:
        save_recipe(run.recipe, folder, about=about)


def _found_nothing(folder: Path) -> bool:
    """Whether a round of self-training had no pseudo-box to learn from."""
    return any(sure_pseudo_labels(path).empty for path in folder.glob("round-*/pseudo.parquet"))
