"""Rows of the store as they are sent to the browser."""

from __future__ import annotations

import json
import sqlite3
from datetime import timedelta
from typing import Any

from mast.data.recordings import parse_clock
from mast.errors import MastError

STATUSES = ("open", "accepted", "rejected", "deleted")

EVENT_SQL = (
    "SELECT e.*, r.name AS recording, r.site AS site, r.datetime AS recording_datetime, "
    "(SELECT json_group_array(json_object('source', s.source, 'label', s.label, 'score', s.score)) "
    "FROM suggestions AS s WHERE s.event_id = e.id) AS suggestions, "
    "(SELECT json_object('status', l.status, 'label', l.label, 'by', "
    "(SELECT reviewer FROM log WHERE id = l.action)) FROM learned AS l "
    "WHERE l.event_id = e.id AND e.status = 'open') AS learned "
    "FROM events AS e JOIN recordings AS r ON r.id = e.recording_id"
)
RECORDING_STATUS_SQL = (
    "CASE WHEN open = 0 AND (events > 0 OR (duration_s > 0 AND spans_s >= duration_s - 0.1)) THEN 'done' "
    "WHEN open < events OR spans_s > 0 THEN 'started' ELSE 'open' END"
)
RECORDING_SQL = f"SELECT *, {RECORDING_STATUS_SQL} AS status FROM recordings"


class NotFoundError(MastError):
    """There is no such recording or event."""


def event_not_found(event_id: str, purpose: str = "in this review") -> NotFoundError:
    """The error to raise for an event that does not exist."""
    return NotFoundError(f"there is no event {event_id[:40]!r} {purpose}; reload the page")


def event_record(row: sqlite3.Row) -> dict[str, Any]:
    """A row of :data:`EVENT_SQL` as JSON."""
    began = parse_clock(row["recording_datetime"])
    when = (
        ""
        if began is None
        else (began + timedelta(seconds=row["start_s"])).isoformat(timespec="milliseconds")
    )
    names = ("id", "recording_id", "recording", "start_s", "end_s", "low_hz", "high_hz", "score", "label",
             "original_label", "source", "status", "reviewer", "version", "site")  # fmt: skip
    return {
        **{name: row[name] for name in names},
        "datetime": when,
        "suggestions": json.loads(row["suggestions"]),
        "learned": json.loads(row["learned"]) if row["learned"] else None,
    }


def recording_record(row: sqlite3.Row) -> dict[str, Any]:
    """A row of :data:`RECORDING_SQL` as JSON."""
    names = (
        "id",
        "name",
        "site",
        "datetime",
        "duration_s",
        "sample_rate",
        "events",
        "best_score",
        "status",
        "error",
    )
    return {**{name: row[name] for name in names}, "reviewed": row["events"] - row["open"]}


def read_event(db: sqlite3.Connection, event_id: str) -> dict[str, Any]:
    """One event.

    Raises:
        NotFoundError: there is none of that id.
    """
    row = db.execute(f"{EVENT_SQL} WHERE e.id = ?", (event_id,)).fetchone()
    if row is None:
        raise event_not_found(event_id)
    return event_record(row)


def read_recording(db: sqlite3.Connection, recording_id: int) -> sqlite3.Row:
    """One recording, a row of :data:`RECORDING_SQL`.

    Raises:
        NotFoundError: there is none of that number.
    """
    row: sqlite3.Row | None = None
    if 0 <= recording_id < 1 << 63:  # SQLite has no larger integers
        row = db.execute(f"{RECORDING_SQL} WHERE id = ?", (recording_id,)).fetchone()
    if row is None:
        raise NotFoundError(f"there is no recording {recording_id} in this review; reload the page")
    return row


def read_spans(db: sqlite3.Connection, recording_id: int) -> list[tuple[float, float]]:
    """The spans of a recording that were marked as reviewed."""
    rows = db.execute(
        "SELECT start_s, end_s FROM spans WHERE recording_id = ? ORDER BY start_s", (recording_id,)
    )
    return [(float(a), float(b)) for a, b in rows]
