"""Which detectors label a round of self-training, and the score from which their boxes count.

The model of the round before labels, as in the paper. If there are teachers, other detectors of whatever kind and size,
they and the model label as one (:mod:`mast.selftrain.committee`). With ``selftrain.thorough`` each of them searches
every chunk at several speeds (:mod:`mast.selftrain.thorough`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from mast.files import write_json
from mast.models.card import load_card
from mast.selftrain.committee import Committee
from mast.selftrain.thorough import ThoroughModel
from mast.selftrain.watch import load_detector, load_teacher
from mast.training.chosen_chunks import Chunks
from mast.training.chunk_scores import BoxFinder, chunk_metrics, detect_by_plan
from mast.training.machine import Machine
from mast.training.recipe import Recipe

TOGETHER = "committee.json"  # in a round's folder: how well several labellers do on validation


def load_labeller(model: Path, teachers: Sequence[Path], recipe: Recipe, machine: Machine) -> BoxFinder:
    """The model of the round before, together with its teachers if it has any."""
    loaded = [
        load_detector(model, recipe, machine),
        *(load_teacher(one, recipe, machine) for one in teachers),
    ]
    members = [ThoroughModel(one) for one in loaded] if recipe.selftrain.thorough else loaded
    return Committee(members) if teachers else members[0]


def labeller_threshold(
    model: Path,
    teachers: Sequence[Path],
    val_chunks: Chunks,
    recipe: Recipe,
    machine: Machine,
    *,
    cache: Path,
) -> float:
    """The score from which boxes count: the model's own, or one chosen on validation for what labels in its place.

    Args:
        model: of the round before.
        teachers: other detectors.
        val_chunks: validation chunks.
        recipe: of self-training.
        machine: device and precision.
        cache: file with what they reach on validation, for a resumed run.
    """
    if not teachers and not recipe.selftrain.thorough:
        return load_card(model).thresholds["score"]
    if cache.exists():
        metrics: dict[str, float] = json.loads(cache.read_text(encoding="utf-8"))
        return metrics["threshold"]
    plan = recipe.selftrain.stage1
    together = load_labeller(model, teachers, recipe, machine)
    metrics = chunk_metrics(
        detect_by_plan(together, val_chunks, plan, machine, nms_iou=recipe.selftrain.nms_iou)
    )
    if machine.is_main:
        write_json(cache, metrics)
    return metrics["threshold"]
