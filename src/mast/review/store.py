"""The review's one file, ``review.sqlite``: recordings, events as they stand now, and a log of every decision.

Any number of readers work alongside one writer (WAL), in this process and in others on the same machine. A write is on
disk before it is answered (``synchronous=FULL``), so that neither a kill nor a power cut loses what a reviewer saw
confirmed. The log is only ever appended to. Triggers keep the counts per recording: a list of ten thousand
recordings never has to look at a million events.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mast.errors import ConfigError
from mast.files import name_in_errors

STORE = "review.sqlite"
_VERSION = 1  # of the schema
_BUSY_MS = 20_000  # how long a write waits for another process's
_CACHE_KB = 8_000  # a connection's page cache

_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE recordings (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    site TEXT NOT NULL DEFAULT '',
    datetime TEXT NOT NULL DEFAULT '',      -- wall clock of its start, ISO 8601
    first_day TEXT NOT NULL DEFAULT '',     -- days and hours of the day that it touches
    last_day TEXT NOT NULL DEFAULT '',
    hours INTEGER NOT NULL DEFAULT 0,       -- bit h is set where it holds sound of hour h
    duration_s REAL,
    sample_rate INTEGER,
    error TEXT NOT NULL DEFAULT '',
    further TEXT NOT NULL DEFAULT '{}',     -- other columns of recordings.csv
    stamp TEXT NOT NULL DEFAULT '',         -- of what its events were read from
    first_row INTEGER,                      -- of its events in embeddings.npy
    events INTEGER NOT NULL DEFAULT 0,      -- without deleted ones
    open INTEGER NOT NULL DEFAULT 0,
    best_score REAL,
    spans_s REAL NOT NULL DEFAULT 0         -- seconds marked as reviewed
);
CREATE INDEX recordings_by_time ON recordings (datetime, id);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    recording_id INTEGER NOT NULL REFERENCES recordings (id),
    ordinal INTEGER,                        -- among its recording's detections; row in embeddings.npy less first_row
    start_s REAL NOT NULL, end_s REAL NOT NULL, low_hz REAL NOT NULL, high_hz REAL NOT NULL,
    label TEXT NOT NULL,
    status TEXT NOT NULL,                   -- open, accepted, rejected, deleted
    reviewer TEXT NOT NULL DEFAULT '',
    version INTEGER NOT NULL DEFAULT 0,
    score REAL,
    source TEXT NOT NULL,
    model TEXT NOT NULL DEFAULT '',
    original_label TEXT NOT NULL,
    original_box TEXT NOT NULL DEFAULT '',  -- JSON, where it has been changed
    day TEXT NOT NULL DEFAULT '',
    hour INTEGER,
    doubt REAL,                             -- distance of the score from the threshold
    rank INTEGER NOT NULL                   -- a random order that never changes
);
CREATE INDEX events_of ON events (recording_id, start_s);
CREATE TABLE spans (recording_id INTEGER NOT NULL, start_s REAL NOT NULL, end_s REAL NOT NULL);
CREATE INDEX spans_of ON spans (recording_id, start_s);
CREATE TABLE log (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,
    reviewer TEXT NOT NULL,
    kind TEXT NOT NULL,                     -- add, change, delete, spans; undo, redo, skip name an earlier row;
                                            -- apply, take_back are of the learner; group of a whole group
    recording_id INTEGER NOT NULL,
    event_id TEXT,
    before TEXT,                            -- JSON
    after TEXT,
    target INTEGER                          -- of undo, redo, skip
);
CREATE INDEX log_of_reviewer ON log (reviewer, id);
CREATE TABLE undone (target INTEGER PRIMARY KEY, by_row INTEGER NOT NULL, redoable INTEGER NOT NULL);

CREATE TRIGGER event_added AFTER INSERT ON events BEGIN
    UPDATE recordings SET events = events + (new.status <> 'deleted'), open = open + (new.status = 'open'),
        best_score = max(coalesce(best_score, new.score), coalesce(new.score, best_score)) WHERE id = new.recording_id;
END;
CREATE TRIGGER event_removed AFTER DELETE ON events BEGIN
    UPDATE recordings SET events = events - (old.status <> 'deleted'), open = open - (old.status = 'open')
        WHERE id = old.recording_id;
END;
CREATE TRIGGER event_decided AFTER UPDATE OF status ON events WHEN old.status <> new.status BEGIN
    UPDATE recordings SET events = events + (new.status <> 'deleted') - (old.status <> 'deleted'),
        open = open + (new.status = 'open') - (old.status = 'open') WHERE id = new.recording_id;
END;
"""

# added later: reviews that were started before have none. Decisions of the learner, or of a person about a whole group,
# are kept apart from the events, so as not to pass for boxes that somebody looked at; they count where an event is open
_MIGRATIONS = {
    "suggestions": """
CREATE TABLE IF NOT EXISTS suggestions (
    event_id TEXT NOT NULL, source TEXT NOT NULL, label TEXT NOT NULL, score REAL, PRIMARY KEY (event_id, source)
) WITHOUT ROWID;
""",
    "learned": """
CREATE TABLE IF NOT EXISTS learned (
    event_id TEXT PRIMARY KEY,
    status TEXT NOT NULL,                   -- accepted, rejected
    label TEXT NOT NULL                     -- given by the learner, or to the group; empty for none
) WITHOUT ROWID;
""",
    "learned_by_action": """
ALTER TABLE learned ADD COLUMN action INTEGER NOT NULL DEFAULT 0;  -- row of the log, of a group; 0 for the learner
CREATE INDEX learned_by_action ON learned (action);
""",
    "grouped": """
CREATE TABLE IF NOT EXISTS grouped (
    event_id TEXT PRIMARY KEY,
    cluster INTEGER NOT NULL,               -- −1 for none
    away REAL NOT NULL                      -- from the middle of its group
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS grouped_by_cluster ON grouped (cluster, away);
""",
}

# made after a first filling, which is faster than keeping them up to date through it
_INDICES = """
CREATE INDEX IF NOT EXISTS events_by_rank ON events (rank);
CREATE INDEX IF NOT EXISTS events_by_hour ON events (recording_id, hour, status);
CREATE INDEX IF NOT EXISTS open_by_doubt ON events (doubt, seq) WHERE status = 'open';
CREATE INDEX IF NOT EXISTS open_by_score ON events (-score, seq) WHERE status = 'open';
CREATE INDEX IF NOT EXISTS accepted_by_rank ON events (rank) WHERE status = 'accepted';
CREATE INDEX IF NOT EXISTS touched ON events (reviewer, status) WHERE version > 0;
CREATE INDEX IF NOT EXISTS events_by_ordinal ON events (recording_id, ordinal);
CREATE INDEX IF NOT EXISTS labelled ON events (label);
"""


class Store:
    """The open file. Use :meth:`reading` and :meth:`writing` from any thread.

    Raises:
        ConfigError: the file is something else, or was made by a newer mast.
        OSError: it cannot be written, or another program has locked it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        self._lock = threading.Lock()
        self._connections: list[sqlite3.Connection] = []
        try:
            with name_in_errors(path):
                self._writer = self._connect()
            found = self._writer.execute("PRAGMA user_version").fetchone()[0]
            if found == 0:
                with self.writing() as db:
                    if db.execute("PRAGMA user_version").fetchone()[0] == 0:  # another process may be first
                        for statement in _statements(_TABLES):
                            db.execute(statement)
                        db.execute(f"PRAGMA user_version = {_VERSION}")
            elif found != _VERSION:
                raise ConfigError(
                    f"{path}: made by another version of mast (layout {found}, this one reads {_VERSION}); "
                    "open it with that one, or move the file away to start again"
                )
            for name, script in _MIGRATIONS.items():
                if not _exists(self._writer, name):
                    with self.writing() as db:
                        for statement in [] if _exists(db, name) else _statements(script):
                            db.execute(statement)
        except sqlite3.DatabaseError as error:
            raise ConfigError(
                f"{path}: cannot be used for the review ({error}); the folder must be on a local disk and writable, "
                "and the file one of mast review's"
            ) from error

    def build_indices(self) -> None:
        """Create the indices that keep large reviews fast, unless they exist."""
        with self.writing() as db:
            for statement in _statements(_INDICES):
                db.execute(statement)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to read with, seeing one state from beginning to end.

        Raises:
            OSError: the disk cannot be read, or another program has locked the file.
        """
        with name_in_errors(self.path):
            try:
                db = self._idle.get_nowait()
            except queue.Empty:
                db = self._connect()
            try:
                db.execute("BEGIN")
                yield db
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                self._idle.put(db)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The only connection to write with: all of the block is kept, or nothing if it raises.

        Raises:
            OSError: the disk cannot be written, or another program has locked the file.
        """
        with self._lock, name_in_errors(self.path):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:  # SQLite itself may have ended it
                    self._writer.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            for db in self._connections:
                db.close()
            self._connections.clear()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path, check_same_thread=False, isolation_level=None, timeout=_BUSY_MS / 1000
        )
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        self._connections.append(db)
        return db


def get_fact(db: sqlite3.Connection, name: str) -> str | None:
    """The value stored under a name; ``None`` if there is none."""
    row = db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def set_fact(db: sqlite3.Connection, name: str, value: str) -> None:
    """Store a value under a name, replacing an earlier one."""
    db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))


def _exists(db: sqlite3.Connection, name: str) -> bool:
    """Whether there is a table or an index of this name; another process may just have made it."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: ``executescript`` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
