"""Events that look alike: exact search over the embeddings that ``mast detect --embed`` wrote.

``embeddings.npy`` stays on disk and is read in blocks, so a million events need a few megabytes; each search is exact.
A recording's rows start at its ``first_row``, and an event is found by its place among them. Without such a file, an
event store of ``mast embed`` is searched if there is one (:mod:`mast.review.lookalikes_store`).
"""

from __future__ import annotations

import sqlite3
import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mast.arrays import FloatArray, IntArray, Vectors
from mast.errors import MastError
from mast.retrieval.nearest import to_unit_length
from mast.review.listing import ListFilter
from mast.review.records import EVENT_SQL, event_not_found, event_record

_BLOCK_ROWS = 16_384
# our choices: limits of a novelty ranking, so that it takes well under a second on a million events
_MAX_CANDIDATES, _MAX_EXAMPLES = 20_000, 512


class NoEmbeddingError(MastError):
    """There is nothing to compare."""


class ScoredVectors(NamedTuple):
    """Some detections."""

    seqs: IntArray  # (n,) their numbers in the store
    scores: FloatArray  # (n,)
    vectors: Vectors  # (n, D) of length 1


class Lookalikes(ABC):
    """Which events sound like another, and which sound new.

    Attributes:
        compares_drawn: boxes drawn by people can be compared too, not only detections.
    """

    compares_drawn = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._novel: dict[tuple[object, ...], list[str]] = {}

    @abstractmethod
    def __bool__(self) -> bool:
        """Whether there is anything to compare."""

    @abstractmethod
    def similar(self, db: sqlite3.Connection, event_id: str, k: int) -> list[dict[str, Any]]:
        """The ``k`` events nearest to one, nearest first, each with its cosine ``distance`` (0 the same, 2 opposite).

        Raises:
            NoEmbeddingError: there are no embeddings, or none of this event.
        """

    @abstractmethod
    def sample_vectors(
        self, db: sqlite3.Connection, condition: str, values: list[Any], limit: int
    ) -> tuple[list[str], Vectors]:
        """Ids of at most this many events that meet a condition, a random part of them, and (n, D) unit vectors."""

    @abstractmethod
    def iter_vectors(self, db: sqlite3.Connection) -> Iterator[ScoredVectors]:
        """All detections that have a vector, a block at a time."""

    def novel(
        self, db: sqlite3.Connection, wanted: ListFilter, *, limit: int, after: str | None
    ) -> dict[str, Any]:
        """Events farthest from everything accepted (or from the middle of all, if nothing is), farthest first.

        Of a large archive only a random part is ranked. The first page ranks again; later ones use that ranking.
        """
        condition, values = wanted.event_condition()
        key = (wanted,)
        with self._lock:
            ranking = self._novel.get(key)
        if ranking is None or not after or after not in ranking:
            ranking = self._rank_novel(db, condition, values)
            with self._lock:
                self._novel = {key: ranking}
        total = db.execute(
            f"SELECT count(*) FROM events AS e WHERE {condition} AND e.ordinal IS NOT NULL", values
        ).fetchone()[0]
        begin = ranking.index(after) + 1 if after and after in ranking else 0
        events = []
        for event_id in ranking[begin : begin + limit]:
            row = db.execute(f"{EVENT_SQL} WHERE e.id = ?", (event_id,)).fetchone()
            if row is not None:
                events.append(event_record(row))
        return {"order": "novel", "total": total, "events": events}

    def _rank_novel(self, db: sqlite3.Connection, condition: str, values: list[Any]) -> list[str]:
        ids, candidates = self.sample_vectors(db, condition, values, _MAX_CANDIDATES)
        if not ids:
            return []
        examples, known = self.sample_vectors(db, "e.status = 'accepted'", [], _MAX_EXAMPLES)
        if not examples:
            known = to_unit_length(candidates.mean(axis=0, keepdims=True))
        nearest = np.concatenate(
            [
                1.0 - (candidates[at : at + 4096] @ known.T).max(axis=1)
                for at in range(0, len(candidates), 4096)
            ]
        )
        return [ids[k] for k in np.argsort(-nearest, kind="stable").tolist()]


class FileLookalikes(Lookalikes):
    """The embeddings of a results folder.

    Args:
        path: ``embeddings.npy``; need not exist.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._rows: NDArray[np.float16] | None = None
        try:
            rows = np.load(path, mmap_mode="r", allow_pickle=False)
            self._rows = rows if rows.ndim == 2 and rows.shape[1] > 0 and len(rows) else None
        except (OSError, ValueError, EOFError):
            self._rows = None

    def __bool__(self) -> bool:
        return self._rows is not None

    def similar(self, db: sqlite3.Connection, event_id: str, k: int) -> list[dict[str, Any]]:
        """By comparing with every row of the file."""
        row = self._row_of(db, event_id)
        rows = self._require_rows()
        query = to_unit_length(rows[row].astype(np.float32)[None])[0]
        best_distance, best_row = np.empty(0, np.float32), np.empty(0, np.int64)
        for at in range(0, len(rows), _BLOCK_ROWS):
            block = to_unit_length(rows[at : at + _BLOCK_ROWS].astype(np.float32))
            distance = 1.0 - block @ query
            if at <= row < at + len(block):
                distance[row - at] = np.inf
            # a few more than requested: some may be deleted
            take = min(2 * k + 16, len(distance))
            near = np.argpartition(distance, take - 1)[:take]
            best_distance = np.concatenate([best_distance, distance[near]])
            best_row = np.concatenate([best_row, near + at])
            order = np.argsort(best_distance, kind="stable")[: 2 * k + 16]
            best_distance, best_row = best_distance[order], best_row[order]
        places = _EventsByRow(db)
        found: list[dict[str, Any]] = []
        for distance, at in zip(best_distance.tolist(), best_row.tolist(), strict=True):
            event = places.event(int(at))
            if event is not None and np.isfinite(distance) and len(found) < k:
                found.append({**event, "distance": round(max(distance, 0.0), 6)})
        return found

    def sample_vectors(
        self, db: sqlite3.Connection, condition: str, values: list[Any], limit: int
    ) -> tuple[list[str], Vectors]:
        """By their place in the file."""
        self._require_rows()
        rows = db.execute(
            "SELECT e.id, r.first_row + e.ordinal FROM events AS e JOIN recordings AS r ON r.id = e.recording_id "
            f"WHERE e.ordinal IS NOT NULL AND r.first_row IS NOT NULL AND {condition} ORDER BY e.rank LIMIT ?",
            [*values, limit],
        ).fetchall()
        return [str(row[0]) for row in rows], self._vectors([row[1] for row in rows])

    def iter_vectors(self, db: sqlite3.Connection) -> Iterator[ScoredVectors]:
        """In the order of the file."""
        self._require_rows()
        found = db.execute(
            "SELECT e.seq, e.score, r.first_row + e.ordinal AS place FROM events AS e "
            "JOIN recordings AS r ON r.id = e.recording_id "
            "WHERE e.ordinal IS NOT NULL AND r.first_row IS NOT NULL AND e.score IS NOT NULL ORDER BY place"
        ).fetchall()
        for at in range(0, len(found), _BLOCK_ROWS):
            seqs, scores, places = zip(*found[at : at + _BLOCK_ROWS], strict=True)
            yield ScoredVectors(np.array(seqs, np.int64), np.array(scores), self._vectors(list(places)))

    def _vectors(self, numbers: list[int]) -> Vectors:
        """(n, D) normalised embeddings; read in the order of the file."""
        rows = self._require_rows()
        wanted = np.asarray(numbers, np.int64)
        wanted = np.clip(wanted, 0, len(rows) - 1)
        order = np.argsort(wanted, kind="stable")
        vectors = np.empty((len(wanted), rows.shape[1]), np.float32)
        vectors[order] = rows[wanted[order]]
        return to_unit_length(vectors)

    def _row_of(self, db: sqlite3.Connection, event_id: str) -> int:
        rows = self._require_rows()
        found = db.execute(
            "SELECT r.first_row + e.ordinal FROM events AS e JOIN recordings AS r ON r.id = e.recording_id "
            "WHERE e.id = ?",
            (event_id,),
        ).fetchone()
        if found is None:
            raise event_not_found(event_id)
        if found[0] is None or not 0 <= found[0] < len(rows):
            raise NoEmbeddingError(
                "this box has no embedding (it was drawn by hand), so it cannot be compared"
            )
        return int(found[0])

    def _require_rows(self) -> NDArray[np.float16]:
        if self._rows is None:
            raise NoEmbeddingError(
                "there are no embeddings here; run mast detect with --embed to find look-alikes, or mast embed "
                "with --out in this folder"
            )
        return self._rows


class _EventsByRow:
    """From a row of the embeddings to its event."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        placed = db.execute(
            "SELECT first_row, id FROM recordings WHERE first_row IS NOT NULL ORDER BY first_row"
        )
        self.places = [(int(first), int(recording)) for first, recording in placed]
        self.firsts = [first for first, _ in self.places]

    def event(self, row: int) -> dict[str, Any] | None:
        at = bisect_right(self.firsts, row) - 1
        if at < 0:
            return None
        first, recording = self.places[at]
        found = self.db.execute(
            f"{EVENT_SQL} WHERE e.recording_id = ? AND e.ordinal = ? AND e.status <> 'deleted'",
            (recording, row - first),
        ).fetchone()
        return None if found is None else event_record(found)
