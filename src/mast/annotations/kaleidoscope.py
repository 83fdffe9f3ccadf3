"""Kaleidoscope CSV (`cluster.csv`): INDIR, FOLDER, IN FILE, OFFSET, DURATION, Fmin, Fmax, MANUAL ID and more.

The recording is FOLDER/IN FILE; INDIR is the machine's own folder above it. Frequencies are in Hz. The
label is MANUAL ID where a person gave one, else the program's own match. A blank Fmin is 0 Hz, a blank Fmax
the Nyquist frequency of the recording, whose sample rate must then be known. A row with MANUAL ID `Noise`
or `NoID` and no frequencies is a span that was listened to and holds nothing; other spans listened to are
in the `reviewed.csv` next to the table, because checking what a program found is not listening to the whole.
Columns Kaleidoscope or its user added are kept.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from mast.annotations.base import AnnotationSet, fill_upper_limits, informative_columns
from mast.annotations.recording_names import RecordingNames
from mast.annotations.sidecars import read_reviewed, write_reviewed
from mast.annotations.tables import (
    decimal_difference,
    decimal_sum,
    format_table,
    read_table,
    with_extra_columns,
    write_text,
)
from mast.errors import AnnotationError

# our column → Kaleidoscope's names for it; the first is written
COLUMNS: dict[str, tuple[str, ...]] = {
    "file": ("IN FILE",),
    "start_s": ("OFFSET",),
    "duration": ("DURATION",),
}
OPTIONAL: dict[str, tuple[str, ...]] = {
    "low_hz": ("Fmin",),
    "high_hz": ("Fmax",),
    "label": ("MANUAL ID", "MANUAL_ID"),
    "found": ("TOP1MATCH", "TOP1MATCH*", "AUTO ID", "AUTO ID*", "scientific_name", "common_name"),
    "score": ("score", "confidence"),
}
_NOTHING = ("noise", "noid")


def read(path: Path, recordings: pd.DataFrame) -> AnnotationSet:
    """Read a Kaleidoscope table."""
    table = read_table(path)
    column = {**table.require(COLUMNS), **{k: c for k, n in OPTIONAL.items() if (c := table.find(*n))}}
    known = AnnotationSet().with_recordings(recordings)
    names, nyquists = RecordingNames(known.names()), known.nyquists()
    folder = table.find("FOLDER")
    folders = table.texts(folder) if folder else [""] * len(table)
    paths = [
        f"{d.strip('/')}/{f}" if d.strip("/") else f
        for d, f in zip(folders, table.texts(column["file"]), strict=True)
    ]
    found = {text: names.of_path(text) for text in dict.fromkeys(paths)}
    recording = [found[text] for text in paths]

    blank = [""] * len(table)
    manual = table.texts(column["label"]) if "label" in column else blank
    program = table.texts(column["found"]) if "found" in column else blank
    low_texts, high_texts = (table.texts(column[c]) if c in column else blank for c in ("low_hz", "high_hz"))
    nothing = np.array(
        [
            m.strip().casefold() in _NOTHING and not a.strip() and not b.strip()
            for m, a, b in zip(manual, low_texts, high_texts, strict=True)
        ],
        dtype=bool,
    )
    starts = table.numbers(column["start_s"])
    lengths = table.numbers(column["duration"], blank_is_nan=True)
    for row in np.flatnonzero(np.isnan(lengths) & ~nothing).tolist():
        raise AnnotationError(f"{table.where(row)}, {column['duration']}: blank, expected a number")
    if (negative := np.flatnonzero(lengths < 0)).size:
        row = int(negative[0])
        raise AnnotationError(f"{table.where(row)}, {column['duration']}: negative ({lengths[row]:.10g})")
    offsets, durations = (table.number_texts(column[c]) for c in ("start_s", "duration"))
    ends = np.array([decimal_sum(o.strip(), d.strip() or 0) for o, d in zip(offsets, durations, strict=True)])
    lows = table.numbers(column["low_hz"], blank_is_nan=True) if "low_hz" in column else np.zeros(len(table))
    lows = np.where(np.isnan(lows), 0.0, lows)
    highs = (
        table.numbers(column["high_hz"], blank_is_nan=True)
        if "high_hz" in column
        else np.full(len(table), np.nan)
    )
    highs[np.isnan(highs) & nothing] = 0.0
    highs = fill_upper_limits(highs, recording, nyquists, lambda row: f"{table.where(row)}, Fmax")
    label = [m or p for m, p in zip(manual, program, strict=True)]
    boxes = {"recording": recording, "start_s": starts, "end_s": ends, "low_hz": lows, "high_hz": highs}
    used = [*column.values(), *(c for c in ("INDIR", "FOLDER") if table.find(c))]
    events = with_extra_columns(
        boxes | {"label": label}, table, lambda name: column.get(name) or table.find(name), used
    )
    spans = pd.DataFrame(
        {"recording": recording, "start_s": starts, "end_s": np.where(np.isnan(lengths), np.nan, ends)}
    )
    reviewed = read_reviewed(path)
    return AnnotationSet(
        events[~nothing].reset_index(drop=True),
        spans[nothing] if reviewed is None else reviewed,
        known.recordings,
    )


def write(annotations: AnnotationSet, path: Path) -> None:
    """Write a Kaleidoscope table; what was heard and holds nothing is a `Noise` row without frequencies."""
    events = annotations.events
    extra = informative_columns(events)
    empty = set(annotations.reviewed_empty())
    spans = annotations.reviewed[annotations.reviewed["recording"].isin(empty)]
    files = [*events["recording"], *spans["recording"]]
    parents = [str(Path(f).parent.as_posix()) if "/" in f else "" for f in files]
    n, m = len(events), len(spans)
    lengths = [decimal_difference(e, s) for s, e in zip(events["start_s"], events["end_s"], strict=True)]
    lengths += [
        "" if e != e else decimal_difference(e, s)
        for s, e in zip(spans["start_s"], spans["end_s"], strict=True)
    ]
    columns: list[list[object]] = [
        [""] * (n + m),
        [*parents],
        [f.rsplit("/", 1)[-1] for f in files],
        [*events["start_s"].tolist(), *spans["start_s"].tolist()],
        [*lengths],
        [*events["low_hz"].tolist(), *[""] * m],
        [*events["high_hz"].tolist(), *[""] * m],
        [*events["label"], *["Noise"] * m],
        *([*events[c].tolist(), *[""] * m] for c in extra),
    ]
    header = ["INDIR", "FOLDER", "IN FILE", "OFFSET", "DURATION", "Fmin", "Fmax", "MANUAL ID", *extra]
    write_text(path, format_table(header, columns))
    write_reviewed(annotations, path, implied=spans)
