"""From a folder into the store: recordings, events and reviewed spans, in batches.

Opening a folder again adds what is new and leaves every decision alone. An event's id is made from its recording and
box, so the same detection is always the same event. Detections that are no longer in the tables (as their recording
was replaced and searched again) are removed, unless somebody has decided about them.

Boxes that people drew start as accepted: they are annotations already. Boxes of a detector start open.
"""

from __future__ import annotations

import json
import math
import sqlite3
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pandas as pd

from mast.annotations.detections import DONE, FAILURES, found_batches, mark_facts, marks, read_run
from mast.annotations.tables import read_table
from mast.audio import describe
from mast.data.recordings import load_dataset, parse_clock
from mast.errors import AudioError, ConfigError, MastError, shorten
from mast.events import as_events
from mast.review.store import Store, get_fact, set_fact
from mast.review.to_check import read_to_check
from mast.review.workspace import Workspace
from mast.runs import Progress
from mast.spans import merge_spans, total_s

# sources whose boxes are annotations already
_HUMAN_SOURCES = frozenset({"", "expert", "human", "simulator"})
_BATCH_RECORDINGS = 200  # per transaction, so that a stop loses little
_MASK = (1 << 63) - 1


@dataclass(frozen=True)
class Intake:
    """What opening a folder added."""

    recordings: int
    new_recordings: int
    new_events: int


@dataclass
class _Recording:
    """A row of ``recordings``."""

    name: str
    site: str = ""
    datetime: str = ""
    duration_s: float | None = None
    sample_rate: int | None = None
    error: str = ""
    further: str = "{}"
    stamp: str = ""
    first_row: int | None = None


def update_store(
    store: Store, workspace: Workspace, *, seed: int = 0, progress: Progress | None = None
) -> Intake:
    """Bring the store up to date with its folder.

    Args:
        store: an empty one, or this folder's.
        workspace: the folder.
        seed: of the random order, for a new store; later ones keep theirs.
        progress: called with how many recordings have been read.

    Raises:
        MastError: tables that cannot be read.
    """
    with store.writing() as db:
        db.execute("INSERT OR IGNORE INTO facts VALUES ('seed', ?)", (str(seed),))
        set_fact(db, "threshold", str(workspace.threshold))
        seed = int(get_fact(db, "seed") or seed)
        kind = get_fact(db, "kind")
        if kind is not None and kind != workspace.kind:
            raise ConfigError(
                f"{store.path}: is the review of {kind}, but the folder now holds {workspace.kind}; "
                "move the file away to start again"
            )
        set_fact(db, "kind", workspace.kind)
        set_fact(db, "to_check", json.dumps(read_to_check(workspace.folder)["event"].tolist()))
    updater = _StoreUpdater(store, workspace, seed, progress or (lambda done, total, what: None))
    result = (
        updater.update_from_detections() if workspace.kind == "detections" else updater.update_from_dataset()
    )
    store.build_indices()
    with store.writing() as db:
        db.execute("PRAGMA optimize")
    return result


class _StoreUpdater:
    """One pass over a folder."""

    def __init__(self, store: Store, workspace: Workspace, seed: int, progress: Progress) -> None:
        self.store, self.workspace, self.progress = store, workspace, progress
        self.key = str(seed).encode()
        with store.reading() as db:
            rows = db.execute("SELECT name, id, stamp FROM recordings").fetchall()
        self.known = {row["name"]: (int(row["id"]), str(row["stamp"])) for row in rows}
        self.new_recordings = 0
        self.new_events = 0

    def update_from_detections(self) -> Intake:
        """Read a results folder: marks tell which recordings there are, and the table what was found in them."""
        folder = self.workspace.folder
        found, filtered = dict(marks(folder, DONE)), _threshold_stamp(folder)
        failed = _read_failures(folder / FAILURES)
        runs = list(_recording_runs(folder))
        counts = {name: (first, n) for name, first, n in runs}
        names = sorted({*found, *failed, *counts})
        changed: set[str] = set()
        batch: list[_Recording] = []
        for done, name in enumerate(names, start=1):
            stamp = (_mark_stamp(found.get(name)) or "table") + filtered
            first_row = counts.get(name, (None, 0))[0]
            error = self._path_error(name) or failed.get(name, "")
            if name in self.known and self.known[name][1] == stamp:
                batch.append(_Recording(name, stamp=stamp, first_row=first_row, error=error))
            else:
                changed.add(name)
                batch.append(self._describe_recording(name, found.get(name), stamp, first_row, error))
            if len(batch) >= _BATCH_RECORDINGS or done == len(names):
                self._write_recordings(batch, changed)
                batch = []
                # a new recording is half done once described, and done once its events are read
                self.progress(done - len(changed) + len(changed) // 2, len(names), "recordings")
        self._write_detections(changed, len(names))
        self.progress(len(names), len(names), "recordings")
        return Intake(len(names), self.new_recordings, self.new_events)

    def _describe_recording(
        self, name: str, mark: Path | None, stamp: str, first_row: int | None, error: str
    ) -> _Recording:
        facts = mark_facts(mark) if mark is not None else None
        row = _Recording(name, stamp=stamp, first_row=first_row, error=error)
        if facts:
            row.site, row.datetime = str(facts.get("site") or ""), str(facts.get("datetime") or "")
            row.duration_s = float(facts["duration_s"]) if facts.get("duration_s") is not None else None
            row.sample_rate = int(facts["sample_rate"]) if facts.get("sample_rate") else None
        elif not error:
            try:
                path = self.workspace.path(name)
                info, known = describe(path, self.workspace.audio)
                row.duration_s, row.sample_rate = info.duration_s, info.sample_rate
                row.site = known.site or ""
                row.datetime = known.datetime.isoformat() if known.datetime else ""
            except MastError as problem:
                row.error = self._without_root(shorten(problem))
        return row

    def _path_error(self, name: str) -> str:
        try:
            self.workspace.path(name)
        except AudioError as error:
            return str(error)
        return ""

    def _without_root(self, sentence: str) -> str:
        """A sentence without the machine's own paths, which the browser need not see."""
        return sentence.replace(f"{self.workspace.roots[0]}/", "")

    def _write_detections(self, changed: set[str], total: int) -> None:
        """The events of recordings that are new or were searched again, a row group in memory at a time."""
        done = 0
        part: list[pd.DataFrame] = []
        name: str | None = None
        pending: list[tuple[str, pd.DataFrame]] = []

        def flush() -> None:
            nonlocal done
            self._write_events(pending)
            done += len(pending)
            self.progress(total - len(changed) + (len(changed) + done) // 2, total, "recordings")
            pending.clear()

        def finish() -> None:
            if name is not None and name in changed:
                pending.append((name, part[0] if len(part) == 1 else pd.concat(part)))
                if len(pending) >= _BATCH_RECORDINGS or sum(len(t) for _, t in pending) > 50_000:
                    flush()

        for batch in found_batches(self.workspace.folder):
            names = batch.column("recording").to_pylist()
            # a whole batch at once: converting even a hundred events to the schema costs as much
            events = as_events(batch.to_pandas()) if not changed.isdisjoint(names) else None
            for own, first, n in _run_lengths(names):
                if own != name:
                    finish()
                    name, part = own, []
                if events is not None and own in changed:
                    part.append(events.iloc[first : first + n])
        finish()
        flush()
        with_events = {own for own, _, _ in _recording_runs(self.workspace.folder)}
        with self.store.writing() as db:  # searched again, and nothing was found this time
            for name in changed - with_events:
                recording_id, stamp = self.known[name]
                self._remove_untouched(db, recording_id, set())
                db.execute("UPDATE recordings SET stamp = ? WHERE id = ?", (stamp, recording_id))

    def update_from_dataset(self) -> Intake:
        """Read a dataset: recordings, boxes and what was listened to, as ``mast train`` reads them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unreadable recordings are listed on the page
            dataset = load_dataset(self.workspace.audio, annotations=self._boxes_path())
        further = [
            c
            for c in dataset.recordings.columns
            if c not in ("file", "site", "datetime", "duration_s", "sample_rate", "reviewed")
        ]
        rows = []
        for record in dataset.recordings.to_dict("records"):
            kept = {c: record[c] for c in further if not pd.isna(record[c]) and record[c] != ""}
            rows.append(
                _Recording(
                    str(record["file"]),
                    site=str(record["site"]),
                    datetime=str(record["datetime"]),
                    duration_s=float(record["duration_s"]),
                    sample_rate=int(record["sample_rate"]),
                    error=self._path_error(str(record["file"])),
                    further=json.dumps(kept, ensure_ascii=False),
                    stamp="dataset",
                )
            )
        for record in dataset.failures.to_dict("records"):
            rows.append(
                _Recording(
                    str(record["file"]), error=self._without_root(shorten(record["error"])), stamp="dataset"
                )
            )
        groups: dict[str, pd.DataFrame] = {
            str(n): t for n, t in dataset.annotations.events.groupby("recording")
        }
        # a recording that could not be used until now has no stamp yet
        new = {row.name for row in rows if self.known.get(row.name, (0, ""))[1] == ""}
        # their boxes are not read; those read before stay, as do the spans that were listened to
        failed = set(dataset.failures["file"])
        for at in range(0, len(rows), _BATCH_RECORDINGS):
            batch = rows[at : at + _BATCH_RECORDINGS]
            self._write_recordings(batch, {row.name for row in batch})
            self._write_events(
                [
                    (row.name, groups.get(row.name, dataset.annotations.events[:0]))
                    for row in batch
                    if row.name not in failed
                ]
            )
            self.progress(at + len(batch), len(rows), "recordings")
        spans = dataset.annotations.reviewed
        with self.store.writing() as db:
            for name, own in spans.groupby("recording"):
                if name in new:  # afterwards, spans are marked on the page
                    found = [(float(a), float(b)) for a, b in zip(own["start_s"], own["end_s"], strict=True)]
                    replace_spans(db, self.known[str(name)][0], [s for s in found if math.isfinite(s[1])])
        return Intake(len(rows), self.new_recordings, self.new_events)

    def _boxes_path(self) -> Path | None:
        """Where a dataset's boxes are: as given, next to the recordings, or, if these have moved, in the folder."""
        if self.workspace.annotations is not None:
            return self.workspace.annotations
        own = self.workspace.folder / "boxes.csv"
        return own if self.workspace.audio != self.workspace.folder and own.is_file() else None

    def _write_recordings(self, rows: list[_Recording], described: set[str]) -> None:
        with self.store.writing() as db:
            for row in rows:
                if row.name in self.known and row.name not in described:
                    db.execute(
                        "UPDATE recordings SET first_row = ?, error = ? WHERE id = ?",
                        (row.first_row, row.error, self.known[row.name][0]),
                    )
                    continue
                first_day, last_day, hours = _days_and_hours(row.datetime, row.duration_s)
                values = (row.site, row.datetime, first_day, last_day, hours, row.duration_s, row.sample_rate,
                          row.error, row.further, row.first_row)  # fmt: skip
                if row.name in self.known:
                    db.execute(
                        "UPDATE recordings SET site = ?, datetime = ?, first_day = ?, last_day = ?, hours = ?, "
                        "duration_s = ?, sample_rate = ?, error = ?, further = ?, first_row = ? WHERE id = ?",
                        (*values, self.known[row.name][0]),
                    )
                else:
                    done = db.execute(
                        "INSERT INTO recordings (site, datetime, first_day, last_day, hours, duration_s, sample_rate, "
                        "error, further, first_row, name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        (*values, row.name),
                    )
                    assert done.lastrowid is not None
                    self.known[row.name] = (done.lastrowid, "")
                    self.new_recordings += 1
                self.known[row.name] = (self.known[row.name][0], row.stamp)

    def _write_events(self, tables: list[tuple[str, pd.DataFrame]]) -> None:
        with self.store.writing() as db:
            for name, table in tables:
                recording_id, stamp = self.known[name]
                began = parse_clock(
                    db.execute("SELECT datetime FROM recordings WHERE id = ?", (recording_id,)).fetchone()[0]
                )
                rows = list(self._event_rows(name, recording_id, table, began))
                known = {
                    r[0] for r in db.execute("SELECT id FROM events WHERE recording_id = ?", (recording_id,))
                }
                fresh = [row for row in rows if row[0] not in known] if known else rows
                db.executemany(
                    "INSERT INTO events (id, recording_id, ordinal, start_s, end_s, low_hz, high_hz, label, status, "
                    "score, source, model, original_label, day, hour, doubt, rank) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    fresh,
                )
                self.new_events += len(fresh)
                if known:
                    db.executemany(
                        "UPDATE events SET ordinal = ? WHERE id = ?",
                        [(row[2], row[0]) for row in rows if row[0] in known],
                    )
                    self._remove_untouched(db, recording_id, {str(row[0]) for row in rows})
                # last, so that a recording whose events are incomplete is read again
                db.execute("UPDATE recordings SET stamp = ? WHERE id = ?", (stamp, recording_id))

    def _remove_untouched(self, db: sqlite3.Connection, recording_id: int, keep: set[str]) -> None:
        """Remove events that are no longer in the tables and that nobody has decided about."""
        own = db.execute("SELECT id FROM events WHERE recording_id = ? AND version = 0", (recording_id,))
        gone = [(row[0],) for row in own.fetchall() if row[0] not in keep]
        db.executemany("DELETE FROM events WHERE id = ?", gone)
        # the rest was decided about; its place among the embeddings is gone
        stay = db.execute(
            "SELECT id FROM events WHERE recording_id = ? AND ordinal IS NOT NULL", (recording_id,)
        )
        lost = [(row[0],) for row in stay.fetchall() if row[0] not in keep]
        db.executemany("UPDATE events SET ordinal = NULL WHERE id = ?", lost)

    def _event_rows(
        self, name: str, recording_id: int, table: pd.DataFrame, began: datetime | None
    ) -> Iterator[tuple[Any, ...]]:
        seen: dict[bytes, int] = {}
        threshold = self.workspace.threshold
        columns = ("start_s", "end_s", "low_hz", "high_hz", "score", "label", "source", "model")
        for ordinal, (start, end, low, high, score, label, source, model) in enumerate(
            zip(*(table[c].tolist() for c in columns), strict=True)
        ):
            drawn = source in _HUMAN_SOURCES and (score == 1.0 or score != score)
            digest = review_id((name, start, end, low, high, label, source), seen)
            shown = None if drawn or score != score else score
            yield (
                digest, recording_id, ordinal, start, end, low, high, label, "accepted" if drawn else "open", shown,
                source or "expert", model, label, *day_and_hour(began, start),
                None if shown is None else abs(shown - threshold), random_rank(digest, self.key),
            )  # fmt: skip


def day_and_hour(recording_start: datetime | None, start_s: float) -> tuple[str, int | None]:
    """The day and hour of the day, a number of seconds after a recording began; nothing without a clock."""
    if recording_start is None:
        return "", None
    when = recording_start + timedelta(seconds=start_s)
    return when.date().isoformat(), when.hour


def review_id(
    event: tuple[str, float, float, float, float, str, str], seen: dict[bytes, int] | None = None
) -> str:
    """The id of a detection in the review, made from its fields.

    Args:
        event: recording, start, end, lower and upper edge, label, source.
        seen: how many equal ones came before in its recording; this one is added.
    """
    name, start, end, low, high, label, source = event
    made_of = f"{name}\0{start!r}\0{end!r}\0{low!r}\0{high!r}\0{label}\0{source}".encode("utf-8", "replace")
    again = 0 if seen is None else seen.get(made_of, 0)
    if seen is not None:
        seen[made_of] = again + 1
    return blake2b(made_of + b"\0%d" % again if again else made_of, digest_size=8).hexdigest()


def random_rank(event_id: str, key: bytes) -> int:
    """An event's place in the random order: a number that depends only on the event and the seed."""
    return int.from_bytes(blake2b(event_id.encode(), digest_size=8, key=key).digest(), "big") & _MASK


def replace_spans(db: sqlite3.Connection, recording_id: int, spans: Iterable[tuple[float, float]]) -> None:
    """Replace a recording's reviewed spans."""
    new = merge_spans(spans)
    db.execute("DELETE FROM spans WHERE recording_id = ?", (recording_id,))
    db.executemany("INSERT INTO spans VALUES (?, ?, ?)", [(recording_id, a, b) for a, b in new])
    db.execute("UPDATE recordings SET spans_s = ? WHERE id = ?", (total_s(new), recording_id))


def _days_and_hours(clock: str, duration_s: float | None) -> tuple[str, str, int]:
    """First and last day of a recording, and the hours of the day that it touches as bits."""
    try:
        began = parse_clock(clock)
    except ValueError:
        began = None
    if began is None:
        return "", "", 0
    length = max(duration_s or 0.0, 0.001)
    last = began + timedelta(seconds=length - 0.001)
    if length >= 86_400:
        return began.date().isoformat(), last.date().isoformat(), (1 << 24) - 1
    hours, at = 0, began.replace(minute=0, second=0, microsecond=0)
    while at <= last:
        hours |= 1 << at.hour
        at += timedelta(hours=1)
    return began.date().isoformat(), last.date().isoformat(), hours


def _threshold_stamp(folder: Path) -> str:
    """Which of the events in the marks are in the tables; empty for all."""
    run = read_run(folder)
    if run is None or run.threshold == run.made_with.get("threshold"):
        return ""
    return f" from {run.threshold}"


def _mark_stamp(mark: Path | None) -> str:
    """Changes when a recording is searched again."""
    if mark is None:
        return ""
    try:
        status = mark.stat()
    except OSError:
        return ""
    return f"{status.st_mtime_ns}-{status.st_size}"


def _read_failures(path: Path) -> dict[str, str]:
    """Recordings that could not be searched, with reasons."""
    if not path.is_file():
        return {}
    table = read_table(path)
    columns = table.require({"file": ("file",), "outcome": ("outcome",), "reason": ("reason",)})
    rows = zip(*(table.texts(columns[c]) for c in ("file", "outcome", "reason")), strict=True)
    return {name: reason for name, outcome, reason in rows if outcome == "failed"}


def _recording_runs(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Recordings in the order of the table of detections, each with its first row and number of rows."""
    at, name, first = 0, None, 0
    for batch in found_batches(folder, ["recording"]):
        names = batch.column(0).to_pylist()
        for own, begin, _ in _run_lengths(names):
            if own != name:
                if name is not None:
                    yield name, first, at + begin - first
                name, first = own, at + begin
        at += len(names)
    if name is not None:
        yield name, first, at - first


def _run_lengths(names: list[str]) -> Iterator[tuple[str, int, int]]:
    """Stretches of equal names: name, first, length."""
    first = 0
    for k in range(1, len(names) + 1):
        if k == len(names) or names[k] != names[first]:
            yield names[first], first, k - first
            first = k
