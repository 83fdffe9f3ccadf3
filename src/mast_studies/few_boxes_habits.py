"""`few_boxes.py --habits`: what drawing boxes otherwise is worth, without boxes and from ten of them.

The model searches each set once. Its boxes are then measured whole (``all``), cut to the strongest harmonic
(``strongest``), as the model gives them (which of the two depends on the band), and as :func:`choose_habit` decides
from a few boxes. For the last, one recording at a time is held back: chunks of the others are drawn until they hold
that many boxes, and what they say is used on the recording held back. Nothing is trained.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mast.annotations.redraw import redraw_events
from mast.detect_options import DetectOptions
from mast.evaluation.part_tables import PartTables
from mast.fit.habit_choice import HabitChoice, candidates, choose_habit
from mast.grid import FrontEnd
from mast.habit import Habit
from mast.inference import Detector
from mast_studies.few_boxes_chunks import boxes_of_pieces, nested, pieces
from mast_studies.folds import within
from mast_studies.whole import search
from mast_studies.zero_shot_measure import as_row, measure
from mast_studies.zero_shot_sets import LabelledSet


class Drawn:
    """What a model found in a set, as each habit draws it."""

    def __init__(self, own: LabelledSet, model: Path, device: str | None) -> None:
        band_hz = None if own.band_hz == FrontEnd().high_hz else own.band_hz
        detector = Detector(model, DetectOptions(device=device, band_hz=band_hz, box="all"))
        self.own, self.start = own, detector.card.habit or Habit()
        self.front_end = detector.card.front_end
        self.files = [str(file) for file in own.dataset.recordings["file"]]
        self.whole = search(detector, own.dataset)
        self._tables: dict[Habit, pd.DataFrame] = {}

    def by(self, habit: Habit) -> pd.DataFrame:
        """The events as a habit draws them; made once."""
        if habit not in self._tables:
            path_of = self.own.dataset.path
            self._tables[habit] = redraw_events(self.whole, habit, self.front_end, path_of)
        return self._tables[habit]

    def learnt(self, recording: str, boxes: int, seed: int, start: Habit) -> HabitChoice:
        """What some boxes of the other recordings say."""
        others = self.own.dataset.select(recordings=[name for name in self.files if name != recording])
        table = pieces(others, self.front_end.chunk_s)
        rows = nested(table, boxes_of_pieces(others, table), boxes, seed=seed)
        heard = table.iloc[rows].assign(end_s=lambda spans: spans["start_s"] + spans["valid_s"])
        truth, found = (within(events, heard) for events in (others.annotations.events, self.whole))
        part = PartTables(truth, found, heard[["recording", "start_s", "end_s"]], self.front_end)
        return choose_habit(part, start, others.path)


def measure_habits(own: LabelledSet, model: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Every way of drawing on one set."""
    drawn = Drawn(own, model, options.device)
    ways: dict[str, Any] = {
        name: as_row(measure(own, drawn.by(habit)))
        for name, habit in (
            ("all", Habit()),
            ("strongest", Habit(box="strongest")),
            ("as is", drawn.start),
        )
    }
    tried = {
        str(habit): round(measure(own, drawn.by(habit), resamples=0).metrics["f1"], 4)
        for habit in candidates(drawn.front_end)
    }
    result: dict[str, Any] = {"ways": ways, "as_is": str(drawn.start), "f1_of_each_candidate": tried}
    for boxes in options.boxes:
        starts = {f"{boxes} boxes": drawn.start}
        if not drawn.start.changes_nothing:
            starts[f"{boxes} boxes, starting from all"] = Habit()
        for name, start in starts.items():
            result[name] = [_seed(drawn, boxes, seed, start) for seed in range(options.seeds)]
    return result


def _seed(drawn: Drawn, boxes: int, seed: int, start: Habit) -> dict[str, Any]:
    """All recordings held back in turn, with the boxes that one seed draws."""
    parts, seconds, chosen = [], [], []
    for recording in drawn.files:
        started = time.perf_counter()
        habit = drawn.learnt(recording, boxes, seed, start).habit
        seconds.append(time.perf_counter() - started)
        chosen.append(str(habit))
        events = drawn.by(habit)
        parts.append(events[events["recording"] == recording])
    row = as_row(measure(drawn.own, pd.concat(parts, ignore_index=True)))
    counts = {name: chosen.count(name) for name in sorted(set(chosen))}
    return {
        "seed": seed,
        **row,
        "recordings_by_habit": counts,
        "changed": len(chosen) - chosen.count(str(start)),
        "median_seconds": round(float(np.median(seconds)), 2),
    }
