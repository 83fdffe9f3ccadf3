"""Groups of look-alikes: found once, kept, counted as decisions stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from review_folders import (
    add_detections,
    detections,
    kind_of,
    results_of_kinds,
    review_client,
    small_results,
    write_tones,
)

from mast.review import lookalike_groups
from mast.review.decisions import InvalidError, change_event, delete_event, redo, undo
from mast.review.export_review import collect_annotations
from mast.review.listing import ListFilter, review_progress
from mast.review.open_review import Review, open_review
from mast.review.queue import queue


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = results_of_kinds(tmp_path_factory.mktemp("kinds"))
    review = open_review(folder)
    review.groups.find()
    review.close()
    return folder


@pytest.fixture
def review(grouped: Path) -> Review:
    """The same folder, opened again: what was found is kept."""
    return open_review(grouped)


def events_of(review: Review, group: int, order: str = "typical", status: str = "") -> list[dict[str, Any]]:
    with review.store.reading() as db:
        found = queue(db, order, ListFilter(group=group, status=status), limit=500, after=None)
    events: list[dict[str, Any]] = found["events"]
    assert found["total"] == len(events)
    return events


def test_each_kind_is_a_group_and_the_largest_comes_first(review: Review) -> None:
    state = review.groups.state()
    assert (state["found"], state["busy"], state["outdated"], state["alone"]) == (True, False, False, 0)
    assert [one["events"] for one in state["groups"]] == [30, 24, 18]
    for one, kind in zip(state["groups"], ("low", "middle", "high"), strict=True):
        events = events_of(review, one["group"])
        assert {kind_of(event) for event in events} == {kind}
        assert len(events) == one["events"]
        assert one["typical"]["id"] == events[0]["id"]
        assert one["names"] == []


def test_the_most_typical_come_first_and_pages_continue(review: Review) -> None:
    everything = [event["id"] for event in events_of(review, 0)]
    with review.store.reading() as db:
        away = dict(db.execute("SELECT event_id, away FROM grouped").fetchall())
        pages, after = list[str](), None
        while page := queue(db, "typical", ListFilter(group=0), limit=7, after=after)["events"]:
            pages += [event["id"] for event in page]
            after = pages[-1]
    assert pages == everything == sorted(everything, key=away.__getitem__)


def test_names_and_counts_are_as_decisions_stand(tmp_path: Path) -> None:
    review = open_review(results_of_kinds(tmp_path))
    review.groups.find()
    first, second, third, fourth = events_of(review, 1)[:4]
    for event, change in (
        (first, {"label": "Robin"}),
        (second, {"label": "Robin"}),
        (third, {"label": "Wren"}),
        (fourth, {"status": "rejected"}),
    ):
        change_event(review.store, "Ana", event["id"], {"version": 0, **change})
    one = review.groups.state()["groups"][1]
    assert (one["events"], one["decided"]) == (24, 4)
    assert one["names"] == [{"label": "Robin", "events": 2}, {"label": "Wren", "events": 1}]
    assert len(events_of(review, 1, status="open")) == 20
    delete_event(review.store, "Ana", first["id"], 1)
    one = review.groups.state()["groups"][1]
    assert (one["events"], one["decided"]) == (23, 3)
    assert one["typical"]["id"] == second["id"]
    assert one["names"][0] == {"label": "Robin", "events": 1}


def test_events_outside_the_sample_join_their_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookalike_groups, "_MAX_FITTED", 60)
    review = open_review(results_of_kinds(tmp_path))
    review.groups.find()
    state = review.groups.state()
    assert sum(one["events"] for one in state["groups"]) + state["alone"] == 72
    for one in state["groups"]:
        assert len({kind_of(event) for event in events_of(review, one["group"])}) == 1


def test_new_detections_make_them_outdated(tmp_path: Path) -> None:
    audio = tmp_path / "audio"
    write_tones(audio / "A_1.wav")
    write_tones(audio / "A_2.wav")
    folder = add_detections(tmp_path / "detections", audio, {"A_1.wav": detections("A_1.wav", 8)})
    review = open_review(folder)
    assert not review.groups.state()["found"]
    review.groups.find()
    state = review.groups.state()
    assert (state["groups"], state["alone"], state["outdated"]) == ([], 8, False)  # too few of any kind
    review.close()
    add_detections(folder, audio, {"A_2.wav": detections("A_2.wav", 5, seed=1)})
    assert open_review(folder).groups.state()["outdated"]


def decided_by_group(tmp_path: Path) -> tuple[Review, dict[str, Any]]:
    """The middle group named Robin at once, after a person rejected its most typical box."""
    review = open_review(results_of_kinds(tmp_path))
    review.groups.find()
    own = events_of(review, 1)[0]
    change_event(review.store, "Ana", own["id"], {"version": 0, "status": "rejected"})
    assert review.groups.decide("Ana", ListFilter(group=1), "accepted", " Robin ") == 23
    return review, own


def test_a_group_is_named_at_once_and_what_a_person_decided_stands(tmp_path: Path) -> None:
    review, own = decided_by_group(tmp_path)
    one = review.groups.state()["groups"][1]
    assert (one["decided"], one["names"]) == (24, [{"label": "Robin", "events": 23}])
    events = {event["id"]: event for event in events_of(review, 1)}
    assert events[own["id"]]["status"] == "rejected"
    others = [event for event in events.values() if event["id"] != own["id"]]
    assert all(event["learned"] == {"status": "accepted", "label": "Robin", "by": "Ana"} for event in others)
    assert events_of(review, 1, status="open") == []
    assert len(events_of(review, 1, status="group_accepted")) == 23
    with review.store.reading() as db:
        found = review_progress(db, ListFilter())
        boxes, heard = collect_annotations(db).events, collect_annotations(db).reviewed
        assert (found["reviewed"], found["group_accepted"], found["learner_accepted"]) == (1, 23, 0)
        assert len(collect_annotations(db, learner=False).events) == 0
    assert set(boxes["label"]) == {"Robin"}
    assert set(boxes["source"]) == {"group"}
    assert len(boxes) == 23
    assert len(heard) == 0  # nobody has listened to each of them


def test_one_undo_takes_a_group_back_and_the_next_what_was_before(tmp_path: Path) -> None:
    review, own = decided_by_group(tmp_path)
    first = events_of(review, 1, status="group_accepted")[0]
    change_event(review.store, "Ben", first["id"], {"version": 0, "status": "rejected"})
    done = undo(review.store, "Ana")
    assert done.many
    assert done.what == "Undone: 23 boxes of a group open again"
    assert len(events_of(review, 1, status="open")) == 22  # Ben's decision stands
    assert undo(review.store, "Ana").events[0]["id"] == own["id"]
    assert not undo(review.store, "Ana").done
    assert not redo(review.store, "Ana").many


def test_an_undo_takes_back_the_last_group_alone(tmp_path: Path) -> None:
    review, _ = decided_by_group(tmp_path)
    assert review.groups.decide("Ana", ListFilter(group=2), "rejected", "") == 18
    assert undo(review.store, "Ana").what == "Undone: 18 boxes of a group open again"
    assert len(events_of(review, 1, status="group_accepted")) == 23


def test_the_learner_and_groups_leave_each_others_decisions(tmp_path: Path) -> None:
    review, _ = decided_by_group(tmp_path)
    assert review.learner.take_back("Ana") == 0
    assert len(events_of(review, 1, status="group_accepted")) == 23
    with review.store.writing() as db:
        db.execute("INSERT INTO learned SELECT event_id, 'rejected', '', 0 FROM grouped WHERE cluster = 0")
    with pytest.raises(InvalidError, match="nothing in this group is open"):
        review.groups.decide("Ana", ListFilter(group=0), "accepted", "Wren")
    assert undo(review.store, "Ana").many
    assert len(events_of(review, 0, status="learner_rejected")) == 30


def test_a_review_from_before_groups_could_be_decided_about_opens(tmp_path: Path) -> None:
    folder = results_of_kinds(tmp_path)
    review = open_review(folder)
    with review.store.writing() as db:
        db.execute("DROP INDEX learned_by_action")
        db.execute("ALTER TABLE learned DROP COLUMN action")
        db.execute("INSERT INTO learned SELECT id, 'accepted', '' FROM events WHERE seq <= 5")
    review.close()
    review = open_review(folder)
    with review.store.reading() as db:
        assert review_progress(db, ListFilter())["learner_accepted"] == 5
    review.groups.find()
    assert 24 - 5 <= review.groups.decide("Ana", ListFilter(group=1), "rejected", "") <= 24


@pytest.mark.parametrize(
    ("wanted", "status", "label", "said"),
    [
        (ListFilter(), "rejected", "", "choose a group"),
        (ListFilter(group=-1), "rejected", "", "choose a group"),
        (ListFilter(group=0), "accepted", " ", "accepted with a label"),
        (ListFilter(group=0), "rejected", "Robin", "rejected without"),
        (ListFilter(group=0), "deleted", "", "expected status"),
        (ListFilter(group=0), "accepted", 3, "expected text"),
        (ListFilter(group=99), "rejected", "", "nothing in this group"),
    ],
)
def test_what_cannot_be_decided_about_a_group(
    review: Review, wanted: ListFilter, status: str, label: Any, said: str
) -> None:
    with pytest.raises(InvalidError, match=said):
        review.groups.decide("Ana", wanted, status, label)
    with review.store.reading() as db:
        assert db.execute("SELECT count(*) FROM log WHERE kind = 'group'").fetchone()[0] == 0


def test_a_part_of_a_group_over_the_network(tmp_path: Path) -> None:
    review = open_review(results_of_kinds(tmp_path))
    review.groups.find()
    part = [event for event in events_of(review, 0) if event["score"] >= 0.6]
    assert 0 < len(part) < 30
    with review_client(review) as page:
        request = {"url": "/api/groups/0?min_score=0.6&site=", "json": {"status": "rejected"}}
        assert page.post(**request).status_code == 400  # nobody has said who decides
        ana = {"X-Reviewer": "Ana"}
        other = page.post(**request, headers={**ana, "Origin": "http://evil.example"})
        assert other.status_code == 403
        assert page.post(**request, headers=ana).json() == {"decided": len(part)}
        assert page.get("/api/queue?group=0&status=group_rejected").json()["total"] == len(part)


def test_over_the_network(tmp_path: Path) -> None:
    review = open_review(results_of_kinds(tmp_path))
    with review_client(review) as client:
        assert client.post("/api/groups").json()["available"]
        assert review.groups._thread is not None
        review.groups._thread.join(120)
        assert [one["events"] for one in client.get("/api/groups").json()["groups"]] == [30, 24, 18]
        assert client.get("/api/queue?order=typical&group=2&status=").json()["total"] == 18
        assert client.get("/api/queue?order=typical&group=").json()["total"] == 72
        assert client.get("/api/queue?group=x").status_code == 400
        assert client.get(f"/api/queue?group={10**30}").status_code == 400


def test_one_sentence_where_they_cannot_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    review = open_review(small_results(tmp_path / "without", embed=False))
    with review_client(review) as client:
        answer = client.post("/api/groups")
        assert answer.status_code == 409
        assert "run mast detect with --embed" in answer.json()["error"]
        assert not client.get("/api/groups").json()["available"]

    review = open_review(small_results(tmp_path / "full"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lookalike_groups, "fit_clusters", full)
    review.groups.begin()
    assert review.groups._thread is not None
    review.groups._thread.join(60)
    state = review.groups.state()
    assert "No space left" in state["failure"] or "full" in state["failure"]
    assert not state["found"]
