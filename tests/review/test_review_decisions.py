"""Decisions, undo and redo, and two people at once."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from review_folders import small_results

from mast.errors import MastError
from mast.review import decisions
from mast.review.decisions import ConflictError, InvalidError
from mast.review.open_review import Review, open_review
from mast.review.records import NotFoundError, read_event, read_spans

BOX = {"start_s": 1.0, "end_s": 2.0, "low_hz": 500.0, "high_hz": 900.0}


@pytest.fixture
def review(tmp_path: Path) -> Review:
    return open_review(small_results(tmp_path, recordings=2, events=5))


def ids(review: Review) -> list[str]:
    with review.store.reading() as db:
        return [row[0] for row in db.execute("SELECT id FROM events WHERE ordinal IS NOT NULL ORDER BY seq")]


def event(review: Review, event_id: str) -> dict[str, Any]:
    with review.store.reading() as db:
        return read_event(db, event_id)


def content(review: Review) -> dict[str, tuple[Any, ...]]:
    """All that a reviewer sees, without versions."""
    names = (*decisions.BOX, "label", "status")
    with review.store.reading() as db:
        rows = db.execute(f"SELECT id, {', '.join(names)} FROM events").fetchall()
        # a box that was drawn and taken back is as if it had never been
        found = {
            row["id"]: tuple(row)[1:] for row in rows if len(row["id"]) == 16 or row["status"] != "deleted"
        }
        found["spans"] = tuple(read_spans(db, 1))
    return found


def counts(review: Review) -> list[tuple[int, int]]:
    """Events and open events of each recording, as kept and as counted."""
    with review.store.reading() as db:
        kept = [tuple(r) for r in db.execute("SELECT events, open FROM recordings ORDER BY id")]
        counted = [
            tuple(r)
            for r in db.execute(
                "SELECT sum(status <> 'deleted'), sum(status = 'open') FROM events GROUP BY recording_id "
                "ORDER BY recording_id"
            )
        ]
    assert kept == counted
    return kept


def test_accept_relabel_move_and_delete(review: Review) -> None:
    first = ids(review)[0]
    done = decisions.change_event(review.store, "Ana", first, {"version": 0, "status": "accepted"})
    assert (done["status"], done["reviewer"], done["version"]) == ("accepted", "Ana", 1)
    done = decisions.change_event(review.store, "Ben", first, {"version": 1, "label": " Parus \t major "})
    assert (done["label"], done["original_label"], done["reviewer"]) == ("Parus major", "", "Ben")
    done = decisions.change_event(review.store, "Ben", first, {"version": 2, **BOX})
    assert [done[name] for name in BOX] == list(BOX.values())
    done = decisions.delete_event(review.store, "Ben", first, 3)
    assert (done["status"], done["version"]) == ("deleted", 4)
    assert counts(review) == [(4, 4), (5, 5)]


def test_correcting_an_open_event_accepts_it(review: Review) -> None:
    first, second, third = ids(review)[:3]
    assert (
        decisions.change_event(review.store, "A", first, {"version": 0, "label": "x"})["status"] == "accepted"
    )
    assert decisions.change_event(review.store, "A", second, {"version": 0, **BOX})["status"] == "accepted"
    rejected = decisions.change_event(
        review.store, "A", third, {"version": 0, "status": "rejected", "label": "wind"}
    )
    assert rejected["status"] == "rejected"
    back = decisions.change_event(review.store, "A", third, {"version": 1, "status": "open"})
    assert (back["status"], back["reviewer"]) == ("open", "")


def test_what_changes_nothing_is_no_decision(review: Review) -> None:
    first = ids(review)[0]
    decisions.change_event(review.store, "A", first, {"version": 0, "status": "accepted"})
    same = decisions.change_event(review.store, "B", first, {"version": 1, "status": "accepted"})
    assert (same["version"], same["reviewer"]) == (1, "A")
    assert not decisions.undo(review.store, "B").done


def test_an_old_version_is_refused_with_the_event_as_it_is(review: Review) -> None:
    first = ids(review)[0]
    decisions.change_event(review.store, "A", first, {"version": 0, "status": "accepted"})
    with pytest.raises(ConflictError, match="by A") as conflict:
        decisions.change_event(review.store, "B", first, {"version": 0, "status": "rejected"})
    assert conflict.value.event == event(review, first)
    assert event(review, first)["status"] == "accepted"


@pytest.mark.parametrize(
    "given",
    [
        {"status": "maybe"},
        {"label": 3},
        {"label": "x" * 201},
        {"label": "a\x00b"},
        {"label": "\ud800"},
        {"start_s": "1"},
        {"start_s": float("nan")},
        {"start_s": 10**400},
        {"start_s": True},
        {"start_s": 5.0, "end_s": 1.0},
        {"start_s": 1.0, "end_s": 1.0},
        {"start_s": 100.0, "end_s": 101.0},
        {"low_hz": 9_000.0, "high_hz": 9_500.0},
        {"low_hz": 800.0, "high_hz": 700.0},
        {"reviewer": "somebody else"},
        {"version": "0"},
        {"version": None},
        {"version": True},
        {"label": None},
    ],
)
def test_values_that_make_no_sense_change_nothing(review: Review, given: dict[str, Any]) -> None:
    first = ids(review)[0]
    before = event(review, first)
    with pytest.raises(InvalidError):
        decisions.change_event(review.store, "A", first, {"version": 0, **given})
    assert event(review, first) == before
    with review.store.reading() as db:
        assert db.execute("SELECT count(*) FROM log").fetchone()[0] == 0


def test_a_box_over_the_edge_is_cut_to_the_recording(review: Review) -> None:
    box = {"start_s": -0.5, "end_s": 6.4, "low_hz": -3.0, "high_hz": 9_000.0}
    added = decisions.add_event(review.store, "A", 1, box)
    assert [added[n] for n in BOX] == [0.0, 6.0, 0.0, 8_000.0]


def test_unknown_ids(review: Review) -> None:
    with pytest.raises(NotFoundError):
        decisions.change_event(review.store, "A", "nothing", {"version": 0, "status": "open"})
    with pytest.raises(NotFoundError):
        decisions.add_event(review.store, "A", 99, BOX)
    with pytest.raises(NotFoundError):
        decisions.mark_reviewed(review.store, "A", 99, 0.0, 1.0, True)


def test_a_drawn_box_can_be_undone_and_redone(review: Review) -> None:
    added = decisions.add_event(review.store, "A", 1, {**BOX, "label": "wren"})
    assert (added["source"], added["status"], added["score"]) == ("expert", "accepted", None)
    assert decisions.undo(review.store, "A").events[0]["status"] == "deleted"
    assert counts(review)[0] == (5, 5)
    assert decisions.redo(review.store, "A").events[0]["status"] == "accepted"
    assert not decisions.redo(review.store, "A").done


def test_a_new_decision_ends_what_can_be_redone(review: Review) -> None:
    first, second = ids(review)[:2]
    decisions.change_event(review.store, "A", first, {"version": 0, "status": "accepted"})
    decisions.change_event(review.store, "A", second, {"version": 0, "status": "accepted"})
    decisions.undo(review.store, "A")
    decisions.change_event(review.store, "A", second, {"version": 2, "status": "rejected"})
    assert not decisions.redo(review.store, "A").done
    decisions.undo(review.store, "A")
    decisions.undo(review.store, "A")
    assert event(review, first)["status"] == event(review, second)["status"] == "open"
    assert not decisions.undo(review.store, "A").done


def test_undo_is_each_reviewers_own_and_never_takes_anothers_work(review: Review) -> None:
    first, second = ids(review)[:2]
    decisions.change_event(review.store, "A", second, {"version": 0, "status": "accepted"})
    decisions.change_event(review.store, "A", first, {"version": 0, "status": "accepted"})
    decisions.change_event(review.store, "B", first, {"version": 1, "label": "wren"})
    with pytest.raises(ConflictError, match="changed by B"):
        decisions.undo(review.store, "A")
    assert (event(review, first)["label"], event(review, first)["status"]) == ("wren", "accepted")
    assert decisions.undo(review.store, "A").events[0]["id"] == second  # goes on before it
    assert decisions.undo(review.store, "B").events[0]["label"] == ""
    assert event(review, first)["status"] == "accepted"


def test_undo_works_where_the_other_has_taken_the_change_back(review: Review) -> None:
    first = ids(review)[0]
    decisions.change_event(review.store, "A", first, {"version": 0, "status": "accepted"})
    decisions.change_event(review.store, "B", first, {"version": 1, "label": "wren"})
    decisions.undo(review.store, "B")
    assert decisions.undo(review.store, "A").events[0]["status"] == "open"


def test_spans_are_joined_cut_and_undone(review: Review) -> None:
    mark = decisions.mark_reviewed
    assert mark(review.store, "A", 1, 0.0, 2.0, True) == [(0.0, 2.0)]
    assert mark(review.store, "B", 1, 1.0, 99.0, True) == [(0.0, 6.0)]  # cut to the recording
    assert mark(review.store, "B", 1, 3.0, 4.0, False) == [(0.0, 3.0), (4.0, 6.0)]
    with pytest.raises(ConflictError):
        decisions.undo(review.store, "A")
    decisions.undo(review.store, "B")
    with review.store.reading() as db:
        assert read_spans(db, 1) == [(0.0, 6.0)]
        assert db.execute("SELECT spans_s FROM recordings WHERE id = 1").fetchone()[0] == 6.0
    with pytest.raises(InvalidError):
        mark(review.store, "A", 1, 2.0, 2.0, True)
    with pytest.raises(InvalidError):
        mark(review.store, "A", 1, 0.0, 2.0, 1)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "change", "delete", "mark", "undo", "redo"]), st.integers(0, 9)),
        max_size=25,
    )
)
def test_undo_and_redo_against_a_list_of_pictures(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """One reviewer's undo and redo move along a list of all states, as a text editor's do."""
    review = open_review(_template(tmp_path_factory))
    with review.store.writing() as db:  # begin from the same state each time
        for table in ("log", "undone", "spans"):
            db.execute(f"DELETE FROM {table}")
        db.execute("DELETE FROM events WHERE ordinal IS NULL")
        db.execute("UPDATE events SET status = 'open', label = '', reviewer = '', version = 0")
    states, at = [content(review)], 0
    for kind, number in steps:
        before = content(review)
        if kind == "undo":
            assert decisions.undo(review.store, "A").done == (at > 0)
            at = max(0, at - 1)
        elif kind == "redo":
            assert decisions.redo(review.store, "A").done == (at < len(states) - 1)
            at = min(len(states) - 1, at + 1)
        else:
            _decide(review, kind, number)
            if content(review) != before:
                states = [*states[: at + 1], content(review)]
                at += 1
        assert content(review) == states[at]
    review.close()


_made: list[Path] = []


def _template(factory: pytest.TempPathFactory) -> Path:
    if not _made:
        _made.append(small_results(factory.mktemp("undo"), recordings=1, events=4))
    return _made[0]


def _decide(review: Review, kind: str, number: int) -> None:
    event_id = ids(review)[number % 4]
    version = event(review, event_id)["version"]
    if kind == "add":
        decisions.add_event(review.store, "A", 1, BOX)
    elif kind == "delete":
        decisions.delete_event(review.store, "A", event_id, version)
    elif kind == "mark":
        decisions.mark_reviewed(review.store, "A", 1, number / 4, number / 2 + 1, number % 3 > 0)
    else:
        decisions.change_event(review.store, "A", event_id, {"version": version, "label": f"l{number % 3}"})


def test_two_people_at_once_lose_nothing(review: Review) -> None:
    """Each event counts how often it was relabelled; a refused try is made again on what is there now."""
    event_ids = ids(review)[:3]
    done: list[tuple[str, int]] = []

    def work(name: str) -> None:
        for k in range(30):
            event_id = event_ids[k % 3]
            while True:
                seen = event(review, event_id)
                count = int(seen["label"] or 0) + 1
                try:
                    decisions.change_event(
                        review.store, name, event_id, {"version": seen["version"], "label": str(count)}
                    )
                except ConflictError:
                    continue
                done.append((event_id, count))
                break

    people = [threading.Thread(target=work, args=(name,)) for name in ("Ana", "Ben", "Çelik")]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert len(done) == len(set(done)) == 90
    assert [event(review, event_id)["label"] for event_id in event_ids] == ["30"] * 3
    with review.store.reading() as db:
        logged = db.execute("SELECT event_id, after FROM log ORDER BY id").fetchall()
    assert [(row["event_id"], int(json.loads(row["after"])["label"])) for row in logged] != []
    assert sorted((r["event_id"], int(json.loads(r["after"])["label"])) for r in logged) == sorted(done)


def test_a_mistake_in_the_middle_of_a_write_leaves_nothing(review: Review) -> None:
    def stopped() -> None:
        with review.store.writing() as db:
            db.execute("DELETE FROM events")
            raise MastError("stop")

    with pytest.raises(MastError, match="stop"):
        stopped()
    assert len(ids(review)) == 10
