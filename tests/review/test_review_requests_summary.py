"""The summary of a review, made as `mast summarize` makes it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from review_folders import review_client, small_results, write_dataset
from starlette.testclient import TestClient

from mast.progress import read_progress
from mast.review.decisions import change_event
from mast.review.open_review import Review, open_review
from mast.review.suggestions import add_suggestions


@pytest.fixture
def review(tmp_path: Path) -> Review:
    return open_review(small_results(tmp_path))


def client(review: Review) -> TestClient:
    return review_client(review, raise_server_exceptions=False)


def until_made(page: TestClient) -> dict[str, Any]:
    end = time.monotonic() + 180
    while time.monotonic() < end:
        state: dict[str, Any] = page.get("/api/summary").json()
        if state["state"] != "running":
            return state
        time.sleep(0.1)
    raise AssertionError("the summary was not made")


def test_it_is_made_shown_and_made_again_after_decisions(review: Review) -> None:
    with client(review) as page:
        before = page.get("/api/summary").json()
        assert (before["available"], before["state"], before["made"]) == (True, "none", "")
        assert page.get("/api/summary/page").status_code == 400
        assert page.post("/api/summary").json()["state"] == "running"
        assert page.post("/api/summary").json()["state"] == "running"  # once, however often one asks
        state = until_made(page)
        assert (state["state"], state["decisions_since"]) == ("done", 0)
        assert {"summary.html", "counts.csv", "summary.xlsx"} <= set(
            os.listdir(review.workspace.folder / "summary")
        )
        answer = page.get("/api/summary/page")
        assert "<title>detections" in answer.text
        assert "sandbox" in answer.headers["content-security-policy"]

        event = page.get("/api/queue?limit=1").json()["events"][0]
        change_event(review.store, "Ana", event["id"], {"version": 0, "status": "accepted"})
        assert page.get("/api/summary").json()["decisions_since"] == 1
        page.post("/api/summary")
        again = until_made(page)
        assert again["decisions_since"] == 0
        assert again["made"] > state["made"]


def test_names_that_the_review_was_given_are_in_its_summary(review: Review, tmp_path: Path) -> None:
    folder = review.workspace.folder
    table = pd.read_parquet(folder / "detections.parquet").assign(label="wren", likely_label="wren")
    table.assign(label_score=0.9, label_source="BirdNET").to_csv(tmp_path / "named.csv", index=False)
    add_suggestions(review.store, tmp_path / "named.csv")
    with client(review) as page:
        page.post("/api/summary")
        assert until_made(page)["state"] == "done"
        assert set(pd.read_csv(folder / "summary" / "sites.csv")["label"]) == {"wren"}
        (tmp_path / "named.csv").unlink()  # then without
        page.post("/api/summary")
        assert until_made(page)["state"] == "done"
        assert pd.read_csv(folder / "summary" / "sites.csv")["label"].isna().all()


def test_a_decision_while_it_is_made_is_not_in_it(review: Review) -> None:
    with client(review) as page:
        page.post("/api/summary")
        out = review.workspace.folder / "summary"
        while (found := read_progress(out)) is None or not found.began:  # until it has started to read
            time.sleep(0.05)
        event = page.get("/api/queue?limit=1").json()["events"][0]
        change_event(review.store, "Ana", event["id"], {"version": 0, "status": "accepted"})
        state = until_made(page)
        assert (state["state"], state["decisions_since"]) == ("done", 1)


def test_one_sentence_where_it_fails(review: Review) -> None:
    out = review.workspace.folder / "summary"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with client(review) as page:
        page.post("/api/summary")
        state = until_made(page)
    assert state["state"] == "failed"
    assert "holds other files than a summary" in state["sentence"]
    assert (out / "mine.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_written(review: Review) -> None:
    (review.workspace.folder / "summary").write_text("a file where the folder should go")
    with client(review) as page:
        answer = page.post("/api/summary")
    assert answer.status_code in (400, 507)
    assert "summary" in answer.json()["error"]


def test_a_dataset_has_none(tmp_path: Path) -> None:
    review = open_review(write_dataset(tmp_path))
    with client(review) as page:
        assert not page.get("/api/summary").json()["available"]
        answer = page.post("/api/summary")
    assert answer.status_code == 400
    assert "run mast detect on it first" in answer.json()["error"]
    assert not (tmp_path / "summary").exists()


def test_recordings_that_have_moved_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small_results(tmp_path)
    moved = (tmp_path / "audio").rename(tmp_path / "elsewhere")
    review = open_review(folder, audio=moved)
    began: list[list[str]] = []
    monkeypatch.setattr("mast.jobs.Jobs.start", lambda self, command, out: began.append(command))
    with client(review) as page:
        page.post("/api/summary")
    assert began == [["summarize", str(folder), "--out", str(folder / "summary"), "--audio", str(moved)]]


def test_another_page_cannot_start_it(review: Review) -> None:
    with client(review) as page:
        answer = page.post("/api/summary", headers={"Origin": "http://elsewhere.example"})
    assert answer.status_code == 403
    assert not (review.workspace.folder / "summary").exists()
