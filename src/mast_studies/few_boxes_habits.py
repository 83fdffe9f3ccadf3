"""`few_boxes.py --habits`: what drawing boxes in another way gains, without any labelled boxes and with ten of them.

The model searches each set once. Its boxes are then measured whole (``all``), cut to the strongest harmonic
(``strongest``), as the model gives them (which of the two depends on the band), and as :func:`choose_habit` decides
from a few boxes. For the last, one recording at a time is held back: chunks of the others are drawn until they hold
that many boxes, and the habit chosen from these is used on the recording held back. Nothing is trained.
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
from mast_studies.few_boxes_chunks import count_boxes, list_chunks, sample_chunks
from mast_studies.folds import events_in_spans
from mast_studies.whole_recordings import search
from mast_studies.zero_shot_measure import as_row, measure
from mast_studies.zero_shot_sets import LabelledSet


class RedrawnEvents:
    """What a model found in a set, as each habit draws it."""

    def __init__(self, labelled_set: LabelledSet, model: Path, device: str | None) -> None:
        band_hz = None if labelled_set.band_hz == FrontEnd().high_hz else labelled_set.band_hz
        detector = Detector(model, DetectOptions(device=device, band_hz=band_hz, box="all"))
        self.labelled_set, self.start = labelled_set, detector.card.habit or Habit()
        self.front_end = detector.card.front_end
        self.files = [str(file) for file in labelled_set.dataset.recordings["file"]]
        self.found = search(detector, labelled_set.dataset)
        self._tables: dict[Habit, pd.DataFrame] = {}

    def drawn_by(self, habit: Habit) -> pd.DataFrame:
        """The events as a habit draws them; computed once."""
        if habit not in self._tables:
            path_of = self.labelled_set.dataset.path
            self._tables[habit] = redraw_events(self.found, habit, self.front_end, path_of)
        return self._tables[habit]

    def habit_from_others(self, recording: str, boxes: int, seed: int, start: Habit) -> HabitChoice:
        """The habit chosen from some boxes of the other recordings."""
        others = self.labelled_set.dataset.select(
            recordings=[name for name in self.files if name != recording]
        )
        table = list_chunks(others, self.front_end.chunk_s)
        rows = sample_chunks(table, count_boxes(others, table), boxes, seed=seed)
        heard = table.iloc[rows].assign(end_s=lambda spans: spans["start_s"] + spans["valid_s"])
        truth, found = (events_in_spans(events, heard) for events in (others.annotations.events, self.found))
        part = PartTables(truth, found, heard[["recording", "start_s", "end_s"]], self.front_end)
        return choose_habit(part, start, others.path)


def measure_habits(labelled_set: LabelledSet, model: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Every way of drawing on one set."""
    redrawn = RedrawnEvents(labelled_set, model, options.device)
    ways: dict[str, Any] = {
        name: as_row(measure(labelled_set, redrawn.drawn_by(habit)))
        for name, habit in (
            ("all", Habit()),
            ("strongest", Habit(box="strongest")),
            ("as is", redrawn.start),
        )
    }
    tried = {
        str(habit): round(measure(labelled_set, redrawn.drawn_by(habit), resamples=0).metrics["f1"], 4)
        for habit in candidates(redrawn.front_end)
    }
    result: dict[str, Any] = {"ways": ways, "as_is": str(redrawn.start), "f1_of_each_candidate": tried}
    for boxes in options.boxes:
        starts = {f"{boxes} boxes": redrawn.start}
        if not redrawn.start.changes_nothing:
            starts[f"{boxes} boxes, starting from all"] = Habit()
        for name, start in starts.items():
            result[name] = [_measure_seed(redrawn, boxes, seed, start) for seed in range(options.seeds)]
    return result


def _measure_seed(redrawn: RedrawnEvents, boxes: int, seed: int, start: Habit) -> dict[str, Any]:
    """All recordings held back in turn, with the boxes that one seed draws."""
    parts, seconds, chosen = [], [], []
    for recording in redrawn.files:
        started = time.perf_counter()
        habit = redrawn.habit_from_others(recording, boxes, seed, start).habit
        seconds.append(time.perf_counter() - started)
        chosen.append(str(habit))
        events = redrawn.drawn_by(habit)
        parts.append(events[events["recording"] == recording])
    row = as_row(measure(redrawn.labelled_set, pd.concat(parts, ignore_index=True)))
    counts = {name: chosen.count(name) for name in sorted(set(chosen))}
    return {
        "seed": seed,
        **row,
        "recordings_by_habit": counts,
        "changed": len(chosen) - chosen.count(str(start)),
        "median_seconds": round(float(np.median(seconds)), 2),
    }
