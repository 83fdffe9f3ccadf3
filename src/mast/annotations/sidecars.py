"""`recordings.csv` and `reviewed.csv`: what a dataset folder says besides its boxes.

The same two small tables accompany annotations in any format that cannot store a fact itself:
`recordings.csv` (``file`` and whatever is known about it) in a folder of label files, `reviewed.csv`
(``file, start_s, end_s``; a blank end is the end of the recording) wherever the spans listened to differ
from what the format says by itself.

"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mast.annotations.base import (
    RECORDING_COLUMNS,
    REVIEWED_COLUMNS,
    AnnotationSet,
    spans_as_boxes,
    whole_spans,
)
from mast.annotations.recording_names import label_keys
from mast.annotations.tables import format_table, read_table, write_text
from mast.errors import AnnotationError
from mast.events import check_events

_FILE = ("file", "recording")
YES, NO = frozenset({"true", "yes", "1", "t", "y"}), frozenset({"false", "no", "0", "f", "n", ""})


def reviewed_path(path: Path) -> Path:
    """Where the spans that belong to ``path`` (a folder or an annotation file) are written."""
    if path.is_dir():
        return path / "reviewed.csv"
    return (
        path.with_name("reviewed.csv")
        if path.stem == "boxes"
        else path.with_name(f"{path.stem}.reviewed.csv")
    )


def read_reviewed(path: Path) -> pd.DataFrame | None:
    """Spans from the table that belongs to ``path``, None where there is none."""
    own = reviewed_path(path)
    shared = path.with_name("reviewed.csv")
    file = own if own.is_file() else shared
    if not file.is_file() or (path.is_dir() and file != own):
        return None
    table = read_table(file)
    name = table.require({"file": _FILE})["file"]
    spans = pd.DataFrame({"recording": pd.Series(table.texts(name), dtype="object")})
    for column, default in (("start_s", 0.0), ("end_s", np.nan)):
        found = table.find(column)
        numbers = table.numbers(found, blank_is_nan=True) if found else np.full(len(table), np.nan)
        spans[column] = np.where(np.isnan(numbers), default, numbers)
    check_events(spans_as_boxes(spans), table.where)
    return spans


def write_reviewed(annotations: AnnotationSet, path: Path, *, implied: pd.DataFrame) -> None:
    """Write the spans of ``annotations`` unless the file at ``path`` already says the same (``implied``)."""
    file = reviewed_path(path)
    if _span_set(annotations.reviewed) == _span_set(implied) and not file.exists():
        return
    columns = [annotations.reviewed[c].tolist() for c in REVIEWED_COLUMNS]
    write_text(file, format_table(["file", "start_s", "end_s"], columns))


def _span_set(table: pd.DataFrame) -> set[tuple[str, float, float]]:
    ends = table["end_s"].fillna(-1.0)  # NaN is not equal to itself
    return set(zip(table["recording"], table["start_s"], ends, strict=True))


def listed_as_reviewed(recordings: pd.DataFrame) -> list[str]:
    """Recordings that a dataset's `recordings.csv` says were listened to.

    Those marked in its column ``reviewed`` (true, yes, 1), or all where there is no such column: a recording that
    is listed next to `boxes.csv` and has no box was heard and holds nothing.
    """
    if "reviewed" not in recordings:
        return list(recordings["recording"])
    return list(recordings["recording"][flag_texts(recordings["reviewed"]).isin(YES)])


def flag_texts(column: pd.Series[Any]) -> pd.Series[str]:
    """A column of yes and no, as people and programs write it, to compare with :data:`YES` and :data:`NO`."""
    return column.fillna("").astype(str).str.strip().str.lower().str.removesuffix(".0")


def read_recordings(path: Path) -> pd.DataFrame:
    """A `recordings.csv`: ``recording`` first, known columns typed, other columns kept."""
    table = read_table(path)
    name = table.require({"file": _FILE})["file"]
    recordings = pd.DataFrame({"recording": pd.Series(table.texts(name), dtype="object")})
    for column, dtype in RECORDING_COLUMNS.items():
        found = table.find(column)
        if column == "recording" or found is None:
            continue
        recordings[column] = table.texts(found) if dtype == "str" else table.numbers(found, blank_is_nan=True)
    used = [name, *(c for c in table.header if c in RECORDING_COLUMNS)]
    for column, values in table.extra_columns(used).items():
        recordings[column] = values
    repeated = recordings["recording"].duplicated()
    if repeated.any():
        row = int(np.flatnonzero(repeated)[0])
        raise AnnotationError(
            f"{table.where(row)}: {recordings['recording'][row]} is listed twice; keep one row"
        )
    return recordings


def write_recordings(annotations: AnnotationSet, path: Path) -> None:
    """Write what is known about every recording that is mentioned; columns without content are left out."""
    known = annotations.recordings.set_index("recording").reindex(annotations.names())
    columns = [c for c in known.columns if (known[c].notna() & known[c].ne("")).any()]
    text = format_table(["file", *columns], [known.index.tolist(), *(known[c].tolist() for c in columns)])
    write_text(path, text)


def write_folder(annotations: AnnotationSet, path: Path, ending: str, text_of: Callable[[str], str]) -> None:
    """Write a text file for each annotated recording, under its name, and the two tables next to them."""
    path.mkdir(parents=True, exist_ok=True)
    names, keys = annotations.annotated(), label_keys(annotations.names())
    for name in names:
        write_text(path / f"{keys[name]}{ending}", text_of(name))
    write_recordings(annotations, path / "recordings.csv")
    write_reviewed(annotations, path, implied=whole_spans(names, annotations.durations()))


def known_recordings(path: Path, recordings: pd.DataFrame) -> AnnotationSet:
    """What the caller knows about the recordings, and a folder's own `recordings.csv`; without events."""
    file = path / "recordings.csv"
    found = AnnotationSet(recordings=read_recordings(file)) if file.is_file() else AnnotationSet()
    return found.with_recordings(recordings)
