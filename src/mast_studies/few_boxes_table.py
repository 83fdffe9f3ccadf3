"""The table and the figure of ``few_boxes.py``, from what each cell found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mast.arrays import FloatArray
from mast.evaluation.bootstrap import draw_weights, interval
from mast.evaluation.metrics import metrics_of
from mast.evaluation.outcome import match_scene
from mast.evaluation.scene import build_scene
from mast_studies.zero_shot_measure import scoring_of
from mast_studies.zero_shot_sets import LabelledSet

NAMES = {"model": "on top of the model", "scratch": "from scratch"}
COLOURS = {"model": "#1558d6", "scratch": "#b3541e"}
RESAMPLES = 1_000


@dataclass(frozen=True)
class Cell:
    """One training run."""

    start: str
    boxes: int
    seed: int

    @property
    def name(self) -> str:
        """Name of its files."""
        return f"{self.start}-{self.boxes:04d}-{self.seed}"


def summarise(folder: Path, test: LabelledSet, cells: Sequence[Cell]) -> dict[str, Any]:
    """Means over seeds with intervals over the test recordings, and the value of each seed, which draws other boxes.

    Every seed uses the same draws of recordings, so that training twice does not narrow an interval.
    """
    figures: dict[str, Any] = {"recordings": len(test.dataset), "boxes": len(test.truth), "curves": {}}
    for start in dict.fromkeys(cell.start for cell in cells):
        curve = []
        for boxes in sorted({cell.boxes for cell in cells if cell.start == start}):
            own = [cell for cell in cells if (cell.start, cell.boxes) == (start, boxes)]
            curve.append(_curve_point(folder, test, own))
        figures["curves"][start] = curve
    return figures


def _curve_point(folder: Path, test: LabelledSet, cells: Sequence[Cell]) -> dict[str, Any]:
    drawn: list[FloatArray] = []
    values = []
    rows = [json.loads((folder / f"{cell.name}.json").read_text(encoding="utf-8")) for cell in cells]
    for cell in cells:
        events = pd.read_parquet(folder / f"{cell.name}.parquet")
        scene = build_scene(test.truth, events, reviewed=test.reviewed, scoring=scoring_of(test))
        outcome = match_scene(scene)
        weights = draw_weights(len(scene.recordings), RESAMPLES, 0)
        drawn.append(metrics_of(outcome, None, weights)["f1"])
        values.append(float(metrics_of(outcome, None)["f1"][0]))
    low, high = interval(np.mean(drawn, axis=0))
    return {
        "boxes": cells[0].boxes,
        "f1": round(float(np.mean(values)), 4),
        "f1_interval": [round(low, 4), round(high, 4)] if np.isfinite(low) else [None, None],
        "f1_by_seed": [round(value, 4) for value in values],
        "ap50": _mean(rows, "own threshold", "ap50"),
        "f1_at_the_best_threshold_on_this_set": _mean(rows, "best on this set", "f1"),
        "boxes_used": [row["boxes"] for row in rows],
        "chunks_used": [row["chunks"] for row in rows],
        "training_s": [row["seconds"] for row in rows],
    }


def _mean(rows: Sequence[Mapping[str, Any]], way: str, metric: str) -> float | None:
    values = [row["metrics"][way][metric] for row in rows]
    return None if any(value is None for value in values) else round(float(np.mean(values)), 4)


def write_figure(figures: Mapping[str, Any], out: Path, *, title: str) -> None:
    """F1 on the test against the number of boxes, with intervals; a budget of no boxes stands at the left edge."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    budgets = sorted({point["boxes"] for curve in figures["curves"].values() for point in curve})
    place = {
        boxes: number for number, boxes in enumerate(budgets)
    }  # evenly spaced, as 10, 30, 100, 300 are on a log axis
    for shift, (start, curve) in zip((-0.04, 0.04), figures["curves"].items(), strict=False):
        x = [place[point["boxes"]] + shift for point in curve]
        y = [point["f1"] for point in curve]
        colour = COLOURS[start]
        axes.plot(x, y, color=colour, marker="o", label=NAMES[start])
        for at, point in zip(x, curve, strict=True):
            low, high = point["f1_interval"]
            if low is not None:
                axes.plot([at, at], [low, high], color=colour, alpha=0.45, linewidth=2)
            axes.plot(
                [at] * len(point["f1_by_seed"]),
                point["f1_by_seed"],
                ".",
                color=colour,
                alpha=0.6,
                markersize=4,
            )
    axes.set_xticks(list(place.values()), [str(boxes) for boxes in place])
    axes.set_ylim(0, 1)
    axes.set_xlabel("Boxes drawn by an expert")
    axes.set_ylabel("F1 on held-out recordings (IoU ≥ 0.5)")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, loc="upper left")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, format="png")
