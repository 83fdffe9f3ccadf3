"""Which detector of a run is recommended, and why: what validation says, in a table and a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mast.training.helped import beats
from mast.wording import counted

# the detectors of a run, in this order
START, HABIT, TRAINED, SELF_TRAINED = "start", "habit", "trained", "self-trained"
NAMES = {START: "as is", HABIT: "with your habit", TRAINED: "trained", SELF_TRAINED: "self-trained"}


def recommended(f1: Mapping[str, float | None]) -> str:
    """The last detector, or the last that beat the start on validation; the start where none did.

    A start that draws boxes by the user's habit, and is better for it, takes the place of the start as is.

    Args:
        f1: of each detector on validation, at the threshold it carries, in the order they were made.
    """
    if START not in f1:
        return list(f1)[-1]
    start = HABIT if beats(f1.get(HABIT), f1[START]) else START
    later = [name for name in f1 if name not in (START, HABIT) and beats(f1[name], f1[start])]
    return later[-1] if later else start


def verdict(f1: Mapping[str, float | None]) -> str:
    """Why, in a sentence; nothing where there is nothing to compare."""
    chosen = recommended(f1)
    numbers = ", ".join(f"{NAMES[name]} {_number(f1[name])}" for name in f1)
    if f1[chosen] == 0:
        other = (
            "choose another --band or another model to start from"
            if START in f1
            else "start from the embedded model with --init default"
        )
        return (
            f"Nothing was found right on validation (F1 {numbers}), so this detector is of no use yet: draw more "
            f"boxes, or {other}."
        )
    if START not in f1:
        before, after = f1.get(TRAINED), f1.get(SELF_TRAINED)
        if before is None or after is None or after >= before:
            return ""
        return (
            f"Self-training lowered F1 on validation from {before:.2f} to {after:.2f}: look at the other parts before "
            "you use it, or add --set selftrain.stop_when_no_gain=true to keep the better one."
        )
    others = [name for name in f1 if name not in (START, HABIT)]
    if chosen in (START, HABIT):
        what = (
            "Training did not beat the model it started from"
            if others == [TRAINED]
            else "Neither training nor self-training beat the model they started from"
        )
        how = "as is" if chosen == START else "with your habit of drawing boxes"
        return f"{what} on validation (F1 {numbers}), so that model is kept and recommended {how}."
    if chosen != others[-1]:
        return (
            f"Self-training did not beat the model that this run started from on validation (F1 {numbers}), so the "
            "detector trained before it is recommended."
        )
    return f"On validation the {NAMES[chosen]} detector beats the one it started from (F1 {numbers})."


def f1_table(metrics: Mapping[str, Any]) -> list[str]:
    """F1 of each detector on each part with its interval, a line each, for a terminal.

    Args:
        metrics: as in ``metrics.json``.
    """
    detectors = metrics["detectors"]
    rows = [["F1 (95 % interval)", *(NAMES[name] for name in detectors)]]
    for part, size in metrics["parts"].items():
        about = (
            f"{part_words(part)}, {counted(size['recordings'], 'recording')}, {counted(size['boxes'], 'box')}"
        )
        rows.append([about, *(with_interval(found["parts"][part], "f1") for found in detectors.values())])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def part_words(part: str) -> str:
    """The name of a part for people."""
    return {"val": "validation", "temporal_ood": "other days", "site_ood": "other sites"}.get(part, part)


def with_interval(result: Mapping[str, Any], name: str) -> str:
    """A metric with its 95 % interval, as in 0.26 (0.10–0.41)."""
    value, (low, high) = result[name], result["intervals"][name]
    if value is None:
        return "–"
    return f"{value:.2f}" if low is None else f"{value:.2f} ({low:.2f}–{high:.2f})"


def _number(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.2f}"
