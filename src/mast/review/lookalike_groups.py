"""Groups of detections that sound alike, found once and kept in the store; names and counts are as they stand now.

Finding them takes up to a minute, so a thread does it while the review continues. The groups are kept, and found
again only on request.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from dataclasses import replace
from typing import Any

import numpy as np

from mast.errors import MastError, machine_fault
from mast.retrieval.clusters import NOISE, Grouping, distance_from_middle, fit_clusters
from mast.review.decisions import InvalidError, append_log, validated_label
from mast.review.listing import ListFilter
from mast.review.lookalikes import Lookalikes, NoEmbeddingError
from mast.review.records import read_event
from mast.review.store import Store, get_fact, set_fact

_MAX_FITTED = 4_000  # detections in which groups are found; the others join by their neighbours; our choice
_MAX_NAMES = 3  # shown for a group, the commonest

# members of groups with what was decided about each, also by the learner or about the whole group
_MEMBERS_SQL = (
    "grouped AS g JOIN events AS e ON e.id = g.event_id "
    "LEFT JOIN learned AS l ON l.event_id = e.id AND e.status = 'open'"
)
_STATUS_SQL, _LABEL_SQL = "coalesce(l.status, e.status)", "coalesce(nullif(l.label, ''), e.label)"

_log = logging.getLogger("mast.review")


class LookalikeGroups:
    """The groups of one review.

    Args:
        store: the review's store.
        lookalikes: the vectors; false where there are none.
    """

    def __init__(self, store: Store, lookalikes: Lookalikes) -> None:
        self.store, self.lookalikes = store, lookalikes
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure = ""

    def begin(self) -> None:
        """Find the groups in a thread, unless one is running.

        Raises:
            NoEmbeddingError: there is nothing to compare.
        """
        if not self.lookalikes:
            raise NoEmbeddingError(
                "groups are found by the boxes' vectors, and there are none here: run mast detect with --embed, or "
                "mast embed with --out in this folder"
            )
        with self._lock:
            if not self._is_busy():
                self._failure = ""
                self._thread = threading.Thread(target=self._find_in_thread, daemon=True)
                self._thread.start()

    def state(self) -> dict[str, Any]:
        """For the page: the groups, the largest first, and whether they are being found now.

        ``outdated`` says that the detections have changed since the groups were found.
        """
        with self.store.reading() as db:
            found = get_fact(db, "grouped")
            outdated = found is not None and json.loads(found) != _count_detections(db)
            groups = _describe_groups(db)
        return {
            "available": bool(self.lookalikes),
            "busy": self._is_busy(),
            "failure": self._failure,
            "found": found is not None,
            "outdated": outdated,
            "groups": [one for one in groups if one["group"] != NOISE],
            "alone": sum(one["events"] for one in groups if one["group"] == NOISE),
        }

    def find(self) -> None:
        """Find the groups of all detections, and keep them in place of earlier ones."""
        with self.store.reading() as db:
            known = _count_detections(db)
            sample = self.lookalikes.sample_vectors(db, "e.score IS NOT NULL", [], _MAX_FITTED)[1]
        model = fit_clusters(sample)
        seqs, parts = [], []
        with self.store.reading() as db:
            for block in self.lookalikes.iter_vectors(db):
                seqs.append(block.seqs)
                parts.append(model.assign(block.vectors))
        rows: list[tuple[int, float, int]] = []
        if parts:
            seq, cluster = np.concatenate(seqs), np.concatenate([part.cluster for part in parts])
            away = distance_from_middle(Grouping(cluster, np.concatenate([part.place for part in parts])))
            rows = list(zip(cluster.tolist(), away.tolist(), seq.tolist(), strict=True))
        with self.store.writing() as db:
            db.execute("DELETE FROM grouped")
            db.executemany("INSERT INTO grouped SELECT id, ?, ? FROM events WHERE seq = ?", rows)
            set_fact(db, "grouped", json.dumps(known))

    def decide(self, reviewer: str, wanted: ListFilter, status: object, label: object) -> int:
        """Accept under a name, or reject, all open boxes of a group at once; gives their number.

        Nobody has looked at each of them, so this is kept with the learner's decisions, and one undo takes it back.

        Args:
            reviewer: who decides.
            wanted: a group, and which part of it.
            status: ``accepted`` or ``rejected``.
            label: the name, if they are accepted.
        """
        name = validated_label(label)
        if wanted.group is None or wanted.group == NOISE:
            raise InvalidError("choose a group first: boxes in no group have nothing in common")
        if status not in ("accepted", "rejected") or (status == "accepted") != (name != ""):
            raise InvalidError("expected status accepted with a label, or rejected without one")
        condition, values = replace(wanted, status="open").event_condition()
        with self.store.writing() as db:
            after = {"group": wanted.group, "status": status, "label": name}
            action = append_log(db, reviewer, "group", 0, after=after)
            decided = db.execute(
                f"INSERT INTO learned SELECT e.id, ?, ?, ? FROM events AS e WHERE {condition}",
                [status, name, action, *values],
            ).rowcount
            if not decided:
                raise InvalidError("nothing in this group is open any more; reload the list")
        return decided

    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _find_in_thread(self) -> None:
        """Find the groups; errors become a sentence for the page."""
        try:
            self.find()
        except MastError as error:
            self._failure = str(error)
        except Exception as error:
            self._failure = machine_fault(error) or ""
            if not self._failure:
                self._failure = "something went wrong in mast; the terminal where it runs says what"
                _log.error("finding groups failed", exc_info=error)


def _count_detections(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM events WHERE score IS NOT NULL").fetchone()[0])


def _describe_groups(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """Every group with its counts, its commonest labels and its most typical box, without deleted boxes."""
    names: dict[int, list[dict[str, Any]]] = {}
    for group, label, n in db.execute(
        f"SELECT g.cluster, {_LABEL_SQL} AS name, count(*) AS n FROM {_MEMBERS_SQL} WHERE name <> '' "
        f"AND {_STATUS_SQL} IN ('open', 'accepted') GROUP BY g.cluster, name ORDER BY n DESC, name"
    ):
        names.setdefault(group, []).append({"label": label, "events": n})
    counts = db.execute(
        f"SELECT g.cluster, count(*), sum({_STATUS_SQL} <> 'open') FROM {_MEMBERS_SQL} "
        "WHERE e.status <> 'deleted' GROUP BY g.cluster ORDER BY g.cluster"
    ).fetchall()
    return [
        {
            "group": group,
            "events": events,
            "decided": decided,
            "names": names.get(group, [])[:_MAX_NAMES],
            "typical": _typical_event(db, group),
        }
        for group, events, decided in counts
    ]


def _typical_event(db: sqlite3.Connection, group: int) -> dict[str, Any]:
    """The box nearest the middle of a group."""
    nearest = db.execute(
        "SELECT g.event_id FROM grouped AS g JOIN events AS e ON e.id = g.event_id "
        "WHERE g.cluster = ? AND e.status <> 'deleted' ORDER BY g.away LIMIT 1",
        (group,),
    ).fetchone()
    return read_event(db, nearest[0])
