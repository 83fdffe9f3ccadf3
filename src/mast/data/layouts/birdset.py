"""BirdSet as it is on the hub: rows with sound inside, above all XCM (89,798 focal recordings).

A row holds ``audio`` (the bytes of an Ogg file and its name), ``filepath``, ``ebird_code`` and much about the
recording (``lat``, ``long``, ``license``, ``recordist``, ``quality`` …). The ``train`` rows of a subset such as XCM
have ``detected_events``: seconds where a threshold found sound, without frequencies and unchecked. They are not
annotations: the recordings become *unlabelled*, and the events go to ``detected_events.csv``. The ``test`` rows of
soundscape subsets have ``start_time, end_time, low_freq, high_freq``, one row per box: those are boxes.

Rows come from Parquet files in a folder, or from the hub one by one (``datasets``, not installed with mast). Sound
is written as it came, never decoded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pandas as pd

from mast.annotations import AnnotationSet, write_annotations
from mast.annotations.tables import format_table
from mast.audio import probe
from mast.data.layouts.folder import make_empty_folder
from mast.errors import AnnotationError, AudioError, MastError, first_line
from mast.events import check_events
from mast.files import write_atomic

HUB_NAME = "DBD-research-group/BirdSet"
HubRow = dict[str, Any]
# columns of a row that are kept for the recording, by their names in recordings.csv
_ABOUT = {"lat": "latitude", "long": "longitude", "license": "licence", "recordist": "recordist"}
_ABOUT |= {
    "quality": "quality",
    "local_time": "local_time",
    "ebird_code": "ebird_code",
    "call_type": "call_type",
}
_BOX = ("start_time", "end_time", "low_freq", "high_freq")


class BirdSetCounts(NamedTuple):
    """What was written."""

    recordings: int
    boxes: int
    detected: int
    failures: int


def hub_rows(name: str = HUB_NAME, subset: str = "XCM", split: str = "train") -> Iterator[HubRow]:
    """Rows streamed from the hub: nothing is stored but what the caller keeps."""
    if Path(name).exists():  # datasets would take a file here for a script, and run it
        raise MastError(
            f"{name}: is a file; expected a folder of Parquet files or the name of a dataset on the hub"
        )
    try:
        datasets = import_module("datasets")  # an extra, and slow to import
    except ImportError:
        raise MastError(
            f"{name}: reading from the hub needs the package datasets; install it (pip install 'mast-audio[birdset]'), "
            "or give a folder of Parquet files"
        ) from None
    try:
        stream = datasets.load_dataset(name, subset, split=split, streaming=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise MastError(f"{name}, {subset}, {split}: the hub gives no such data ({error})") from None
    stream = stream.cast_column("audio", datasets.Audio(decode=False))
    classes = getattr((stream.features or {}).get("ebird_code"), "names", None)
    for row in stream:
        yield _with_species_code(dict(row), classes)


def parquet_rows(folder: Path, *, split: str | None = None) -> Iterator[HubRow]:
    """Rows of the Parquet files below a folder, few at a time.

    Args:
        folder: Parquet files with sound inside, or with ``filepath`` naming files in the folder.
        split: only files whose name or folder names this split (``XCM/train-00000-of-00012.parquet``).
    """
    from pyarrow import lib, parquet

    files = sorted(folder.rglob("*.parquet"))
    if split is not None:
        pattern = re.compile(rf"(^|[^a-z0-9]){re.escape(split)}([^a-z0-9_]|$)", re.IGNORECASE)
        files = [f for f in files if pattern.search(f.relative_to(folder).as_posix())]
    if not files:
        which = "Parquet files" if split is None else f"Parquet files of split {split}"
        raise AnnotationError(f"{folder}: no {which}; expected BirdSet as downloaded from the hub")
    for file in files:
        try:
            table = parquet.ParquetFile(file)
            classes = _classes(table.schema_arrow.metadata or {})
            for batch in table.iter_batches(batch_size=16):
                for row in batch.to_pylist():
                    row["__folder__"] = folder
                    yield _with_species_code(row, classes)
        except (lib.ArrowException, OSError) as error:
            raise AnnotationError(f"{file}: not a Parquet table ({first_line(error)})") from None


def write_birdset(
    rows: Iterable[HubRow],
    out: Path,
    *,
    limit: int | None = None,
    on_recording: Callable[[], None] = lambda: None,
) -> BirdSetCounts:
    """Write rows as a dataset folder.

    Args:
        rows: of :func:`hub_rows` or :func:`parquet_rows`.
        out: a new or empty folder.
        limit: recordings to stop after; all by default.
        on_recording: called after each recording.
    """
    make_empty_folder(out)
    known: dict[str, dict[str, object]] = {}
    boxes: list[dict[str, object]] = []
    detected: list[tuple[object, ...]] = []
    failures: dict[str, str] = {}
    for row in rows:
        name = _recording_name(row)
        if name not in known and name not in failures:
            if limit is not None and len(known) >= limit:
                break
            try:
                known[name] = _write_sound(row, name, out)
            except AudioError as error:
                (out / "audio" / name).unlink(missing_ok=True)
                failures[name] = str(error)
            on_recording()
            if name in known:
                clusters = row.get("event_cluster") or []
                for k, (start, end) in enumerate(row.get("detected_events") or []):
                    detected.append(
                        (name, float(start), float(end), clusters[k] if k < len(clusters) else "")
                    )
        if name in known and all(_is_number(row.get(column)) for column in _BOX):
            start, end, low, high = (float(row[column]) for column in _BOX)
            box = {"recording": name, "start_s": start, "end_s": end, "low_hz": low, "high_hz": high}
            boxes.append({**box, "label": str(row.get("ebird_code") or "")})
    if not known:
        first = next(iter(failures.values()), "there are no rows")
        raise AnnotationError(f"{out}: no recording was written: {first}")
    heard = sorted({str(box["recording"]) for box in boxes})
    boxes = _drop_impossible(boxes, failures)
    _write_tables(out, known, boxes, heard, detected, failures)
    return BirdSetCounts(len(known), len(boxes), len(detected), len(failures))


def _drop_impossible(boxes: list[dict[str, object]], failures: dict[str, str]) -> list[dict[str, object]]:
    """Drop boxes that no recording can hold; a wrong row in a large dataset is a failure of one recording only."""
    if not boxes or _box_error(boxes) is None:
        return boxes
    problems = [_box_error([box]) for box in boxes]
    for box, problem in zip(boxes, problems, strict=True):
        if problem is not None:
            failures.setdefault(str(box["recording"]), problem)
    return [box for box, problem in zip(boxes, problems, strict=True) if problem is None]


def _box_error(boxes: list[dict[str, object]]) -> str | None:
    try:
        check_events(pd.DataFrame(boxes), lambda _: "a box is left out")
    except AnnotationError as error:
        return str(error)
    return None


def _write_tables(
    out: Path,
    known: dict[str, dict[str, object]],
    boxes: list[dict[str, object]],
    heard: list[str],
    detected: list[tuple[object, ...]],
    failures: dict[str, str],
) -> None:
    columns = [list(column) for column in zip(*detected, strict=True)] or [[], [], [], []]
    if detected:
        text = format_table(["file", "start_s", "end_s", "cluster"], columns)
        write_atomic(out / "detected_events.csv", text.encode())
    if failures:
        text = format_table(["file", "error"], [list(failures), list(failures.values())])
        write_atomic(out / "failures.csv", text.encode())
    events = pd.DataFrame(boxes, columns=["recording", "start_s", "end_s", "low_hz", "high_hz", "label"])
    recordings = pd.DataFrame([{"recording": name, **about} for name, about in known.items()])
    reviewed = pd.DataFrame({"recording": heard, "start_s": 0.0})
    write_annotations(AnnotationSet(events, reviewed, recordings), out, "csv")


def _with_species_code(row: HubRow, classes: list[str] | None) -> HubRow:
    """A row whose species is a code, not a number."""
    code = row.get("ebird_code")
    if classes is not None and isinstance(code, int) and 0 <= code < len(classes):
        row["ebird_code"] = classes[code]
    return row


def _classes(metadata: dict[bytes, bytes]) -> list[str] | None:
    """Names of the species numbers, from what ``datasets`` writes into a Parquet file."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        return list(features["ebird_code"]["names"])
    except (KeyError, TypeError, json.JSONDecodeError):
        return None


def _recording_name(row: HubRow) -> str:
    """File name of a row's recording."""
    audio = row.get("audio")
    inside = audio.get("path") if isinstance(audio, dict) else audio
    path = str(row.get("filepath") or inside or "")
    name = PurePosixPath(path.replace("\\", "/")).name
    if not name:
        raise AnnotationError("birdset: a row names no file; expected filepath or audio.path")
    return name


def _write_sound(row: HubRow, name: str, out: Path) -> dict[str, object]:
    """Write a row's sound; returns what is known about the recording."""
    target = out / "audio" / name
    write_atomic(target, _sound_bytes(row, name))
    info = probe(target)
    about: dict[str, object] = {"duration_s": info.duration_s, "sample_rate": float(info.sample_rate)}
    for column, own in _ABOUT.items():
        value = row.get(column)
        if value is not None and value != "":
            about[own] = value
    return about


def _sound_bytes(row: HubRow, name: str) -> bytes:
    audio = row.get("audio")
    content = audio.get("bytes") if isinstance(audio, dict) else None
    if isinstance(content, bytes):
        return content
    folder = row.get("__folder__")
    paths = [row.get("filepath"), audio.get("path") if isinstance(audio, dict) else audio]
    for text in (text for text in paths if text):
        for path in (Path(str(text)), *([folder / str(text), folder / name] if folder is not None else [])):
            if path.is_file():
                return bytes(path.read_bytes())
    raise AudioError(f"{name}: the row holds no sound, and no such file is in {folder}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
