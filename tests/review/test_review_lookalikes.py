"""Look-alikes and novelty against all distances at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from review_folders import small_results

from mast.review import lookalikes
from mast.review.decisions import add_event, change_event, delete_event
from mast.review.listing import ListFilter
from mast.review.lookalikes import FileLookalikes, NoEmbeddingError
from mast.review.open_review import Review, open_review
from mast.review.records import NotFoundError


@pytest.fixture
def review(tmp_path: Path) -> Review:
    return open_review(small_results(tmp_path, recordings=3, events=20))


def vectors(review: Review) -> tuple[list[str], NDArray[np.float64]]:
    """Ids in the order of the table, and unit vectors."""
    folder = review.workspace.folder
    table = pd.read_parquet(folder / "detections.parquet")
    with review.store.reading() as db:
        rows = db.execute(
            "SELECT e.id, r.name, e.start_s FROM events e JOIN recordings r ON r.id = e.recording_id"
        )
        ids = {(row[1], row[2]): row[0] for row in rows}
    order = [ids[key] for key in zip(table["recording"], table["start_s"], strict=True)]
    raw = np.load(folder / "embeddings.npy").astype(np.float64)
    return order, raw / np.linalg.norm(raw, axis=1, keepdims=True)


def similar(review: Review, event_id: str, k: int) -> list[dict[str, Any]]:
    with review.store.reading() as db:
        return review.lookalikes.similar(db, event_id, k)


@pytest.mark.parametrize("block", [7, 100_000])
def test_the_nearest_against_all_distances(
    review: Review, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(lookalikes, "_BLOCK_ROWS", block)
    ids, rows = vectors(review)
    distances = 1 - rows @ rows.T
    for k in (0, 25, 59):
        expected = [ids[i] for i in np.argsort(distances[k]) if i != k][:6]
        found = similar(review, ids[k], 6)
        assert [event["id"] for event in found] == expected
        np.testing.assert_allclose([e["distance"] for e in found], np.sort(distances[k])[1:7], atol=1e-4)


def test_more_than_there_are_and_deleted_ones(review: Review) -> None:
    ids, _ = vectors(review)
    delete_event(review.store, "A", ids[3], 0)
    found = similar(review, ids[0], 200)
    assert {event["id"] for event in found} == set(ids) - {ids[0], ids[3]}


def test_a_drawn_box_has_no_embedding(review: Review) -> None:
    drawn = add_event(review.store, "A", 1, {"start_s": 1, "end_s": 2, "low_hz": 10, "high_hz": 99})
    with pytest.raises(NoEmbeddingError, match="drawn by hand"):
        similar(review, drawn["id"], 5)
    with pytest.raises(NotFoundError):
        similar(review, "nothing", 5)


def test_without_embeddings_a_sentence(tmp_path: Path) -> None:
    review = open_review(small_results(tmp_path, embed=False))
    assert not review.lookalikes
    with review.store.reading() as db:
        event_id = db.execute("SELECT id FROM events").fetchone()[0]
    with pytest.raises(NoEmbeddingError, match="--embed"):
        similar(review, event_id, 5)
    with review.store.reading() as db, pytest.raises(NoEmbeddingError):
        review.lookalikes.novel(db, ListFilter(), limit=5, after=None)


@pytest.mark.parametrize("content", [b"", b"not numpy at all", b"\x93NUMPY\x01\x00"])
def test_a_broken_file_is_no_embeddings(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "e.npy").write_bytes(content)
    assert not FileLookalikes(tmp_path / "e.npy")


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", np.array([[{"a": 1}]], dtype=object), allow_pickle=True)
    assert not FileLookalikes(tmp_path / "e.npy")


def novel(review: Review, **more: Any) -> list[str]:
    wanted = more.pop("wanted", ListFilter(status="open"))
    with review.store.reading() as db:
        page = review.lookalikes.novel(db, wanted, limit=more.get("limit", 100), after=more.get("after"))
    return [event["id"] for event in page["events"]]


def test_novel_is_far_from_all_that_was_accepted(review: Review) -> None:
    ids, rows = vectors(review)
    known = [2, 30, 41]
    for k in known:
        change_event(review.store, "A", ids[k], {"version": 0, "status": "accepted"})
    nearest = (1 - rows @ rows[known].T).min(axis=1)
    expected = [ids[i] for i in np.argsort(-nearest) if i not in known]
    assert novel(review) == expected
    pages = novel(review, limit=20)
    pages += novel(review, limit=20, after=pages[-1])
    pages += novel(review, limit=20, after=pages[-1])
    assert pages == expected


def test_novel_without_anything_accepted_is_far_from_the_middle(review: Review) -> None:
    ids, rows = vectors(review)
    middle = rows.mean(axis=0)
    expected = [ids[i] for i in np.argsort(rows @ middle)]
    assert novel(review)[:10] == expected[:10]
