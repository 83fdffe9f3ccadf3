"""The next events to look at, in the order that suits the purpose.

``uncertain``: those whose score is nearest the threshold; ``random``: an order that never changes, for estimates;
``check``: the sample that `mast summarize --check` drew; ``score``, ``time``; ``typical``: those nearest the middle of
their group (:mod:`mast.review.lookalike_groups`); ``novel``: those unlike all that was accepted
(:mod:`mast.review.lookalikes`); ``unsure`` and ``likely``: by the learner (:mod:`mast.review.learning`). A page
continues after its last event, even if that one has moved, so deciding while paging neither skips nor repeats any.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from mast.review.listing import ListFilter
from mast.review.records import EVENT_SQL, event_not_found, event_record

# order → (expressions to sort by, all ascending; the last one is unique)
_KEYS: dict[str, tuple[str, ...]] = {
    "uncertain": ("e.doubt", "e.seq"),
    "random": ("e.rank", "e.seq"),
    "check": ("e.rank", "e.seq"),
    "score": ("-e.score", "e.seq"),
    "typical": ("(SELECT g.away FROM grouped AS g WHERE g.event_id = e.id)", "e.seq"),
    "time": ("r.datetime", "r.id", "e.start_s", "e.seq"),
}


def queue(
    db: sqlite3.Connection, order: str, wanted: ListFilter, *, limit: int, after: str | None
) -> dict[str, Any]:
    """A page of the queue.

    Args:
        db: to read with.
        order: one of the keys of :data:`_KEYS`.
        wanted: which events.
        limit: how many.
        after: id of the last event of the page before.
    """
    keys = _KEYS[order]
    condition, values = wanted.event_condition()
    scored = " AND e.score IS NOT NULL" if order in ("uncertain", "score", "random") else ""
    if order == "check":
        scored = (
            " AND e.id IN (SELECT value FROM json_each((SELECT value FROM facts WHERE name = 'to_check')))"
        )
    if order == "typical" and wanted.group is None:  # a requested group is already a filter
        scored = " AND e.id IN (SELECT event_id FROM grouped WHERE cluster >= 0)"
    if not wanted.status:
        scored += " AND e.status <> 'deleted'"
    total = db.execute(f"SELECT count(*) FROM events AS e WHERE {condition}{scored}", values).fetchone()[0]
    beyond = ""
    if after:
        row = db.execute(
            f"SELECT {', '.join(keys)} FROM events AS e JOIN recordings AS r ON r.id = e.recording_id WHERE e.id = ?",
            (after,),
        ).fetchone()
        if row is None:
            raise event_not_found(after, "to continue after")
        beyond = f" AND ({', '.join(keys)}) > ({', '.join('?' * len(keys))})"
        values = [*values, *row]
    rows = db.execute(
        f"{EVENT_SQL} WHERE {condition}{scored}{beyond} ORDER BY {', '.join(keys)} LIMIT ?", [*values, limit]
    )
    return {"order": order, "total": total, "events": [event_record(row) for row in rows]}
