"""The same chunks of sound with the true boxes and each system's boxes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from mast.data.recordings import load_dataset
from mast.evaluation.part_tables import PartTables
from mast.grid import FrontEnd
from mast.reports.spectrogram import (
    PREDICTION_COLOUR,
    TRUTH_COLOUR,
    Spectrogram,
    boxes_in_view,
    compute_spectrogram,
    draw_boxes,
    draw_sound,
    escape_mathtext,
)
from mast_studies.found import Trial, load_about
from mast_studies.study_tables import Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CHUNKS = 2  # drawn at random among those with a true box
_DRAW = 47  # first word of the seed of the choice


class ShownChunk(NamedTuple):
    """A chunk of a recording."""

    recording: str
    start_s: float


class SystemView(NamedTuple):
    """What is drawn for one system: true boxes, and its own at or above its threshold, in seconds and hertz."""

    label: str
    truth: pd.DataFrame
    predictions: pd.DataFrame


def compare_systems(
    trial: Trial,
    part: str,
    lines: Sequence[Line],
    *,
    seed: int = 0,
    data: Path | None = None,
) -> Figure | None:
    """A row per system, a column per chunk. None if the sound or the tables are missing.

    Args:
        trial: dataset and seed.
        part: where the chunks come from.
        lines: the systems; those without tables are left out.
        seed: of the draw.
        data: the labelled dataset, if it is not where it was when the systems ran.
    """
    there = [line for line in lines if trial.has(line.system, part)]
    if not there:
        return None
    about = load_about(trial.system(there[0].system))
    root = data or Path(about.get("data", ""))
    if "recipe" not in about or not (root / "boxes.csv").exists():
        return None
    front_end = FrontEnd.model_validate(about["recipe"]["front_end"])
    views = [load_view(trial, part, line) for line in there]
    places = choose_chunks(views[0].truth, front_end, _CHUNKS, seed=seed)
    dataset = load_dataset(root)
    sounds = [
        compute_spectrogram(
            dataset.path(place.recording),
            front_end=front_end,
            start_s=place.start_s,
            end_s=place.start_s + front_end.chunk_s,
        )
        for place in places
        if dataset.path(place.recording).is_file()
    ]
    return draw_views(views, places, sounds) if sounds and len(sounds) == len(places) else None


def load_view(trial: Trial, part: str, line: Line) -> SystemView:
    """A system's tables."""
    folder = trial.system(line.system)
    tables = PartTables.load(folder, part)
    label = line.label or str(load_about(folder).get("title", line.system))
    return SystemView(label, tables.truth, tables.above_threshold)


def choose_chunks(truth: pd.DataFrame, front_end: FrontEnd, count: int, *, seed: int) -> list[ShownChunk]:
    """Random chunks that hold a true box, from different recordings where possible."""
    middle_s = (truth["start_s"] + truth["end_s"]) / 2
    number = np.floor(middle_s / front_end.chunk_s).astype(int)
    found = sorted({(str(r), int(k)) for r, k in zip(truth["recording"], number, strict=True)})
    order = np.random.default_rng([_DRAW, seed]).permutation(len(found))
    shuffled = pd.DataFrame([found[i] for i in order], columns=["recording", "number"])
    turn = shuffled.groupby("recording").cumcount().to_numpy()
    chosen = shuffled.iloc[np.argsort(turn, kind="stable")[:count]]
    return [
        ShownChunk(str(r), int(k) * front_end.chunk_s)
        for r, k in zip(chosen["recording"], chosen["number"], strict=True)
    ]


def draw_views(
    views: Sequence[SystemView], places: Sequence[ShownChunk], sounds: Sequence[Spectrogram]
) -> Figure:
    """The grid of pictures."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(6.2 * len(sounds), 1.75 * len(views) + 1.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(views), len(sounds), squeeze=False, sharex="col", sharey="row")
    for row, view in enumerate(views):
        for column, (place, sound) in enumerate(zip(places, sounds, strict=True)):
            axis = axes[row, column]
            draw_sound(axis, sound, max_ticks=6)
            axis.tick_params(labelsize=8)
            own = [t[t["recording"] == place.recording] for t in (view.truth, view.predictions)]
            true, found = (boxes_in_view(table, sound) for table in own)
            draw_boxes(axis, true, sound, "truth", TRUTH_COLOUR, "solid")
            draw_boxes(axis, found, sound, "found", PREDICTION_COLOUR, (0, (4, 2)))
            title = f"{view.label}: {len(found)} boxes, {len(true)} true"
            axis.set_title(title, loc="left", fontsize=9)
            if column == 0:
                axis.set_ylabel("kHz", fontsize=9)
            if row == len(views) - 1:
                axis.set_xlabel(escape_mathtext(f"Time (s) in {place.recording}"), fontsize=9)
    handles = [
        Line2D([], [], color=TRUTH_COLOUR, label="truth"),
        Line2D(
            [], [], color=PREDICTION_COLOUR, linestyle=(0, (4, 2)), label="found, at the validation threshold"
        ),
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False, fontsize=9)
    return figure
