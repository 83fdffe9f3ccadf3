"""The sample that corrects counts: what is drawn, what is remembered, what counts."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from review_folders import add_detections, detections, write_tones

from mast.errors import ConfigError
from mast.evaluation.corrected_counts import Strata, stratify
from mast.reports.searched_recordings import read_events
from mast.retrieval.naming import read_names
from mast.review.decisions import change_event
from mast.review.listing import ListFilter, review_progress, session_facts
from mast.review.open_review import Review, open_review
from mast.review.queue import queue
from mast.review.sample import draw_sample, read_check_progress
from mast.review.suggestions import add_suggestions
from mast.review.to_check import read_to_check


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tables = {}
    for seed, name in enumerate(("A_1.wav", "B_2.wav")):
        write_tones(tmp_path / "audio" / name, seed=seed)
        tables[name] = detections(name, 60, seed=seed)
    return add_detections(tmp_path / "detections", tmp_path / "audio", tables, embed=False)


def strata_of(folder: Path) -> Strata:
    table = pd.concat(list(read_events(folder)))
    return stratify(table["label"].to_numpy(dtype=object), table["score"].to_numpy())


def draw(folder: Path, total: int) -> list[str]:
    draw_sample(folder, read_events(folder), strata_of(folder), total)
    return [str(name) for name in read_to_check(folder)["event"]]


def decide(review: Review, ids: list[str], status: str = "accepted", label: str | None = None) -> None:
    for event in ids:
        given = {"status": status, "version": 0, **({} if label is None else {"label": label})}
        change_event(review.store, "ann", event, given)


def test_progress_says_how_much_of_the_sample_is_checked(folder: Path) -> None:
    drawn = draw(folder, 20)
    review = open_review(folder)
    decide(review, drawn[:8])
    with review.store.reading() as db:
        others = [e["id"] for e in queue(db, "random", ListFilter(), limit=200, after=None)["events"]]
        decide(review, [event for event in others if event not in drawn][-5:])
        assert review_progress(db, ListFilter())["to_check"] == {"drawn": 20, "checked": 8}
    review.close()


def test_a_larger_sample_contains_the_smaller_and_a_smaller_one_forgets_nothing(folder: Path) -> None:
    first = draw(folder, 20)
    assert len(set(first)) == 20
    assert draw(folder, 20) == first
    second = draw(folder, 40)
    assert len(second) == 40
    assert set(first) < set(second)
    assert draw(folder, 20) == second


def test_the_review_offers_exactly_what_was_drawn(folder: Path) -> None:
    drawn = draw(folder, 20)
    review = open_review(folder)
    with review.store.reading() as db:
        assert session_facts(db)["to_check"] == 20
        page = queue(db, "check", ListFilter(status="open"), limit=50, after=None)
        rest = queue(db, "check", ListFilter(status="open"), limit=50, after=page["events"][4]["id"])
    assert page["total"] == 20
    assert {event["id"] for event in page["events"]} == set(drawn)
    assert [e["id"] for e in rest["events"]] == [e["id"] for e in page["events"][5:]]
    review.close()


def test_only_strata_whose_drawn_events_are_all_decided_count(folder: Path) -> None:
    drawn = draw(folder, 20)
    strata = strata_of(folder)
    assert (
        read_check_progress(folder, read_events(folder), strata).sample is None
    )  # nobody has opened a review
    review = open_review(folder)
    names = read_to_check(folder).set_index("event")["stratum"]
    decide(review, drawn[:-1])
    checking = read_check_progress(folder, read_events(folder), strata)
    assert (checking.drawn, checking.open) == (20, 1)
    assert checking.sample is not None
    unfinished = strata.names.index(names[drawn[-1]])
    assert checking.sample.strata.checked[unfinished] == 0
    assert (np.delete(checking.sample.strata.checked, unfinished) > 0).all()
    decide(review, drawn[-1:], "rejected")
    sample = read_check_progress(folder, read_events(folder), strata).sample
    assert sample is not None
    assert sample.strata.checked.sum() == 20
    assert sample.strata.right.sum() == 19
    review.close()


def test_events_that_were_not_drawn_say_nothing_unless_their_stratum_is_known_whole(folder: Path) -> None:
    strata, review = strata_of(folder), open_review(folder)
    with review.store.reading() as db:
        rows = db.execute("SELECT id, score FROM events ORDER BY score").fetchall()
    lowest = [row["id"] for row in rows[: strata.sizes[0]]]
    decide(review, lowest[:-1], "rejected")
    assert read_check_progress(folder, read_events(folder), strata).sample is None
    decide(review, lowest[-1:])
    sample = read_check_progress(folder, read_events(folder), strata).sample
    assert sample is not None
    assert sample.strata.checked.tolist() == [strata.sizes[0], 0, 0, 0, 0]
    assert sample.strata.right.tolist() == [1, 0, 0, 0, 0]
    review.close()


def test_a_moved_box_counts_where_it_was_found_and_an_unnamed_one_may_get_a_name(folder: Path) -> None:
    drawn, strata = draw(folder, 20), strata_of(folder)
    review = open_review(folder)
    decide(review, drawn[1:])
    change_event(review.store, "ann", drawn[0], {"version": 0, "start_s": 0.0, "end_s": 5.0, "label": "wren"})
    sample = read_check_progress(folder, read_events(folder), strata).sample
    assert sample is not None
    assert sample.strata.right.sum() == 20
    moved = sample.rows.set_index("event").loc[drawn[0]]
    with review.store.reading() as db:
        box = db.execute("SELECT original_box FROM events WHERE id = ?", (drawn[0],)).fetchone()[0]
    assert moved["start_s"] == pytest.approx(float(box.strip("[").split(",")[0]))
    assert moved["label"] == ""
    review.close()


def test_a_wrong_name_is_not_right(tmp_path: Path) -> None:
    write_tones(tmp_path / "audio" / "A_1.wav")
    table = detections("A_1.wav", 8).assign(label="wren")
    folder = add_detections(tmp_path / "detections", tmp_path / "audio", {"A_1.wav": table}, embed=False)
    drawn, review = draw(folder, 8), open_review(folder)
    decide(review, drawn[:6])
    decide(review, drawn[6:], label="robin")
    sample = read_check_progress(folder, read_events(folder), strata_of(folder)).sample
    assert sample is not None
    assert (sample.strata.checked.sum(), sample.strata.right.sum()) == (8, 6)
    review.close()


def names_of(folder: Path, label: str) -> Path:
    """A table that gives every detection the same name."""
    table = pd.concat(list(read_events(folder))).assign(label=label, likely_label=label)
    path = folder.parent / "named.csv"
    table.assign(label_score=0.9, label_source="BirdNET").to_csv(path, index=False)
    return path


def test_names_on_the_page_take_no_event_out_of_the_sample(folder: Path) -> None:
    drawn, review = draw(folder, 20), open_review(folder)
    add_suggestions(review.store, names_of(folder, "wren"))
    decide(review, drawn)
    checking = read_check_progress(folder, read_events(folder), strata_of(folder))
    assert checking.sample is not None
    assert (checking.open, checking.sample.strata.checked.sum(), checking.sample.strata.right.sum()) == (
        0,
        20,
        20,
    )
    review.close()


def test_under_names_an_event_is_right_where_its_name_was_accepted(folder: Path) -> None:
    names = read_names(names_of(folder, "wren"))
    names.loc[names.index[:60], "label"] = "unknown"
    table = pd.concat(list(read_events(folder, names)))
    assert set(table["found_label"]) == {""}
    strata = stratify(table["label"].to_numpy(dtype=object), table["score"].to_numpy())
    draw_sample(folder, read_events(folder, names), strata, 30)
    drawn = read_to_check(folder)
    wrens = [str(event) for event in drawn.loc[drawn["stratum"].str.startswith("wren"), "event"]]
    unknown = [str(event) for event in drawn["event"] if event not in wrens]
    assert len(wrens) > 6
    assert len(unknown) > 6
    review = open_review(folder)
    decide(review, wrens[:2], label="wren")
    decide(review, wrens[2:4], label="robin")
    decide(review, wrens[4:], "rejected", label="wren")
    decide(review, unknown[:3], label="robin")  # a call that had no name, and has one now
    decide(review, unknown[3:])
    checking = read_check_progress(folder, read_events(folder, names), strata)
    assert checking.sample is not None
    assert (checking.open, checking.unnamed) == (0, 0)
    rows = checking.sample.rows
    assert rows.loc[rows["label"] == "wren", "right"].sum() == 2
    assert rows.loc[rows["label"] == "unknown", "right"].all()
    review.close()


def test_what_was_accepted_before_it_had_a_name_says_nothing_about_the_name(folder: Path) -> None:
    names = read_names(names_of(folder, "wren"))
    table = pd.concat(list(read_events(folder, names)))
    strata = stratify(table["label"].to_numpy(dtype=object), table["score"].to_numpy())
    draw_sample(folder, read_events(folder, names), strata, 20)
    drawn, review = [str(event) for event in read_to_check(folder)["event"]], open_review(folder)
    decide(review, drawn[:15])
    decide(review, drawn[15:], "rejected")
    checking = read_check_progress(folder, read_events(folder, names), strata)
    assert (checking.open, checking.unnamed) == (15, 15)
    review.close()


def test_a_sample_of_other_events_does_not_count(folder: Path, tmp_path: Path) -> None:
    drawn, review = draw(folder, 20), open_review(folder)
    decide(review, drawn)
    review.close()
    write_tones(tmp_path / "audio" / "C_3.wav")
    add_detections(folder, tmp_path / "audio", {"C_3.wav": detections("C_3.wav", 50, seed=9)}, embed=False)
    checking = read_check_progress(folder, read_events(folder), strata_of(folder))
    assert checking.outdated
    assert checking.sample is None
    draw(folder, 20)
    assert not read_check_progress(folder, read_events(folder), strata_of(folder)).outdated


def test_a_file_that_is_no_review_is_one_sentence(folder: Path) -> None:
    (folder / "review.sqlite").write_text("my notes")
    with pytest.raises(ConfigError, match="is not a review of mast review"):
        read_check_progress(folder, read_events(folder), strata_of(folder))


def test_equal_boxes_have_the_ids_of_the_review(tmp_path: Path) -> None:
    write_tones(tmp_path / "audio" / "A_1.wav")
    table = pd.concat([detections("A_1.wav", 5)] * 2, ignore_index=True)
    folder = add_detections(tmp_path / "detections", tmp_path / "audio", {"A_1.wav": table}, embed=False)
    drawn, review = draw(folder, 10), open_review(folder)
    with sqlite3.connect(folder / "review.sqlite") as db:
        assert {row[0] for row in db.execute("SELECT id FROM events")} == set(drawn)
    review.close()
