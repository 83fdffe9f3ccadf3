"""Rounds of self-training: pseudo-labels → Stage 1 (exploration) → Stage 2 (expert refinement), again.

Each stage is a run of its own below the folder, so a killed one continues where it was::

    out/expert.parquet, out/round-0/metrics.json                 the expert's boxes; the initial model, measured
    out/round-1/unlabelled.parquet, out/round-1/pseudo.parquet   the chunks of this round, and their pseudo-labels
    out/round-1/committee.json                                   how well labellers do together, if there are several
    out/round-1/stage1/, …/stage2/                               and so on
    out/rounds.csv, out/best                                     the results

Choices (the best epoch of a stage, thresholds, whether a round helped) look at in-domain validation alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch.utils.data import ConcatDataset

from mast.data.band_filter import restrict_to_band
from mast.data.chunk_dataset import Example
from mast.data.chunks import default_split_of
from mast.data.recordings import Dataset, load_dataset
from mast.data.splits import SITE_OOD, TEMPORAL_OOD, SplitConfig
from mast.errors import MastError
from mast.files import replace_folder, write_json
from mast.models.card import load_card
from mast.models.find import find_model
from mast.runs import ROUNDS, Progress, Say
from mast.selftrain.admission import check_labellers
from mast.selftrain.averaging import AVERAGED, average_rounds
from mast.selftrain.labelling import TOGETHER, labeller_threshold, load_labeller
from mast.selftrain.policy import measure_trust
from mast.selftrain.pseudo import (
    UNLABELLED,
    keep_trusted,
    labels_by_chunk,
    max_row_length,
    pseudo_label,
    save_events,
    smallest_box,
)
from mast.selftrain.unlabelled import (
    ChunkSources,
    leave_out_measured,
    sample_chunks,
    with_labels,
    without_labels,
)
from mast.selftrain.watch import load_detector, watch_parts
from mast.table_files import write_table
from mast.training.chosen_chunks import Chunks, decode_once, labelled_chunks, unlabelled_chunks
from mast.training.chunk_scores import chunk_metrics, detect_by_plan
from mast.training.detector_training import DetectorRun, fit_detector
from mast.training.leakage import avoid_leakage
from mast.training.machine import prepare_machine
from mast.training.part_list import PART_LIST, list_parts
from mast.training.recipe import Recipe, TrainRecipe, check_and_save_recipe
from mast.training.start import Start
from mast.training.training_run import TrainingRun


@dataclass(frozen=True, kw_only=True)
class RoundsRun(TrainingRun):
    """What decides self-training, apart from the sound."""

    teachers: tuple[Path, ...] = ()  # other detectors, which label together with the model


@dataclass(frozen=True, kw_only=True)
class _Setting(RoundsRun):
    """What all rounds share."""

    train_chunks: Chunks
    val_chunks: Chunks
    watched: Mapping[str, Chunks]  # measured for the report, used for nothing
    pool: _UnlabelledPool
    progress: Progress | None


class _UnlabelledPool:
    """The unlabelled sound. Rounds that take a sample of it take different chunks, until all have had their turn."""

    def __init__(
        self, sources: ChunkSources, recipe: Recipe, seed: int, decode: Callable[[Chunks], Chunks]
    ) -> None:
        self.sources, self.recipe, self.seed, self.decode = sources, recipe, seed, decode
        self._last: tuple[ChunkSources, Chunks] | None = None

    def sample_for_round(self, number: int) -> tuple[ChunkSources, Chunks]:
        """The sources with the chunks of a round, and these chunks as one list without boxes."""
        own = sample_chunks(self.sources, self.recipe.selftrain.max_chunks, self.seed, number)
        if self._last is None or own is not self.sources:
            self._last = None  # the sound of the last round makes room for this one's
            self._last = own, self.decode(without_labels(own, self.recipe.front_end))
        return self._last


def self_train(
    data: Path | Dataset,
    unlabelled: Sequence[Path],
    init: str | Path,
    out: Path,
    recipe: Recipe,
    *,
    split: SplitConfig | None = None,
    seed: int = 0,
    teachers: Sequence[str | Path] = (),
    accelerator: Accelerator | None = None,
    progress: Progress | None = None,
    say: Say = lambda text: None,
    watch: Mapping[str, Chunks] | None = None,
) -> pd.DataFrame:
    """Improve a detector with unlabelled sound; ends in ``out/best``.

    That is the last round's model, as in the paper. With ``selftrain.stop_when_no_gain`` a round that does not raise F1
    on in-domain validation is the last one, and the best model until then is kept, be it the initial one.

    Args:
        data: the labelled dataset the detector was trained on, or its folder.
        unlabelled: folders of recordings; boxes there are ignored, and sound for validation or test is left out.
        init: the detector to start from, as :func:`mast.models.find.find_model` takes it; MAST, or the baseline that
            the recipe names.
        out: the run's folder; a killed run there is continued.
        recipe: its section ``selftrain`` decides.
        split: as when the detector was trained.
        seed: of everything random.
        teachers: other detectors, of whatever kind and size, that label together with the model: boxes that they agree
            on count for more. The model alone labels by default.
        accelerator: device, precision and processes.
        progress: called with steps done, steps in all and a short text.
        say: called with a sentence about each step.
        watch: further labelled chunks to measure after each stage, by name, cut end to end as
            :func:`mast.training.chosen_chunks.labelled_chunks` does; in addition to the dataset's own parts other than
            train and val (``selftrain.measure_other_parts``). They are only reported, and used for nothing else.

    Returns:
        One row for the initial model (round 0, stage ``initial``) and one per stage: ``round, stage, pseudo_boxes,
        pseudo_chunks, pseudo_threshold``, then ``f1, precision, recall, threshold, ap50, miou`` on in-domain
        validation, ``test_f1``, ``site_ood_f1`` and the like (with ``precision``, ``recall``, ``ap50``) at that
        threshold, and ``kept``, true for the model in ``out/best``; also in ``out/rounds.csv``.
    """
    start = Start.find(find_model(init))
    recipe = start.adapt_recipe(recipe)
    machine = prepare_machine(recipe, accelerator)
    dataset = restrict_to_band(data if isinstance(data, Dataset) else load_dataset(data), recipe.front_end)
    own, others = find_model(init), tuple(find_model(teacher) for teacher in teachers)
    check_labellers(own, others, recipe)
    dataset = avoid_leakage(dataset, (own, *others), recipe.front_end, split=split, seed=seed, say=say)
    about = about_self_training(dataset, unlabelled, start, split=split, seed=seed)
    parts = labelled_chunks(dataset, recipe.front_end, split=split, seed=seed)
    if others:
        about["teachers"] = [str(folder) for folder in others]
    sources = unlabelled_chunks(unlabelled, recipe.front_end)
    if machine.is_main:
        check_and_save_recipe(recipe, out, about=about)
        write_table(out / PART_LIST, list_parts(dataset, parts))
    run = RoundsRun(recipe, machine, out, about, start, seed, teachers=others)
    return fit_rounds(dataset, parts, sources, run, watch=watch, progress=progress, say=say)


def about_self_training(
    dataset: Dataset,
    unlabelled: Sequence[Path],
    start: Start,
    *,
    split: SplitConfig | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """What a self-training run records besides its recipe: everything else that decides its result."""
    return {
        "kind": "selftrain",
        "data": str(dataset.root),
        "unlabelled": [str(p) for p in unlabelled],
        "init": str(start.path),
        "seed": seed,
        "split": (split or default_split_of(dataset)).model_dump(mode="json"),
    }


def fit_rounds(
    dataset: Dataset,
    parts: Mapping[str, Chunks],
    sources: ChunkSources,
    run: RoundsRun,
    *,
    watch: Mapping[str, Chunks] | None = None,
    progress: Progress | None = None,
    say: Say = lambda text: None,
) -> pd.DataFrame:
    """All rounds of :func:`self_train`, which describes their results.

    Args:
        dataset: the labelled one.
        parts: its labelled chunks.
        sources: the unlabelled datasets with their chunks.
        run: everything else.
        watch: as in :func:`self_train`.
        progress: as in :func:`self_train`.
        say: as in :func:`self_train`.
    """
    start, plan, machine, out = run.start.path, run.recipe.selftrain, run.machine, run.out
    assert start is not None
    measured = [chunks for name, chunks in {**parts, **(watch or {})}.items() if name != "train"]
    setting = _setting(parts, leave_out_measured(sources, measured, say), run, watch or {}, progress)
    if machine.is_main and not (out / "expert.parquet").exists():
        save_events(_events_in(dataset, setting.train_chunks), out / "expert.parquet")
    rows = [_initial_row(setting, start)]
    say(f"before self-training: validation F1 {rows[0]['f1']:.3f}")
    trained = current = kept = start
    kept_row = 0
    for number in range(1, plan.rounds + 1):
        trained = _run_round(setting, number, trained, current, rows, say)
        current = _average_so_far(setting, number, trained, current, rows, say) if plan.average else trained
        before, now = rows[kept_row], rows[-1]
        if plan.stop_when_no_gain and not _main_process_decision(now["f1"] > before["f1"]):
            say(
                f"round {number} did not help (validation F1 {now['f1']:.3f}, {before['f1']:.3f} before): stopped, "
                f"kept {_model_of_row(before)}"
            )
            break
        kept, kept_row = current, len(rows) - 1
        _write_rows(setting, rows, kept_row)
    table = _write_rows(setting, rows, kept_row)
    if machine.is_main:
        _copy_to_best(kept, out / "best")
    machine.accelerator.wait_for_everyone()  # nobody reads the folder before it is complete
    return table


def _setting(
    parts: Mapping[str, Chunks],
    sources: ChunkSources,
    run: RoundsRun,
    watch: Mapping[str, Chunks],
    progress: Progress | None,
) -> _Setting:
    recipe, machine = _with_validity(_without_unfreezing(run.recipe), parts["train"]), run.machine
    others = _other_parts(parts) if recipe.selftrain.measure_other_parts else {}

    def once(chunks: Chunks) -> Chunks:
        return decode_once(chunks, machine.device, workers=machine.workers, progress=progress)

    return _Setting(
        recipe,
        machine,
        run.out,
        run.about,
        run.start,
        run.seed,
        teachers=run.teachers,
        train_chunks=once(parts["train"]),
        val_chunks=once(parts["val"]),
        watched={name: once(chunks) for name, chunks in {**others, **watch}.items()},
        pool=_UnlabelledPool(sources, recipe, run.seed, once),
        progress=progress,
    )


def _without_unfreezing(recipe: Recipe) -> Recipe:
    """The recipe; for a baseline, which has no encoder blocks, without their unfreezing."""
    if recipe.model == "mast":
        return recipe
    plan, changes = recipe.selftrain, {"unfreezing": None, "top_blocks": "all"}
    stages = {name: getattr(plan, name).model_copy(update=changes) for name in ("stage1", "stage2")}
    return recipe.model_copy(update={"selftrain": plan.model_copy(update=stages)})


def _with_validity(recipe: Recipe, train_chunks: Chunks) -> Recipe:
    """The recipe with the limits of valid pseudo-boxes in numbers; those left open follow from the expert's boxes."""
    plan = recipe.selftrain
    frames, bins = smallest_box(train_chunks.boxes)
    in_a_row = max_row_length(train_chunks.boxes) if plan.most_in_a_row is None else plan.most_in_a_row
    chosen = {
        "min_frames": frames if plan.min_frames is None else plan.min_frames,
        "min_bins": bins if plan.min_bins is None else plan.min_bins,
        "most_in_a_row": in_a_row,
    }
    return recipe.model_copy(update={"selftrain": plan.model_copy(update=chosen)})


def _other_parts(parts: Mapping[str, Chunks]) -> dict[str, Chunks]:
    """Everything but train and val, from the nearest domain to the farthest."""
    near_to_far = ("test", TEMPORAL_OOD, SITE_OOD)
    names = [name for name in near_to_far if name in parts]
    names += sorted(set(parts) - {"train", "val", *near_to_far})
    return {name: parts[name] for name in names}


def _initial_row(setting: _Setting, init: Path) -> dict[str, Any]:
    """The row of the model that self-training starts from, measured as a stage measures its own."""
    folder, plan = setting.out / "round-0", setting.recipe.train
    path = folder / "metrics.json"
    if path.exists():
        metrics = json.loads(path.read_text(encoding="utf-8"))
    else:
        loaded = load_detector(init, setting.recipe, setting.machine)
        metrics = chunk_metrics(
            detect_by_plan(loaded, setting.val_chunks, plan, setting.machine, nms_iou=plan.nms_iou)
        )
        if setting.machine.is_main:
            write_json(path, metrics)
    none = {"pseudo_boxes": 0, "pseudo_chunks": 0, "pseudo_threshold": float("nan")}
    return {
        "round": 0,
        "stage": "initial",
        **none,
        **metrics,
        **_measure_watched(setting, init, plan, folder),
    }


def _measure_watched(setting: _Setting, model: Path, plan: TrainRecipe, folder: Path) -> dict[str, float]:
    return watch_parts(
        model, setting.watched, setting.recipe, plan, setting.machine, cache=folder / "parts.json"
    )


def _main_process_decision(answer: bool) -> bool:
    """The main process's answer: processes that disagree in the last digit of F1 must not take different branches."""
    return bool(broadcast_object_list([answer])[0])


def _model_of_row(row: Mapping[str, Any]) -> str:
    return "the initial model" if row["round"] == 0 else f"the model of round {row['round']}"


def _write_rows(setting: _Setting, rows: list[dict[str, Any]], kept_row: int) -> pd.DataFrame:
    table = pd.DataFrame(rows).assign(kept=np.arange(len(rows)) == kept_row)
    if setting.machine.is_main:
        write_table(setting.out / ROUNDS, table)
    return table


def _copy_to_best(model: Path, best: Path) -> None:
    """Copy a model folder to ``best``, unless it is there already."""
    if not best.exists() or load_card(best) != load_card(model):
        replace_folder(model, best)


def _events_in(dataset: Dataset, chunks: Chunks) -> pd.DataFrame:
    """The expert's boxes whose middle lies in one of the chunks."""
    events = dataset.annotations.events
    middle_s = ((events["start_s"] + events["end_s"]) / 2).to_numpy(dtype=np.float64)
    inside = np.zeros(len(events), dtype=bool)
    for name, own in chunks.table.sort_values("start_s").groupby("recording"):
        rows = np.flatnonzero(events["recording"] == name)
        starts = own["start_s"].to_numpy(dtype=np.float64)
        ends = starts + own["valid_s"].to_numpy(dtype=np.float64)
        last = np.searchsorted(starts, middle_s[rows], side="right") - 1  # the chunk that began last
        inside[rows] = (last >= 0) & (middle_s[rows] <= ends[last])
    return events[inside].reset_index(drop=True)


def _run_round(
    setting: _Setting, number: int, current: Path, latest: Path, rows: list[dict[str, Any]], say: Say
) -> Path:
    """One round of training from the model ``current`` on what others find; returns the model it ends in.

    ``latest`` is the model that labels, by itself or with its teachers.
    """
    plan, folder = setting.recipe.selftrain, setting.out / f"round-{number}"
    own = labeller_threshold(
        latest, setting.teachers, setting.val_chunks, setting.recipe, setting.machine, cache=folder / TOGETHER
    )
    q = own if plan.threshold == "validation" else plan.threshold
    sources, unlabelled = setting.pool.sample_for_round(number)
    events = _pseudo_labels(setting, number, latest, q, unlabelled, max_threshold=own)
    sure = events[events["sure"]]
    found = {
        "pseudo_boxes": len(sure),
        "pseudo_chunks": int(sure["chunk"].nunique()),
        "pseudo_threshold": q,
    }
    passed = f", q(S) {sure['threshold'].min():.2f}–{sure['threshold'].max():.2f}" if len(sure) else ""
    doubtful = f", {len(events) - len(sure)} doubtful boxes" if plan.doubtful is not None else ""
    say(
        f"round {number}: {found['pseudo_boxes']} pseudo-boxes in {found['pseudo_chunks']} of "
        f"{len(unlabelled)} chunks{passed if plan.adaptive != 'none' else ''}{doubtful}"
    )
    if sure.empty and plan.curriculum != "stage2":
        raise MastError(
            f"{latest}: nothing was found in the unlabelled sound, so there is nothing to train on; "
            "lower selftrain.threshold or train the detector longer"
        )
    labels = labels_by_chunk(events, len(unlabelled), plan)
    pseudo = replace(with_labels(sources, setting.recipe.front_end, labels), sound=unlabelled.sound)
    stages: list[tuple[str, Chunks, TrainRecipe]] = []
    if plan.curriculum in ("full", "stage1"):
        stages.append(("stage1", pseudo, plan.stage1))
    if plan.curriculum == "union":
        stages.append(
            ("union", _combine_chunks(setting.train_chunks, pseudo, plan.expert_share), plan.stage1)
        )
    if plan.curriculum in ("full", "stage2"):
        stages.append(("stage2", setting.train_chunks, plan.stage2))
    for name, chunks, stage in stages:
        about = {**setting.about, "kind": "detector", "round": number, "stage": name, "init": str(current)}
        run = DetectorRun(
            setting.recipe,
            setting.machine,
            folder / name,
            about,
            start=Start.find(current),
            seed=setting.seed + number,
            plan=stage,
        )
        result = fit_detector(chunks, setting.val_chunks, run, progress=setting.progress)
        current = folder / name / "best"
        watched = _measure_watched(setting, current, stage, folder / name)
        rows.append({"round": number, "stage": name, **found, **result.best, **watched})
        say(f"round {number}, {name}: validation F1 {result.best['f1']:.3f}")
    return current


def _average_so_far(
    setting: _Setting, number: int, trained: Path, before: Path, rows: list[dict[str, Any]], say: Say
) -> Path:
    """The mean of the weights after all rounds so far, as a stage of its own; returns its model folder."""
    folder, plan = setting.out / f"round-{number}" / AVERAGED, setting.recipe.selftrain.stage1
    metrics = average_rounds(
        folder,
        number=number,
        trained=trained,
        before=before if number > 1 else None,
        val_chunks=setting.val_chunks,
        plan=plan,
        machine=setting.machine,
        seed=setting.seed,
    )
    found = {name: rows[-1][name] for name in ("pseudo_boxes", "pseudo_chunks", "pseudo_threshold")}
    watched = _measure_watched(setting, folder / "best", plan, folder)
    rows.append({"round": number, "stage": AVERAGED, **found, **metrics, **watched})
    say(f"round {number}, {AVERAGED}: validation F1 {metrics['f1']:.3f}")
    return folder / "best"


def _pseudo_labels(
    setting: _Setting, number: int, latest: Path, q: float, unlabelled: Chunks, *, max_threshold: float
) -> pd.DataFrame:
    """Π_q of the unlabelled chunks, kept on disk so that a resumed round trains on the same ones.

    ``max_threshold`` is the threshold of those that label, above which an adaptive q(S) does not rise.
    """
    folder = setting.out / f"round-{number}"
    path, chunks_path = folder / "pseudo.parquet", folder / UNLABELLED
    if path.exists() and chunks_path.exists():
        return pd.read_parquet(path)
    plan, machine = setting.recipe.selftrain, setting.machine
    loaded = load_labeller(latest, setting.teachers, setting.recipe, machine)
    events = pseudo_label(
        loaded,
        unlabelled,
        plan,
        threshold=q,
        source=f"pseudo-{number}",
        batch_size=machine.eval_batch(plan.stage1.batch_size),
        workers=machine.workers,
        progress=setting.progress,
    )
    if plan.adaptive == "recording":
        stage = plan.stage1
        trust = measure_trust(
            detect_by_plan(
                loaded, setting.val_chunks, stage, machine, score_threshold=q, nms_iou=stage.nms_iou
            )
        )
        if trust is not None:
            events = keep_trusted(events, trust, plan, max_threshold=max_threshold)
    if machine.is_main:
        save_events(events, path)
        save_events(unlabelled.table[["root", "recording", "site", "start_s", "valid_s"]], chunks_path)
    return events


def _combine_chunks(expert: Chunks, pseudo: Chunks, share: float | None) -> Chunks:
    """The expert's chunks, repeated until they are about ``share`` of all, and those with pseudo-labels."""
    wanted = 1 if share is None else round(share / (1 - share) * len(pseudo) / len(expert))
    parts = [*[expert] * max(1, wanted), pseudo]
    examples: ConcatDataset[Example] = ConcatDataset(
        [one for part in parts for one in part.examples.datasets]
    )
    sounds = [part.sound for part in parts if part.sound is not None]
    table = pd.concat([part.table for part in parts], ignore_index=True)
    return Chunks(examples, table, torch.cat(sounds) if len(sounds) == len(parts) else None)
