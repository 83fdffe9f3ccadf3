"""Learning while reviewing: people's decisions train the learner, which ranks and, on request, decides the rest.

The learner is retrained on each use if people have decided since. Its decisions are kept apart from people's (table
``learned``), and count only for events that no person has decided about: none of theirs is overwritten, and undoing the
learner's empties that table.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mast.arrays import BoolArray, FloatArray, IntArray, Vectors
from mast.errors import MastError
from mast.probability import expit
from mast.review.box_classifier import (
    Scaling,
    build_features,
    fit_logit_calibration,
    fit_scaling,
    fit_weights,
    held_out_logits,
    select_confident,
    verdicts,
)
from mast.review.decisions import InvalidError, append_log, undo_learned
from mast.review.listing import ListFilter
from mast.review.lookalikes import Lookalikes
from mast.review.records import EVENT_SQL, event_not_found, event_record
from mast.review.store import Store, get_fact, set_fact

LEARNED_ORDERS = ("unsure", "likely")

# our choices
MIN_DECISIONS, MIN_OF_EACH = 80, 5  # needed before the learner may decide
_MIN_NAMED = 5  # accepted boxes of a label needed to learn it
_MAX_LABELS = 20  # the commonest are learnt
_MAX_DECISIONS = 2_000  # of more, a random part is used
_MAX_SCALED = 20_000  # vectors from which the scaling is computed
_PRECISIONS = (0.5, 0.999)

_DECIDED = "e.status <> 'open' AND e.reviewer <> '' AND e.score IS NOT NULL"


class TooFewDecisionsError(MastError):
    """There are too few decisions to learn from."""


@dataclass(frozen=True)
class TrainedLearner:
    """What the learner has learnt, and its verdict on every detection.

    Attributes:
        stamp: of the last decision that it knows.
        features: (n, F) of the boxes that people decided about.
        right: (n,) whether they accepted them.
        names: (n,) labels of accepted boxes; empty for boxes without one and for rejected boxes.
        recordings: (n,) numbers of their recordings.
        labels: the labels that are learnt.
        seqs: (N,) numbers of all detections, ascending.
        call_logits: (N,) logits that they are right.
        label_logits: (N, L) logits that they are right and have each label.
    """

    stamp: int
    features: Vectors
    right: BoolArray
    names: NDArray[np.object_]
    recordings: IntArray
    labels: list[str]
    seqs: IntArray
    call_logits: Vectors
    label_logits: Vectors

    def logits(self, label: str) -> Vectors:
        """(N,) logits that detections are right and have a label; any label, where it is empty.

        Raises:
            InvalidError: a label that is not learnt.
        """
        if not label:
            return self.call_logits
        if label not in self.labels:
            raise InvalidError(
                f"label {label[:40]!r} is not learnt; accept at least {_MIN_NAMED} boxes under this name first"
            )
        return self.label_logits[:, self.labels.index(label)]


@dataclass(frozen=True)
class Plan:
    """What the learner would decide about events that no person has decided about.

    Attributes:
        precision: share of its decisions that should be right.
        decisions: number of people's decisions that it has learnt from.
        accepted: events that it would accept.
        rejected: events that it would reject.
        named: accepted events without a name to which it would give one.
        right: accepted and rejected events that it expects to be right about.
        left: events that it would leave open.
    """

    precision: float
    decisions: int
    accepted: int
    rejected: int
    named: int
    right: int
    left: int


class Learner:
    """The learner of one review.

    Args:
        store: the review's store.
        lookalikes: the vectors; false where there are none.
    """

    def __init__(self, store: Store, lookalikes: Lookalikes) -> None:
        self.store, self.lookalikes = store, lookalikes
        self._lock = threading.Lock()
        self._scaling: Scaling | None = None
        self._learned: TrainedLearner | None = None
        self._rankings: dict[tuple[object, ...], IntArray] = {}

    def state(self) -> dict[str, Any]:
        """For the page: how many decisions there are, which labels can be learnt, and what was applied."""
        with self.store.reading() as db:
            accepted, rejected = db.execute(
                "SELECT coalesce(sum(e.status = 'accepted'), 0), coalesce(sum(e.status <> 'accepted'), 0) "
                f"FROM events AS e WHERE e.version > 0 AND {_DECIDED}"
            ).fetchone()
            applied = get_fact(db, "applied")
            labels = _learnable_labels(
                row[0]
                for row in db.execute(
                    f"SELECT e.label FROM events AS e WHERE {_DECIDED} AND e.status = 'accepted' AND e.label <> ''"
                )
            )
        return {
            "available": bool(self.lookalikes),
            "accepted": accepted,
            "rejected": rejected,
            "least": MIN_DECISIONS,
            "least_of_each": MIN_OF_EACH,
            "labels": labels,
            "applied": json.loads(applied) if applied else None,
        }

    def queue(
        self,
        db: sqlite3.Connection,
        order: str,
        wanted: ListFilter,
        *,
        label: str = "",
        limit: int,
        after: str | None,
    ) -> dict[str, Any]:
        """A page of the queue in the learner's order. The first page retrains; later ones continue with its ranking.

        Args:
            db: to read with.
            order: one of :data:`LEARNED_ORDERS`.
            wanted: which events.
            label: the label to look for, with ``likely``; empty for any call.
            limit: how many.
            after: id of the last event of the page before.
        """
        key = (order, label, wanted)
        seq = _seq_of(db, after) if after else None
        ranking = self._rankings.get(key)
        learned = self._learned
        if learned is None or ranking is None or seq is None or seq not in ranking:
            learned = self._train_if_stale(db)
            logits = learned.logits(label)
            ranking = _ranked_seqs(db, learned, -np.abs(logits) if order == "unsure" else logits, wanted)
            self._rankings = {key: ranking}
        begin = int(np.flatnonzero(ranking == seq)[0]) + 1 if seq is not None and seq in ranking else 0
        chances = expit(learned.logits(label).astype(np.float64))
        events = []
        for one in ranking[begin : begin + limit].tolist():
            row = db.execute(f"{EVENT_SQL} WHERE e.seq = ?", (one,)).fetchone()
            if row is not None:
                chance = float(chances[np.searchsorted(learned.seqs, one)])
                events.append({**event_record(row), "chance": round(chance, 3)})
        return {"order": order, "total": len(ranking), "events": events}

    def plan(self, precision: float) -> Plan:
        """What :meth:`apply` would do now.

        Raises:
            TooFewDecisionsError: too few decisions.
            InvalidError: a precision that makes no sense.
        """
        with self.store.reading() as db:
            return self._decide(db, precision)[0]

    def apply(self, reviewer: str, precision: float) -> dict[str, Any]:
        """Let the learner decide about all events that no person has decided about, replacing its earlier decisions.

        Args:
            reviewer: who requested it.
            precision: share of its decisions that should be right.

        Raises:
            TooFewDecisionsError: too few decisions.
            InvalidError: a precision that makes no sense.
        """
        with self.store.reading() as db:
            plan, rows = self._decide(db, precision)
        applied = {**asdict(plan), "by": reviewer, "time": datetime.now(UTC).isoformat(timespec="seconds")}
        with self.store.writing() as db:
            before = get_fact(db, "applied")
            db.execute("DELETE FROM learned WHERE action = 0")
            db.executemany(
                "INSERT OR IGNORE INTO learned SELECT id, ?, ?, 0 FROM events WHERE seq = ? AND status = 'open'",
                rows,
            )
            # the same as in the log: an application stands while the two are equal
            set_fact(db, "applied", json.dumps(applied, ensure_ascii=False))
            before_it = json.loads(before) if before else None
            append_log(db, reviewer, "apply", 0, before=before_it, after=applied)
        return applied

    def take_back(self, reviewer: str) -> int:
        """Undo all that the learner has decided; gives the number of decisions undone."""
        with self.store.writing() as db:
            return undo_learned(db, reviewer)

    def _train_if_stale(self, db: sqlite3.Connection) -> TrainedLearner:
        """The learner, retrained if anybody has decided since the last time."""
        with self._lock:
            stamp = int(db.execute("SELECT coalesce(max(id), 0) FROM log").fetchone()[0])
            if self._learned is None or self._learned.stamp != stamp:
                self._learned = self._train(db, stamp)
            return self._learned

    def _train(self, db: sqlite3.Connection, stamp: int) -> TrainedLearner:
        if self._scaling is None:
            self._scaling = fit_scaling(self.lookalikes.sample_vectors(db, "1", [], _MAX_SCALED)[1])
        ids, vectors = self.lookalikes.sample_vectors(db, _DECIDED, [], _MAX_DECISIONS)
        facts = [
            db.execute(
                "SELECT score, status, label, recording_id FROM events WHERE id = ?", (one,)
            ).fetchone()
            for one in ids
        ]
        features = build_features(
            vectors, np.array([row["score"] for row in facts], dtype=np.float64), self._scaling
        )
        right = np.array([row["status"] == "accepted" for row in facts], dtype=bool)
        names = np.array([row["label"] if row["status"] == "accepted" else "" for row in facts], dtype=object)
        labels = _learnable_labels(name for name in names if name)
        teaches = _teaches_labels(right, names)
        weights = [
            fit_weights(features, right),
            *(fit_weights(features[teaches], names[teaches] == one) for one in labels),
        ]
        seqs, outputs = [], []
        for block in self.lookalikes.iter_vectors(db):
            seqs.append(block.seqs)
            outputs.append(
                build_features(block.vectors, block.scores, self._scaling)
                @ np.float32(np.stack(weights, axis=1))
            )
        every = np.concatenate(seqs) if seqs else np.zeros(0, np.int64)
        values = np.concatenate(outputs) if outputs else np.zeros((0, len(weights)), np.float32)
        order = np.argsort(every, kind="stable")
        return TrainedLearner(
            stamp=stamp,
            features=features,
            right=right,
            names=names,
            recordings=np.array([row["recording_id"] for row in facts], dtype=np.int64),
            labels=labels,
            seqs=every[order],
            call_logits=values[order, 0],
            label_logits=values[order, 1:],
        )

    def _decide(self, db: sqlite3.Connection, precision: float) -> tuple[Plan, list[tuple[str, str, int]]]:
        """The plan, and ``(status, label, number)`` of each event that the learner decides about."""
        if not _PRECISIONS[0] <= precision <= _PRECISIONS[1]:
            low, high = _PRECISIONS
            raise InvalidError(
                f"precision {precision:g}: expected a share from {low:g} to {high:g}, such as 0.95"
            )
        learned = self._train_if_stale(db)
        n, right = len(learned.right), int(learned.right.sum())
        if n < MIN_DECISIONS or min(right, n - right) < MIN_OF_EACH:
            raise TooFewDecisionsError(
                f"the learner needs at least {MIN_DECISIONS} decisions, with at least {MIN_OF_EACH} accepted and "
                f"{MIN_OF_EACH} rejected boxes; so far there are {right} accepted and {n - right} rejected"
            )
        found = db.execute(
            "SELECT seq, recording_id, label FROM events WHERE status = 'open' AND score IS NOT NULL "
            "AND id NOT IN (SELECT event_id FROM learned WHERE action > 0) ORDER BY seq"
        ).fetchall()
        seqs, places = _find_rows(learned, np.array([row[0] for row in found], dtype=np.int64))
        row_of = {row[0]: row for row in found}
        rest = [row_of[seq] for seq in seqs.tolist()]
        groups = _held_out_groups(learned.recordings, np.array([row[1] for row in rest], dtype=np.int64))
        calibration = fit_logit_calibration(
            held_out_logits(learned.features, learned.right, groups), learned.right
        )
        probability = calibration.probability(learned.call_logits[places].astype(np.float64))
        accepted, rejected, expected = verdicts(probability, precision)
        unnamed = accepted & np.array([row[2] == "" for row in rest], dtype=bool)
        names = np.full(len(rest), "", dtype=object)
        names[unnamed] = _confident_labels(learned, places[unnamed], groups, precision)
        plan = Plan(
            precision=precision,
            decisions=n,
            accepted=int(accepted.sum()),
            rejected=int(rejected.sum()),
            named=int((names != "").sum()),
            right=round(expected),
            left=int((~accepted & ~rejected).sum()),
        )
        status = np.where(accepted, "accepted", "rejected")
        decided = accepted | rejected
        rows = zip(status[decided].tolist(), names[decided].tolist(), seqs[decided].tolist(), strict=True)
        return plan, list(rows)


def _ranked_seqs(
    db: sqlite3.Connection, learned: TrainedLearner, by: Vectors, wanted: ListFilter
) -> IntArray:
    """Numbers of the wanted events that have a vector, the highest value first."""
    condition, values = wanted.event_condition()
    found = db.execute(f"SELECT e.seq FROM events AS e WHERE {condition} AND e.score IS NOT NULL", values)
    seqs, places = _find_rows(learned, np.array([row[0] for row in found], dtype=np.int64))
    return seqs[np.argsort(-by[places], kind="stable")]


def _confident_labels(
    learned: TrainedLearner, places: IntArray, groups: IntArray, precision: float
) -> NDArray[np.object_]:
    """The likeliest label of some detections where it is certain enough; empty elsewhere."""
    names = np.full(len(places), "", dtype=object)
    if not len(places) or not learned.labels:
        return names
    columns: list[FloatArray] = []
    teaches = _teaches_labels(learned.right, learned.names)
    for k, label in enumerate(learned.labels):
        own = learned.names[teaches] == label
        calibration = fit_logit_calibration(
            held_out_logits(learned.features[teaches], own, groups[teaches]), own
        )
        columns.append(calibration.probability(learned.label_logits[places, k].astype(np.float64)))
    probability = np.stack(columns, axis=1)  # (n, L)
    sure = select_confident(probability.max(axis=1), precision)
    names[sure] = np.array(learned.labels, dtype=object)[probability[sure].argmax(axis=1)]
    return names


def _teaches_labels(right: BoolArray, names: NDArray[np.object_]) -> BoolArray:
    """Which decisions teach labels: all but accepted boxes without a name, which may be anything."""
    return np.asarray(~right | (names != ""), dtype=bool)


def _learnable_labels(names: Iterable[str]) -> list[str]:
    """Labels with enough examples, the commonest first."""
    counts = Counter(names)
    enough = [name for name, n in counts.items() if n >= _MIN_NAMED]
    return sorted(enough, key=lambda name: (-counts[name], name))[:_MAX_LABELS]


def _held_out_groups(decided: IntArray, rest: IntArray) -> IntArray:
    """What is held out together: whole recordings where most of the rest lies in others, otherwise single boxes.

    So the decisions are judged as the rest will be: by decisions about other recordings, or about the same ones.
    """
    elsewhere = 2 * int(np.isin(rest, decided).sum()) < len(rest)
    return decided if elsewhere else np.arange(len(decided))


def _find_rows(learned: TrainedLearner, seqs: IntArray) -> tuple[IntArray, IntArray]:
    """The events that have a vector, and their rows in ``learned``."""
    at = np.searchsorted(learned.seqs, seqs)
    known = np.zeros(len(seqs), dtype=bool)
    inside = at < len(learned.seqs)
    known[inside] = learned.seqs[at[inside]] == seqs[inside]
    return seqs[known], at[known]


def _seq_of(db: sqlite3.Connection, event_id: str) -> int:
    row = db.execute("SELECT seq FROM events WHERE id = ?", (event_id,)).fetchone()
    if row is None:
        raise event_not_found(event_id, "to continue after")
    return int(row[0])
