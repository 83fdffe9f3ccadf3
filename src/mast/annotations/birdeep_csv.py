"""The BIRDeep CSV: path, annotator, recorder, date, time, audio_duration, start_time … specie, bbox.

Times in seconds within the recording, frequencies in Hz, −1 where Audacity had no limit: an open lower
limit is 0 Hz, an open upper limit the Nyquist frequency, which must then be known. ``recorder`` is the
site, ``date`` and ``time`` the start of the recording. A row whose specie is `No audio` says that somebody
listened and nothing is there; every recording in the table was listened to. ``bbox`` (a box in the
dataset's own picture) follows from the other columns: it is not read, and left blank when writing;
``annotator`` is kept.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd

from mast.annotations.base import AnnotationSet, fill_upper_limits, whole_spans
from mast.annotations.recording_names import RecordingNames
from mast.annotations.sidecars import read_reviewed, write_reviewed
from mast.annotations.tables import (
    Table,
    decimal_difference,
    decimal_sum,
    format_table,
    read_table,
    write_text,
)
from mast.errors import AnnotationError
from mast.events import check_events

# event column → BIRDeep's name
COLUMNS: dict[str, str] = {
    "recording": "path",
    "start_s": "start_time",
    "end_s": "end_time",
    "low_hz": "low_frequency",
    "high_hz": "high_frequency",
    "label": "specie",
}
HEADER = ["path", "annotator", "recorder", "date", "time", "audio_duration"]
HEADER += ["start_time", "end_time", "low_frequency", "high_frequency", "specie", "bbox"]
_NOTHING = ("no audio", "no audios")
_OPEN = -1.0  # Audacity's sign for a frequency limit that is not set


def read(path: Path, recordings: pd.DataFrame) -> AnnotationSet:
    """Read a BIRDeep table."""
    table = read_table(path)
    column = table.require({c: (name,) for c, name in COLUMNS.items()})
    names = RecordingNames(list(recordings["recording"]))
    paths = table.texts(column["recording"])
    found = {text: names.of_path(text) for text in dict.fromkeys(paths)}
    recording = [found[text] for text in paths]
    known = AnnotationSet(recordings=_recordings(table, recording)).with_recordings(recordings)
    nothing = np.array([t.strip().casefold() in _NOTHING for t in table.texts(column["label"])], dtype=bool)
    some = np.flatnonzero(~nothing)
    rows = Table(path, table.header, [table.rows[i] for i in some], [table.lines[i] for i in some])
    kept = [recording[i] for i in some]
    starts, ends = rows.numbers(column["start_s"]), rows.numbers(column["end_s"])
    lows, highs = rows.numbers(column["low_hz"]), rows.numbers(column["high_hz"])
    lows, highs = np.where(lows == _OPEN, 0.0, lows), np.where(highs == _OPEN, np.nan, highs)
    highs = fill_upper_limits(
        highs, kept, known.nyquists(), lambda row: f"{rows.where(row)}, {column['high_hz']}"
    )
    events = pd.DataFrame(
        {"recording": kept, "start_s": starts, "end_s": ends, "low_hz": lows, "high_hz": highs}
    )
    check_events(events, rows.where)
    events["label"] = rows.texts(column["label"])
    if (annotator := rows.find("annotator")) and any(rows.texts(annotator)):
        events["annotator"] = rows.texts(annotator)
    reviewed = read_reviewed(path)
    if reviewed is None:
        reviewed = whole_spans(list(dict.fromkeys(recording)), known.durations())
    return AnnotationSet(events, reviewed, known.recordings)


def _recordings(table: Table, recording: list[str]) -> pd.DataFrame:
    """What the first row of each recording says about it."""
    first = {name: row for row, name in reversed(list(enumerate(recording)))}
    columns = {
        c: table.texts(found)
        for c in ("recorder", "date", "time", "audio_duration")
        if (found := table.find(c))
    }
    rows = []
    for name, row in first.items():
        said = {c: texts[row].strip() for c, texts in columns.items()}
        clock = f"{said.get('date', '').replace('/', '-')}T{said.get('time', '')}"
        rows.append(
            {
                "recording": name,
                "duration_s": _seconds(said.get("audio_duration", ""), table.where(row)),
                "site": said.get("recorder", ""),
                "datetime": clock if said.get("date") and said.get("time") else "",
            }
        )
    return pd.DataFrame(rows) if rows else AnnotationSet().recordings


def _seconds(text: str, where: str) -> float:
    """Seconds of ``hh:mm:ss`` with any decimals; NaN where blank."""
    if not text:
        return float("nan")
    match = re.fullmatch(r"(\d{1,6}):(\d\d):(\d\d(?:\.\d+)?)", text)
    if not match:
        raise AnnotationError(f"{where}, audio_duration: found {text!r}, expected hours:minutes:seconds")
    return decimal_sum(int(match[1]) * 3600 + int(match[2]) * 60, match[3])


def _clock(seconds: float) -> str:
    if seconds != seconds:
        return ""
    whole_s = int(seconds)
    decimals = format(Decimal(decimal_difference(seconds, whole_s)), "f")[1:].rstrip("0").rstrip(".")
    return f"{whole_s // 3600:02d}:{whole_s // 60 % 60:02d}:{whole_s % 60:02d}{decimals}"


def write(annotations: AnnotationSet, path: Path) -> None:
    """Write a BIRDeep table, with a `No audio` row for each recording that was heard and holds nothing."""
    events, empty = annotations.events, annotations.reviewed_empty()
    known = annotations.recordings.set_index("recording")[["site", "datetime", "duration_s"]].to_dict("index")
    silent: dict[object, object] = {"site": "", "datetime": "", "duration_s": float("nan")}
    names = [*events["recording"], *empty]
    facts = [known.get(name, silent) for name in names]
    clocks = [re.match(r"(\d{4})-(\d\d)-(\d\d)[T ](.+)", str(f["datetime"])) for f in facts]
    blank = [""] * len(empty)
    annotator = events["annotator"].tolist() if "annotator" in events else [""] * len(events)
    columns: list[list[object]] = [
        [*names],
        [*annotator, *blank],
        [f["site"] for f in facts],
        [f"{m[1]}/{m[2]}/{m[3]}" if m else "" for m in clocks],
        [m[4] if m else "" for m in clocks],
        [_clock(float(str(f["duration_s"]))) for f in facts],
        *([*events[c].tolist(), *blank] for c in ("start_s", "end_s", "low_hz", "high_hz")),
        [*events["label"], *["No audio"] * len(empty)],
        [""] * len(names),
    ]
    write_text(path, format_table(HEADER, columns))
    listed = list(dict.fromkeys(names))
    write_reviewed(annotations, path, implied=whole_spans(listed, annotations.durations()))
