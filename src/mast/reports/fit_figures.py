"""Pictures of a run: how training went, and how good the detector is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mast.arrays import FloatArray
from mast.evaluation.breakdown import reliability
from mast.evaluation.calibration import calibrated
from mast.evaluation.metrics import precision_recall
from mast.evaluation.outcome import Outcome
from mast.evaluation.part_tables import PartTables
from mast.probability import Calibration
from mast.reports.spectrogram import escape_mathtext, new_figure
from mast.training.loop import read_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#8a96a3", "#1558d6", "#b5542c", "#2b7a78")  # the first, grey, for what came before
_SMOOTH = 0.9  # of the running mean that is drawn over the loss of each step; our choice


class Curves(NamedTuple):
    """``curves.jsonl`` of a training run: by name, (steps, values)."""

    title: str
    series: dict[str, tuple[FloatArray, FloatArray]]


def read_curves(path: Path, title: str) -> Curves | None:
    """The curves a run has written; None where there are none. A line that a kill cut short is left out."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for row in read_log(path):
        for name, value in row.items():
            if name != "step":
                steps, values = found.setdefault(name, ([], []))
                steps.append(float(row["step"]) + 1)
                values.append(float(value))
    if not found:
        return None
    return Curves(title, {name: (np.array(s), np.array(v)) for name, (s, v) in found.items()})


def curves_figure(runs: Sequence[Curves]) -> Figure | None:
    """One row per run: loss on the left (thin: each step), what was measured on held-out sound on the right."""
    from matplotlib.ticker import MaxNLocator

    if not runs:
        return None
    figure = new_figure(10, 2.7 * len(runs))
    axes = figure.subplots(len(runs), 2, squeeze=False)
    for (left, right), run in zip(axes, runs, strict=True):
        steps, loss = run.series.get("train/loss", (np.zeros(0), np.zeros(0)))
        left.plot(steps, loss, color=COLOURS[0], alpha=0.45, linewidth=0.8)
        left.plot(steps, _smooth(loss), color=COLOURS[1], linewidth=1.6)
        left.set_ylabel("loss")
        left.set_title(run.title, loc="left", fontsize=11)
        shown = (
            {"error": "model", "mean_patch_error": "guessing the mean"}
            if "validation/error" in run.series
            else {"f1": "F1", "precision": "precision", "recall": "recall"}
        )
        for colour, (name, label) in zip(COLOURS[1:], shown.items(), strict=False):
            steps, values = run.series.get(f"validation/{name}", (np.zeros(0), np.zeros(0)))
            right.plot(steps, values, color=colour, marker="o", markersize=3.5, linewidth=1.4, label=label)
        if "error" in shown:
            right.set_ylabel("reconstruction error")
            right.set_ylim(bottom=0)
        else:
            right.set_ylabel("on validation")
            right.set_ylim(-0.02, 1.02)
        _legend(right)
        for axis in (left, right):
            axis.set_xlabel("step")
            axis.spines[["top", "right"]].set_visible(False)
            axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        right.set_xlim(left.get_xlim())
    return figure


def precision_recall_figure(tables: Mapping[str, PartTables], part: str) -> Figure:
    """Precision against recall of each detector; the dot is the threshold that was tuned on validation.

    Args:
        tables: what each detector found in the part, the earlier first.
        part: where it was measured, for the title.
    """
    figure = new_figure(5.4, 4.6)
    axis = figure.subplots()
    grid = np.linspace(0.01, 1, 200)
    for f1 in (0.2, 0.4, 0.6, 0.8):
        with np.errstate(divide="ignore", invalid="ignore"):
            precision = f1 * grid / (2 * grid - f1)
        seen = (precision > 0) & (precision <= 1)
        axis.plot(grid[seen], precision[seen], color="0.88", linewidth=0.9, zorder=0)
        axis.annotate(
            f"F1 {f1:g}", (1.0, f1 / (2 - f1)), xytext=(3, 0), textcoords="offset points",
            fontsize=8, color="0.55", va="center", annotation_clip=False,
        )  # fmt: skip
    colours = COLOURS[1:] if len(tables) == 1 else COLOURS
    for colour, (name, own) in zip(colours, tables.items(), strict=False):
        outcome = own.match()
        recall, precision = precision_recall(outcome)
        # as average precision does: between two scores, the precision at the later one
        axis.step(
            np.append(0.0, recall) if len(recall) else recall,
            np.append(precision[:1], precision),
            where="pre",
            color=colour,
            linewidth=1.8,
            label=name,
        )
        kept = outcome.kept(own.threshold)
        if kept:
            axis.plot(recall[kept - 1], precision[kept - 1], "o", color=colour, markersize=7)
    axis.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
    axis.set_xlabel("recall: share of the expert's boxes that were found")
    axis.set_ylabel("precision: share of detections that are right")
    axis.set_title(
        escape_mathtext(f"Precision and recall, {part}"),
        loc="left",
        fontsize=11,
        pad=24 if len(tables) > 1 else 8,
    )
    axis.spines[["top", "right"]].set_visible(False)
    if len(tables) > 1:
        _legend(axis)
    return figure


def reliability_figure(outcome: Outcome, calibration: Calibration, part: str) -> Figure:
    """Scores against the share that is right, before and after calibration; below, how many predictions a bin holds."""
    figure = new_figure(5.4, 4.6)
    axis, counts = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
    axis.plot([0, 1], [0, 1], color="0.8", linewidth=1, zorder=0)
    after = calibrated(outcome, calibration)
    pairs = [("the detector's own score", outcome, COLOURS[0])]
    if calibration.method != "none":
        pairs.append((f"after calibration ({calibration.method})", after, COLOURS[1]))
    width = 0.8 / len(pairs) / 10
    for i, (name, seen, colour) in enumerate(pairs):
        bins = reliability(seen)
        held = bins[bins["n"] > 0]
        axis.plot(
            held["mean_score"],
            held["share_matched"],
            "o-",
            color=colour,
            linewidth=1.5,
            markersize=5,
            label=name,
        )
        centre = (bins["low"] + bins["high"]) / 2
        counts.bar(centre + (i - (len(pairs) - 1) / 2) * width, bins["n"], width=width, color=colour)
    axis.set(xlim=(-0.01, 1.01), ylim=(-0.02, 1.02))
    axis.set_ylabel("share that is right")
    axis.set_title(escape_mathtext(f"What a score means, {part}"), loc="left", fontsize=11, pad=24)
    _legend(axis)
    counts.set_ylabel("detections")
    counts.set_xlabel("score")
    for one in (axis, counts):
        one.spines[["top", "right"]].set_visible(False)
    return figure


def parts_figure(
    metrics: Mapping[str, Any], names: Mapping[str, str], part_names: Mapping[str, str]
) -> Figure:
    """F1 with its interval on every part, with the detectors side by side.

    Args:
        metrics: as in ``metrics.json``.
        names: of the detectors, in words.
        part_names: of the parts, in words.
    """
    parts = list(metrics["parts"])
    detectors = list(metrics["detectors"])
    figure = new_figure(max(4.5, 1.8 * len(parts) + 2.2), 3.4)
    axis = figure.subplots()
    colours = COLOURS[1:] if len(detectors) == 1 else COLOURS
    for i, (detector, colour) in enumerate(zip(detectors, colours, strict=False)):
        results = [metrics["detectors"][detector]["parts"][part] for part in parts]
        x = np.arange(len(parts)) + 0.22 * (i - (len(detectors) - 1) / 2)
        f1 = np.array([np.nan if r["f1"] is None else r["f1"] for r in results])
        ends = [(np.nan, np.nan) if None in r["intervals"]["f1"] else r["intervals"]["f1"] for r in results]
        axis.vlines(x, [low for low, _ in ends], [high for _, high in ends], color=colour, linewidth=2)
        axis.plot(x, f1, "o", color=colour, markersize=8, label=names[detector])
        for at, value in zip(x, f1, strict=True):
            if np.isfinite(value):
                axis.annotate(
                    f"{value:.2f}", (at, value), xytext=(7, 0), textcoords="offset points", fontsize=9,
                    va="center", color=colour,
                )  # fmt: skip
    axis.set_xticks(range(len(parts)), [escape_mathtext(part_names[part]) for part in parts])
    axis.set(xlim=(-0.5, len(parts) - 0.4), ylim=(-0.03, 1.03), ylabel="F1 (95 % interval)")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="0.92")
    axis.set_axisbelow(True)
    if len(detectors) > 1:
        _legend(axis)
    return figure


def _smooth(values: FloatArray) -> FloatArray:
    """Running mean that begins at the first value."""
    out, mean = np.empty_like(values), 0.0
    for i, value in enumerate(values):
        keep = min(_SMOOTH, i / (i + 1))
        mean = keep * mean + (1 - keep) * float(value)
        out[i] = mean
    return out


def _legend(axis: Axes) -> None:
    """Above the data, never on it."""
    axis.legend(
        frameon=False, fontsize=9, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1,
        handlelength=1.4, columnspacing=1.2,
    )  # fmt: skip
