"""How long a run will take, from what a chunk takes on this machine and how many there are."""

from __future__ import annotations

from typing import NamedTuple

from mast.training.effort import Rates, chunks_seen, training_seconds
from mast.training.recipe import Recipe
from mast.wording import counted


class ChunkCounts(NamedTuple):
    """Chunks of a run."""

    train: int
    val: int
    others: int = 0  # test and out of domain
    unlabelled: int = 0
    pretrain: int = 0


def seconds_by_stage(recipe: Recipe, n: ChunkCounts, rates: Rates) -> dict[str, float]:
    """Seconds that the longer stages of a run take."""
    found = {"training": training_seconds(recipe.train, n.train, n.val, rates)}
    if n.pretrain:
        found["pretraining"] = chunks_seen(recipe.pretrain, n.pretrain) * rates.pretrain
    if n.unlabelled:
        plan = recipe.selftrain
        pseudo = min(n.unlabelled, plan.max_chunks or n.unlabelled)
        found["self-training"] = plan.rounds * (
            pseudo * rates.detect
            + training_seconds(plan.stage1, pseudo, n.val, rates)
            + training_seconds(plan.stage2, n.train, n.val, rates)
            + 2 * plan.measure_other_parts * n.others * rates.detect
        )
    detectors = 2 + bool(n.unlabelled)  # the start too; each is measured twice on validation
    found["measuring"] = detectors * (2 * n.val + n.others) * rates.detect
    return found


def describe_estimate(recipe: Recipe, n: ChunkCounts, rates: Rates, *, device: str) -> str:
    """The same as a sentence."""
    seconds = seconds_by_stage(recipe, n, rates)
    stages = ", ".join(f"{name} {format_duration(value)}" for name, value in seconds.items())
    return (
        f"about {format_duration(sum(seconds.values()))} on {device} ({stages}): "
        f"{counted(recipe.train.epochs, 'epoch')} of {counted(n.train, 'chunk')} at "
        f"{rates.train:.2g} s each, as just measured"
    )


def format_duration(seconds: float) -> str:
    """A duration as people say it.

    >>> [format_duration(seconds) for seconds in (20, 100, 20 * 60, 5 * 3600, 7 * 86400)]
    ['20 seconds', '2 minutes', '20 minutes', '5 hours', '7 days']
    """
    for unit, length_s, up_to_s in (("second", 1, 90), ("minute", 60, 90 * 60), ("hour", 3600, 48 * 3600)):
        if seconds < up_to_s:
            return counted(max(1, round(seconds / length_s)), unit)
    return f"{round(seconds / 86400):,} days"
