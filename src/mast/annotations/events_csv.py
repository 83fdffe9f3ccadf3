"""Our own table: ``file,start_s,end_s,low_hz,high_hz,label`` and whatever else is known, CSV or Parquet.

A CSV may also be in the full event schema (``recording`` instead of ``file``). A folder is a dataset:
`boxes.csv` (or `boxes.parquet`), with `recordings.csv` and `reviewed.csv` next to it where they exist; or what
`mast detect` wrote: `detections.parquet` (or `detections.csv`).
The table itself says nothing about what was listened to; in a dataset without `reviewed.csv` that is
every recording listed in `recordings.csv`, or those whose column ``reviewed`` says so.

"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from mast.annotations.base import AnnotationSet, informative_columns, whole_spans
from mast.annotations.recording_names import RecordingNames
from mast.annotations.sidecars import (
    known_recordings,
    listed_as_reviewed,
    read_recordings,
    read_reviewed,
    write_recordings,
    write_reviewed,
)
from mast.annotations.tables import cell_text, format_table, read_table, with_extra_columns, write_text
from mast.errors import AnnotationError, first_line
from mast.events import as_events, check_events
from mast.table_files import write_table

TABLES = ("boxes.csv", "boxes.parquet", "detections.parquet", "detections.csv")  # the first found counts
# event column → names it may have on disk; the first is written
COLUMNS: dict[str, tuple[str, ...]] = {
    "recording": ("file", "recording"),
    "start_s": ("start_s",),
    "end_s": ("end_s",),
    "low_hz": ("low_hz",),
    "high_hz": ("high_hz",),
}


def read(path: Path, recordings: pd.DataFrame) -> AnnotationSet:
    """Read a table, or the dataset folder that holds one."""
    known = known_recordings(path, recordings)
    file = (table_in(path) or path / TABLES[0]) if path.is_dir() else path
    events = _read_parquet(file) if file.suffix == ".parquet" else _read_csv(file)
    reviewed = read_reviewed(path)
    if reviewed is None:
        listing = path / "recordings.csv"
        heard = listed_as_reviewed(read_recordings(listing)) if path.is_dir() and listing.is_file() else []
        reviewed = whole_spans(heard, known.durations())
    names = known.names()
    return AnnotationSet(
        _with_known_names(events, names), _with_known_names(reviewed, names), known.recordings
    )


def table_in(folder: Path) -> Path | None:
    """The table of a dataset folder, or of the folder that `mast detect` wrote."""
    return next((folder / name for name in TABLES if (folder / name).is_file()), None)


def _with_known_names(table: pd.DataFrame, known: list[str]) -> pd.DataFrame:
    """The table with recordings under the names that are known; others stay as written."""
    names, every = RecordingNames(known), set(known)
    meant = {str(name): names.of_path(str(name)) for name in table["recording"].unique()}
    own = {name: found for name, found in meant.items() if found in every}
    return table.assign(recording=[own.get(str(name), name) for name in table["recording"]])


def _read_csv(path: Path) -> pd.DataFrame:
    table = read_table(path)
    names = table.require(COLUMNS)
    boxes: dict[str, Any] = {"recording": pd.Series(table.texts(names["recording"]), dtype="object")}
    boxes |= {column: table.numbers(names[column]) for column in ("start_s", "end_s", "low_hz", "high_hz")}
    return with_extra_columns(boxes, table, table.find, names.values())


def _read_parquet(path: Path) -> pd.DataFrame:
    from pyarrow import lib, parquet

    try:
        with parquet.ParquetFile(path) as file:
            # what pandas notes about its index is not needed, and may be damaged
            table = file.read().to_pandas(ignore_metadata=True)
        events = as_events(table[[c for c in table.columns if not c.startswith("__index_level_")]])
    except FileNotFoundError:
        raise AnnotationError(f"{path}: no such file") from None
    except AnnotationError as error:
        raise AnnotationError(f"{path}: {error}") from None
    except (OSError, ValueError, TypeError, MemoryError, lib.ArrowException) as error:
        raise AnnotationError(f"{path}: not a Parquet table ({first_line(error)})") from None
    check_events(events, lambda row: f"{path}, row {row + 1}")
    return events


def _mixed_columns_as_text(events: pd.DataFrame) -> pd.DataFrame:
    """Columns that mix words and numbers (from several tables, from JSON) as text, since Parquet cannot mix them."""
    mixed = [
        column
        for column in events.columns
        if events[column].dtype == object and not events[column].map(lambda v: isinstance(v, str)).all()
    ]
    return events.assign(**{str(c): [cell_text(v) for v in events[c].tolist()] for c in mixed})


def write(annotations: AnnotationSet, path: Path) -> None:
    """Write a table (`.csv`, `.parquet`), or a folder with `boxes.csv` and the files that belong with it."""
    file, heard = path, []
    if not path.suffix or path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        file = path / "boxes.csv"
        write_recordings(annotations, path / "recordings.csv")
        heard = listed_as_reviewed(read_recordings(path / "recordings.csv"))
    if file.suffix == ".parquet":
        write_table(file, _mixed_columns_as_text(annotations.events))
    else:
        events = annotations.events
        columns = [*COLUMNS, "label", *informative_columns(events)]
        header = ["file", *columns[1:]]
        write_text(file, format_table(header, [events[c].tolist() for c in columns]))
    write_reviewed(annotations, path, implied=whole_spans(heard, annotations.durations()))
