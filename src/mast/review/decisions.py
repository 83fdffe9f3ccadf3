"""What reviewers decide. Every decision is one transaction: the event changes and the log grows, or neither.

Nobody's work is lost: a change names the version it was made from and is refused if somebody has changed the event
since; undo and redo use the log of one reviewer and are refused if somebody else has changed the same event since.
"""

from __future__ import annotations

import json
import math
import sqlite3
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mast.data.recordings import parse_clock
from mast.errors import MastError
from mast.review.intake import day_and_hour, random_rank, replace_spans
from mast.review.records import STATUSES, read_event, read_recording, read_spans
from mast.review.store import Store, get_fact
from mast.spans import merge_spans, subtract_spans
from mast.wording import counted

BOX = ("start_s", "end_s", "low_hz", "high_hz")
_STATE = (*BOX, "label", "status", "reviewer")  # what a decision changes and undo restores
_MAX_LABEL = 200
_EDGE_S = 1.0  # a box may be drawn this far beyond the end; it is cut to the recording
_MAX_NUMBER = 1e9  # seconds or hertz: thirty years
_MIN_DURATION_S, _MIN_BANDWIDTH_HZ = 0.001, 0.1  # smaller is a slip of the mouse


class ConflictError(MastError):
    """Another reviewer was there first; ``event`` is the event's current state."""

    def __init__(self, sentence: str, event: dict[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.event = event


class InvalidError(MastError):
    """What was sent makes no sense."""


@dataclass(frozen=True)
class UndoResult:
    """What undo or redo did.

    Attributes:
        done: whether there was anything to undo or redo.
        what: a sentence for the reviewer.
        events: as they stand now.
        recording_id: of what changed; ``None`` where nothing did, or many decisions were undone at once.
        many: whether many decisions were undone at once: the learner's, or those about a group.
    """

    done: bool
    what: str
    events: list[dict[str, Any]]
    recording_id: int | None = None
    many: bool = False


def add_event(store: Store, reviewer: str, recording_id: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A new box that a reviewer drew.

    Args:
        store: where it is kept.
        reviewer: who drew it.
        recording_id: where.
        fields: ``start_s, end_s, low_hz, high_hz`` and, where it has one, ``label``.
    """
    with store.writing() as db:
        recording = read_recording(db, recording_id)
        box = _validated_box({name: fields.get(name) for name in BOX}, recording)
        label = validated_label(fields.get("label", ""))
        event_id = uuid.uuid4().hex[:20]
        seed = get_fact(db, "seed") or ""
        day, hour = day_and_hour(parse_clock(recording["datetime"]), box["start_s"])
        db.execute(
            "INSERT INTO events (id, recording_id, start_s, end_s, low_hz, high_hz, label, status, reviewer, version, "
            "source, original_label, day, hour, rank) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, 'accepted', ?, 1, 'expert', ?, ?, ?, ?)",
            (event_id, recording_id, *(box[n] for n in BOX), label, reviewer, label, day, hour,
             random_rank(event_id, seed.encode())),
        )  # fmt: skip
        after = {**box, "label": label, "status": "accepted", "reviewer": reviewer}
        append_log(
            db,
            reviewer,
            "add",
            recording_id,
            event_id=event_id,
            before={**after, "status": "deleted"},
            after=after,
        )
        return read_event(db, event_id)


def change_event(store: Store, reviewer: str, event_id: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Accept, reject, relabel, move or resize an event; correcting an open one accepts it.

    Args:
        store: where it is kept.
        reviewer: who decides.
        event_id: the event.
        changes: the ``version`` that the reviewer saw, and the fields to change.

    Raises:
        ConflictError: it has another version now.
        InvalidError: values that make no sense.
    """
    unknown = sorted(set(changes) - {*BOX, "label", "status", "version"})
    if unknown:
        raise InvalidError(
            f"an event has no {unknown[0][:40]!r} to change; expected {', '.join(BOX)}, label or status"
        )
    with store.writing() as db:
        event = read_event(db, event_id)
        _check_version(event, changes.get("version"))
        before = {name: event[name] for name in _STATE}
        after = dict(before)
        if any(name in changes for name in BOX):
            recording = read_recording(db, event["recording_id"])
            after.update(_validated_box({name: changes.get(name, event[name]) for name in BOX}, recording))
        if "label" in changes:
            after["label"] = validated_label(changes["label"])
        if "status" in changes:
            if changes["status"] not in STATUSES:
                raise InvalidError(
                    f"status {str(changes['status'])[:40]!r}: expected one of {', '.join(STATUSES)}"
                )
            after["status"] = changes["status"]
        elif after != before and before["status"] == "open":
            after["status"] = "accepted"
        if after == before:
            return event
        after["reviewer"] = "" if after["status"] == "open" else reviewer
        kind = "delete" if after["status"] == "deleted" else "change"
        _write_state(db, event, after)
        append_log(db, reviewer, kind, event["recording_id"], event_id=event_id, before=before, after=after)
        return read_event(db, event_id)


def delete_event(store: Store, reviewer: str, event_id: str, version: int) -> dict[str, Any]:
    """Remove a box; it stays in the store, and undo brings it back."""
    return change_event(store, reviewer, event_id, {"version": version, "status": "deleted"})


def mark_reviewed(
    store: Store, reviewer: str, recording_id: int, start_s: object, end_s: object, reviewed: object
) -> list[tuple[float, float]]:
    """Say that a span was listened to from beginning to end, or take that back; gives all spans of the recording."""
    if not isinstance(reviewed, bool):
        raise InvalidError("reviewed: expected true or false")
    with store.writing() as db:
        recording = read_recording(db, recording_id)
        start, end = max(_parse_number(start_s, "start_s"), 0.0), _parse_number(end_s, "end_s")
        if recording["duration_s"] is not None:
            end = min(end, float(recording["duration_s"]))
        if not start < end:
            raise InvalidError(
                f"a span from {start:g} s to {end:g} s: expected start before end, in the recording"
            )
        before = read_spans(db, recording_id)
        after = merge_spans([*before, (start, end)]) if reviewed else subtract_spans(before, [(start, end)])
        if after != before:
            replace_spans(db, recording_id, after)
            append_log(db, reviewer, "spans", recording_id, before=before, after=after)
        return after


def undo(store: Store, reviewer: str) -> UndoResult:
    """Take back the reviewer's last decision that stands. One about a group counts as one, as does a learner's run.

    Raises:
        ConflictError: somebody else has changed the same since; that decision stays, and the next undo skips it.
    """
    return _undo_or_redo(store, reviewer, "undo")


def redo(store: Store, reviewer: str) -> UndoResult:
    """Repeat the decision that the reviewer took back last; after a new decision, nothing can be redone.

    Decisions of the learner, or about a group, are not redone: they can be requested again.
    """
    return _undo_or_redo(store, reviewer, "redo")


_LAST_UNDOABLE_SQL = """
SELECT * FROM log WHERE reviewer = ? AND (
    kind IN ('add', 'change', 'delete', 'spans') AND id NOT IN (SELECT target FROM undone)
    OR kind = 'apply' AND after = (SELECT value FROM facts WHERE name = 'applied')
    OR kind = 'group' AND id IN (SELECT action FROM learned)
) ORDER BY id DESC LIMIT 1
"""
_LAST_REDOABLE_SQL = """
SELECT l.* FROM undone AS u JOIN log AS l ON l.id = u.target WHERE l.reviewer = ? AND u.redoable
ORDER BY u.by_row DESC LIMIT 1
"""


def undo_learned(db: sqlite3.Connection, reviewer: str) -> int:
    """Undo all that the learner has decided; gives the number of decisions undone."""
    before = get_fact(db, "applied")
    taken = db.execute("DELETE FROM learned WHERE action = 0").rowcount
    db.execute("DELETE FROM facts WHERE name = 'applied'")
    if before:
        append_log(db, reviewer, "take_back", 0, before=json.loads(before), after=None)
    return taken


def _undo_or_redo(store: Store, reviewer: str, kind: str) -> UndoResult:
    conflict: ConflictError | None = None
    with store.writing() as db:
        action = db.execute(
            _LAST_UNDOABLE_SQL if kind == "undo" else _LAST_REDOABLE_SQL, (reviewer,)
        ).fetchone()
        if action is None:
            return UndoResult(False, f"nothing to {kind}", [])
        if action["kind"] == "apply":
            taken = undo_learned(db, reviewer)
            return UndoResult(True, f"Undone: {counted(taken, 'decision')} by the learner", [], many=True)
        if action["kind"] == "group":
            taken = db.execute("DELETE FROM learned WHERE action = ?", (action["id"],)).rowcount
            append_log(db, reviewer, "take_back", 0, before=json.loads(action["after"]))
            return UndoResult(True, f"Undone: {counted(taken, 'box')} of a group open again", [], many=True)
        wanted, expected = json.loads(action["before"]), json.loads(action["after"])
        if kind == "redo":
            wanted, expected = expected, wanted
        try:
            events = _restore(db, action, wanted, expected, kind)
        except ConflictError as error:
            conflict = error  # raised later: what follows must be written
            row = append_log(
                db, reviewer, "skip", action["recording_id"], event_id=action["event_id"], target=action["id"]
            )
            db.execute("INSERT OR REPLACE INTO undone VALUES (?, ?, 0)", (action["id"], row))
        else:
            row = append_log(
                db, reviewer, kind, action["recording_id"], event_id=action["event_id"], before=expected,
                after=wanted, target=action["id"],
            )  # fmt: skip
            if kind == "undo":
                db.execute("INSERT OR REPLACE INTO undone VALUES (?, ?, 1)", (action["id"], row))
            else:
                db.execute("DELETE FROM undone WHERE target = ?", (action["id"],))
            name = read_recording(db, action["recording_id"])["name"]
    if conflict is not None:
        raise conflict
    return UndoResult(
        True, _describe_step(kind, action, wanted, expected, name), events, action["recording_id"]
    )


def _restore(
    db: sqlite3.Connection, action: sqlite3.Row, wanted: Any, expected: Any, kind: str
) -> list[dict[str, Any]]:
    """Put back what a decision changed, if it is still as that decision left it."""
    if action["kind"] == "spans":
        now = read_spans(db, action["recording_id"])
        if now != [tuple(span) for span in expected]:
            raise ConflictError(
                f"cannot {kind}: the reviewed spans of this recording have been changed by somebody since"
            )
        replace_spans(db, action["recording_id"], [tuple(span) for span in wanted])
        return []
    event = read_event(db, action["event_id"])
    if {name: event[name] for name in _STATE} != expected:
        by = f" by {event['reviewer']}" if event["reviewer"] else ""
        raise ConflictError(
            f"cannot {kind}: the box at {event['start_s']:.2f} s of {event['recording']} has been changed{by} since",
            event,
        )
    _write_state(db, event, wanted)
    return [read_event(db, action["event_id"])]


def _describe_step(kind: str, action: sqlite3.Row, wanted: Any, expected: Any, recording: str) -> str:
    verb = "Undone" if kind == "undo" else "Redone"
    if action["kind"] == "spans":
        return f"{verb}: reviewed spans of {recording}"
    at = f"{wanted['start_s']:.2f} s of {recording}"
    if wanted["status"] != expected["status"]:
        return f"{verb}: {expected['status']} → {wanted['status']}, {at}"
    if wanted["label"] != expected["label"]:
        return f"{verb}: label {expected['label'] or '(none)'} → {wanted['label'] or '(none)'}, {at}"
    return f"{verb}: box at {at}"


def _write_state(db: sqlite3.Connection, event: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write an event's state; its original box is kept the first time it is moved."""
    box = [event[name] for name in BOX]
    recording = read_recording(db, event["recording_id"])
    day, hour = day_and_hour(parse_clock(recording["datetime"]), state["start_s"])
    db.execute(
        "UPDATE events SET start_s = ?, end_s = ?, low_hz = ?, high_hz = ?, label = ?, status = ?, reviewer = ?, "
        "version = version + 1, day = ?, hour = ?, original_box = CASE WHEN original_box = '' THEN ? ELSE original_box "
        "END WHERE id = ?",
        (*(state[name] for name in _STATE), day, hour,
         json.dumps(box) if box != [state[name] for name in BOX] else "", event["id"]),
    )  # fmt: skip


def append_log(
    db: sqlite3.Connection,
    reviewer: str,
    kind: str,
    recording_id: int,
    *,
    event_id: str | None = None,
    before: Any = None,
    after: Any = None,
    target: int | None = None,
) -> int:
    """Add a row to the log; after a new decision, its reviewer can redo nothing."""
    done = db.execute(
        "INSERT INTO log (time, reviewer, kind, recording_id, event_id, before, after, target) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            reviewer,
            kind,
            recording_id,
            event_id,
            json.dumps(before, ensure_ascii=False),
            json.dumps(after, ensure_ascii=False),
            target,
        ),
    )
    if target is None:
        db.execute(
            "UPDATE undone SET redoable = 0 WHERE redoable AND target IN (SELECT id FROM log WHERE reviewer = ?)",
            (reviewer,),
        )
    assert done.lastrowid is not None
    return done.lastrowid


def _check_version(event: dict[str, Any], version: object) -> None:
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidError("version: expected the event's version, a whole number, as the page last saw it")
    if version != event["version"]:
        by = f" by {event['reviewer']}" if event["reviewer"] else ""
        raise ConflictError(
            f"this box has been changed{by} since you saw it (now {event['status']}); look again", event
        )


def _parse_number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidError(f"{name}: expected a number, found {str(value)[:40]!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not abs(number) <= _MAX_NUMBER:
        raise InvalidError(f"{name}: expected a number of seconds or hertz, at most {_MAX_NUMBER:g}")
    return number


def _validated_box(given: Mapping[str, object], recording: sqlite3.Row) -> dict[str, float]:
    """A box inside its recording, cut to it where it reaches beyond the edge."""
    start, end, low, high = (_parse_number(given[name], name) for name in BOX)
    duration, rate = recording["duration_s"], recording["sample_rate"]
    last = float(duration) if duration is not None else math.inf
    top = rate / 2 if rate is not None else math.inf
    if end < start or high < low:
        raise InvalidError("expected start_s before end_s and low_hz below high_hz")
    if start < -_EDGE_S or end > last + _EDGE_S or low > top:
        raise InvalidError(
            f"a box from {start:g} to {end:g} s and {low:g} to {high:g} Hz is outside {recording['name']} "
            f"({last:g} s, {top:g} Hz)"
        )
    start, end, low, high = max(start, 0.0), min(end, last), max(low, 0.0), min(high, top)
    if end - start < _MIN_DURATION_S or high - low < _MIN_BANDWIDTH_HZ:
        raise InvalidError("the box is empty; expected a duration and a bandwidth above 0")
    return {"start_s": start, "end_s": end, "low_hz": low, "high_hz": high}


def validated_label(label: object) -> str:
    """A label without superfluous spaces.

    Raises:
        InvalidError: it is not text, too long, or not printable.
    """
    if not isinstance(label, str):
        raise InvalidError(f"label: expected text, found {str(label)[:40]!r}")
    plain = " ".join(label.split())
    if len(plain) > _MAX_LABEL or not plain.isprintable():
        raise InvalidError(f"label: expected at most {_MAX_LABEL} printable characters")
    return plain
