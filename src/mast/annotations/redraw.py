"""A model's boxes as a habit draws them (:class:`mast.habit.Habit`): cut to their strongest part, joined into songs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from mast.annotations.songs import join_boxes
from mast.arrays import FloatArray, IntArray
from mast.events import BOX_COLUMNS, boxes_of, pairwise_iou, suppress_overlapping
from mast.features.strongest import strongest_parts
from mast.grid import FrontEnd
from mast.habit import Habit

SAME_PART = 0.5  # IoU: two boxes cut down to one part of one call are one; as in NMS within a window


class Redrawn(NamedTuple):
    """Boxes as a habit draws them, and which of the given boxes each takes its score from."""

    boxes: FloatArray  # (M, 4) rows start_s, low_hz, end_s, high_hz
    rows: IntArray  # (M,)


def redraw(
    boxes: FloatArray,
    scores: FloatArray,
    habit: Habit,
    path: str | Path,
    front_end: FrontEnd,
    *,
    threshold: float = 0.0,
) -> Redrawn:
    """The boxes of one recording as a habit draws them.

    Args:
        boxes: (N, 4) rows ``start_s, low_hz, end_s, high_hz``, inside the recording.
        scores: (N,).
        habit: how.
        path: the recording; read around the boxes where its sound is needed.
        front_end: the one that the boxes were found with.
        threshold: minimum score of boxes that are joined; those below stay single, as nobody will see them.

    Raises:
        AudioError: the recording cannot be read.
    """
    rows = np.arange(len(boxes))
    if habit.box == "strongest":
        boxes = strongest_parts(path, boxes, front_end, band_db=habit.band_db, time_db=habit.time_db)
        rows = suppress_overlapping(boxes, scores, threshold=SAME_PART, overlap=pairwise_iou)
    if habit.join_s is None:
        return Redrawn(boxes[rows], rows)
    counted = scores[rows] >= threshold
    notes, single = rows[counted], rows[~counted]
    joined, best = join_boxes(boxes[notes], scores[notes], habit.join_s)
    return Redrawn(np.concatenate([joined, boxes[single]]), np.concatenate([notes[best], single]))


def redraw_events(
    events: pd.DataFrame,
    habit: Habit,
    front_end: FrontEnd,
    path_of: Callable[[str], Path],
    *,
    threshold: float = 0.0,
) -> pd.DataFrame:
    """Events of several recordings as a habit draws them; all but the box is taken from the best-scored one.

    Args:
        events: in the event schema.
        habit: how.
        front_end: the one that they were found with.
        path_of: where a recording lies.
        threshold: as in :func:`redraw`.
    """
    if habit.changes_nothing or events.empty:
        return events
    parts = []
    for name, own in events.groupby("recording", sort=False):
        scores = own["score"].to_numpy(dtype=np.float64)
        path = path_of(str(name))
        found = redraw(boxes_of(own), scores, habit, path, front_end, threshold=threshold)
        part = own.iloc[found.rows].copy()
        part[BOX_COLUMNS] = found.boxes
        parts.append(part)
    return pd.concat(parts, ignore_index=True)
