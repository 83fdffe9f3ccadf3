"""Which detector of a run is recommended by validation, and why, in a table and a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mast.evaluation.evidence import (
    Finding,
    Tally,
    TrainingEvidence,
    is_trusted,
    judge_further,
    judge_training,
)
from mast.wording import counted

# the detectors of a run, in this order
START, HABIT, TRAINED, SELF_TRAINED = "start", "habit", "trained", "self-trained"
NAMES = {
    START: "as is",
    HABIT: "adjusted",  # to the user's boxes: habit, threshold
    TRAINED: "trained",
    SELF_TRAINED: "self-trained",
}


def recommend_detector(tallies: Mapping[str, Tally], learnt: TrainingEvidence) -> str:
    """The last detector, or the last that beat the start on validation; the start where none did.

    With few boxes, a higher F1 may be due to chance; then the start is recommended, which is known to be good. Training
    on many boxes in several recordings is trusted where validation is too small to tell
    (:mod:`mast.evaluation.evidence`).

    A start whose habit or threshold is adjusted to the user's boxes takes the place of the start as is: it was
    chosen on boxes that were held back.

    Args:
        tallies: what each detector got right on validation, at the threshold it carries, in the order they were made.
        learnt: what was trained on.
    """
    if START not in tallies:
        return list(tallies)[-1]
    better = [
        name for name, finding in compare_with_start(tallies, learnt).items() if finding is Finding.BETTER
    ]
    return better[-1] if better else baseline_name(tallies)


def baseline_name(tallies: Mapping[str, Tally]) -> str:
    """What later detectors have to beat."""
    return HABIT if HABIT in tallies else START


def compare_with_start(tallies: Mapping[str, Tally], learnt: TrainingEvidence) -> dict[str, Finding]:
    """How each later detector compares with the start."""
    start = tallies[baseline_name(tallies)]
    later = [name for name in NAMES if name in tallies and name not in (START, HABIT)]
    return {
        name: (judge_training if name == TRAINED else judge_further)(tallies[name], start, learnt)
        for name in later
    }


def read_tallies(metrics: Mapping[str, Any]) -> dict[str, Tally]:
    """What each detector got right on validation, from ``metrics.json``."""
    return {name: Tally.of(counts) for name, counts in metrics["validation_counts"].items()}


def read_learnt(metrics: Mapping[str, Any]) -> TrainingEvidence:
    """What was trained on, from ``metrics.json``."""
    return TrainingEvidence(**metrics["learnt_from"])


def verdict(tallies: Mapping[str, Tally], learnt: TrainingEvidence) -> str:
    """Why, in a sentence; nothing where there is nothing to compare."""
    chosen, f1 = recommend_detector(tallies, learnt), {name: own.f1 for name, own in tallies.items()}
    numbers = ", ".join(f"{NAMES[name]} {_format_f1(f1[name])}" for name in f1)
    if f1[chosen] == 0:
        other = (
            "choose another --band or another model to start from"
            if START in f1
            else "start from the embedded model with --init default"
        )
        return (
            f"The detector found nothing correctly on validation (F1 {numbers}), so it cannot be used yet: draw more "
            f"boxes, or {other}."
        )
    if START in f1:
        return _verdict_with_start(tallies, learnt, chosen, numbers)
    before, after = f1.get(TRAINED), f1.get(SELF_TRAINED)
    if before is None or after is None or after >= before:
        return ""
    return (
        f"Self-training lowered F1 on validation from {before:.2f} to {after:.2f}: look at the other parts before "
        "you use it, or add --set selftrain.stop_when_no_gain=true to keep the better one."
    )


def _verdict_with_start(
    tallies: Mapping[str, Tally], learnt: TrainingEvidence, chosen: str, numbers: str
) -> str:
    """Why a detector is recommended, or the start."""
    what, start = compare_with_start(tallies, learnt), tallies[baseline_name(tallies)]
    how = " as is" if baseline_name(tallies) == START else ", adjusted to your boxes"
    lucky = [name for name, finding in what.items() if finding is Finding.LUCK]
    if chosen in (START, HABIT) and lucky:
        looked = "Self-training" if lucky[-1] == SELF_TRAINED else "Training"
        return (
            f"{looked} looked better on validation (F1 {numbers}), but on {start.size} that may be due to chance, so "
            f"the model it started from is kept and recommended{how}: draw boxes in more recordings to be sure."
        )
    if chosen in (START, HABIT):
        beaten = (
            "Neither training nor self-training beat the model they started from"
            if SELF_TRAINED in what
            else "Training did not beat the model it started from"
        )
        return f"{beaten} on validation (F1 {numbers}), so that model is kept and recommended{how}."
    if chosen == TRAINED and is_trusted(start, learnt):
        mean = " and is averaged with the model it started from" if learnt.averaged else ""
        return (
            f"Validation is too small to compare detectors ({start.size}; F1 {numbers}). The trained one learnt from "
            f"{learnt.size}{mean}, which usually helps, and is recommended."
        )
    if SELF_TRAINED in what and chosen != SELF_TRAINED:
        return (
            f"Self-training did not beat the model that this run started from on validation (F1 {numbers}), so the "
            f"{NAMES[chosen]} detector before it is recommended."
        )
    return f"On validation the {NAMES[chosen]} detector beats the one it started from (F1 {numbers})."


def f1_table(metrics: Mapping[str, Any]) -> list[str]:
    """F1 of each detector on each part with its interval, one line per part, for a terminal.

    Args:
        metrics: as in ``metrics.json``.
    """
    detectors = metrics["detectors"]
    rows = [["F1 (95 % interval)", *(NAMES[name] for name in detectors)]]
    for part, size in metrics["parts"].items():
        about = (
            f"{part_title(part)}, {counted(size['recordings'], 'recording')}, {counted(size['boxes'], 'box')}"
        )
        rows.append([about, *(with_interval(found["parts"][part], "f1") for found in detectors.values())])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def part_title(part: str) -> str:
    """The name of a part for people."""
    return {"val": "validation", "temporal_ood": "other days", "site_ood": "other sites"}.get(part, part)


def with_interval(result: Mapping[str, Any], name: str) -> str:
    """A metric with its 95 % interval, as in 0.26 (0.10–0.41)."""
    value, (low, high) = result[name], result["intervals"][name]
    if value is None:
        return "–"
    return f"{value:.2f}" if low is None else f"{value:.2f} ({low:.2f}–{high:.2f})"


def _format_f1(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.2f}"
