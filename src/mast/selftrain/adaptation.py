"""A detector adapted to recordings nobody labelled: Stage 1 of self-training, without any expert's boxes.

Self-training as in the paper needs labelled recordings, to refine the detector and to measure it. Often there are none:
somebody has an archive from a new place and the embedded model. That model labels a sample of the archive, learns from
it, and is averaged with what it was (`mast adapt`). There is no validation to choose by, so the settings are fixed
(``presets/adapt.toml``), and the threshold moves until the detector finds as many boxes as before
(:mod:`mast.selftrain.scale`)::

    out/recipe.json, out/plan.json                 settings; how long it trains here
    out/unlabelled.parquet, out/pseudo.parquet     the chunks that were searched, and what was found in them
    out/best, out/adapted.json                     the adapted detector, and what it learnt from
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from accelerate import Accelerator

from mast.arrays import FloatArray, IntArray
from mast.errors import ConfigError
from mast.grid import FrontEnd
from mast.models.card import load_card
from mast.models.checkpoint import update_card
from mast.models.find import find_model
from mast.runs import ADAPTED, SILENT, Reporter, load_inputs, save_inputs
from mast.selftrain.admission import check_labellers
from mast.selftrain.labelling import load_labeller
from mast.selftrain.pseudo import UNLABELLED, PseudoLabels, labels_by_chunk, pseudo_label, save_events
from mast.selftrain.scale import match_box_counts, shift_calibration
from mast.selftrain.unlabelled import ChunkSources, sample_chunks, select_chunks, with_labels, without_labels
from mast.training.chosen_chunks import Chunks, decode_once, ordered_batches, unlabelled_chunks
from mast.training.chunk_scores import BoxFinder
from mast.training.detector_training import DetectorRun, fit_detector
from mast.training.effort import MAX_TRAINING_S, MIN_EPOCHS, chunks_seen, measure_rates
from mast.training.machine import prepare_machine
from mast.training.recipe import Recipe, TrainRecipe, check_and_save_recipe, load_recipe
from mast.training.start import Start, before_training
from mast.training.training_run import TrainingRun
from mast.wording import counted

RECIPE = resources.files("mast") / "presets" / "adapt.toml"
PLAN = "plan.json"
PSEUDO = "pseudo.parquet"
MAX_CHUNKS_SEARCHED = 5_000  # chunks that are searched for boxes to learn from: our choice, 7 hours of birds
MAX_CHUNKS_LEARNT = 2_000  # chunks to learn from; our choice
_COUNTED = 400  # chunks in which boxes are counted before and after; our choice
_MEASURED = 32  # chunks on which the ranges for eight bits are measured


@dataclass(frozen=True)
class Adapted:
    """The result of an adaptation.

    Attributes:
        model: folder of the adapted detector.
        heard: chunks that were searched for boxes to learn from.
        boxes: boxes found there.
        learnt: chunks that it learnt from.
    """

    model: Path
    heard: int
    boxes: int
    learnt: int


@dataclass(frozen=True, kw_only=True)
class _AdaptationRun(TrainingRun):
    """What all steps share."""

    reporter: Reporter

    @property
    def plan(self) -> TrainRecipe:
        return self.recipe.selftrain.stage1


def adapt(
    recordings: Sequence[Path],
    out: Path,
    *,
    init: str | Path = "default",
    band_hz: float | None = None,
    seed: int = 0,
    accelerator: Accelerator | None = None,
    reporter: Reporter = SILENT,
) -> Adapted:
    """Adapt a detector to recordings nobody labelled; ends in ``out/best``, a model folder.

    Args:
        recordings: folders; boxes there are ignored.
        out: the run's folder; a stopped run there is resumed.
        init: the detector, as :func:`mast.models.find.find_model` takes it.
        band_hz: upper edge of the band; the detector's own by default.
        seed: of the sample of chunks, order and augmentation.
        accelerator: device, precision and processes.
        reporter: how the run reports on itself.
    """
    start, recipe = _start_and_recipe(init, band_hz)
    machine = prepare_machine(recipe, accelerator)
    every = unlabelled_chunks(recordings, recipe.front_end)
    sources = sample_chunks(every, MAX_CHUNKS_SEARCHED, seed, 1)
    about = {
        "kind": "adapted",
        "unlabelled": [str(folder) for folder in recordings],
        "recordings": sum(len(dataset) for dataset, _ in every),
        "init": str(start.path),
        "seed": seed,
    }
    if machine.is_main:
        check_and_save_recipe(recipe, out, about=about)
    if (facts := load_inputs(out / ADAPTED, "heard", "boxes", "learnt")) is not None:
        reporter.say(f"{out}: is complete, and nothing has changed")
        return Adapted(out / "best", **facts)
    _report_short_recordings(every, recipe.front_end, reporter)
    job = _AdaptationRun(recipe, machine, out, about, start, seed, reporter=reporter)
    events = _label(job, sources)
    labels = labels_by_chunk(events, sum(len(table) for _, table in sources), recipe.selftrain)
    calls = sum(int(own.sum()) for own in labels.sure)
    n_heard = len(labels.boxes)
    if not calls:
        raise ConfigError(
            f"{start.path}: found nothing in the {counted(n_heard, 'chunk')} searched, so there is nothing to "
            "learn from; check --band, or give more recordings"
        )
    rows = sample_training_chunks(labels, MAX_CHUNKS_LEARNT, seed)
    reporter.say(
        f"found {counted(calls, 'box')} in {counted(n_heard, 'chunk')} of {recipe.front_end.chunk_s:g} s"
    )
    job, rows = _plan_training(job, sources, rows)
    with_calls = sum(bool(labels.sure[row].any()) for row in rows)
    reporter.say(f"learning from {counted(len(rows), 'chunk')}, {with_calls:,} of them with boxes")
    _learn(job, sources, labels, rows)
    _rescale(job, sources)
    facts = {"heard": n_heard, "boxes": calls, "learnt": len(rows)}
    if machine.is_main:
        save_inputs(out / ADAPTED, facts)
    return Adapted(out / "best", **facts)


def _start_and_recipe(init: str | Path, band_hz: float | None) -> tuple[Start, Recipe]:
    """The detector, and the settings with its architecture and front end."""
    start = Start.find(find_model(init))
    assert start.path is not None
    with resources.as_file(RECIPE) as path:
        recipe = load_recipe(path, {} if band_hz is None else {"band_hz": band_hz})
    if start.is_detector and start.detector is None:
        raise ConfigError(
            f"{start.path}: holds a baseline, which mast adapt cannot adapt; give a detector of MAST, or use mast "
            "selftrain, which needs labelled recordings, too"
        )
    recipe = start.adapt_recipe(recipe)
    check_labellers(start.path, (), recipe)
    return start, recipe


def _report_short_recordings(every: ChunkSources, front_end: FrontEnd, reporter: Reporter) -> None:
    """Report how many recordings are too short for a chunk and left out."""
    recordings = sum(len(dataset) for dataset, _ in every)
    short = recordings - sum(table["recording"].nunique() for _, table in every)
    if short:
        reporter.say(
            f"{short:,} of {counted(recordings, 'recording')} {'is' if short == 1 else 'are'} shorter than half a "
            f"chunk ({front_end.chunk_s / 2:g} s) and left out"
        )


def sample_training_chunks(labels: PseudoLabels, max_chunks: int, seed: int) -> IntArray:
    """Rows of the chunks to learn from: a sample of those with boxes, and at most as many without, in order.

    Most of an archive is quiet. Quiet chunks teach little, and calls would drown among them.
    """
    rng = np.random.default_rng([seed, 17])
    found = np.array([bool(own.any()) for own in labels.sure])
    calls, quiet = (rng.permutation(np.flatnonzero(part)) for part in (found, ~found))
    n_quiet = min(len(quiet), len(calls), max(max_chunks // 2, max_chunks - len(calls)))
    return np.sort(np.concatenate([calls[: max_chunks - n_quiet], quiet[:n_quiet]]))


def _label(job: _AdaptationRun, sources: ChunkSources) -> pd.DataFrame:
    """What the detector finds in the sample; kept on disk, so that a resumed run learns from the same boxes."""
    path, chunks_path = job.out / PSEUDO, job.out / UNLABELLED
    if path.exists() and chunks_path.exists():
        return pd.read_parquet(path)
    start = job.start
    assert start.path is not None
    assert start.card is not None
    chunks = without_labels(sources, job.recipe.front_end)
    with job.reporter.bar("find boxes") as progress:
        events = pseudo_label(
            load_labeller(start.path, (), job.recipe, job.machine),
            chunks,
            job.recipe.selftrain,
            threshold=start.card.thresholds["score"],
            source="pseudo",
            batch_size=job.machine.eval_batch(job.plan.batch_size),
            workers=job.machine.workers,
            progress=progress,
        )
    if job.machine.is_main:
        save_events(events, path)
        save_events(chunks.table[["root", "recording", "site", "start_s", "valid_s"]], chunks_path)
    return events


def _plan_training(
    job: _AdaptationRun, sources: ChunkSources, rows: IntArray
) -> tuple[_AdaptationRun, IntArray]:
    """The run with as many epochs as an hour of training allows on this machine, and the chunks to learn from."""
    path = job.out / PLAN
    known = load_inputs(path, "train") or {}
    if not known:
        measured = measure_rates(without_labels(sources, job.recipe.front_end), job.recipe, job.machine)
        known = {"train": measured.train}
        if job.machine.is_main:
            save_inputs(path, known)
    rate = float(known["train"])
    max_chunks = max(job.plan.batch_size, int(MAX_TRAINING_S / (MIN_EPOCHS * rate)))
    if len(rows) > max_chunks:
        rows = np.sort(np.random.default_rng([job.seed, 19]).permutation(rows)[:max_chunks])
    plan = job.plan
    if len(rows) < plan.batch_size:
        plan = plan.model_copy(update={"batch_size": max(1, len(rows))})
    epoch_s = chunks_seen(plan.model_copy(update={"epochs": 1}), len(rows)) * rate
    epochs = max(MIN_EPOCHS, min(plan.epochs, int(MAX_TRAINING_S / epoch_s)))
    plan = plan.model_copy(
        update={"epochs": epochs, "warmup_epochs": epochs / 20, "validate_every_epochs": epochs}
    )
    minutes = counted(math.ceil(epochs * epoch_s / 60), "minute")
    job.reporter.say(f"{counted(epochs, 'epoch')}, about {minutes} on this machine")
    selftrain = job.recipe.selftrain.model_copy(update={"stage1": plan})
    return replace(job, recipe=job.recipe.model_copy(update={"selftrain": selftrain})), rows


def _learn(job: _AdaptationRun, sources: ChunkSources, labels: PseudoLabels, rows: IntArray) -> None:
    """Stage 1, averaged with the start; nothing is held out, because there is nothing to measure on."""
    start = job.start
    assert start.card is not None
    own = select_chunks(sources, rows)
    train_chunks = with_labels(
        own, job.recipe.front_end, PseudoLabels(*([part[row] for row in rows] for part in labels))
    )
    nothing = without_labels(_sample_evenly(own, _MEASURED), job.recipe.front_end)
    run = DetectorRun(
        job.recipe,
        job.machine,
        job.out,
        job.about,
        start,
        job.seed,
        plan=job.plan,
        threshold=start.card.thresholds["score"],
    )
    with job.reporter.bar("learn") as progress:
        fit_detector(train_chunks, nothing, run, progress=progress)


def _rescale(job: _AdaptationRun, sources: ChunkSources) -> None:
    """Shift the start's threshold and probabilities so that the adapted detector finds as many boxes as the start."""
    start, best = job.start, job.out / "best"
    assert start.path is not None
    assert start.card is not None
    chunks = without_labels(_sample_evenly(sources, _COUNTED), job.recipe.front_end)
    chunks = decode_once(chunks, job.machine.device, workers=job.machine.workers)
    band_hz = job.recipe.front_end.high_hz
    before = collect_scores(job.machine.load(start.path, band_hz=band_hz), chunks, job)
    now = collect_scores(job.machine.load(best), chunks, job)
    threshold = start.card.thresholds["score"]
    shift = match_box_counts(before, now, threshold)
    card, stored = load_card(best), start.card.calibration
    known = {
        "thresholds": {**start.card.thresholds, "score": shift.to_new_score(threshold)},
        "calibration": None if stored is None else shift_calibration(before_training(stored), shift),
        "habit": start.card.at_band(band_hz).habit,
        "provenance": {name: value for name, value in card.provenance.items() if name != "metrics"},
    }
    if job.machine.is_main:
        update_card(best, card.model_copy(update=known))
    job.machine.accelerator.wait_for_everyone()


def collect_scores(model: BoxFinder, chunks: Chunks, job: _AdaptationRun) -> FloatArray:
    """The scores of all boxes that a detector finds in some chunks, down to the lowest considered."""
    scores = [torch.empty(0)]
    for batch in ordered_batches(
        chunks, batch_size=job.machine.eval_batch(job.plan.batch_size), workers=job.machine.workers
    ):
        found = model.detect(
            batch.waveforms, score_threshold=job.plan.score_threshold, nms_iou=job.plan.nms_iou
        )
        scores += [own.scores.float().cpu() for own in found]
    return np.asarray(torch.cat(scores).double().numpy())


def _sample_evenly(sources: ChunkSources, n: int) -> ChunkSources:
    """At most ``n`` of the chunks, evenly spread over all."""
    total = sum(len(table) for _, table in sources)
    rows = np.unique(np.linspace(0, total - 1, n).astype(int))
    return select_chunks(sources, rows)
