"""A folder of detections that can be stopped at any moment and continued.

Each recording's events are written whole or not at all, as ``recordings/NAME.parquet``; that file is also the
mark that the recording is done, and holds what is known about it. A recording that could not be read leaves
``recordings/NAME.failed.json`` and is tried again next time. ``run.json`` says what the results were made with;
other models or settings are refused. The tables over all recordings are made from these files in one pass, so
several processes may fill one folder, each its share.

Where the detector embeds, a mark also holds the embedding of each event, and ``embeddings.npy`` those of all: its
row k belongs to row k of ``detections.parquet``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from mast.annotations import FORMATS, AnnotationSet, write_annotations
from mast.errors import ConfigError
from mast.events import EVENT_COLUMNS, as_events, empty_events
from mast.files import write_whole
from mast.inference.detector import Outcome
from mast.inference.partitions import PARTITIONED, write_partitions
from mast.inference.pieces import Source
from mast.version import __version__

RUN, TABLE, FAILURES, EMBEDDINGS = "run.json", "detections", "failures.csv", "embeddings.npy"
_MARKS = "recordings"
_DONE, _FAILED = ".parquet", ".failed.json"
_EMBEDDING = "embedding"  # a mark's further column: the bytes of a row of half-precision numbers
_TABLE_ROWS = 100_000  # held at once while the tables over all recordings are written
_KEY = b"mast"  # of our facts in a mark's Parquet header
_SCHEMA = pa.schema(
    [(name, pa.string() if dtype == "str" else pa.float64()) for name, dtype in EVENT_COLUMNS.items()]
)


@dataclass(frozen=True)
class Totals:
    """What a results folder holds."""

    recordings: int
    events: int
    failed: int
    damaged: int


class ResultsFolder:
    """Detections of many recordings in one folder; see the module docstring.

    Args:
        folder: made if it is not there.
        settings: all that changes the results; a folder made with others is refused.
        root: the folder that recordings are named relative to; another would mix up their names.
        operating_point: what the threshold reached on validation, where it was chosen for a precision; for the
            record.
        size_of: bytes of a recording, by which a changed one is known; asked from the disk by default.

    Raises:
        ConfigError: the folder holds results of another model, other settings or another root, or something else.
    """

    def __init__(
        self,
        folder: str | Path,
        settings: Mapping[str, str | float],
        root: str | Path,
        *,
        operating_point: Mapping[str, object] | None = None,
        size_of: Callable[[Source], int | None] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._size_of = size_of or _bytes
        self._embedding_width = int(settings.get("embeddings", 0))
        made_with = {**settings, "root": str(root)}
        run = self.folder / RUN
        if run.exists():
            _refuse_others(run, made_with)
        else:
            # hidden files are what a kill in this very moment leaves
            strangers = self.folder.is_dir() and any(p.name[0] != "." for p in self.folder.iterdir())
            if run.exists():  # shards that start together: another one was faster
                return _refuse_others(run, made_with)
            if strangers or self.folder.is_file():
                raise ConfigError(
                    f"{self.folder}: exists and holds no detections ({RUN} is missing); choose a new --out"
                )
            self.folder.mkdir(parents=True, exist_ok=True)
            content: dict[str, object] = {"mast": __version__, "made_with": made_with}
            if operating_point is not None:
                content["operating_point"] = dict(operating_point)
            write_whole(run, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())

    def is_done(self, source: Source) -> bool:
        """Whether the recording's events are here, found in the file as it is now."""
        facts = _facts(self._mark(source.recording, _DONE))
        return facts is not None and facts.get("bytes") == self._size_of(source)

    def is_damaged(self, source: Source) -> bool:
        """Whether only a part of the recording could be searched."""
        return bool((_facts(self._mark(source.recording, _DONE)) or {}).get("damage"))

    def add(self, outcome: Outcome) -> None:
        """Keep what became of a recording; from now on it is done, or listed as failed."""
        source = outcome.source
        done, failed = self._mark(source.recording, _DONE), self._mark(source.recording, _FAILED)
        done.parent.mkdir(parents=True, exist_ok=True)
        if outcome.error:
            # the reason names the file already, by a path that a table of names does not need
            reason = outcome.error.removeprefix(f"{source.path}: ").removeprefix(f"{source.recording}: ")
            content = {"recording": source.recording, "reason": reason}
            write_whole(failed, json.dumps(content, ensure_ascii=False).encode())
            done.unlink(missing_ok=True)
            return
        facts = {
            "recording": source.recording,
            "bytes": self._size_of(source),
            "duration_s": outcome.duration_s,
            "sample_rate": outcome.sample_rate,
            "site": outcome.site,
            "datetime": outcome.datetime,
            "damage": outcome.damage,
        }
        header = _SCHEMA.with_metadata({_KEY: json.dumps(facts).encode()})
        columns = [pa.array(outcome.events[field.name].to_numpy(), type=field.type) for field in _SCHEMA]
        table = pa.Table.from_arrays(columns, schema=_SCHEMA)  # half the time of from_pandas
        if self._embedding_width:
            assert outcome.embeddings is not None
            rows = [row.tobytes() for row in outcome.embeddings]
            kind = pa.binary(2 * self._embedding_width)
            table = table.append_column(_EMBEDDING, pa.array(rows, type=kind))
        buffer = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata(header.metadata), buffer)
        write_whole(done, buffer.getvalue().to_pybytes())
        failed.unlink(missing_ok=True)

    def combine(self, formats: list[str]) -> Totals:
        """Write the tables over all recordings here, and a folder for each further annotation format.

        Args:
            formats: names in :data:`mast.annotations.FORMATS`; ``csv`` and ``parquet`` are always written;
                ``partitioned`` is a Parquet dataset by site and date, see :mod:`mast.inference.partitions`.
        """
        with self._alone():
            marks = dict(self._marks(_DONE))
            failed = {
                name: reason
                for name, path in self._marks(_FAILED)
                if name not in marks and (reason := _reason(path)) is not None
            }
            facts = {name: found for name in sorted(marks) if (found := _facts(marks[name])) is not None}
            events = self._write_tables([marks[name] for name in facts])
            if self._embedding_width:
                self._write_embeddings([marks[name] for name in facts], events)
            damaged = {name: str(found["damage"]) for name, found in facts.items() if found["damage"]}
            self._write_failures(failed, damaged)
            if PARTITIONED in formats:
                with self._anew(PARTITIONED) as part:
                    # by site and time: neighbours in a part share a partition
                    ordered = sorted(
                        facts, key=lambda name: (str(facts[name]["site"]), str(facts[name]["datetime"]), name)
                    )
                    write_partitions((pq.read_table(marks[name], schema=_SCHEMA) for name in ordered), part)
            wanted = [name for name in formats if name not in ("csv", "parquet", PARTITIONED)]
            if wanted:
                self._export(wanted, pd.DataFrame(list(facts.values())))
        return Totals(len(facts), events, len(failed), len(damaged))

    def _mark(self, recording: str, suffix: str) -> Path:
        return self.folder / _MARKS / f"{recording}{suffix}"

    def _marks(self, suffix: str) -> Iterator[tuple[str, Path]]:
        """Recordings with such a mark."""
        root = self.folder / _MARKS
        for where, _, files in os.walk(root):
            for file in files:
                if file.endswith(suffix) and not file.startswith("."):
                    path = Path(where, file)
                    yield path.relative_to(root).as_posix().removesuffix(suffix), path

    def _write_tables(self, marks: list[Path]) -> int:
        """``detections.parquet`` and ``detections.csv``, some recordings in memory at a time."""
        count = 0
        parts = [self.folder / f".{TABLE}{suffix}.{os.getpid()}.part" for suffix in (".parquet", ".csv")]
        with (
            pq.ParquetWriter(parts[0], _SCHEMA) as parquet,
            open(parts[1], "w", encoding="utf-8", newline="") as csv,
        ):
            empty_events().to_csv(csv, index=False, lineterminator="\n")
            for table in _gathered(marks):
                count += table.num_rows
                parquet.write_table(table)
                table.to_pandas().to_csv(csv, index=False, header=False, lineterminator="\n")
        for part, suffix in zip(parts, (".parquet", ".csv"), strict=True):
            os.replace(part, self.folder / f"{TABLE}{suffix}")
        return count

    def _write_embeddings(self, marks: list[Path], events: int) -> None:
        """``embeddings.npy`` in the order of the tables, one recording in memory at a time."""
        part = self.folder / f".{EMBEDDINGS}.{os.getpid()}.part"
        shape = (events, self._embedding_width)
        with open(part, "wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f2", "fortran_order": False, "shape": shape}
            )
            for mark in marks:
                for row in pq.read_table(mark, columns=[_EMBEDDING])[_EMBEDDING].to_pylist():
                    file.write(row)
        os.replace(part, self.folder / EMBEDDINGS)

    def _write_failures(self, failed: Mapping[str, str], damaged: Mapping[str, str]) -> None:
        rows = [(name, "failed", reason) for name, reason in failed.items()]
        rows += [(name, "damaged", reason) for name, reason in damaged.items()]
        table = pd.DataFrame(sorted(rows), columns=["file", "outcome", "reason"])
        write_whole(self.folder / FAILURES, table.to_csv(index=False, lineterminator="\n").encode())

    def _export(self, formats: list[str], recordings: pd.DataFrame) -> None:
        """A folder per format, written anew: names in it depend on all recordings."""
        columns = ["recording", "duration_s", "sample_rate", "site", "datetime"]
        known = recordings[columns] if len(recordings) else pd.DataFrame(columns=columns)
        events = as_events(pd.read_parquet(self.folder / f"{TABLE}.parquet"))
        # nobody has listened to these: no reviewed spans
        found = AnnotationSet(events=events, recordings=known)
        for name in formats:
            suffix = FORMATS[name].suffix
            with self._anew(name) as part:
                write_annotations(found, part if FORMATS[name].folder else part / f"{TABLE}{suffix}", name)

    @contextmanager
    def _anew(self, name: str) -> Iterator[Path]:
        """A folder beside, to be filled, that then takes the place of the one there was."""
        place, part = self.folder / name, self.folder / f".{name}.{os.getpid()}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        yield part
        if place.exists():
            shutil.rmtree(place)
        os.replace(part, place)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time: the last to combine has then seen everybody's results."""
        try:
            import fcntl
        except ImportError:  # not on Windows; there shards are best run one after the other
            yield
            return
        with open(self.folder / ".lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _refuse_others(run: Path, made_with: Mapping[str, str | float]) -> None:
    try:
        before = json.loads(run.read_text(encoding="utf-8"))["made_with"]
        differing = [key for key in made_with if before.get(key) != made_with[key]]
    except (ValueError, KeyError, AttributeError, TypeError):
        raise ConfigError(f"{run}: is not what mast detect writes; choose another --out") from None
    if differing:
        key = differing[0]
        old, new = (
            str(some.get(key))[:12] if key == "model" else some.get(key) for some in (before, made_with)
        )
        raise ConfigError(
            f"{run.parent}: holds detections made with {key} {old}, not {new}; results of different models, "
            "settings or folders are not mixed, so choose another --out, or the same settings to go on"
        )


def _gathered(marks: Iterable[Path]) -> Iterator[pa.Table]:
    """The events of all marks in order, in tables of useful size."""
    waiting: list[pa.Table] = []
    rows = 0
    for mark in marks:
        with pq.ParquetFile(mark) as file:
            if file.metadata.num_rows:  # most recordings of a quiet place hold nothing
                waiting.append(file.read(columns=_SCHEMA.names).cast(_SCHEMA))
                rows += file.metadata.num_rows
        if rows >= _TABLE_ROWS:
            yield pa.concat_tables(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _facts(mark: Path) -> dict[str, object] | None:
    """What a mark says about its recording; ``None`` where there is no whole one."""
    try:
        header = pq.read_schema(mark).metadata or {}
        facts: dict[str, object] = json.loads(header[_KEY])
        return facts
    except (OSError, pa.ArrowInvalid, KeyError, ValueError):
        return None


def _reason(mark: Path) -> str | None:
    """Why a recording failed; ``None`` where another process has just read it after all."""
    try:
        return str(json.loads(mark.read_text(encoding="utf-8"))["reason"])
    except FileNotFoundError:
        return None


def _bytes(source: Source) -> int | None:
    try:
        return source.path.stat().st_size
    except OSError:
        return None
