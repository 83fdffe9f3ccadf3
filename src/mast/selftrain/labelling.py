"""Who labels a round of self-training, and from which score on.

Without teachers that is the model of the round before, as in the paper. Teachers are other detectors: they label for
the first round in place of the model, and together with it in later ones. Several label as one
(:mod:`mast.selftrain.committee`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from mast.files import write_json
from mast.hearing import HearingModel
from mast.models.card import load_card
from mast.selftrain.committee import Committee
from mast.selftrain.watch import load_detector, load_teacher
from mast.training.chosen_chunks import Chunks
from mast.training.chunk_scores import chunk_metrics, look_at
from mast.training.machine import Machine
from mast.training.recipe import Recipe

TOGETHER = "committee.json"  # in a round's folder: how several labellers do on validation


def labellers_of(number: int, current: Path, teachers: Sequence[Path]) -> tuple[Path, ...]:
    """The model folders of those that label a round.

    Args:
        number: of the round, from 1.
        current: the model of the round before.
        teachers: other detectors.
    """
    if not teachers:
        return (current,)
    return tuple(teachers) if number == 1 else (current, *teachers)


def load_labeller(
    who: Sequence[Path], teachers: Sequence[Path], recipe: Recipe, machine: Machine
) -> HearingModel | Committee:
    """The detectors of :func:`labellers_of` as one that finds boxes."""
    loaded = [(load_teacher if one in teachers else load_detector)(one, recipe, machine) for one in who]
    return loaded[0] if len(loaded) == 1 else Committee(loaded)


def labeller_threshold(
    who: Sequence[Path],
    teachers: Sequence[Path],
    held: Chunks,
    recipe: Recipe,
    machine: Machine,
    *,
    remembered: Path,
) -> float:
    """The score from which their boxes count: that of its card, or for several together one chosen on validation.

    Args:
        who: of :func:`labellers_of`.
        teachers: those of them that are not of this run.
        held: validation chunks.
        recipe: of self-training.
        machine: device and precision.
        remembered: file with what several together reach on validation, for a resumed run.
    """
    if len(who) == 1 and (known := load_card(who[0]).thresholds.get("score")) is not None:
        return known
    if remembered.exists():
        metrics: dict[str, float] = json.loads(remembered.read_text(encoding="utf-8"))
        return metrics["threshold"]
    plan = recipe.selftrain.stage1
    together = load_labeller(who, teachers, recipe, machine)
    metrics = chunk_metrics(look_at(together, held, plan, machine, nms_iou=recipe.selftrain.nms_iou))
    if machine.main:
        write_json(remembered, metrics)
    return metrics["threshold"]
