"""Truth and predictions side by side: the same recordings, the same spans, the same coordinates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal, get_args

import numpy as np
import pandas as pd

from mast.arrays import BoolArray, FloatArray, IntArray
from mast.errors import AnnotationError, ConfigError
from mast.events import as_events, boxes_of, check_events, clip_at_zero
from mast.grid import FrontEnd, events_to_cells, events_to_grid

Space = Literal["grid", "cells", "hz"]

_ENDLESS_FRAMES = 1 << 40  # one grid as long as any recording


@dataclass(frozen=True)
class Scoring:
    """How two boxes are compared.

    Attributes:
        space: ``"grid"`` as in the paper: whole cells of the front end's grid, so one cell is one frame by
            one mel bin and everything outside the band is left out. ``"cells"``: the same grid, unrounded and
            uncut, for boxes that were found on it. ``"hz"``: seconds × hertz, unrounded.
        front_end: the grid; its chunk length also cuts recordings for the per-chunk mean.
        iou_threshold: minimum overlap of a match (paper, App. "Evaluation Details": 0.5).

    >>> import pandas as pd
    >>> from mast.evaluation import Scoring, evaluate
    >>> columns = ["recording", "start_s", "end_s", "low_hz", "high_hz"]
    >>> truth = pd.DataFrame([["a.wav", 1, 2, 2000, 3000]], columns=columns)
    >>> found = pd.DataFrame([["a.wav", 1, 2, 2000, 5000]], columns=columns)
    >>> [evaluate(truth, found, scoring=Scoring("hz", iou_threshold=iou)).metrics["f1"] for iou in (0.5, 0.3)]
    [0.0, 1.0]
    """

    space: Space = "grid"
    front_end: FrontEnd = field(default_factory=FrontEnd)
    iou_threshold: float = 0.5

    def __post_init__(self) -> None:
        if self.space not in get_args(Space):
            raise ConfigError(f"space is {self.space!r}; expected one of {', '.join(get_args(Space))}")
        if not 0 < self.iou_threshold <= 1:
            raise ConfigError(f"IoU threshold is {self.iou_threshold:g}; expected above 0 and at most 1")


@dataclass(frozen=True)
class SceneBoxes:
    """One side of a scene: boxes that count, in the order recording, then row.

    Attributes:
        boxes: (N, 4) in the coordinates of the scene's space.
        recording: (N,) index into the scene's recordings.
        chunk: (N,) chunk of the recording that holds the box's centre in time.
        row: (N,) row of the table given.
        n_outside: how many were left out: outside the band, or (in grid space) without duration.
        n_unreviewed: how many were left out: nobody listened there, so they are neither right nor wrong.
    """

    boxes: FloatArray
    recording: IntArray
    chunk: IntArray
    row: IntArray
    n_outside: int
    n_unreviewed: int

    def __len__(self) -> int:
        return len(self.boxes)


@dataclass(frozen=True)
class Scene:
    """Everything that is compared, and how.

    Attributes:
        scoring: space, front end, overlap.
        recordings: names of the reviewed recordings, sorted.
        truth: the expert's boxes.
        predictions: the detector's boxes.
        scores: (P,) score of each prediction.
        truth_events: the truth table as given, in the event schema; ``truth.row`` points into it.
    """

    scoring: Scoring
    recordings: list[str]
    truth: SceneBoxes
    predictions: SceneBoxes
    scores: FloatArray
    truth_events: pd.DataFrame


def align_recordings(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Which known recording each name means; names that mean none, or more than one, are left out.

    An identical name is taken first. Otherwise one path must end with the other, with or without the file's
    ending, since tools write ``audio/a.wav``, ``/data/a.wav``, ``a.flac`` or ``a`` for one recording; and
    no two names may claim one recording.

    >>> align_recordings(["audio/a.wav", "b"], ["a.wav", "b.flac", "c.flac"])
    {'audio/a.wav': 'a.wav', 'b': 'b.flac'}
    """
    recordings = set(known)
    wanted = list(dict.fromkeys(names))
    aligned = {name: name for name in wanted if name in recordings}
    by_last: dict[str, set[str]] = defaultdict(set)
    for recording in recordings - set(aligned):
        for spelling in _spellings(recording):
            by_last[spelling[-1]].add(recording)
    claims: dict[str, list[str]] = defaultdict(list)
    for name in wanted:
        if name in aligned:
            continue
        found = {r for s in _spellings(name) for r in by_last.get(s[-1], ()) if _same_tail(name, r)}
        if len(found) == 1:
            claims[found.pop()].append(name)
    aligned.update(
        {claimants[0]: recording for recording, claimants in claims.items() if len(claimants) == 1}
    )
    return aligned


def _spellings(name: str) -> set[tuple[str, ...]]:
    """Path parts, with and without the file's ending."""
    path = PurePosixPath(name.replace("\\", "/"))
    if not path.name:
        return {("",)}
    return {path.parts, path.with_suffix("").parts}


def _same_tail(a: str, b: str) -> bool:
    for x in _spellings(a):
        for y in _spellings(b):
            n = min(len(x), len(y))
            if x[-n:] == y[-n:]:
                return True
    return False


def build_scene(
    truth: pd.DataFrame,
    predictions: pd.DataFrame,
    *,
    reviewed: pd.DataFrame | None = None,
    scoring: Scoring | None = None,
) -> Scene:
    """Bring truth and predictions together.

    Only what somebody listened to can be judged. A box counts where its centre in time lies in a reviewed
    span; the others are counted as ``n_unreviewed``. A reviewed recording without predictions stays, with
    its misses; a recording that holds truth but has no span is taken as reviewed from end to end.

    Args:
        truth: the expert's events.
        predictions: the detector's events; their recordings may be spelt as in :func:`align_recordings`.
        reviewed: ``recording, start_s, end_s`` of what was listened to (``end_s`` missing: to the end);
            without it, the recordings that hold truth, from end to end.
        scoring: how boxes are compared.
    """
    how = scoring or Scoring()
    true_events = _checked_events(truth, "truth")
    predicted = _checked_events(predictions, "predictions")
    spans = _reviewed_spans(reviewed, true_events)
    recordings = sorted(spans["recording"].unique())
    names = align_recordings(predicted["recording"], recordings)
    predicted = predicted.assign(recording=predicted["recording"].map(lambda name: names.get(name, name)))
    truth_side = _scene_boxes(true_events, spans, recordings, how)
    prediction_side = _scene_boxes(predicted, spans, recordings, how)
    scores = predicted["score"].to_numpy(dtype=np.float64)[prediction_side.row]
    return Scene(how, recordings, truth_side, prediction_side, scores, true_events)


def _checked_events(table: pd.DataFrame, what: str) -> pd.DataFrame:
    """The table in the event schema; a row that is not a box is the user's mistake."""
    try:
        events = as_events(table)
    except AnnotationError as error:
        raise AnnotationError(f"{what}: {error}") from None
    check_events(
        events,
        lambda row: f"{what}: row {row + 1} ({events['recording'].iloc[row]})",
        blank_scores=what == "truth",
        probabilities=False,
    )
    return clip_at_zero(events)


def _reviewed_spans(reviewed: pd.DataFrame | None, truth: pd.DataFrame) -> pd.DataFrame:
    """Reviewed spans, (recording, start_s, end_s) with an infinite end where none is given."""
    if reviewed is None:
        spans = pd.DataFrame({"recording": pd.Series([], dtype=str), "start_s": [], "end_s": []})
    else:
        spans = reviewed[["recording", "start_s", "end_s"]]
    boxed = sorted(set(truth["recording"]) - set(spans["recording"]))
    whole = pd.DataFrame({"recording": pd.Series(boxed, dtype=str), "start_s": np.nan, "end_s": np.nan})
    spans = pd.concat([part for part in (spans, whole) if len(part)] or [spans], ignore_index=True)
    return spans.assign(
        start_s=spans["start_s"].astype("float64").fillna(0.0),
        end_s=spans["end_s"].astype("float64").fillna(np.inf),
    )


def _scene_boxes(
    events: pd.DataFrame, spans: pd.DataFrame, recordings: list[str], scoring: Scoring
) -> SceneBoxes:
    """The events that count, in the scene's coordinates."""
    index = pd.Index(recordings, dtype="object")
    recording, span_recording = (
        index.get_indexer(pd.Index(table["recording"], dtype="object")).astype(np.int64)  # -1: not heard
        for table in (events, spans)
    )
    centre_s = (events["start_s"].to_numpy(dtype=np.float64) + events["end_s"].to_numpy(dtype=np.float64)) / 2
    reviewed = _is_reviewed(recording, centre_s, span_recording, spans)

    boxes = boxes_of(events)
    if scoring.space == "grid":
        cells = events_to_grid(boxes, scoring.front_end, n_frames=_ENDLESS_FRAMES, min_event_s=0.0)
        boxes = np.zeros_like(boxes)
        boxes[cells.index] = cells.boxes
        inside = np.isin(np.arange(len(boxes)), cells.index)
    else:
        inside = np.ones(len(boxes), dtype=bool)
        if scoring.space == "cells":
            boxes = events_to_cells(boxes, scoring.front_end)
    rows = np.flatnonzero(reviewed & inside)
    rows = rows[np.argsort(recording[rows], kind="stable")]
    return SceneBoxes(
        boxes=boxes[rows],
        recording=recording[rows],
        chunk=np.floor(centre_s[rows] / scoring.front_end.chunk_s).astype(np.int64),
        row=rows,
        n_outside=int((reviewed & ~inside).sum()),
        n_unreviewed=int((~reviewed).sum()),
    )


def _is_reviewed(
    recording: IntArray, time_s: FloatArray, span_recording: IntArray, spans: pd.DataFrame
) -> BoolArray:
    """Which moments lie in a reviewed span."""
    order = np.argsort(span_recording, kind="stable")
    first = np.searchsorted(span_recording, recording, sorter=order)
    count = np.searchsorted(span_recording, recording, side="right", sorter=order) - first
    # every moment paired with every span of its recording
    moment = np.repeat(np.arange(len(recording)), count)
    span = order[np.arange(len(moment)) + np.repeat(first - (count.cumsum() - count), count)]
    start_s, end_s = (spans[name].to_numpy(dtype=np.float64)[span] for name in ("start_s", "end_s"))
    reviewed = np.zeros(len(recording), dtype=bool)
    reviewed[moment[(time_s[moment] >= start_s) & (time_s[moment] <= end_s)]] = True
    return reviewed
