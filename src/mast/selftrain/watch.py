"""A detector on parts of the labelled dataset, at the threshold from its card: for reports, never for choices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mast.errors import MastError
from mast.evaluation.part_tables import PartTables
from mast.files import write_json
from mast.loaded_model import LoadedModel
from mast.models.architecture import DetectorConfig
from mast.models.card import load_card
from mast.selftrain.admission import band_of
from mast.training.chosen_chunks import Chunks
from mast.training.chunk_scores import detect_by_plan
from mast.training.machine import Machine
from mast.training.recipe import Recipe, TrainRecipe
from mast.training.start import same_fields

PART_METRICS = ("f1", "precision", "recall", "ap50")


def load_detector(folder: Path, recipe: Recipe, machine: Machine) -> LoadedModel:
    """Load a detector that a recipe's self-training can continue, MAST or a baseline; refuse any other."""
    loaded = load_teacher(folder, recipe, machine)
    own, wanted = loaded.box_detector.config, recipe.detector_for(recipe.selftrain.stage1)
    if isinstance(own, DetectorConfig) and isinstance(wanted, DetectorConfig):
        fits = same_fields(own, wanted)
    else:
        fits = own == wanted
    if not fits:
        raise MastError(
            f"{folder}: its detector is not the one this recipe describes; use the preset it came from"
        )
    return loaded


def load_teacher(folder: Path, recipe: Recipe, machine: Machine) -> LoadedModel:
    """Load a detector of any kind that can use the recipe's band; refuse any other."""
    return machine.load(folder, band_hz=band_of(folder, load_card(folder), recipe))


def part_metrics(part: PartTables, *, threshold: float) -> dict[str, float]:
    """F1, precision, recall and AP at a threshold that was chosen elsewhere; NaN where there is nothing to judge."""
    found = replace(part, threshold=threshold).evaluate().metrics
    return {name: found[name] for name in PART_METRICS}


def watch_parts(
    folder: Path,
    parts: Mapping[str, Chunks],
    recipe: Recipe,
    plan: TrainRecipe,
    machine: Machine,
    *,
    cache: Path,
) -> dict[str, float]:
    """Metrics of a model folder on each part, as ``{"site_ood_f1": 0.41, …}``.

    What was measured is kept in ``cache``, so that a resumed run does not measure it again.
    """
    known: dict[str, dict[str, float]] = (
        json.loads(cache.read_text(encoding="utf-8")) if cache.exists() else {}
    )
    missing = [name for name in parts if name not in known]
    if missing:
        loaded = load_detector(folder, recipe, machine)
        threshold = loaded.card.thresholds["score"]
        for name in missing:
            found = detect_by_plan(loaded, parts[name], plan, machine, nms_iou=plan.nms_iou)
            known[name] = part_metrics(found, threshold=threshold)
        if machine.is_main:
            write_json(cache, known)
    return {f"{name}_{metric}": value for name in parts for metric, value in known[name].items()}
