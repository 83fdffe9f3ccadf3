"""YOLO text: one file per recording, one line per event: class, centre x, centre y, width, height, and a
score.

The picture is the whole recording from 0 Hz (bottom) to its Nyquist frequency (top), linear in both, and
the numbers are fractions of it. Three small files make it readable again: `classes.txt` (one label per line),
`recordings.csv`, and `pictures.csv` (``file, seconds, low_hz, high_hz``: the extent the fractions refer to,
which reaches beyond the recording's stated duration where an event does). Numbers have as many digits as
are needed to get the same seconds and Hz back.

In folders from elsewhere, without `pictures.csv` a picture is the whole recording from 0 Hz to Nyquist, so duration and
sample rate must be known; without `classes.txt` labels are the class numbers. A label file says that
its recording was listened to, an empty file that nothing is there.

"""

from __future__ import annotations

from decimal import Context, Decimal
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from mast.annotations.base import AnnotationSet, required_extents, whole_spans
from mast.annotations.recording_names import RecordingNames, key_of
from mast.annotations.sidecars import known_recordings, read_reviewed, write_folder
from mast.annotations.tables import format_table, one_line, read_table, read_text, write_text
from mast.errors import AnnotationError
from mast.events import check_events

_PRECISE = Context(prec=60)
_DIGITS = Context(prec=44)  # of the fractions: enough that seconds and Hz come back to the last bit
_NOTHING = Decimal("1e-25")  # what rounding leaves of zero
_SIX_DIGITS = Decimal("1e-6")  # YOLO tools write six digits, which may land just outside
_BESIDE = ("classes.txt",)


class _Extent(NamedTuple):
    """What a picture shows."""

    seconds: float
    low_hz: float
    high_hz: float


def read(path: Path, recordings: pd.DataFrame) -> AnnotationSet:
    """Read every `.txt` file below a folder, or a single label file with `classes.txt` next to it."""
    folder = path if path.is_dir() else path.parent
    known = known_recordings(folder, recordings)
    files = sorted(f for f in path.rglob("*.txt") if f.name not in _BESIDE) if path.is_dir() else [path]
    if not files and not (path / "recordings.csv").is_file():
        raise AnnotationError(f"{path}: no label files (*.txt) in this folder")
    classes = _read_classes(folder / "classes.txt")
    durations, nyquists = known.durations(), known.nyquists()
    # without pictures.csv a picture is the whole recording
    pictures = {n: _Extent(durations[n], 0.0, nyquists[n]) for n in durations if n in nyquists}
    pictures.update(_read_extents(folder / "pictures.csv"))
    names = RecordingNames([*known.names(), *pictures])
    heard: list[str] = []
    rows: list[dict[str, object]] = []
    for file in files:
        name = names.of_key(key_of(file, folder))
        heard.append(name)
        rows += _read_labels(file, name, pictures.get(name), classes)
    reviewed = read_reviewed(path)
    if reviewed is None:
        reviewed = whole_spans(list(dict.fromkeys(heard)), durations)
    return AnnotationSet(pd.DataFrame(rows) if rows else AnnotationSet().events, reviewed, known.recordings)


def _read_labels(
    path: Path, name: str, picture: _Extent | None, classes: list[str] | None
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    lines: list[int] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        where, fields = f"{path}, line {number}", line.split()
        if len(fields) not in (5, 6):
            raise AnnotationError(
                f"{where}: {len(fields)} fields, expected class, x, y, width, height and optionally a score"
            )
        if picture is None:
            raise AnnotationError(
                f"{path}: duration and sample rate are unknown, so fractions cannot be turned into seconds and Hz; "
                "give a recordings table with both, or --audio with the folder of the recordings"
            )
        label = _label(fields[0], classes, where)
        try:
            x, y, width, height = (Decimal(v) for v in fields[1:5])
            score = float(fields[5]) if len(fields) == 6 else 1.0
        except (ArithmeticError, ValueError):
            raise AnnotationError(f"{where}: found {line.strip()!r}, expected only numbers") from None
        if not all(v.is_finite() and 0 <= v <= 1 + _SIX_DIGITS for v in (x, y, width, height)):
            raise AnnotationError(
                f"{where}: found {line.strip()!r}, expected fractions of the picture from 0 to 1, not pixels"
            )
        start, end = _limits(x, width, 0.0, picture.seconds)
        low, high = _limits(_PRECISE.subtract(1, y), height, picture.low_hz, picture.high_hz)
        row = {"recording": name, "start_s": start, "end_s": end, "low_hz": low, "high_hz": high}
        rows.append({**row, "label": label, "score": score})
        lines.append(number)
    if rows:
        check_events(pd.DataFrame(rows), lambda row: f"{path}, line {lines[row]}", blank_scores=False)
    return rows


def _limits(centre: Decimal, size: Decimal, low: float, high: float) -> tuple[float, float]:
    """Both ends of a side in s or Hz; what rounding put just below the picture's edge is moved onto it."""
    span = _PRECISE.subtract(Decimal(repr(high)), Decimal(repr(low)))
    ends = []
    for sign in (-1, 1):
        part = _PRECISE.add(centre, _PRECISE.multiply(Decimal(sign) / 2, size))
        if abs(part) < _NOTHING or (-_SIX_DIGITS < part < 0):
            part = Decimal(0)
        ends.append(float(_PRECISE.add(Decimal(repr(low)), _PRECISE.multiply(part, span))))
    return ends[0], ends[1]


def _label(text: str, classes: list[str] | None, where: str) -> str:
    if text.isdecimal() and len(text) > 9:
        raise AnnotationError(
            f"{where}: class number {text[:9]}… has {len(text):,} digits; expected 0, 1, 2 …"
        )
    if classes is None:
        return text
    if not text.isdecimal() or int(text) >= len(classes):
        raise AnnotationError(f"{where}: class {text} is not in classes.txt, which has {len(classes)}")
    return classes[int(text)]


def _read_classes(path: Path) -> list[str] | None:
    if not path.is_file():
        return None
    lines = read_text(path).replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def _read_extents(path: Path) -> dict[str, _Extent]:
    if not path.is_file():
        return {}
    table = read_table(path)
    columns = table.require({c: (c,) for c in ("file", "seconds", "low_hz", "high_hz")})
    numbers = [table.numbers(columns[c]).tolist() for c in ("seconds", "low_hz", "high_hz")]
    return {
        n: _Extent(*v) for n, v in zip(table.texts(columns["file"]), zip(*numbers, strict=True), strict=True)
    }


def write(annotations: AnnotationSet, path: Path) -> None:
    """Write a folder; duration and sample rate of every annotated recording must be known."""
    if path.suffix == ".txt":
        raise AnnotationError(f"{path}: YOLO labels are a folder of files; give a folder to write to")
    names, events = annotations.annotated(), annotations.events
    latest = events.groupby("recording")["end_s"].max().to_dict()
    pictures = {
        name: _Extent(max(duration, latest.get(name, 0.0)), 0.0, top)
        for name, (duration, top) in required_extents(annotations, names, "YOLO").items()
    }
    labels = events["label"].map(one_line)
    classes = sorted(set(labels))
    number = {label: i for i, label in enumerate(classes)}
    scored = bool((events["score"] != 1.0).any())
    lines: dict[str, list[str]] = {name: [] for name in names}
    columns = ("recording", "start_s", "end_s", "low_hz", "high_hz", "score")
    for (name, start, end, low, high, score), label in zip(
        zip(*(events[c].tolist() for c in columns), strict=True), labels, strict=True
    ):
        shown = pictures[name]
        x, width = _fractions(start, end, 0.0, shown.seconds)
        y, height = _fractions(low, high, shown.low_hz, shown.high_hz)
        fields = [str(number[label]), *(_text(v) for v in (x, _PRECISE.subtract(1, y), width, height))]
        lines[name].append(" ".join([*fields, repr(score)] if scored and score == score else fields))
    write_folder(annotations, path, ".txt", lambda name: "".join(f"{line}\n" for line in lines[name]))
    write_text(path / "classes.txt", "".join(f"{label}\n" for label in classes))
    columns_of = zip(*pictures.values(), strict=True) if pictures else ([], [], [])
    shown_text = format_table(["file", "seconds", "low_hz", "high_hz"], [names, *columns_of])
    write_text(path / "pictures.csv", shown_text)


def _fractions(start: float, end: float, low: float, high: float) -> tuple[Decimal, Decimal]:
    """(centre, size) of a side as fractions of the picture's."""
    a, b, origin, top = (Decimal(repr(float(v))) for v in (start, end, low, high))
    span = _PRECISE.subtract(top, origin) or Decimal(1)
    centre = _PRECISE.subtract(_PRECISE.divide(_PRECISE.add(a, b), 2), origin)
    return _PRECISE.divide(centre, span), _PRECISE.divide(_PRECISE.subtract(b, a), span)


def _text(value: Decimal) -> str:
    return format(_DIGITS.normalize(value), "f")
