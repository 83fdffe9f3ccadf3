"""Raven selection tables: tab-separated, one per recording in a folder, or one table for many recordings.

Read: any column order; `Low Freq (Hz)` or `Low Frequency (Hz)`; the recording from `Begin Path`, `Begin
File` or the table's name. The start within the recording is `File Offset (s)` where present (`Begin Time
(s)` counts through the whole list of files Raven had open), otherwise `Begin Time (s)`; the latter also
where both agree except in some rows, in which `Begin Time (s)` was changed. A selection that
appears once per view (spectrogram, waveform) is one event. Its label is from the first label column that is
filled in its row. Columns Raven or its user added are kept. A table says that its recording was listened to,
a table with only a header that nothing is there. BirdNET's own table of results is read as well: it has no
frequencies, so its boxes reach from 0 Hz to half the sample rate.

Written: one table per recording in a folder, `Begin Time (s)` within the recording; or, for a path that ends
in `.txt`, a single table.

"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mast.annotations.base import AnnotationSet, fill_upper_limits, informative_columns, whole_spans
from mast.annotations.recording_names import RecordingNames, key_of
from mast.annotations.sidecars import known_recordings, read_reviewed, write_folder, write_reviewed
from mast.annotations.tables import (
    Table,
    decimal_sum,
    first_fields,
    format_table,
    one_line,
    read_table,
    with_extra_columns,
    write_text,
)
from mast.errors import AnnotationError
from mast.events import EVENT_COLUMNS, empty_events
from mast.wording import counted, format_names

# event column → Raven's names for it; the first is written
COLUMNS: dict[str, tuple[str, ...]] = {
    "start_s": ("Begin Time (s)",),
    "end_s": ("End Time (s)",),
    "low_hz": ("Low Freq (Hz)", "Low Frequency (Hz)"),
    "high_hz": ("High Freq (Hz)", "High Frequency (Hz)"),
    # Raven has no column for a label; people add one under these names
    "label": (
        "Annotation",
        "Annotations",
        "Label",
        "Species",
        "Common Name",
        "Species Code",
        "Class",
        "Tag 1",
        "Type",
    ),
    "score": ("Score", "Confidence", "Probability"),
    "site": ("Site",),
    "datetime": ("Datetime",),
    "source": ("Source",),
    "model": ("Model",),
}
_BOX = ("start_s", "end_s", "low_hz", "high_hz")
BIRDNET = {"Start (s)": "Begin Time (s)", "End (s)": "End Time (s)"}  # BirdNET's columns → Raven's
_ROUNDING_S = 0.001  # between Begin Time and File Offset, which Raven may round differently
TABLE_NAME = re.compile(r"[._]selections?\.(txt|tsv)$", re.IGNORECASE)  # as Raven and BirdNET call them
_STRUCTURE = ("Selection", "View", "Begin File", "Begin Path", "End File", "End Path", "File Offset (s)")


def read(path: Path, recordings: pd.DataFrame) -> AnnotationSet:
    """Read one selection table, or every table below a folder."""
    folder = path if path.is_dir() else path.parent
    known = known_recordings(path, recordings)
    files = _skip_other_files(path, tables_in(path)) if path.is_dir() else [path]
    if not files and not (path / "recordings.csv").is_file():
        raise AnnotationError(f"{path}: no selection tables (*.txt) in this folder")
    reviewed = read_reviewed(path)
    names = RecordingNames(known.names())
    # a header-only table has only its own name to go by; reviewed spans may have the full one
    own_names = names if reviewed is None else RecordingNames([*known.names(), *reviewed["recording"]])
    nyquists = known.nyquists()
    parts, heard = [], []
    for file in files:
        table = _from_birdnet(read_table(file))
        own = own_names.of_key(key_of(file, folder))
        events = _events(table, own, names, nyquists)
        parts.append(events)
        heard += list(dict.fromkeys(events["recording"])) or [own]
    if reviewed is None:
        reviewed = whole_spans(list(dict.fromkeys(heard)), known.durations())
    filled = [p for p in parts if len(p)]
    events = pd.concat(filled, ignore_index=True) if filled else empty_events()
    if warning := _unlabelled_warning(events):
        warnings.warn(f"{path}: {warning}", stacklevel=3)
    return AnnotationSet(events, reviewed, known.recordings)


def tables_in(folder: Path) -> list[Path]:
    """Tables below a folder: `.txt` and `.tsv`, or, where there are none, `.csv` as spreadsheets save them."""
    every = sorted(file for file in folder.rglob("*") if file.is_file())
    found = [file for file in every if file.suffix.lower() in (".txt", ".tsv")]
    own = ("recordings.csv", "reviewed.csv")
    return found or [file for file in every if file.suffix.lower() == ".csv" and file.name not in own]


def _skip_other_files(folder: Path, files: list[Path]) -> list[Path]:
    """The files without those that are plainly not selection tables, such as notes; a warning names these."""
    others = [file for file in files if _is_other_file(file)]
    if others:
        names = format_names([file.relative_to(folder).as_posix() for file in others], 3)
        warnings.warn(
            f"{folder}: skipped {counted(len(others), 'file')} without any column of a selection table ({names})",
            stacklevel=3,
        )
    return [file for file in files if file not in others]


def _is_other_file(file: Path) -> bool:
    """Whether a file is plainly not a selection table, not even an empty one or one without its header."""
    fields = first_fields(file)
    if not fields or TABLE_NAME.search(file.name):
        return False
    columns = [*_STRUCTURE, *BIRDNET, *(name for column in _BOX for name in COLUMNS[column])]
    numbers = sum(re.fullmatch(r"-?\d+([.,]\d+)?", field) is not None for field in fields)
    return numbers < 2 and Table(file, fields, [], []).find(*columns) is None


def _from_birdnet(table: Table) -> Table:
    """BirdNET's table of results under Raven's names, with boxes over the whole band; other tables as they are."""
    if table.find("Begin Time (s)") or not all(table.find(name) for name in BIRDNET):
        return table
    names = {table.find(theirs): ravens for theirs, ravens in {**BIRDNET, "File": "Begin Path"}.items()}
    header = [names.get(column, column) for column in table.header]
    rows = [[*row, "0", ""] for row in table.rows]
    return Table(table.path, [*header, "Low Freq (Hz)", "High Freq (Hz)"], rows, table.lines)


def _events(table: Table, own: str, names: RecordingNames, nyquists: dict[str, float]) -> pd.DataFrame:
    """Events of one table; ``own`` is the recording that the table is named after."""
    columns = table.require({c: COLUMNS[c] for c in _BOX})
    table = _keep_one_view(table, columns)
    recording = _recordings(table, own, names)
    starts, ends = table.numbers(columns["start_s"]), table.numbers(columns["end_s"])
    lows, highs = table.numbers(columns["low_hz"]), table.numbers(columns["high_hz"], blank_is_nan=True)
    highs = fill_upper_limits(
        highs, recording, nyquists, lambda row: f"{table.where(row)}, {columns['high_hz']}"
    )
    offset = table.find("File Offset (s)")
    if offset is not None:
        starts, ends = _times_in_recording(table.numbers(offset, blank_is_nan=True), starts, ends, table)
    boxes = {"recording": recording, "start_s": starts, "end_s": ends, "low_hz": lows, "high_hz": highs}
    labels, label_columns = _labels(table)
    boxes |= {"label": labels}
    used = [*columns.values(), *label_columns, *(c for c in (table.find(s) for s in _STRUCTURE) if c)]
    if (channel := table.find("Channel")) and set(table.texts(channel)) <= {"1"}:
        used.append(channel)
    return with_extra_columns(boxes, table, lambda name: table.find(*COLUMNS.get(name, ())), used)


def _labels(table: Table) -> tuple[list[str], list[str]]:
    """In each row the first label column that is filled, and the columns that say no more than that."""
    columns = [column for name in COLUMNS["label"] if (column := table.find(name))]
    rows = list(zip(*(table.texts(column) for column in columns), strict=True)) or [("",)] * len(table)
    labels = [next((text for text in row if text.strip()), row[0]) for row in rows]
    texts_and_labels = {c: zip(table.texts(c), labels, strict=True) for c in columns}
    return labels, [
        c for c, pairs in texts_and_labels.items() if all(t == label or not t.strip() for t, label in pairs)
    ]


def _unlabelled_warning(events: pd.DataFrame) -> str:
    """Where no event has a label: which columns with words were not taken for labels; empty where there are none."""
    if events["label"].str.strip().any():
        return ""
    words = [
        str(c)
        for c in events.columns
        if c not in EVENT_COLUMNS
        and events[c].map(lambda v: isinstance(v, str) and v.upper() != v.lower()).any()
    ]
    if not words:
        return ""
    return (
        f"no box has a label; the label is not taken from {format_names(words, 3)}, only from a column called "
        f"{', '.join(COLUMNS['label'][:-1])} or {COLUMNS['label'][-1]}"
    )


def _keep_one_view(table: Table, columns: dict[str, str]) -> Table:
    """Keep one row of a selection that is listed once for each view, the spectrogram's where there is one."""
    view, selection = table.find("View"), table.find("Selection")
    if view is None or selection is None or len(set(table.texts(view))) < 2:
        return table
    views = table.texts(view)
    file = table.find("Begin Path", "Begin File")
    keys = list(
        zip(
            table.texts(selection),
            table.texts(file) if file else [""] * len(table),
            table.texts(columns["start_s"]),
            table.texts(columns["end_s"]),
            strict=True,
        )
    )
    best: dict[tuple[str, ...], str] = {}
    for key, name in zip(keys, views, strict=True):
        if key not in best or (not _is_spectrogram(best[key]) and _is_spectrogram(name)):
            best[key] = name
    keep = [i for i, (key, name) in enumerate(zip(keys, views, strict=True)) if best[key] == name]
    return Table(table.path, table.header, [table.rows[i] for i in keep], [table.lines[i] for i in keep])


def _is_spectrogram(view: str) -> bool:
    return view.strip().lower().startswith("spectrogram")


def _recordings(table: Table, own: str, names: RecordingNames) -> list[str]:
    begin_files = _begin_files(table)
    found = {
        (p, f): names.of_table(p, f, table.path) if p or f else own for p, f in dict.fromkeys(begin_files)
    }
    return [found[one] for one in begin_files]


def _begin_files(table: Table) -> list[tuple[str, str]]:
    """Path, or else name, of the recording of each row; both blank where the table does not say."""
    path, file = table.find("Begin Path"), table.find("Begin File")
    paths = table.texts(path) if path else [""] * len(table)
    files = table.texts(file) if file else [""] * len(table)
    return [(p, "" if p else f) for p, f in zip(paths, files, strict=True)]


def _times_in_recording(
    offsets: NDArray[np.float64], starts: NDArray[np.float64], ends: NDArray[np.float64], table: Table
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times within the recording: the offset, and the offset plus the selection's length."""
    begin_files, excess = _begin_files(table), starts - offsets
    if len(set(begin_files)) == 1 and _counts_from_zero(excess[~np.isnan(excess)]):
        return starts, ends
    _warn_of_changed_times(excess, begin_files, table)
    new_starts, new_ends = starts.copy(), ends.copy()
    for i in np.flatnonzero(~np.isnan(offsets) & (offsets != starts)).tolist():
        if offsets[i] < 0:
            raise AnnotationError(f"{table.where(i)}, File Offset (s): negative ({offsets[i]:.10g})")
        new_starts[i], new_ends[i] = (
            offsets[i],
            decimal_sum(float(ends[i]), -float(starts[i]), float(offsets[i])),
        )
    return new_starts, new_ends


def _counts_from_zero(excess: NDArray[np.float64]) -> bool:
    """Whether Begin Time counts within a table's only recording; ``excess`` is Begin Time minus File Offset.

    Where other files come before the recording, the excess is the same in every row. Several rows with the same excess,
    while others have none, may belong to another file of that name.
    """
    apart = excess[np.abs(excess) > _ROUNDING_S]
    another = len(apart) > 1 and apart.min() > 0 and np.ptp(apart) <= _ROUNDING_S
    return len(excess) > 0 and not another and (len(apart) < len(excess) or bool((excess < 0).all()))


def _warn_of_changed_times(
    excess: NDArray[np.float64], begin_files: list[tuple[str, str]], table: Table
) -> None:
    """Warn where Begin Time exceeds File Offset by a different time than in other rows of the same recording."""
    files = pd.Series([path or file for path, file in begin_files])
    usual = files.map(pd.Series(excess).groupby(files).quantile(interpolation="lower")).to_numpy(float)
    changed = np.flatnonzero((np.abs(excess - usual) > _ROUNDING_S) | (excess < -_ROUNDING_S))
    if changed.size:
        warnings.warn(
            f"{table.where(int(changed[0]))}: Begin Time (s) and File Offset (s) disagree, and File Offset (s) is "
            "used; if you changed Begin Time (s), change File Offset (s), too",
            stacklevel=5,
        )


def write(annotations: AnnotationSet, path: Path) -> None:
    """Write one table per recording into a folder, or a single table to a path that ends in `.txt`."""
    extra = [c for c in informative_columns(annotations.events) if c != "Channel"]
    if path.suffix and not path.is_dir():
        write_text(path, _table(annotations.events, extra))
        heard = list(dict.fromkeys(annotations.events["recording"])) or [key_of(path, path.parent)]
        write_reviewed(annotations, path, implied=whole_spans(heard, annotations.durations()))
        return
    groups = dict(list(annotations.events.groupby("recording", sort=False)))
    write_folder(annotations, path, ".Table.1.selections.txt", lambda name: _table(groups.get(name), extra))


def _table(events: pd.DataFrame | None, extra: list[str]) -> str:
    box = [*_BOX, "label"]
    header = [
        "Selection",
        "View",
        "Channel",
        *(COLUMNS[c][0] for c in box),
        "Begin Path",
        "Begin File",
        "File Offset (s)",
    ]
    header += [COLUMNS[c][0] if c in COLUMNS else c for c in extra]
    if events is None:
        return format_table(header, [[] for _ in header], delimiter="\t")
    n = len(events)
    recording = [one_line(r) for r in events["recording"]]
    columns: list[list[object]] = [list(range(1, n + 1)), ["Spectrogram 1"] * n]
    columns.append(events["Channel"].tolist() if "Channel" in events else [1] * n)
    columns += [_one_line_cells(events[c]) for c in box]
    columns += [
        [*recording],
        [r.replace("\\", "/").rsplit("/", 1)[-1] for r in recording],
        events["start_s"].tolist(),
    ]
    columns += [_one_line_cells(events[c]) for c in extra]
    return format_table(header, columns, delimiter="\t")


def _one_line_cells(column: pd.Series[float]) -> list[object]:
    return [one_line(v) if isinstance(v, str) else v for v in column.tolist()]
