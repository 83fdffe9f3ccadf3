"""A folder of detections that can be stopped at any moment and continued.

Each recording's events are written whole or not at all, as ``recordings/NAME.parquet``; that file is also the
mark that the recording is done, and holds what is known about it. A recording that could not be read leaves
``recordings/NAME.failed.json`` and is tried again next time (:mod:`mast.annotations.detections` knows these files).
``run.json`` says what the results were made with; other models or settings are refused, except for a threshold no lower
than the one that the recordings were searched with: the tables then hold the events that reach it (not with joined
boxes, because the threshold decides which ones are joined). The tables over all recordings are made from the marks in
one pass, so several processes may fill one folder, each its share.

If the detector embeds, a mark also holds the embedding of each event, and ``embeddings.npy`` those of all: its row k
belongs to row k of ``detections.parquet``.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mast.annotations import FORMATS, AnnotationSet, write_annotations
from mast.annotations.detections import (
    DETECTIONS,
    DONE,
    EMBEDDINGS,
    FACTS,
    FAILED,
    FAILURES,
    RUN,
    TABLE,
    DetectionRun,
    failure_facts,
    mark_facts,
    mark_path,
    marks,
    read_run,
    write_run,
)
from mast.audio import names_on_disk
from mast.detect_options import DEFAULT_OPTIONS, DetectOptions
from mast.errors import ConfigError, shorten
from mast.events import EVENT_COLUMNS, as_events, empty_events
from mast.files import atomic_file, atomic_folder, holds_files, locked, remove_orphans, write_atomic
from mast.habit import Habit
from mast.inference.detector import Searched
from mast.inference.partitions import PARTITIONED, batch_tables, write_partitions
from mast.inference.pieces import Source
from mast.replaced import EarlierVersion, replacing
from mast.runs import refuse_other_inputs
from mast.table_files import write_table

_COMBINING = ".lock"  # held while the tables are made
_EMBEDDING = "embedding"  # a mark's extra column: the bytes of a row of half-precision numbers
_TABLE_ROWS = 100_000  # held at once while the tables over all recordings are written
_SCORE_DIGITS = 6  # of the scores in the tables
_SCHEMA = pa.schema(
    [(name, pa.string() if dtype == "str" else pa.float64()) for name, dtype in EVENT_COLUMNS.items()]
)
# errors that concern one file; others, such as a full disk, end the run
_OF_ONE_FILE = (errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EINVAL, errno.EILSEQ)
# older versions did not record these: boxes were drawn as the model gives them, at the recording's own speed
_OLDER_DEFAULTS = Habit().settings | {"speeds": "1"}
# what a setting is called when it differs: {0} in the folder, {1} now
_SETTING_TEXTS = {
    "root": "recordings named relative to {0}, not {1}",
    "hop": "a hop of {0} windows (--hop), not {1}",
    "nms_iou": "boxes of one window merged at an IoU of {0} or more, not {1}",
    "nested_in_recording": "another rule for boxes inside other boxes",
    "precision": "numbers in {0}, not {1}, as on another kind of processor",
    "calibration": "another calibration of the model's scores",
    "input": "other spectrograms",
    "threshold": "a threshold of {0:.3g}, not {1:.3g}, and which boxes were joined (--join) depends on it",
    "box": "--box {0}, not {1}",
    "join": "boxes joined over {0} seconds (--join), not {1}",
}


@dataclass(frozen=True)
class Totals:
    """What a results folder holds.

    Attributes:
        recordings: that were searched.
        events: found in them.
        failed: recordings that could not be searched.
        damaged: recordings that were searched in part.
        searched: what is known about each recording, from its mark.
        failures: names of those that failed.
        older: formats whose folders here are older than these results, because this run did not write them.
        kept: tables that somebody had changed, and where they are now.
    """

    recordings: int
    events: int
    failed: int
    damaged: int
    searched: Sequence[Mapping[str, Any]] = ()
    failures: Sequence[str] = ()
    older: Sequence[str] = ()
    kept: Sequence[EarlierVersion] = ()


class ResultsFolder:
    """Detections of many recordings in one folder; see the module docstring.

    Args:
        folder: created if it does not exist.
        settings: all that changes the results. A folder made with others is refused, except for a higher threshold:
            then the tables hold what reaches it, and nothing is searched again.
        root: the folder that recordings are named relative to; another would mix up their names.
        options: as the user gave them; for the record, as are the next four.
        model: as the user named it.
        band_hz: lower and upper edge of the band that is searched.
        inputs: files, folders and URIs that were given.
        operating_point: what the threshold reached on validation, where it was chosen for a precision.
        size_of: bytes of a recording, by which a changed one is recognised; read from the disk by default.

    Raises:
        ConfigError: the folder holds results of another model, other settings or another root, or something else.
    """

    def __init__(
        self,
        folder: str | Path,
        settings: Mapping[str, str | float],
        root: str | Path,
        *,
        options: DetectOptions = DEFAULT_OPTIONS,
        model: str = "",
        band_hz: tuple[float, float] | None = None,
        inputs: Sequence[str] = (),
        operating_point: Mapping[str, object] | None = None,
        size_of: Callable[[Source], int | None] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._size_of = size_of or file_size
        self._embedding_width = int(settings.get("embeddings", 0))
        threshold = settings.get("threshold")
        self.run = DetectionRun(
            root=str(root),
            model=model,
            weights_sha256=str(settings["model"]),
            threshold=None if threshold is None else float(threshold),
            band_hz=band_hz,
            inputs=tuple(inputs),
            options=options,
            made_with={**settings, "root": str(root)},
            operating_point=operating_point,
        )
        remove_orphans(self.folder, below=True)
        before = read_run(self.folder)
        if before is None:
            # hidden files are what a kill in this very moment leaves
            has_other_files = holds_files(self.folder)
            before = read_run(self.folder)  # shards that start together: another one was faster
            if before is None and has_other_files:
                raise ConfigError(
                    f"{self.folder}: exists and holds no detections ({RUN} is missing); choose a new --out"
                )
        if before is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_run(self.folder, self.run)
        else:
            self._resume(before)

    def _resume(self, before: DetectionRun) -> None:
        """Resume in a folder that was started with the same settings, or a lower threshold."""
        refuse_other_inputs(
            self.folder,
            {name: before.made_with.get(name, _OLDER_DEFAULTS.get(name)) for name in self.run.made_with},
            self.run.made_with,
            instead="results of different models, settings or folders are not mixed, so choose another --out, or the "
            "same settings to resume",
            # which boxes are joined depends on which are there
            ignore=("threshold", "raw_threshold") if self.run.made_with.get("join", "none") == "none" else (),
            # another model often has other settings, too, and so has another band
            describe=lambda found: _describe_difference(
                next((name for name in ("model", "input", "threshold") if name in found), next(iter(found))),
                before,
                self.run,
            ),
        )
        now, earlier = self.run.threshold, before.threshold
        if now is not None and earlier is not None and now < earlier:
            self._refuse_lower(now, before)
        self.run = replace(
            self.run,
            made_with=before.made_with,
            inputs=tuple(dict.fromkeys([*before.inputs, *self.run.inputs])),
        )
        if self.run != before:
            write_run(self.folder, self.run)

    def _refuse_lower(self, threshold: float, before: DetectionRun) -> None:
        """Events below the threshold that a recording was searched with are not in its mark."""
        for _, path in marks(self.folder, DONE):
            searched_from = self._search_threshold(mark_facts(path) or {}, before)
            if searched_from is not None and searched_from > threshold:
                raise ConfigError(
                    f"{self.folder}: holds detections that score {searched_from:.3g} or more, so a threshold of "
                    f"{threshold:.3g} needs a new search; choose another --out, or a threshold of {searched_from:.3g} "
                    "or more"
                )

    def _search_threshold(self, facts: Mapping[str, Any], run: DetectionRun) -> float | None:
        """The threshold with which a recording was searched; older marks do not say, and are of the first run."""
        value = facts.get("threshold", run.made_with.get("threshold"))
        return None if value is None else float(value)

    def _is_current(self, facts: Mapping[str, Any] | None) -> bool:
        """Whether a mark holds all that this run would find: with the same model and no higher threshold."""
        if facts is None or facts.get("model", self.run.weights_sha256) != self.run.weights_sha256:
            return False
        searched_from, now = self._search_threshold(facts, self.run), self.run.threshold
        return searched_from is None or now is None or searched_from <= now

    def is_done(self, source: Source) -> bool:
        """Whether the recording's events are here, found by this model in the file as it is now."""
        facts = mark_facts(mark_path(self.folder, source.recording, DONE))
        return (
            facts is not None
            and self._is_current(facts)
            and facts["recording"] == source.recording
            and facts.get("bytes") == self._size_of(source)
        )

    def update_metadata(self, source: Source) -> None:
        """Give a finished recording the site and time that a table now states, and its events theirs."""
        path = mark_path(self.folder, source.recording, DONE)
        facts, stated = mark_facts(path), source.stated
        if facts is None:
            return
        new = {
            **({"site": stated.site} if stated.site else {}),
            **({"datetime": stated.clock_at(0.0, timespec="auto")} if stated.datetime else {}),
        }
        if all(facts.get(name) == value for name, value in new.items()):
            return
        with pq.ParquetFile(path) as file:
            table = file.read()
        columns = {"site": [stated.site] * table.num_rows} if stated.site else {}
        if stated.datetime:
            columns["datetime"] = [stated.clock_at(start) for start in table["start_s"].to_pylist()]
        for name, values in columns.items():
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, pa.array(values, type=pa.string()))
        write_atomic(path, _parquet(table, {**facts, **new}))

    def is_damaged(self, source: Source) -> bool:
        """Whether only a part of the recording could be searched."""
        return bool((mark_facts(mark_path(self.folder, source.recording, DONE)) or {}).get("damage"))

    def add(self, outcome: Searched) -> Searched:
        """Keep what became of a recording; from now on it is done, or listed as failed.

        Returns:
            What was kept: a failure where events were found that cannot be written, for a reason that is this
            recording's own.

        Raises:
            OSError: nothing can be written here: the disk is full, or the folder must not be changed.
        """
        source = outcome.source
        done, failed = (mark_path(self.folder, source.recording, ending) for ending in (DONE, FAILED))
        if not outcome.error:
            try:
                write_atomic(done, self._mark(outcome))
                failed.unlink(missing_ok=True)
                return outcome
            except Exception as error:
                if isinstance(error, OSError) and error.errno not in _OF_ONE_FILE:
                    raise
                why = shorten(error) or type(error).__name__
                problem = f"its detections cannot be written ({why}); rename the recording"
                outcome = Searched(source, empty_events(), error=problem)
        # the reason names the file already, by a path that a table of names does not need
        reason = outcome.error.removeprefix(f"{source.path}: ").removeprefix(f"{source.recording}: ")
        write_atomic(failed, json.dumps({"recording": source.recording, "reason": shorten(reason)}).encode())
        done.unlink(missing_ok=True)
        return outcome

    def _mark(self, outcome: Searched) -> bytes:
        """The content of the mark of a recording that was searched."""
        facts = {
            "recording": outcome.source.recording,
            "bytes": self._size_of(outcome.source),
            "duration_s": outcome.duration_s,
            "sample_rate": outcome.sample_rate,
            "site": outcome.site,
            "datetime": outcome.datetime,
            "damage": shorten(outcome.damage),
            "model": self.run.weights_sha256,
            "threshold": self.run.threshold,
        }
        columns = [pa.array(outcome.events[field.name].to_numpy(), type=field.type) for field in _SCHEMA]
        table = pa.Table.from_arrays(columns, schema=_SCHEMA)  # half the time of from_pandas
        if self._embedding_width:
            assert outcome.embeddings is not None
            rows = [row.tobytes() for row in outcome.embeddings]
            kind = pa.binary(2 * self._embedding_width)
            table = table.append_column(_EMBEDDING, pa.array(rows, type=kind))
        return _parquet(table, facts)

    def combine(self, formats: list[str], unlisted: Mapping[str, str] | None = None) -> Totals:
        """Write the tables over all recordings here, and a folder for each further annotation format.

        Where people have changed one of them since, theirs is kept beside it.

        Args:
            formats: names in :data:`mast.annotations.FORMATS`; ``csv`` and ``parquet`` are always written;
                ``partitioned`` is a Parquet dataset by site and date, see :mod:`mast.inference.partitions`.
            unlisted: folders whose recordings are not known, and why; listed among the failures.
        """
        kept: list[EarlierVersion] = []
        # one process at a time: the last to combine has then seen everybody's results
        with locked(self.folder / _COMBINING):
            found = {name: mark for name, path in marks(self.folder, DONE) if (mark := self._read_mark(path))}
            done = [found[name] for name in sorted(found)]
            failed = {
                str(facts["recording"]): str(facts["reason"])
                for name, path in marks(self.folder, FAILED)
                if name not in found and (facts := failure_facts(path)) is not None
            }
            events = self._write_tables(done, kept)
            if self._embedding_width:
                self._write_embeddings(done, events)
            damaged = {mark.name: str(mark.facts["damage"]) for mark in done if mark.facts["damage"]}
            self._write_failures({**failed, **(unlisted or {})}, damaged)
            if PARTITIONED in formats:
                with replacing(atomic_folder, self.folder / PARTITIONED, kept) as part:
                    # by site and time: neighbours in a part share a partition
                    ordered = sorted(
                        done, key=lambda m: (str(m.facts["site"]), str(m.facts["datetime"]), m.name)
                    )
                    write_partitions((mark.read(_SCHEMA.names).cast(_SCHEMA) for mark in ordered), part)
            wanted = [name for name in formats if name not in ("csv", "parquet", PARTITIONED)]
            if wanted:
                self._export(wanted, pd.DataFrame([mark.facts for mark in done]), kept)
        searched = [mark.facts for mark in done]
        older = self._outdated_formats(formats)
        return Totals(len(done), events, len(failed), len(damaged), searched, list(failed), older, kept)

    def _outdated_formats(self, formats: list[str]) -> list[str]:
        """Formats whose folders were written before something was searched, failed or was left out by a threshold."""
        there = [
            name for name in (*FORMATS, PARTITIONED) if name not in formats and (self.folder / name).is_dir()
        ]
        if not there:
            return []
        results = [path for ending in (DONE, FAILED) for _, path in marks(self.folder, ending)]
        newest = max(path.stat().st_mtime_ns for path in [self.folder / RUN, *results])
        return [name for name in there if (self.folder / name).stat().st_mtime_ns < newest]

    def find_missing(self, totals: Totals, listed: Container[str]) -> list[str]:
        """Recordings that were searched before and are no longer there; none if the root cannot be read.

        Args:
            totals: what is here.
            listed: names of the recordings that are known to be there.
        """
        root = Path(self.run.root)
        if not root.is_dir():
            return []
        names = [str(facts["recording"]) for facts in totals.searched if facts["recording"] not in listed]
        return [name for name in names if not any((root / spelt).exists() for spelt in names_on_disk(name))]

    def _read_mark(self, path: Path) -> _Mark | None:
        """A mark that belongs in the tables; ``None`` for one that is incomplete, or was made otherwise."""
        facts = mark_facts(path)
        if facts is None or not self._is_current(facts):
            return None
        searched_from, now = self._search_threshold(facts, self.run), self.run.threshold
        higher = now is not None and searched_from is not None and now > searched_from
        return _Mark(path, facts, round(now, _SCORE_DIGITS) if higher and now is not None else None)

    def _write_tables(self, done: list[_Mark], kept: list[EarlierVersion]) -> int:
        """``detections.parquet`` and ``detections.csv``, some recordings in memory at a time."""
        count = 0
        with (
            atomic_file(self.folder / DETECTIONS) as parquet_part,
            replacing(atomic_file, self.folder / f"{TABLE}.csv", kept) as csv_part,
            pq.ParquetWriter(parquet_part, _SCHEMA) as parquet,
            open(csv_part, "w", encoding="utf-8", newline="") as csv,
        ):
            empty_events().to_csv(csv, index=False, lineterminator="\n")
            events = (mark.read(_SCHEMA.names).cast(_SCHEMA) for mark in done)
            for table in batch_tables(events, _TABLE_ROWS):
                count += table.num_rows
                parquet.write_table(table)
                table.to_pandas().to_csv(csv, index=False, header=False, lineterminator="\n")
        return count

    def _write_embeddings(self, done: list[_Mark], events: int) -> None:
        """``embeddings.npy`` in the order of the tables, one recording in memory at a time."""
        shape = (events, self._embedding_width)
        with atomic_file(self.folder / EMBEDDINGS) as part, open(part, "wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f2", "fortran_order": False, "shape": shape}
            )
            for mark in done:
                for row in mark.read([_EMBEDDING])[_EMBEDDING].to_pylist():
                    file.write(row)

    def _write_failures(self, failed: Mapping[str, str], damaged: Mapping[str, str]) -> None:
        rows = [(name, "failed", reason) for name, reason in failed.items()]
        rows += [(name, "damaged", reason) for name, reason in damaged.items()]
        table = pd.DataFrame(sorted(rows), columns=["file", "outcome", "reason"])
        write_table(self.folder / FAILURES, table)

    def _export(self, formats: list[str], recordings: pd.DataFrame, kept: list[EarlierVersion]) -> None:
        """A folder per format, rewritten: names in it depend on all recordings."""
        columns = ["recording", "duration_s", "sample_rate", "site", "datetime"]
        known = recordings[columns] if len(recordings) else pd.DataFrame(columns=columns)
        events = as_events(pd.read_parquet(self.folder / DETECTIONS))
        # nobody has listened to these: no reviewed spans
        found = AnnotationSet(events=events, recordings=known)
        for name in formats:
            suffix = FORMATS[name].suffix
            with replacing(atomic_folder, self.folder / name, kept) as part:
                write_annotations(found, part if FORMATS[name].folder else part / f"{TABLE}{suffix}", name)


class _Mark(NamedTuple):
    """The mark of a recording that is done."""

    path: Path
    facts: dict[str, Any]
    minimum: float | None = None  # score of the events that count, where not all of them do

    @property
    def name(self) -> str:
        return str(self.facts["recording"])

    def read(self, columns: list[str]) -> pa.Table:
        """Some columns of the events that count."""
        needed = columns if self.minimum is None else [*dict.fromkeys([*columns, "score"])]
        with pq.ParquetFile(self.path) as file:
            table = file.read(columns=needed)
        if self.minimum is None:
            return table
        return table.filter(pc.greater_equal(table["score"], self.minimum)).select(columns)


def _parquet(table: pa.Table, facts: Mapping[str, Any]) -> bytes:
    """A mark's content."""
    buffer = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({FACTS: json.dumps(facts).encode()}), buffer)
    content: bytes = buffer.getvalue().to_pybytes()
    return content


def _describe_difference(key: str, before: DetectionRun, now: DetectionRun) -> str:
    """How two runs differ in a setting."""
    old, new = before.made_with.get(key, _OLDER_DEFAULTS.get(key)), now.made_with[key]
    if key == "model":
        return f"the model {_model_name(before)}, not {_model_name(now)}"
    if key == "speeds":
        return (
            "--thorough, but this run is without it"
            if new == _OLDER_DEFAULTS[key]
            else "no --thorough, but this run is with it"
        )
    if key == "embeddings":
        return (
            "--embed, but this run is without it"
            if old and not new
            else "no embeddings, but this run is with --embed"
        )
    if (
        key == "input"
        and before.band_hz is not None
        and now.band_hz is not None
        and before.band_hz != now.band_hz
    ):
        return f"the band {_format_band(before.band_hz)} (--band), not {_format_band(now.band_hz)}"
    return _SETTING_TEXTS.get(key, f"{key} {{0}}, not {{1}}").format(old, new)


def _model_name(run: DetectionRun) -> str:
    return f"{run.model} ({run.model_id})" if run.model else run.model_id


def _format_band(band_hz: tuple[float, float]) -> str:
    return f"{band_hz[0]:g}–{band_hz[1]:g} Hz"


def file_size(source: Source) -> int | None:
    """Bytes of a recording's file; None where that cannot be read."""
    try:
        return source.path.stat().st_size
    except OSError:
        return None
