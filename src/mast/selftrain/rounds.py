"""Rounds of self-training: pseudo-labels → Stage 1 (exploration) → Stage 2 (expert refinement), again.

Each stage is a run of its own below the folder, so a killed one continues where it was::

    out/round-1/pseudo.parquet, out/round-1/stage1/, out/round-1/stage2/, out/round-2/…, out/rounds.csv, out/best
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from accelerate import Accelerator
from torch.utils.data import ConcatDataset

from mast.data.chunk_dataset import ChunkDataset, Example
from mast.data.recordings import Dataset, load_dataset
from mast.data.splits import SplitConfig
from mast.errors import MastError
from mast.models.checkpoint import load_checkpoint
from mast.models.detector import MastDetector
from mast.selftrain.pseudo import labels_by_chunk, pseudo_label, save_events
from mast.training.detector import DetectorRun, fit_detector, same_shape
from mast.training.loop import Progress
from mast.training.machine import Machine, prepare_machine
from mast.training.recipe import Recipe, TrainRecipe, remember
from mast.training.sources import Chunks, labelled_chunks, unlabelled_chunks
from mast.training.spectrograms import FrontEndPipeline

Say = Callable[[str], None]


@dataclass(frozen=True)
class _Setting:
    """What all rounds share."""

    recipe: Recipe
    machine: Machine
    out: Path
    about: dict[str, Any]
    seed: int
    learn: Chunks
    held: Chunks
    unlabelled: Chunks
    sources: list[tuple[Dataset, pd.DataFrame]]
    progress: Progress | None


def self_train(
    data: Path | Dataset,
    unlabelled: Sequence[Path],
    init: Path,
    out: Path,
    recipe: Recipe,
    *,
    split: SplitConfig | None = None,
    seed: int = 0,
    accelerator: Accelerator | None = None,
    progress: Progress | None = None,
    say: Say = lambda text: None,
) -> pd.DataFrame:
    """Improve a detector with unlabelled sound; ends in ``out/best``, the last round's model.

    Args:
        data: the labelled dataset the detector was trained on, or its folder.
        unlabelled: folders of recordings; boxes there are not looked at.
        init: the detector to start from, a model folder.
        out: the run's folder; a killed run there is continued.
        recipe: its section ``selftrain`` decides.
        split: as when the detector was trained.
        seed: of everything random.
        accelerator: device, precision and processes.
        progress: called with steps done, steps in all and a short text.
        say: told of each step.

    Returns:
        One row a stage: ``round, stage, pseudo_boxes, pseudo_chunks, f1, precision, recall, ap50, miou`` on in-domain
        validation; also in ``out/rounds.csv``.
    """
    machine = prepare_machine(recipe, accelerator)
    plan = recipe.selftrain
    dataset = data if isinstance(data, Dataset) else load_dataset(data)
    about = {
        "kind": "selftrain",
        "data": str(dataset.root),
        "unlabelled": [str(p) for p in unlabelled],
        "init": str(init),
        "seed": seed,
    }
    if machine.main:
        remember(recipe, out / "recipe.json", about=about)
    parts = labelled_chunks(dataset, recipe.front_end, split=split, seed=seed)
    sources = unlabelled_chunks(unlabelled, recipe.front_end)
    pool = _sample(sources, plan.max_chunks, seed)
    setting = _Setting(
        recipe, machine, out, about, seed, parts["train"], parts["val"], _plain(pool, recipe), pool, progress
    )
    rows: list[dict[str, Any]] = []
    current = init
    for number in range(1, plan.rounds + 1):
        current = _round(setting, number, current, rows, say)
        if machine.main:
            pd.DataFrame(rows).to_csv(out / "rounds.csv", index=False)
    if machine.main:
        shutil.copytree(current, out / "best", dirs_exist_ok=True)
    return pd.DataFrame(rows)


def _round(setting: _Setting, number: int, current: Path, rows: list[dict[str, Any]], say: Say) -> Path:
    """One round; returns the model folder it ends in."""
    plan, folder = setting.recipe.selftrain, setting.out / f"round-{number}"
    events = _pseudo_labels(setting, number, current, folder / "pseudo.parquet")
    found = {"pseudo_boxes": len(events), "pseudo_chunks": int(events["chunk"].nunique())}
    n_chunks = len(setting.unlabelled)
    say(
        f"round {number}: {found['pseudo_boxes']} pseudo-boxes in {found['pseudo_chunks']} of {n_chunks} chunks"
    )
    if events.empty and plan.curriculum != "stage2":
        raise MastError(
            f"{current}: the detector finds nothing in the unlabelled sound, so there is nothing to train on; "
            "lower selftrain.threshold or train the detector longer"
        )
    labels = labels_by_chunk(events, len(setting.unlabelled), plan)
    pseudo = _with_labels(setting.sources, setting.recipe, labels.boxes, labels.weights)
    stages: list[tuple[str, Chunks, TrainRecipe]] = []
    if plan.curriculum in ("full", "stage1"):
        stages.append(("stage1", pseudo, plan.stage1))
    if plan.curriculum == "union":
        stages.append(("union", _union(setting.learn, pseudo), plan.stage1))
    if plan.curriculum in ("full", "stage2"):
        stages.append(("stage2", setting.learn, plan.stage2))
    for name, chunks, stage in stages:
        about = {**setting.about, "kind": "detector", "round": number, "stage": name, "init": str(current)}
        run = DetectorRun(
            setting.recipe, stage, setting.machine, folder / name, about, current, setting.seed + number
        )
        result = fit_detector(chunks, setting.held, run, progress=setting.progress)
        rows.append({"round": number, "stage": name, **found, **result.best})
        say(f"round {number}, {name}: validation F1 {result.best['f1']:.3f}")
        current = folder / name / "best"
    return current


def _pseudo_labels(setting: _Setting, number: int, current: Path, path: Path) -> pd.DataFrame:
    """Π_q of the unlabelled chunks, kept on disk so that a resumed round trains on the same ones."""
    if path.exists():
        return pd.read_parquet(path)
    model, card = load_checkpoint(current)
    if not isinstance(model, MastDetector):
        raise MastError(f"{current}: holds no detector; self-training starts from what mast train ended in")
    if card.front_end != setting.recipe.front_end:
        raise MastError(
            f"{current}: was trained on another front end than this recipe's; use the same --band"
        )
    if not same_shape(model.config, setting.recipe.detector_for(setting.recipe.selftrain.stage1)):
        raise MastError(
            f"{current}: its detector is not the one this recipe describes; use the preset it came from"
        )
    plan, machine = setting.recipe.selftrain, setting.machine
    threshold = card.thresholds["score"] if plan.threshold == "validation" else plan.threshold
    pipeline = FrontEndPipeline.of(card).to(machine.device)
    events = pseudo_label(
        model.to(machine.device),
        setting.unlabelled,
        pipeline,
        plan,
        threshold=threshold,
        source=f"pseudo-{number}",
        batch_size=machine.eval_batch(plan.stage1.batch_size),
        workers=machine.workers,
        progress=setting.progress,
    )
    if machine.main:
        save_events(events, path)
    return events


def _sample(
    sources: list[tuple[Dataset, pd.DataFrame]], most: int | None, seed: int
) -> list[tuple[Dataset, pd.DataFrame]]:
    """A random sample of all chunks, in order."""
    total = sum(len(table) for _, table in sources)
    if most is None or total <= most:
        return sources
    share = most / total
    return [
        (
            dataset,
            table.sample(max(1, round(share * len(table))), random_state=seed)
            .sort_index()
            .reset_index(drop=True),
        )
        for dataset, table in sources
    ]


def _plain(sources: list[tuple[Dataset, pd.DataFrame]], recipe: Recipe) -> Chunks:
    """The unlabelled chunks without boxes."""
    n_chunks = sum(len(table) for _, table in sources)
    nothing = labels_by_chunk(pd.DataFrame({"chunk": [], "score": []}), n_chunks, recipe.selftrain)
    return _with_labels(sources, recipe, nothing.boxes, nothing.weights)


def _with_labels(
    sources: list[tuple[Dataset, pd.DataFrame]],
    recipe: Recipe,
    boxes: Sequence[Any],
    weights: Sequence[float],
) -> Chunks:
    parts: list[ChunkDataset] = []
    start = 0
    for dataset, table in sources:
        own = slice(start, start + len(table))
        start += len(table)
        parts.append(ChunkDataset(dataset, table, recipe.front_end, boxes=boxes[own], weights=weights[own]))
    table = pd.concat([table for _, table in sources], ignore_index=True)
    return Chunks(ConcatDataset(parts), table.assign(labelled=False))


def _union(a: Chunks, b: Chunks) -> Chunks:
    examples: ConcatDataset[Example] = ConcatDataset([*a.examples.datasets, *b.examples.datasets])
    return Chunks(examples, pd.concat([a.table, b.table], ignore_index=True))
