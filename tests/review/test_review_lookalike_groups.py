"""Groups of look-alikes: found once, kept, counted as decisions stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from review_folders import add_detections, detections, kind_of, results_of_kinds, small_results, write_tones
from starlette.testclient import TestClient

from mast.review import lookalike_groups
from mast.review.decisions import change_event, delete_event
from mast.review.listing import ListFilter
from mast.review.open_review import Review, open_review
from mast.review.queue import queue
from mast.review.server import create_app


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
    monkeypatch.setattr(lookalike_groups, "_MOST_FITTED", 60)
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


def test_over_the_network(tmp_path: Path) -> None:
    review = open_review(results_of_kinds(tmp_path))
    with TestClient(create_app(review), base_url="http://127.0.0.1:8765") as client:
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
    with TestClient(create_app(review), base_url="http://127.0.0.1:8765") as client:
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
