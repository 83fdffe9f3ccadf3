"""Audacity label tracks: ``start, end, label`` between tabs, then a line ``\\, low, high`` with frequencies.

One file per recording. Audacity leaves out the second line for labels made without spectral selection and
writes −1 for a limit that is not set: an open lower limit is 0 Hz, an open upper limit the Nyquist
frequency of the recording, whose sample rate must then be known. A label file says that its recording was
listened to, an empty file that nothing is there. Labels are all that Audacity can hold beside the box: where a box
has a score and no label, the label is ``score 0.83``, and is read as none.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd

from mast.annotations.base import AnnotationSet, top_of_band, whole
from mast.annotations.recording_names import RecordingNames, key_of, label_keys
from mast.annotations.sidecars import beside, read_reviewed, write_recordings, write_reviewed
from mast.annotations.tables import cell, one_line, parse_numbers, read_text, write_text
from mast.errors import AnnotationError
from mast.events import check_events

_SCORE = re.compile(r"score [01]\.\d\d")
_OPEN = -1.0  # Audacity's sign for a frequency limit that is not set


def read(path: Path, recordings: pd.DataFrame) -> AnnotationSet:
    """Read one label file, or every `.txt` file below a folder."""
    known = beside(path, recordings) if path.is_dir() else AnnotationSet().with_recordings(recordings)
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not files and not (path / "recordings.csv").is_file():
        raise AnnotationError(f"{path}: no label files (*.txt) in this folder")
    folder = path if path.is_dir() else path.parent
    reviewed = read_reviewed(path)
    names = RecordingNames(known.names() if reviewed is None else [*known.names(), *reviewed["recording"]])
    nyquists = known.nyquists()
    heard, columns = [], _Columns()
    for file in files:
        name = names.of_key(key_of(file, folder))
        heard.append(name)
        _read_labels(file, name, nyquists, columns)
    if reviewed is None:
        reviewed = whole(list(dict.fromkeys(heard)), known.durations())
    return AnnotationSet(columns.table(), reviewed, known.recordings)


class _Columns:
    """The event columns, filled file by file."""

    def __init__(self) -> None:
        self.recording: list[str] = []
        self.start_s: list[float] = []
        self.end_s: list[float] = []
        self.low_hz: list[float] = []
        self.high_hz: list[float] = []
        self.label: list[str] = []

    def table(self) -> pd.DataFrame:
        return pd.DataFrame({name: pd.Series(values) for name, values in vars(self).items()})


def _read_labels(path: Path, name: str, nyquists: dict[str, float], columns: _Columns) -> None:
    times: list[tuple[str, str]] = []
    labels: list[str] = []
    band: list[tuple[float, float]] = []
    lines: list[int] = []

    def where(row: int) -> str:
        return f"{path}, line {lines[row]}"

    for number, line in enumerate(
        read_text(path).replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1
    ):
        if not line.strip():
            continue
        fields = line.split("\t", 2)
        if fields[0] == "\\":
            if not labels or not math.isnan(band[-1][0]):
                raise AnnotationError(f"{path}, line {number}: frequencies without a label line above them")
            band[-1] = _band([*fields[1:], "", ""][:2], f"{path}, line {number}")
            continue
        if len(fields) < 2:
            raise AnnotationError(
                f"{path}, line {number}: expected start, end and label between tabs, found {line!r}"
            )
        times.append((fields[0], fields[1]))
        label = fields[2] if len(fields) > 2 else ""
        labels.append("" if _SCORE.fullmatch(label) else label)
        band.append((math.nan, math.nan))
        lines.append(number)
    starts = parse_numbers([t[0] for t in times], where, "start")
    ends = parse_numbers([t[1] for t in times], where, "end")
    limits = np.array(band, dtype=np.float64).reshape(-1, 2)
    lows = np.where(np.isnan(limits[:, 0]) | (limits[:, 0] == _OPEN), 0.0, limits[:, 0])
    highs = np.where(limits[:, 1] == _OPEN, np.nan, limits[:, 1])
    for row in np.flatnonzero(np.isnan(highs)).tolist():
        highs[row] = top_of_band(highs[row], name, nyquists, where(row))
    box = {"start_s": starts, "end_s": ends, "low_hz": lows, "high_hz": highs}
    check_events(pd.DataFrame(box), where)
    columns.recording += [name] * len(labels)
    columns.start_s += starts.tolist()
    columns.end_s += ends.tolist()
    columns.low_hz += lows.tolist()
    columns.high_hz += highs.tolist()
    columns.label += labels


def _band(fields: list[str], where: str) -> tuple[float, float]:
    low, high = parse_numbers(fields, lambda _: where, "frequency").tolist()
    return low, high


def write(annotations: AnnotationSet, path: Path) -> None:
    """Write one label file per recording into a folder, or that of a single recording to a `.txt` path."""
    names, durations = annotations.annotated(), annotations.durations()
    groups = dict(list(annotations.events.groupby("recording", sort=False)))
    if path.suffix and not path.is_dir():
        if len(names) > 1:
            raise AnnotationError(
                f"{path}: a label file holds one recording, found {len(names)}; give a folder to write to"
            )
        write_text(path, _labels(groups.get(names[0]) if names else None))
        implied = whole(names or [key_of(path, path.parent)], durations)
        write_reviewed(annotations, path, implied=implied)
        return
    path.mkdir(parents=True, exist_ok=True)
    keys = label_keys(annotations.names())
    for name in names:
        write_text(path / f"{keys[name]}.txt", _labels(groups.get(name)))
    write_recordings(annotations, path / "recordings.csv")
    write_reviewed(annotations, path, implied=whole(names, durations))


def _labels(events: pd.DataFrame | None) -> str:
    if events is None:
        return ""
    names = ("start_s", "end_s", "label", "low_hz", "high_hz", "score")
    rows = zip(*(events[c].tolist() for c in names), strict=True)
    return "".join(
        f"{cell(start)}\t{cell(end)}\t{one_line(label or _score(score))}\n\\\t{cell(low)}\t{cell(high)}\n"
        for start, end, label, low, high, score in rows
    )


def _score(score: float) -> str:
    """What stands where a box has no label."""
    return f"score {score:.2f}" if 0 <= score <= 1 else ""
