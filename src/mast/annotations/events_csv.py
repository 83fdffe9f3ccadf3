"""Our own table: ``file,start_s,end_s,low_hz,high_hz,label`` and whatever else is known, CSV or Parquet.

A CSV may also be in the full event schema (``recording`` instead of ``file``). A folder is a dataset:
`boxes.csv` (or `boxes.parquet`), and beside it `recordings.csv` and `reviewed.csv` where they exist.
The table itself says nothing about what was listened to; in a dataset without `reviewed.csv` that is
every recording listed in `recordings.csv`, or those whose column ``reviewed`` says so.

"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from mast.annotations.base import AnnotationSet, informative_columns, whole
from mast.annotations.sidecars import (
    beside,
    listed_as_reviewed,
    read_recordings,
    read_reviewed,
    write_recordings,
    write_reviewed,
)
from mast.annotations.tables import check_boxes, format_table, read_table, write_text
from mast.errors import AnnotationError
from mast.events import EVENT_COLUMNS, as_events
from mast.files import whole_file

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
    file, known = path, AnnotationSet().with_recordings(recordings)
    if path.is_dir():
        known = beside(path, recordings)
        file = next(
            (path / f for f in ("boxes.csv", "boxes.parquet") if (path / f).is_file()), path / "boxes.csv"
        )
    events = _read_parquet(file) if file.suffix == ".parquet" else _read_csv(file)
    reviewed = read_reviewed(path)
    if reviewed is None:
        listing = path / "recordings.csv"
        heard = listed_as_reviewed(read_recordings(listing)) if path.is_dir() and listing.is_file() else []
        reviewed = whole(heard, known.durations())
    return AnnotationSet(events, reviewed, known.recordings)


def _read_csv(path: Path) -> pd.DataFrame:
    table = read_table(path)
    names = table.need(COLUMNS)
    events = pd.DataFrame({"recording": pd.Series(table.texts(names["recording"]), dtype="object")})
    for column in ("start_s", "end_s", "low_hz", "high_hz"):
        events[column] = table.numbers(names[column])
    _check(events, table.where)
    for column, dtype in EVENT_COLUMNS.items():
        found = table.find(column)
        if column not in events and found is not None:
            texts = table.texts(found)
            events[column] = texts if dtype == "str" else table.numbers(found, blank_is_nan=True)
    for column, values in table.further([*names.values(), *EVENT_COLUMNS]).items():
        events[column] = values
    return events


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        events = as_events(pd.read_parquet(path))
    except FileNotFoundError:
        raise AnnotationError(f"{path}: no such file") from None
    except AnnotationError as error:
        raise AnnotationError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:
        raise AnnotationError(f"{path}: no Parquet table ({str(error).splitlines()[0]})") from None
    box = events[["start_s", "end_s", "low_hz", "high_hz"]]
    bad = ~np.isfinite(box.to_numpy())
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise AnnotationError(
            f"{path}, row {row + 1}, {box.columns[column]}: blank or not finite, expected a number"
        )
    _check(events, lambda row: f"{path}, row {row + 1}")
    return events


def _check(events: pd.DataFrame, where: object) -> None:
    numbers = [events[c].to_numpy(dtype=np.float64) for c in ("start_s", "end_s", "low_hz", "high_hz")]
    check_boxes(numbers[0], numbers[1], numbers[2], numbers[3], where)  # type: ignore[arg-type]


def write(annotations: AnnotationSet, path: Path) -> None:
    """Write a table (`.csv`, `.parquet`), or a folder with `boxes.csv` and what belongs beside it."""
    file, heard = path, []
    if not path.suffix or path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        file = path / "boxes.csv"
        write_recordings(annotations, path / "recordings.csv")
        heard = listed_as_reviewed(read_recordings(path / "recordings.csv"))
    if file.suffix == ".parquet":
        with whole_file(file) as part:
            annotations.events.to_parquet(part, index=False)
    else:
        events = annotations.events
        columns = [*COLUMNS, "label", *informative_columns(events)]
        header = ["file", *columns[1:]]
        write_text(file, format_table(header, [events[c].tolist() for c in columns]))
    write_reviewed(annotations, path, implied=whole(heard, annotations.durations()))
