"""Names from a classifier and from examples, on the review page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from review_folders import add_detections, detections, write_tones

from mast.errors import ConfigError
from mast.review.decisions import change_event
from mast.review.open_review import Review, open_review
from mast.review.records import read_event
from mast.review.store import STORE, Store
from mast.review.suggestions import add_suggestions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tones(tmp_path / "audio" / "a.wav")
    return add_detections(tmp_path / "found", tmp_path / "audio", {"a.wav": detections("a.wav", 3)})


def named(folder: Path, labels: list[str], source: str, likely: str = "likely_label") -> Path:
    """A table of names for the detections, first to last."""
    table = pd.read_parquet(folder / "detections.parquet").sort_values("start_s")
    table = table.assign(label=labels, label_score=[0.9, 0.2, np.nan], label_source=source)
    path = folder.parent / f"{source}.csv"
    table.assign(**{likely: ["wren", "tit", ""]}).to_csv(path, index=False)
    return path


def events(review: Review) -> list[dict[str, object]]:
    with review.store.reading() as db:
        ids = [row["id"] for row in db.execute("SELECT id FROM events ORDER BY start_s")]
        return [read_event(db, event_id) for event_id in ids]


def test_names_of_two_tables_are_shown_with_their_scores(folder: Path) -> None:
    review = open_review(folder)
    by_classifier = named(folder, ["wren", "unknown", "unknown"], "BirdNET 2.4")
    assert add_suggestions(review.store, by_classifier) == 3
    assert add_suggestions(review.store, by_classifier) == 3  # again: nothing is doubled
    by_examples = named(folder, ["unknown", "tit", "unknown"], "examples", "nearest_label")
    assert add_suggestions(review.store, by_examples) == 3
    first, second, third = events(review)
    assert [one["label"] for one in (first, second, third)] == ["wren", "tit", ""]
    assert first["original_label"] == "wren"
    assert (first["version"], first["status"]) == (0, "open")
    assert first["suggestions"] == [
        {"source": "BirdNET 2.4", "label": "wren", "score": 0.9},
        {"source": "examples", "label": "wren", "score": 0.9},
    ]
    assert third["suggestions"] == [
        {"source": "BirdNET 2.4", "label": "", "score": None},
        {"source": "examples", "label": "", "score": None},
    ]
    review.close()
    review = open_review(folder)  # they stay
    assert events(review)[0] == first
    review.close()


def test_what_people_decided_stays(folder: Path) -> None:
    review = open_review(folder)
    change_event(review.store, "Ana", str(events(review)[0]["id"]), {"label": "owl", "version": 0})
    add_suggestions(review.store, named(folder, ["wren", "unknown", "unknown"], "BirdNET 2.4"))
    first = events(review)[0]
    assert (first["label"], first["status"], first["original_label"]) == ("owl", "accepted", "")
    assert len(first["suggestions"]) == 1  # type: ignore[arg-type]
    review.close()


def test_a_review_from_before_there_were_names_opens(folder: Path) -> None:
    open_review(folder).close()
    store = Store(folder / STORE)
    with store.writing() as db:
        db.execute("DROP TABLE suggestions")
    store.close()
    review = open_review(folder)
    assert [one["suggestions"] for one in events(review)] == [[], [], []]
    review.close()


def test_tables_without_names_or_of_other_detections_are_refused(folder: Path) -> None:
    review = open_review(folder)
    with pytest.raises(ConfigError, match="holds no names; expected a table of mast name or mast classify"):
        add_suggestions(review.store, folder / "detections.csv")
    path = named(folder, ["wren"] * 3, "BirdNET 2.4")
    table = pd.read_csv(path)
    table.assign(recording="other.wav").to_csv(path, index=False)
    with pytest.raises(ConfigError, match="none of its 3 events is in this review"):
        add_suggestions(review.store, path)
    review.close()
