"""Look-alikes from an event store in the folder, against all distances at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from review_folders import detections, review_client, small_results, write_dataset

from mast.data.recordings import load_dataset
from mast.retrieval.event_ids import event_ids
from mast.retrieval.event_store import EventBatch, EventStore
from mast.review import lookalikes_store
from mast.review.decisions import add_event, change_event, delete_event
from mast.review.listing import ListFilter
from mast.review.lookalikes import FileLookalikes, NoEmbeddingError
from mast.review.lookalikes_store import StoreLookalikes
from mast.review.open_review import Review, open_review
from mast.review.records import NotFoundError

WIDTH = 8


def embed(events: pd.DataFrame, place: Path, *, seed: int = 0) -> NDArray[np.float64]:
    """A store with a made-up vector for each event; gives the vectors, of length one."""
    vectors = np.random.default_rng(seed).normal(size=(len(events), WIDTH)).astype(np.float32)
    store = EventStore.open(place) if place.exists() else EventStore.create(place, WIDTH, "m")
    store.add([EventBatch(events, vectors)])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float64)


def ids_of(review: Review, table: pd.DataFrame) -> list[str]:
    """The review's ids of some events."""
    with review.store.reading() as db:
        rows = db.execute(
            "SELECT e.id, r.name, e.start_s FROM events e JOIN recordings r ON r.id = e.recording_id"
        )
        ids = {(row[1], row[2]): row[0] for row in rows}
    return [ids[key] for key in zip(table["recording"], table["start_s"], strict=True)]


def similar(review: Review, event_id: str, k: int) -> list[dict[str, Any]]:
    with review.store.reading() as db:
        return review.lookalikes.similar(db, event_id, k)


@pytest.fixture
def opened(tmp_path: Path) -> tuple[Review, list[str], NDArray[np.float64]]:
    """Detections without embeddings that were embedded later; the store also holds events of elsewhere."""
    folder = small_results(tmp_path, recordings=3, events=12, embed=False)
    table = pd.read_parquet(folder / "detections.parquet")
    vectors = embed(table, folder / "vectors")
    embed(detections("elsewhere.wav", 90, seed=9), folder / "vectors", seed=1)
    review = open_review(folder)
    return review, ids_of(review, table), vectors


def test_the_nearest_against_all_distances(
    opened: tuple[Review, list[str], NDArray[np.float64]],
) -> None:
    review, ids, vectors = opened
    assert isinstance(review.lookalikes, StoreLookalikes)
    assert review.lookalikes
    distances = 1 - vectors @ vectors.T
    for at in (0, 17, 35):
        expected = [k for k in np.argsort(distances[at]) if k != at][:9]
        found = similar(review, ids[at], 9)
        assert [event["id"] for event in found] == [ids[k] for k in expected]
        np.testing.assert_allclose([e["distance"] for e in found], distances[at][expected], atol=1e-4)


def test_moved_boxes_are_known_and_deleted_ones_left_out(
    opened: tuple[Review, list[str], NDArray[np.float64]],
) -> None:
    review, ids, _ = opened
    change_event(review.store, "A", ids[0], {"version": 0, "start_s": 0.01, "end_s": 0.02})
    change_event(review.store, "A", ids[5], {"version": 0, "low_hz": 11.0, "high_hz": 5_000.0})
    delete_event(review.store, "A", ids[3], 0)
    found = similar(review, ids[0], 200)
    assert {event["id"] for event in found} == set(ids) - {ids[0], ids[3]}


def test_what_the_store_does_not_hold(opened: tuple[Review, list[str], NDArray[np.float64]]) -> None:
    review, _, _ = opened
    drawn = add_event(review.store, "A", 1, {"start_s": 1, "end_s": 2, "low_hz": 10, "high_hz": 99})
    with pytest.raises(NoEmbeddingError, match="mast embed"):
        similar(review, drawn["id"], 5)
    with pytest.raises(NotFoundError):
        similar(review, "nothing", 5)


def test_every_detection_with_its_own_vector_and_score(
    opened: tuple[Review, list[str], NDArray[np.float64]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the learner ranks by, in blocks; a moved box keeps the vector of the box that was found."""
    monkeypatch.setattr(lookalikes_store, "_BLOCK_EVENTS", 7)
    review, ids, vectors = opened
    change_event(review.store, "A", ids[0], {"version": 0, "start_s": 0.01, "end_s": 0.02})
    with review.store.reading() as db:
        blocks = list(review.lookalikes.iter_vectors(db))
        rows = {row[0]: (row[1], row[2]) for row in db.execute("SELECT seq, id, score FROM events")}
        ranked = review.learner.queue(db, "likely", ListFilter(status="open"), limit=100, after=None)
    assert len(blocks) == 6
    found = {
        rows[seq][0]: (vector, score == rows[seq][1])
        for block in blocks
        for seq, score, vector in zip(block.seqs.tolist(), block.scores, block.vectors, strict=True)
    }
    assert set(found) == set(ids)
    assert all(same for _, same in found.values())
    np.testing.assert_allclose([found[one][0] for one in ids], vectors, atol=1e-4)
    assert {event["id"] for event in ranked["events"]} == set(ids[1:])


def test_novel_is_far_from_all_that_was_accepted(
    opened: tuple[Review, list[str], NDArray[np.float64]],
) -> None:
    review, ids, vectors = opened
    known = [2, 30]
    for k in known:
        change_event(review.store, "A", ids[k], {"version": 0, "status": "accepted"})
    nearest = (1 - vectors @ vectors[known].T).min(axis=1)
    expected = [ids[k] for k in np.argsort(-nearest) if k not in known]
    with review.store.reading() as db:
        page = review.lookalikes.novel(db, ListFilter(status="open"), limit=100, after=None)
    assert [event["id"] for event in page["events"]] == expected
    assert page["total"] == len(expected)


def test_boxes_by_people(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "data")
    events = load_dataset(folder).annotations.events
    vectors = embed(events, folder / "events")
    review = open_review(folder)
    ids = ids_of(review, events)
    first = review_client(review)
    session = first.get("/api/session").json()
    assert session["has_embeddings"]
    assert session["compares_drawn"]
    found = first.get(f"/api/events/{ids[0]}/similar").json()["events"]
    assert [event["id"] for event in found] == [ids[k] for k in np.argsort(1 - vectors[0] @ vectors.T)[1:]]


def test_the_file_of_the_detector_comes_first(tmp_path: Path) -> None:
    folder = small_results(tmp_path, recordings=1, events=3)
    embed(pd.read_parquet(folder / "detections.parquet"), folder / "events")
    assert isinstance(open_review(folder).lookalikes, FileLookalikes)


def test_a_broken_store_is_no_store(tmp_path: Path) -> None:
    folder = small_results(tmp_path, recordings=1, events=3, embed=False)
    (folder / "events").mkdir()
    (folder / "events" / "event_store.json").write_text('{"model": "m"}')
    assert lookalikes_store.find_store(folder) is None
    assert not open_review(folder).lookalikes


def test_some_vectors_of_a_store(tmp_path: Path) -> None:
    events = detections("a.wav", 4)
    vectors = embed(events, tmp_path / "events")
    names = event_ids(events)
    store = EventStore.open(tmp_path / "events")
    known, found = store.known_vectors([names[3], "nothing", names[0]])
    assert known == [names[3], names[0]]
    np.testing.assert_allclose(found, vectors[[3, 0]], atol=1e-4)
    assert store.known_vectors([])[0] == store.known_vectors(["nothing"])[0] == []
