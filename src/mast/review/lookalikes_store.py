"""Look-alikes from an event store of ``mast embed`` that lies in the folder under review.

For folders without ``embeddings.npy``: detections that were embedded afterwards, and boxes by people. An event of the
review and one of the store are the same if they have the same recording, source and original box, even if a reviewer
has moved the box since.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mast.annotations.detections import EMBEDDINGS
from mast.errors import MastError
from mast.retrieval.event_ids import event_id
from mast.retrieval.event_store import EventStore
from mast.retrieval.parts import FACTS
from mast.review.lookalikes import FileLookalikes, Lookalikes, NoEmbeddingError, ScoredVectors
from mast.review.records import EVENT_SQL, event_not_found, event_record

_BLOCK_EVENTS = 8_192
_RETRY_FACTOR = 4  # × as many neighbours are requested if too few of them are in this review


class StoreLookalikes(Lookalikes):
    """The events of a folder, compared by the vectors of an event store.

    Args:
        store: an open one.
    """

    compares_drawn = True

    def __init__(self, store: EventStore) -> None:
        super().__init__()
        self.store = store

    def __bool__(self) -> bool:
        return len(self.store) > 0

    def similar(self, db: sqlite3.Connection, event_id: str, k: int) -> list[dict[str, Any]]:
        """By searching the store; its events from other folders are skipped."""
        row = db.execute(f"{EVENT_SQL} WHERE e.id = ?", (event_id,)).fetchone()
        if row is None:
            raise event_not_found(event_id)
        known, vectors = self.store.known_vectors(_store_ids(row))
        if not known:
            raise NoEmbeddingError(
                "this box is not in the event store of this folder (it was drawn here, or the store is older); "
                "mast embed adds what is missing"
            )
        places = _EventsById(db)
        wanted = 2 * k + 16  # a few more than requested: some may be deleted
        while True:
            near = self.store.search(vectors[0], wanted)
            found: list[dict[str, Any]] = []
            for name, recording, distance in zip(
                near["id"], near["recording"], near["distance"], strict=True
            ):
                event = places.event(str(recording), str(name)) if name != known[0] else None
                if event is not None and len(found) < k:
                    found.append({**event, "distance": round(float(distance), 6)})
            if len(found) >= k or len(near) < wanted:
                return found
            wanted *= _RETRY_FACTOR

    def sample_vectors(
        self, db: sqlite3.Connection, condition: str, values: list[Any], limit: int
    ) -> tuple[list[str], NDArray[np.float32]]:
        """Those that the store holds."""
        rows = db.execute(
            f"{EVENT_SQL} WHERE e.ordinal IS NOT NULL AND {condition} ORDER BY e.rank LIMIT ?",
            [*values, limit],
        ).fetchall()
        event_of = {name: str(row["id"]) for row in reversed(rows) for name in _store_ids(row)}
        known, vectors = self.store.known_vectors(list(event_of))
        return [event_of[name] for name in known], vectors

    def iter_vectors(self, db: sqlite3.Connection) -> Iterator[ScoredVectors]:
        """In the order of the review."""
        last = -1
        while rows := db.execute(
            f"{EVENT_SQL} WHERE e.ordinal IS NOT NULL AND e.score IS NOT NULL AND e.seq > ? ORDER BY e.seq LIMIT ?",
            (last, _BLOCK_EVENTS),
        ).fetchall():
            last = rows[-1]["seq"]
            row_of = {name: row for row in reversed(rows) for name in _store_ids(row)}
            known, vectors = self.store.known_vectors(list(row_of))
            seqs = np.array([row_of[name]["seq"] for name in known], np.int64)
            yield ScoredVectors(seqs, np.array([row_of[name]["score"] for name in known]), vectors)


class _EventsById:
    """From an event of the store to the one of the review; a recording's are looked up once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.found: dict[str, dict[str, sqlite3.Row]] = {}

    def event(self, recording: str, name: str) -> dict[str, Any] | None:
        if recording not in self.found:
            rows = self.db.execute(
                f"{EVENT_SQL} WHERE e.recording_id = (SELECT id FROM recordings WHERE name = ?) "
                "AND e.ordinal IS NOT NULL AND e.status <> 'deleted'",
                (recording,),
            ).fetchall()
            self.found[recording] = {own: row for row in reversed(rows) for own in _store_ids(row)}
        row = self.found[recording].get(name)
        return None if row is None else event_record(row)


def open_lookalikes(folder: Path) -> Lookalikes:
    """The vectors by which a folder's events can be compared; false where there are none."""
    found = FileLookalikes(folder / EMBEDDINGS)
    store = None if found else find_store(folder)
    return found if store is None else StoreLookalikes(store)


def find_store(folder: Path) -> EventStore | None:
    """The event store among the folders in ``folder``; the first by name where there are several."""
    for facts in sorted(folder.glob(f"*/{FACTS}")):
        try:
            return EventStore.open(facts.parent)
        except MastError:
            continue
    return None


def _store_ids(row: sqlite3.Row) -> list[str]:
    """The ids that an event may have in a store: boxes drawn by people come with or without a source."""
    moved = row["original_box"]
    box = json.loads(moved) if moved else [row[name] for name in ("start_s", "end_s", "low_hz", "high_hz")]
    sources = ("expert", "") if row["source"] == "expert" else (row["source"],)
    return [event_id(row["recording"], source, box) for source in sources]
