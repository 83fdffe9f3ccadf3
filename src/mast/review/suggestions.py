"""Names that a classifier or annotated examples suggest for events, from tables of `mast name` and `mast classify`.

Every table's names are kept along with the events, with their scores, for the page to show. An event that nobody has
decided about also takes the name as its label, unless it is unknown; decided ones keep theirs. The review remembers the
table that was given last, for its summary.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from mast.errors import ConfigError
from mast.retrieval.naming import LIKELY_COLUMNS, UNKNOWN, read_names
from mast.review.store import Store

_NAMES_FACT = "names"  # among the review's facts
NAMES_PATH_SQL = f"SELECT value FROM facts WHERE name = '{_NAMES_FACT}'"


def given_names_path(store: Store) -> Path | None:
    """The table of names that the review was given last, if it is still there."""
    with store.reading() as db:
        return existing_path(db.execute(NAMES_PATH_SQL).fetchall())


def existing_path(rows: Sequence[sqlite3.Row]) -> Path | None:
    """The table in a row of :data:`NAMES_PATH_SQL`."""
    path = Path(rows[0]["value"]) if rows else None
    return path if path is not None and path.is_file() else None


def add_suggestions(store: Store, path: Path) -> int:
    """Keep the names of a table; gives the number of its events that are in the review.

    Raises:
        ConfigError: the table has no names, or none of its events is in this review.
    """
    table = read_names(path)
    likely = next(name for name in LIKELY_COLUMNS if name in table)
    found = 0
    with store.writing() as db:
        ids = {row["name"]: row["id"] for row in db.execute("SELECT id, name FROM recordings")}
        columns = [
            "recording",
            "start_s",
            "end_s",
            "low_hz",
            "high_hz",
            "label",
            likely,
            "label_score",
            "label_source",
        ]
        for recording, *box, label, guess, score, source in zip(
            *(table[c].tolist() for c in columns), strict=True
        ):
            event = db.execute(
                "SELECT id FROM events WHERE recording_id = ? AND start_s = ? AND end_s = ? AND low_hz = ? "
                "AND high_hz = ?",
                (ids.get(recording), *box),
            ).fetchone()
            if event is None:
                continue
            found += 1
            known = None if pd.isna(score) or not math.isfinite(score) else float(score)
            db.execute(
                "INSERT OR REPLACE INTO suggestions VALUES (?, ?, ?, ?)",
                (event["id"], str(source), "" if pd.isna(guess) else str(guess), known),
            )
            if label != UNKNOWN:
                db.execute(
                    "UPDATE events SET label = ?, original_label = ? WHERE id = ? AND version = 0 AND status = 'open'",
                    (label, label, event["id"]),
                )
        if found:
            db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (_NAMES_FACT, str(path.absolute())))
    if not found:
        raise ConfigError(
            f"--names {path}: none of its {len(table):,} events is in this review; expected names of these detections"
        )
    return found
