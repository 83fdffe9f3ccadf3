"""Audacity label tracks: ``start, end, label`` between tabs, then a line ``\\, low, high`` with frequencies.

One file per recording. Audacity leaves out the second line for labels made without spectral selection and
writes −1 for a limit that is not set: an open lower limit is 0 Hz, an open upper limit the Nyquist
frequency of the recording, whose sample rate must then be known. A label file says that its recording was
listened to, an empty file that nothing is there. Labels are all that Audacity can hold besides the box: where a
box has a score and no label, the label is ``score 0.83``, which is read as no label.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd

from mast.annotations.base import AnnotationSet, fill_upper_limits, whole_spans
from mast.annotations.recording_names import RecordingNames, key_of
from mast.annotations.sidecars import known_recordings, read_reviewed, write_folder, write_reviewed
from mast.annotations.tables import cell_text, one_line, parse_numbers, read_text, write_text
from mast.errors import AnnotationError
from mast.events import check_events, empty_events

_SCORE = re.compile(r"score [01]\.\d\d")
_OPEN = -1.0  # Audacity's sign for a frequency limit that is not set


def read(path: Path, recordings: pd.DataFrame) -> AnnotationSet:
    """Read one label file, or every `.txt` file below a folder."""
    known = known_recordings(path, recordings)
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not files and not (path / "recordings.csv").is_file():
        raise AnnotationError(f"{path}: no label files (*.txt) in this folder")
    folder = path if path.is_dir() else path.parent
    reviewed = read_reviewed(path)
    names = RecordingNames(known.names() if reviewed is None else [*known.names(), *reviewed["recording"]])
    nyquists = known.nyquists()
    name_of = {file: names.of_key(key_of(file, folder)) for file in files}
    parts = [_read_labels(file, name, nyquists) for file, name in name_of.items()]
    if reviewed is None:
        reviewed = whole_spans(list(dict.fromkeys(name_of.values())), known.durations())
    filled = [part for part in parts if len(part)]
    events = pd.concat(filled, ignore_index=True) if filled else empty_events()
    return AnnotationSet(events, reviewed, known.recordings)


def _read_labels(path: Path, name: str, nyquists: dict[str, float]) -> pd.DataFrame:
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
    highs = fill_upper_limits(highs, [name] * len(highs), nyquists, where)
    box = {"start_s": starts, "end_s": ends, "low_hz": lows, "high_hz": highs}
    events = pd.DataFrame({"recording": name, **box, "label": labels})
    check_events(events, where)
    return events


def _band(fields: list[str], where: str) -> tuple[float, float]:
    low, high = parse_numbers(fields, lambda _: where, "frequency").tolist()
    return low, high


def write(annotations: AnnotationSet, path: Path) -> None:
    """Write one label file per recording into a folder, or that of a single recording to a `.txt` path."""
    names = annotations.annotated()
    groups = dict(list(annotations.events.groupby("recording", sort=False)))
    if path.suffix and not path.is_dir():
        if len(names) > 1:
            raise AnnotationError(
                f"{path}: a label file holds one recording, found {len(names)}; give a folder to write to"
            )
        write_text(path, _labels(groups.get(names[0]) if names else None))
        implied = whole_spans(names or [key_of(path, path.parent)], annotations.durations())
        write_reviewed(annotations, path, implied=implied)
        return
    write_folder(annotations, path, ".txt", lambda name: _labels(groups.get(name)))


def _labels(events: pd.DataFrame | None) -> str:
    if events is None:
        return ""
    names = ("start_s", "end_s", "label", "low_hz", "high_hz", "score")
    rows = zip(*(events[c].tolist() for c in names), strict=True)
    return "".join(
        f"{cell_text(start)}\t{cell_text(end)}\t{one_line(label or _score_text(score))}\n"
        f"\\\t{cell_text(low)}\t{cell_text(high)}\n"
        for start, end, label, low, high, score in rows
    )


def _score_text(score: float) -> str:
    """The text to write where a box has no label."""
    return f"score {score:.2f}" if 0 <= score <= 1 else ""
