"""Truth and detections of measured chunks as event tables on disk that can be matched again, exactly as measured.

A detector is judged on its own grid of frames and mel bins. The tables are in seconds and hertz, as users want them,
and keep the bins beside (``low_bin``, ``high_bin``); scores are probabilities, the detector's own are in ``raw_score``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from mast.evaluation import Calibration, Outcome, Scoring, build_scene, match_scene
from mast.events import BOX_COLUMNS, as_events, boxes_of
from mast.files import write_whole
from mast.grid import FrontEnd, grid_to_events
from mast.training.measure import Measured

_BINS = {"low_hz": "low_bin", "high_hz": "high_bin"}


class PartTables(NamedTuple):
    """One part of a dataset as it was measured: the expert's boxes, a detector's, and the recordings heard."""

    truth: pd.DataFrame
    predictions: pd.DataFrame
    reviewed: pd.DataFrame


def in_hertz(measured: Measured, front_end: FrontEnd, calibration: Calibration) -> PartTables:
    """What :func:`mast.training.measure.detect_chunks` gives, in cells → tables for people, nothing lost."""
    truth, predictions = (
        as_events(
            table.assign(**{bins: table[hertz] for hertz, bins in _BINS.items()}).assign(
                **dict(zip(BOX_COLUMNS, grid_to_events(boxes_of(table), front_end).T, strict=True))
            )
        )
        for table in (measured.truth, measured.predictions)
    )
    raw = predictions["score"].to_numpy(dtype=float)
    predictions = predictions.assign(score=calibration.apply(raw), raw_score=raw, source="detector")
    return PartTables(truth, predictions, measured.reviewed)


def as_measured(events: pd.DataFrame) -> pd.DataFrame:
    """The table in seconds × bins with raw scores: overlap is that of the detector's grid, for it does not change
    when the axis of time is stretched.
    """
    back = events.assign(**{hertz: events[bins] for hertz, bins in _BINS.items()})
    return back.assign(score=events["raw_score"]) if "raw_score" in events else back


def scoring_of(front_end: FrontEnd) -> Scoring:
    """How tables of :func:`as_measured` are compared."""
    return Scoring(space="hz", front_end=front_end)


def match_part(tables: PartTables, front_end: FrontEnd) -> Outcome:
    """Which detections are right; the truth beside it stays in hertz."""
    scene = build_scene(
        as_measured(tables.truth),
        as_measured(tables.predictions),
        reviewed=tables.reviewed,
        scoring=scoring_of(front_end),
    )
    outcome = match_scene(scene)
    return replace(outcome, scene=replace(outcome.scene, truth_events=tables.truth))


def save_part(tables: PartTables, folder: Path, *, part: str, detector: str) -> None:
    """Write the tables below ``folder``; each is there whole or not at all."""
    for name, table in (
        (f"truth-{part}", tables.truth),
        (f"heard-{part}", tables.reviewed),
        (f"{detector}-{part}", tables.predictions),
    ):
        write_whole(folder / f"{name}.parquet", table.to_parquet(index=False))


def load_part(folder: Path, *, part: str, detector: str) -> PartTables:
    """Read what :func:`save_part` wrote."""
    names = (f"truth-{part}", f"{detector}-{part}", f"heard-{part}")
    truth, predictions, reviewed = (pd.read_parquet(folder / f"{name}.parquet") for name in names)
    return PartTables(as_events(truth), as_events(predictions), reviewed)
