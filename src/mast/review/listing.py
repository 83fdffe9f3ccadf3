"""Lists and sums of a review: recordings by filter, progress, precision, activity."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass
from itertools import chain
from typing import Any

from mast.review.records import (
    EVENT_SQL,
    RECORDING_SQL,
    RECORDING_STATUS_SQL,
    event_record,
    recording_record,
)

_ORDERS = {
    "name": "name COLLATE NOCASE, id",
    "time": "datetime = '', datetime, id",
    "events": "events DESC, id",
    "score": "best_score IS NULL, best_score DESC, id",
}
BULK_DECISIONS = {  # no person has decided about these one by one
    "learner_accepted": "status = 'accepted' AND action = 0",
    "learner_rejected": "status = 'rejected' AND action = 0",
    "group_accepted": "status = 'accepted' AND action > 0",
    "group_rejected": "status = 'rejected' AND action > 0",
}
_MAX_LABELS = 500
_MAX_SKIPPED_SHARE = 0.1  # our choice: at most this share of the random order may have been skipped
_Z95 = 1.959963984540054


@dataclass(frozen=True)
class ListFilter:
    """Which recordings or events: empty or ``None`` means all."""

    site: str | None = None
    day: str | None = None
    hour: int | None = None
    min_score: float | None = None
    status: str | None = None
    search: str | None = None
    group: int | None = None  # for events only

    def recording_condition(self) -> tuple[str, list[Any]]:
        """An SQL condition on the columns of ``recordings``, and its values."""
        return _condition(
            ("site = ?", self.site),
            ("? BETWEEN first_day AND last_day", self.day or None),
            ("(hours >> ?) & 1", self.hour),
            ("best_score >= ?", self.min_score),
            (f"{RECORDING_STATUS_SQL} = ?", self.status or None),
            ("instr(lower(name), lower(?)) > 0", self.search or None),
        )

    def event_condition(self) -> tuple[str, list[Any]]:
        """An SQL condition on the columns of ``events``, called ``e``, and its values."""
        within = "e.recording_id IN (SELECT id FROM recordings WHERE {})"
        status, decided = self.status or None, "1"
        if status == "open":  # spelt out, so that the indices of open events are used
            decided = "e.status = 'open' AND NOT EXISTS (SELECT 1 FROM learned WHERE event_id = e.id)"
        elif status in BULK_DECISIONS:
            kind = BULK_DECISIONS[status]
            decided = f"e.status = 'open' AND e.id IN (SELECT event_id FROM learned WHERE {kind})"
        condition, values = _condition(
            (within.format("site = ?"), self.site),
            (within.format("instr(lower(name), lower(?)) > 0"), self.search or None),
            ("e.id IN (SELECT event_id FROM grouped WHERE cluster = ?)", self.group),
            ("e.day = ?", self.day or None),
            ("e.hour = ?", self.hour),
            ("e.score >= ?", self.min_score),
            ("e.status = ?", status if decided == "1" else None),
        )
        return f"{condition} AND {decided}", values


def _condition(*terms: tuple[str, Any]) -> tuple[str, list[Any]]:
    """The terms that have a value, each for its one ``?``, joined by AND."""
    given = [(term, value) for term, value in terms if value is not None]
    return " AND ".join(["1", *(term for term, _ in given)]), [value for _, value in given]


def session_facts(db: sqlite3.Connection) -> dict[str, Any]:
    """What the page needs at the start: sites, days, labels, reviewers, sizes."""
    days = db.execute(
        "SELECT DISTINCT first_day FROM recordings WHERE first_day <> '' UNION "
        "SELECT DISTINCT last_day FROM recordings WHERE last_day <> ''"
    )
    labels = db.execute(
        "SELECT label, count(*) AS n FROM events WHERE label <> '' GROUP BY label ORDER BY n DESC, label LIMIT ?",
        (_MAX_LABELS,),
    )
    sums = db.execute(
        "SELECT count(*), coalesce(sum(events), 0), max(sample_rate) FROM recordings"
    ).fetchone()
    sites = db.execute("SELECT DISTINCT site FROM recordings WHERE site <> '' ORDER BY site")
    to_check = db.execute("SELECT json_array_length(value) FROM facts WHERE name = 'to_check'").fetchone()
    return {
        "sites": [row[0] for row in sites],
        "days": sorted(row[0] for row in days),
        "labels": [row[0] for row in labels],
        "reviewers": [row[0] for row in db.execute("SELECT DISTINCT reviewer FROM log ORDER BY reviewer")],
        "recordings": sums[0],
        "events": sums[1],
        "max_hz": (sums[2] or 48_000) / 2,
        "to_check": to_check[0] if to_check else 0,
    }


def list_recordings(
    db: sqlite3.Connection, wanted: ListFilter, *, sort: str, offset: int, limit: int
) -> dict[str, Any]:
    """A page of the list of recordings."""
    condition, values = wanted.recording_condition()
    total = db.execute(f"SELECT count(*) FROM recordings WHERE {condition}", values).fetchone()[0]
    rows = db.execute(
        f"{RECORDING_SQL} WHERE {condition} ORDER BY {_ORDERS[sort]} LIMIT ? OFFSET ?",
        [*values, limit, offset],
    )
    return {"total": total, "items": [recording_record(row) for row in rows]}


def events_between(
    db: sqlite3.Connection, recording_id: int, start_s: float, end_s: float, limit: int
) -> dict[str, Any]:
    """The events of a recording that touch a span, by time, without deleted ones."""
    longest = db.execute(
        "SELECT max(end_s - start_s) FROM events WHERE recording_id = ?", (recording_id,)
    ).fetchone()[0]
    rows = db.execute(
        f"{EVENT_SQL} WHERE e.recording_id = ? AND e.start_s < ? AND e.start_s >= ? AND e.end_s > ? "
        "AND e.status <> 'deleted' ORDER BY e.start_s, e.seq LIMIT ?",
        (recording_id, end_s, start_s - (longest or 0.0), start_s, limit + 1),
    ).fetchall()
    return {"events": [event_record(row) for row in rows[:limit]], "more": len(rows) > limit}


def review_progress(db: sqlite3.Connection, wanted: ListFilter) -> dict[str, Any]:
    """How much has been decided, by whom, and how often the detector was right."""
    sums = db.execute(
        "SELECT coalesce(sum(events), 0), coalesce(sum(open), 0), coalesce(sum(spans_s), 0) FROM recordings"
    ).fetchone()
    rejected = db.execute("SELECT count(*) FROM events WHERE version > 0 AND status = 'rejected'").fetchone()[
        0
    ]
    touched = db.execute(
        "SELECT coalesce(sum(label <> original_label), 0), coalesce(sum(original_box <> ''), 0), "
        "coalesce(sum(ordinal IS NULL AND source = 'expert' AND score IS NULL), 0) "
        "FROM events WHERE version > 0 AND status = 'accepted'"
    ).fetchone()
    by = db.execute(
        "SELECT reviewer, count(*) FROM events WHERE version > 0 AND reviewer <> '' GROUP BY reviewer"
    )
    # not as a join, for which SQLite may go through all open events
    kinds = ", ".join(f"coalesce(sum({kind}), 0)" for kind in BULK_DECISIONS.values())
    not_looked_at = db.execute(
        f"SELECT {kinds} FROM learned WHERE (SELECT e.status FROM events AS e WHERE e.id = event_id) = 'open'"
    ).fetchone()
    events, open_events = sums[0], sums[1]
    return {
        "events": events,
        "reviewed": events - open_events,
        "accepted": events - open_events - rejected,
        "rejected": rejected,
        "relabelled": touched[0],
        "changed": touched[1],
        "added": touched[2],
        **dict(zip(BULK_DECISIONS, not_looked_at, strict=True)),
        "by_reviewer": {row[0]: row[1] for row in by},
        "precision": estimate_precision(db, wanted),
        "to_check": _count_checked(db),
        "spans_s": sums[2],
    }


def _count_checked(db: sqlite3.Connection) -> dict[str, int]:
    """How many events `mast summarize --check` drew, and how many of them are decided."""
    found = db.execute(
        "SELECT count(*), coalesce(sum(status <> 'open'), 0) FROM events "
        "WHERE id IN (SELECT value FROM json_each((SELECT value FROM facts WHERE name = 'to_check')))"
    ).fetchone()
    return {"drawn": found[0], "checked": found[1]}


def estimate_precision(db: sqlite3.Connection, wanted: ListFilter) -> dict[str, Any] | None:
    """How often detections are right, judged by the random order alone; ``None`` while nothing in it is decided.

    Only the beginning of the random order counts, as far as it has been decided: events decided because they looked
    doubtful or came first in time say nothing about the rest, and count only where the random order reaches them.
    Up to a tenth of it may have been skipped.
    """
    condition, values = ListFilter(wanted.site, wanted.day, wanted.hour, wanted.min_score).event_condition()
    rows = db.execute(
        f"SELECT e.status FROM events AS e INDEXED BY events_by_rank WHERE e.score IS NOT NULL AND {condition} "
        "ORDER BY e.rank",
        values,
    )
    decided = right = 0
    best: tuple[int, int, int] | None = None  # decided, right, skipped
    for seen, (status,) in enumerate(rows, start=1):
        decided += status != "open"
        right += status == "accepted"
        if seen - decided > max(10.0, _MAX_SKIPPED_SHARE * (seen + 1_000)):
            break
        if status != "open" and seen - decided <= _MAX_SKIPPED_SHARE * seen:
            best = (decided, right, seen - decided)
    if best is None:
        return None
    n, right, skipped = best
    low, high = wilson_interval(right, n)
    return {"n": n, "right": right, "estimate": right / n, "low": low, "high": high, "skipped": skipped}


def wilson_interval(right: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share.

    >>> tuple(round(x, 3) for x in wilson_interval(9, 10))
    (0.596, 0.982)
    """
    z2 = _Z95**2
    centre = (right + z2 / 2) / (n + z2)
    half = _Z95 * math.sqrt(right * (n - right) / n + z2 / 4) / (n + z2)
    return max(0.0, centre - half), min(1.0, centre + half)


def count_by_hour(db: sqlite3.Connection) -> dict[str, Any]:
    """Events that neither a person nor the learner has rejected, by site and hour of the day."""
    sites = [row[0] for row in db.execute("SELECT DISTINCT site FROM recordings ORDER BY site")]
    site_of = dict(db.execute("SELECT id, site FROM recordings").fetchall())
    place = {site: k for k, site in enumerate(sites)}
    counts = [[0] * 24 for _ in sites]
    without_clock = 0
    rows = db.execute(
        "SELECT recording_id, hour, count(*) FROM events INDEXED BY events_by_hour "
        "WHERE status IN ('open', 'accepted') GROUP BY recording_id, hour"
    )
    rejected = db.execute(
        "SELECT e.recording_id, e.hour, -count(*) FROM learned AS l JOIN events AS e ON e.id = l.event_id "
        "WHERE l.status = 'rejected' AND e.status = 'open' GROUP BY e.recording_id, e.hour"
    )
    for recording_id, hour, n in chain(rows, rejected):
        if hour is None:
            without_clock += n
        else:
            counts[place[site_of[recording_id]]][hour] += n
    return {"hours": list(range(24)), "sites": sites, "counts": counts, "without_clock": without_clock}
