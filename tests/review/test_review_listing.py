"""Lists, queues, progress, precision and activity, against plain Python over all events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from review_folders import add_detections, detections, small_results, write_tones

from mast.review import listing
from mast.review.decisions import add_event, change_event, delete_event, mark_reviewed
from mast.review.listing import ListFilter, wilson_interval
from mast.review.open_review import Review, open_review
from mast.review.queue import queue
from mast.review.records import EVENT_SQL, NotFoundError, event_record


@pytest.fixture(scope="module")
def review(tmp_path_factory: pytest.TempPathFactory) -> Review:
    """Four recordings at three sites, every status, one recording that begins before midnight."""
    root = tmp_path_factory.mktemp("listing")
    tables = {}
    for k, name in enumerate(("A_1.wav", "A_22.wav", "B/B_3.wav", "C_%_4.wav")):
        write_tones(root / "audio" / name)
        tables[name] = detections(name, 12, seed=k)
    opened = open_review(add_detections(root / "d", root / "audio", tables))
    statuses = ["accepted", "rejected", "deleted", "accepted"]
    for k, event in enumerate(everything(opened)):
        if k % 2 == 0:
            change_event(opened.store, "Ana", event["id"], {"version": 0, "status": statuses[k // 2 % 4]})
    add_event(opened.store, "Ben", 1, {"start_s": 1, "end_s": 2, "low_hz": 5, "high_hz": 9, "label": "wren"})
    mark_reviewed(opened.store, "Ben", 1, 0.0, 3.0, True)
    return opened


def everything(review: Review) -> list[dict[str, Any]]:
    with review.store.reading() as db:
        return [event_record(row) for row in db.execute(f"{EVENT_SQL} ORDER BY e.seq")]


FILTERS = [
    ListFilter(),
    ListFilter(status="open"),
    ListFilter(status="rejected"),
    ListFilter(site="A"),
    ListFilter(site="A", status="open"),
    ListFilter(min_score=0.6),
    ListFilter(day="2024-05-02"),
    ListFilter(hour=5),
    ListFilter(hour=6, site="B"),
    ListFilter(search="_%_"),
    ListFilter(site="nowhere"),
]


def fits(event: dict[str, Any], wanted: ListFilter) -> bool:
    """The filter in plain Python."""
    return (
        (wanted.site is None or event["site"] == wanted.site)
        and (wanted.day is None or event["datetime"][:10] == wanted.day)
        and (wanted.hour is None or int(event["datetime"][11:13]) == wanted.hour)
        and (wanted.min_score is None or (event["score"] or 0) >= wanted.min_score)
        and (wanted.status is None or event["status"] == wanted.status)
        and (wanted.search is None or wanted.search in event["recording"])
    )


@pytest.mark.parametrize("wanted", FILTERS)
@pytest.mark.parametrize("order", ["uncertain", "random", "score", "time"])
def test_queues_page_through_what_fits_in_order(review: Review, order: str, wanted: ListFilter) -> None:
    chosen = [e for e in everything(review) if fits(e, wanted)]
    if wanted.status is None:
        chosen = [e for e in chosen if e["status"] != "deleted"]
    if order != "time":
        chosen = [e for e in chosen if e["score"] is not None]
    found: list[dict[str, Any]] = []
    while True:
        with review.store.reading() as db:
            page = queue(db, order, wanted, limit=5, after=found[-1]["id"] if found else None)
        assert page["total"] == len(chosen)
        found += page["events"]
        if len(page["events"]) < 5:
            break
    assert sorted(e["id"] for e in found) == sorted(e["id"] for e in chosen)
    key = {
        "uncertain": lambda e: abs(e["score"] - 0.3),
        "score": lambda e: -e["score"],
        "time": lambda e: (e["datetime"][:10] and e["recording_id"] and e["recording_id"], e["start_s"]),
        "random": lambda e: 0,
    }[order]
    if order == "time":
        assert [(e["recording_id"], e["start_s"]) for e in found] == sorted(
            ((e["recording_id"], e["start_s"]) for e in found),
            key=lambda pair: (_clock(review, pair[0]), pair[0], pair[1]),
        )
    else:
        keys = [key(e) for e in found]
        assert keys == sorted(keys)


def _clock(review: Review, recording_id: int) -> str:
    with review.store.reading() as db:
        return str(db.execute("SELECT datetime FROM recordings WHERE id = ?", (recording_id,)).fetchone()[0])


def test_deciding_while_paging_neither_skips_nor_repeats(tmp_path: Path) -> None:
    review = open_review(small_results(tmp_path, recordings=2, events=20))
    seen: list[str] = []
    wanted = ListFilter(status="open")
    while True:
        with review.store.reading() as db:
            page = queue(db, "uncertain", wanted, limit=3, after=seen[-1] if seen else None)
        if not page["events"]:
            break
        for event in page["events"]:
            seen.append(event["id"])
            change_event(review.store, "A", event["id"], {"version": 0, "status": "accepted"})
    assert len(seen) == len(set(seen)) == 40
    with review.store.reading() as db, pytest.raises(NotFoundError):
        queue(db, "uncertain", wanted, limit=3, after="nothing")


def test_the_random_order_is_fixed_by_the_seed_and_looks_random(tmp_path: Path) -> None:
    folder = small_results(tmp_path, recordings=3, events=40)
    first, again = open_review(folder), open_review(folder, seed=5)  # a store keeps its seed
    other_folder = small_results(tmp_path / "other", recordings=3, events=40)
    other = open_review(other_folder, seed=5)

    def order(review: Review) -> list[tuple[str, float]]:
        with review.store.reading() as db:
            page = queue(db, "random", ListFilter(), limit=200, after=None)
        return [(e["recording"], e["start_s"]) for e in page["events"]]

    assert order(first) == order(again)
    assert sorted(order(first)) == sorted(order(other))
    assert order(first) != order(other)
    place = {key: k for k, key in enumerate(sorted(order(first)))}
    ranks = [place[key] for key in order(first)]
    assert abs(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1]) < 0.3


@pytest.mark.parametrize("wanted", [w for w in FILTERS if w.status is None])
@pytest.mark.parametrize("sort", ["name", "time", "events", "score"])
def test_recordings_by_filter(review: Review, wanted: ListFilter, sort: str) -> None:
    with review.store.reading() as db:
        rows = db.execute("SELECT * FROM recordings").fetchall()
        page = listing.list_recordings(db, wanted, sort=sort, offset=0, limit=100)
        parts = [
            listing.list_recordings(db, wanted, sort=sort, offset=k, limit=1)["items"]
            for k in range(page["total"])
        ]
    fitting = {
        row["name"]
        for row in rows
        if (wanted.site is None or row["site"] == wanted.site)
        and (wanted.search is None or wanted.search in row["name"])
        and (wanted.min_score is None or row["best_score"] >= wanted.min_score)
        and (wanted.day is None or row["first_day"] <= wanted.day <= row["last_day"])
        and (wanted.hour is None or row["hours"] >> wanted.hour & 1)
    }
    assert {item["name"] for item in page["items"]} == fitting
    assert page["total"] == len(fitting)
    assert [item for part in parts for item in part] == page["items"]
    key = {"name": "name", "time": "datetime", "events": "events", "score": "best_score"}[sort]
    values = [item[key] for item in page["items"]]
    assert values == sorted(values, reverse=sort in ("events", "score"))


def test_status_of_recordings(tmp_path: Path) -> None:
    review = open_review(small_results(tmp_path, recordings=3, events=2))
    with review.store.reading() as db:
        ids = [
            r[0]
            for r in db.execute("SELECT id FROM events WHERE recording_id IN (1, 2) ORDER BY recording_id")
        ]
    for event_id in ids[:3]:
        change_event(review.store, "A", event_id, {"version": 0, "status": "rejected"})
    for status, names in (("done", [1]), ("started", [2]), ("open", [3])):
        with review.store.reading() as db:
            page = listing.list_recordings(db, ListFilter(status=status), sort="name", offset=0, limit=9)
        assert [item["id"] for item in page["items"]] == names
        assert all(item["status"] == status for item in page["items"])


def test_events_of_a_span(review: Review) -> None:
    for start, end in ((0.0, 6.0), (2.0, 3.0), (5.5, 99.0), (-5.0, 0.0)):
        with review.store.reading() as db:
            found = listing.events_between(db, 1, start, end, 1000)
        expected = [
            e["id"]
            for e in sorted(everything(review), key=lambda e: e["start_s"])
            if e["recording_id"] == 1
            and e["start_s"] < end
            and e["end_s"] > start
            and e["status"] != "deleted"
        ]
        assert [e["id"] for e in found["events"]] == expected
        assert not found["more"]
    with review.store.reading() as db:
        some = listing.events_between(db, 1, 0.0, 6.0, 3)
    assert (len(some["events"]), some["more"]) == (3, True)


def test_progress_counts_what_was_decided(review: Review) -> None:
    events = everything(review)
    with review.store.reading() as db:
        found = listing.review_progress(db, ListFilter())
    alive = [e for e in events if e["status"] != "deleted"]
    assert found["events"] == len(alive)
    assert found["reviewed"] == sum(e["status"] != "open" for e in alive)
    assert found["accepted"] == sum(e["status"] == "accepted" for e in alive)
    assert found["rejected"] == sum(e["status"] == "rejected" for e in alive)
    assert found["added"] == 1
    assert found["by_reviewer"] == {"Ana": 24, "Ben": 1}
    assert found["spans_s"] == 3.0
    assert found["to_check"] == {"drawn": 0, "checked": 0}


def test_relabelled_and_changed_are_counted(tmp_path: Path) -> None:
    review = open_review(small_results(tmp_path, recordings=1, events=4))
    a, b, c, _ = (e["id"] for e in everything(review))
    change_event(review.store, "A", a, {"version": 0, "label": "wren"})
    change_event(review.store, "A", b, {"version": 0, "start_s": 0.0, "end_s": 1.0})
    change_event(review.store, "A", c, {"version": 0, "label": "wren", "status": "rejected"})
    with review.store.reading() as db:
        found = listing.review_progress(db, ListFilter())
    assert (found["relabelled"], found["changed"], found["accepted"], found["rejected"]) == (1, 1, 2, 1)


def test_precision_is_of_the_random_sample_only(tmp_path: Path) -> None:
    review = open_review(small_results(tmp_path, recordings=3, events=40))
    with review.store.reading() as db:
        order = [e["id"] for e in queue(db, "random", ListFilter(), limit=200, after=None)["events"]]
        assert listing.estimate_precision(db, ListFilter()) is None
    for event_id in order[60:90]:  # decided out of order: says nothing about the rest
        change_event(review.store, "A", event_id, {"version": 0, "status": "accepted"})
    with review.store.reading() as db:
        assert listing.estimate_precision(db, ListFilter()) is None
    for k, event_id in enumerate(order[:20]):
        if k == 12:
            delete_event(review.store, "A", event_id, 0)  # as wrong as a rejected one
        elif k != 7:  # skipped
            status = "accepted" if k % 4 else "rejected"
            change_event(review.store, "A", event_id, {"version": 0, "status": status})
    with review.store.reading() as db:
        found = listing.estimate_precision(db, ListFilter())
    assert found is not None
    assert (found["n"], found["right"], found["skipped"]) == (19, 14, 1)
    assert (found["low"], found["high"]) == wilson_interval(14, 19)
    assert found["low"] < found["estimate"] < found["high"]


def test_precision_within_a_filter(tmp_path: Path) -> None:
    review = open_review(small_results(tmp_path, recordings=3, events=30))
    wanted = ListFilter(site="A", min_score=0.5)
    with review.store.reading() as db:
        order = queue(db, "random", wanted, limit=200, after=None)["events"]
    for event in order[:8]:
        change_event(review.store, "A", event["id"], {"version": 0, "status": "accepted"})
    with review.store.reading() as db:
        found = listing.estimate_precision(db, wanted)
        assert found is not None
        assert (found["n"], found["right"]) == (8, 8)
        everywhere = listing.estimate_precision(db, ListFilter())
        assert everywhere is None or everywhere["n"] < 8


def test_wilson_against_the_score_test() -> None:
    """Every share in the interval is one that the score test does not reject, and none outside is."""
    for right, n in ((0, 5), (3, 7), (9, 10), (10, 10), (480, 500)):
        low, high = wilson_interval(right, n)
        shares = np.linspace(1e-6, 1 - 1e-6, 20_001)
        z = np.abs(right / n - shares) / np.sqrt(shares * (1 - shares) / n)
        kept = shares[z <= 1.959964]
        assert low == pytest.approx(kept.min(), abs=1e-4)
        assert high == pytest.approx(kept.max(), abs=1e-4)


def test_activity_against_counting(review: Review) -> None:
    with review.store.reading() as db:
        found = listing.count_by_hour(db)
    expected = {site: [0] * 24 for site in found["sites"]}
    for event in everything(review):
        if event["status"] in ("open", "accepted"):
            expected[event["site"]][int(event["datetime"][11:13])] += 1
    assert found["counts"] == [expected[site] for site in found["sites"]]
    assert sum(map(sum, found["counts"])) > 0
    assert len({k for row in found["counts"] for k, n in enumerate(row) if n}) == 2  # the hour changes within


def test_the_session_names_what_can_be_chosen(review: Review) -> None:
    with review.store.reading() as db:
        found = listing.session_facts(db)
    assert found["sites"] == ["A", "B", "C"]
    assert found["labels"] == ["wren"]
    assert found["reviewers"] == ["Ana", "Ben"]
    assert (found["recordings"], found["max_hz"]) == (4, 8000.0)
