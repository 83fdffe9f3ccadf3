"""Opening a folder, and opening it again."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from review_folders import add_detections, detections, small_results, write_dataset, write_tones

from mast.errors import AudioError, ConfigError, MastError
from mast.review import listing
from mast.review.decisions import change_event
from mast.review.intake import _days_and_hours
from mast.review.listing import ListFilter
from mast.review.open_review import Review, open_review
from mast.review.queue import queue
from mast.review.store import STORE, Store


def all_events(review: Review) -> list[sqlite3.Row]:
    with review.store.reading() as db:
        return db.execute(
            "SELECT e.*, r.name FROM events e JOIN recordings r ON r.id = e.recording_id ORDER BY name, start_s"
        ).fetchall()


def test_every_detection_is_an_open_event(tmp_path: Path) -> None:
    import pandas as pd

    folder = small_results(tmp_path)
    review = open_review(folder)
    events = all_events(review)
    table = pd.read_parquet(folder / "detections.parquet").sort_values(["recording", "start_s"])
    assert [row["start_s"] for row in events] == table["start_s"].tolist()
    assert [row["score"] for row in events] == table["score"].tolist()
    assert {row["status"] for row in events} == {"open"}
    assert (review.intake.recordings, review.intake.new_events) == (3, 30)
    with review.store.reading() as db:
        found = listing.list_recordings(db, ListFilter(), sort="name", offset=0, limit=10)
    assert [item["events"] for item in found["items"]] == [10, 10, 10]
    assert all(item["duration_s"] == 6.0 and item["sample_rate"] == 16_000 for item in found["items"])


def test_the_bar_counts_recordings_once(tmp_path: Path) -> None:
    folder = small_results(tmp_path)
    for _ in range(2):  # all are new; none is
        seen: list[tuple[int, int]] = []
        open_review(folder, progress=lambda done, total, _, seen=seen: seen.append((done, total))).close()
        assert {total for _, total in seen} == {3}
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        assert seen[-1] == (3, 3)


def test_opening_again_adds_what_is_new_and_keeps_every_decision(tmp_path: Path) -> None:
    folder = small_results(tmp_path)
    review = open_review(folder)
    decided = all_events(review)[::3]
    for row in decided:
        change_event(review.store, "Ana", row["id"], {"version": 0, "status": "rejected", "label": "wind"})
    before = {row["id"]: tuple(row) for row in all_events(review)}
    review.close()
    name = "AA_0.wav"  # sorts before the others: every row of the tables moves
    write_tones(tmp_path / "audio" / name)
    add_detections(folder, tmp_path / "audio", {name: detections(name, 7, seed=9)})
    review = open_review(folder)
    after = {row["id"]: tuple(row) for row in all_events(review)}
    assert review.intake.new_recordings == 1
    assert review.intake.new_events == 7
    assert len(after) == len(before) + 7
    assert {k: after[k] for k in before} == before
    assert open_review(folder).intake.new_events == 0


def test_embedding_rows_follow_the_tables(tmp_path: Path) -> None:
    import pandas as pd

    folder = small_results(tmp_path)
    open_review(folder).close()
    name = "AA_0.wav"
    write_tones(tmp_path / "audio" / name)
    add_detections(folder, tmp_path / "audio", {name: detections(name, 7, seed=9)})
    review = open_review(folder)
    table = pd.read_parquet(folder / "detections.parquet")
    with review.store.reading() as db:
        rows = db.execute(
            "SELECT r.name, e.start_s, r.first_row + e.ordinal AS row FROM events e JOIN recordings r "
            "ON r.id = e.recording_id"
        ).fetchall()
    assert len(rows) == 37
    for row in rows:
        assert table["recording"][row["row"]] == row["name"]
        assert table["start_s"][row["row"]] == row["start_s"]


def test_a_recording_searched_anew_keeps_what_was_decided(tmp_path: Path) -> None:
    folder = small_results(tmp_path, recordings=1)
    review = open_review(folder)
    first, second = all_events(review)[:2]
    change_event(review.store, "Ana", first["id"], {"version": 0, "status": "accepted"})
    review.close()
    again = detections("A_1.wav", 10, seed=0).iloc[1:].reset_index(drop=True)  # one is found no more
    again.loc[3, "start_s"] += 0.001
    add_detections(folder, tmp_path / "audio", {"A_1.wav": again})
    review = open_review(folder)
    events = {row["id"]: row for row in all_events(review)}
    assert events[first["id"]]["status"] == "accepted"  # decided, so it stays
    assert second["id"] in events
    assert len(events) == 10  # eight as before, one moved, one decided
    with review.store.reading() as db:
        counted = db.execute("SELECT events, open FROM recordings").fetchone()
    assert tuple(counted) == (10, 9)


def test_identical_boxes_are_two_events(tmp_path: Path) -> None:
    import pandas as pd

    write_tones(tmp_path / "audio" / "a.wav")
    table = pd.concat([detections("a.wav", 2)] * 2).sort_values("start_s").reset_index(drop=True)
    review = open_review(add_detections(tmp_path / "d", tmp_path / "audio", {"a.wav": table}))
    assert len({row["id"] for row in all_events(review)}) == 4


def test_a_dataset_starts_as_its_experts_left_it(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path)
    review = open_review(folder)
    events = all_events(review)
    assert [(row["status"], row["label"], row["score"]) for row in events] == [("accepted", "tone", None)] * 2
    with review.store.reading() as db:
        items = {
            i["name"]: i
            for i in listing.list_recordings(db, ListFilter(), sort="name", offset=0, limit=9)["items"]
        }
        spans = db.execute(
            "SELECT r.name, s.start_s, s.end_s FROM spans s JOIN recordings r ON r.id = recording_id"
        )
        assert sorted(tuple(row) for row in spans) == [("a.wav", 0.0, 6.0), ("b.wav", 0.0, 6.0)]
    assert {name: item["status"] for name, item in items.items()} == {
        "a.wav": "done",
        "b.wav": "done",
        "c.wav": "open",
    }


def test_a_recording_that_was_moved_keeps_its_boxes_and_spans(tmp_path: Path) -> None:
    rows = [(name, 1.0, 1.5, 900.0, 1100.0, "tone") for name in ("a.wav", "b.wav")]
    folder = write_dataset(tmp_path / "data", boxes=rows)
    for opened_before in (False, True):
        (folder / "audio" / "a.wav").rename(tmp_path / "a.wav")
        review = open_review(folder)
        assert len(all_events(review)) == (2 if opened_before else 1)
        with review.store.reading() as db:
            items = listing.list_recordings(db, ListFilter(), sort="name", offset=0, limit=9)["items"]
        assert [item["error"] for item in items] == ["a.wav: no such recording", "", ""]
        review.close()
        (tmp_path / "a.wav").rename(folder / "audio" / "a.wav")
        review = open_review(folder)
        assert [row["name"] for row in all_events(review)] == ["a.wav", "b.wav"]
        with review.store.reading() as db:
            items = listing.list_recordings(db, ListFilter(), sort="name", offset=0, limit=9)["items"]
            heard = db.execute(
                "SELECT r.name FROM spans s JOIN recordings r ON r.id = recording_id"
            ).fetchall()
        assert [item["error"] for item in items] == ["", "", ""]
        assert sorted(row["name"] for row in heard) == ["a.wav", "b.wav"]
        review.close()


def test_detectors_boxes_in_a_dataset_start_open(tmp_path: Path) -> None:
    import pandas as pd

    folder = write_dataset(tmp_path)
    table = pd.read_csv(folder / "boxes.csv").assign(score=[0.4, 1.0], source=["birdnet", ""])
    table.to_csv(folder / "boxes.csv", index=False)
    assert [row["status"] for row in all_events(open_review(folder))] == ["open", "accepted"]


def test_broken_recordings_are_listed_with_reasons(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path)
    (folder / "recordings.csv").unlink()
    (folder / "audio" / "empty.wav").write_bytes(b"")
    (folder / "audio" / "noise.wav").write_bytes(b"no sound at all" * 99)
    review = open_review(folder)
    with review.store.reading() as db:
        items = listing.list_recordings(db, ListFilter(), sort="name", offset=0, limit=9)["items"]
    errors = {item["name"]: item["error"] for item in items if item["error"]}
    assert sorted(errors) == ["empty.wav", "noise.wav"]
    assert "0 bytes" in errors["empty.wav"]
    assert not any(str(tmp_path) in error for error in errors.values())


def test_failures_of_detect_are_listed(tmp_path: Path) -> None:
    folder = small_results(tmp_path)
    (folder / "failures.csv").write_text(
        "file,outcome,reason\nbad.wav,failed,the file is empty\nA_1.wav,damaged,ends early\n",
        encoding="utf-8",
    )
    (tmp_path / "audio" / "bad.wav").write_bytes(b"")
    review = open_review(folder)
    with review.store.reading() as db:
        items = {
            i["name"]: i
            for i in listing.list_recordings(db, ListFilter(), sort="name", offset=0, limit=9)["items"]
        }
    assert items["bad.wav"]["error"] == "the file is empty"
    assert items["A_1.wav"]["error"] == ""


def test_moved_recordings_are_found_by_their_names(tmp_path: Path) -> None:
    folder = small_results(tmp_path)
    shutil.move(tmp_path / "audio", tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="--audio"):
        open_review(folder)
    review = open_review(folder, audio=tmp_path / "elsewhere")
    assert review.workspace.path("A_1.wav") == tmp_path / "elsewhere" / "A_1.wav"
    (tmp_path / "elsewhere" / "new").mkdir()
    shutil.move(tmp_path / "elsewhere" / "B_3.wav", tmp_path / "elsewhere" / "new" / "B_3.wav")
    review = open_review(folder, audio=tmp_path / "elsewhere")
    assert review.workspace.path("B_3.wav") == tmp_path / "elsewhere" / "new" / "B_3.wav"
    os.remove(tmp_path / "elsewhere" / "A_1.wav")
    review = open_review(folder, audio=tmp_path / "elsewhere")
    with review.store.reading() as db:
        items = {
            i["name"]: i
            for i in listing.list_recordings(db, ListFilter(), sort="name", offset=0, limit=9)["items"]
        }
    assert "--audio" in items["A_1.wav"]["error"]
    assert items["B_3.wav"]["error"] == ""


@pytest.mark.parametrize(
    "name",
    ["../secret.wav", "/etc/passwd", "link.wav", "folder/secret.wav", "../../etc/hostname", "x\0y.wav"],
)
def test_paths_outside_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    folder = small_results(tmp_path)
    write_tones(tmp_path / "secret.wav")
    write_tones(tmp_path / "outside" / "secret.wav")
    (tmp_path / "audio" / "link.wav").symlink_to(tmp_path / "secret.wav")
    (tmp_path / "audio" / "folder").symlink_to(tmp_path / "outside")
    with pytest.raises(AudioError):
        open_review(folder).workspace.path(name)


def test_links_within_the_folder_and_to_the_folder_are_fine(tmp_path: Path) -> None:
    folder = small_results(tmp_path)
    (tmp_path / "audio" / "again.wav").symlink_to(tmp_path / "audio" / "A_1.wav")
    (tmp_path / "alias").symlink_to(tmp_path / "audio")
    assert open_review(folder).workspace.path("again.wav").name == "A_1.wav"
    assert open_review(folder, audio=tmp_path / "alias").workspace.path("A_1.wav").is_file()


def test_something_that_is_no_recording_is_not_opened(tmp_path: Path) -> None:
    folder = small_results(tmp_path)
    (tmp_path / "audio" / "notes.txt").write_text("private", encoding="utf-8")
    with pytest.raises(AudioError, match="not a recording"):
        open_review(folder).workspace.path("notes.txt")


def test_folders_that_are_neither(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        open_review(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(
        ConfigError, match=r"--audio .*file: is a file; expected the folder of the recordings"
    ):
        open_review(tmp_path, audio=tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MastError, match="no recording"):
        open_review(tmp_path / "empty")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "run.json").write_text(json.dumps({"made_with": {"root": str(tmp_path)}}))
    with pytest.raises(ConfigError, match="not finished"):
        open_review(tmp_path / "half")
    (tmp_path / "half" / "run.json").write_text("[]")
    with pytest.raises(ConfigError, match="is damaged or not from mast detect"):
        open_review(tmp_path / "half")


def test_a_store_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / STORE).write_bytes(b"this is not a database at all, but it is long enough to look at" * 100)
    with pytest.raises(ConfigError, match="cannot be used"):
        Store(tmp_path / STORE)
    db = sqlite3.connect(tmp_path / "new.sqlite")
    db.execute("PRAGMA user_version = 99")
    db.commit()
    with pytest.raises(ConfigError, match="another version"):
        Store(tmp_path / "new.sqlite")


def test_an_empty_results_folder_opens(tmp_path: Path) -> None:
    write_tones(tmp_path / "audio" / "a.wav")
    none = detections("a.wav", 0)
    review = open_review(add_detections(tmp_path / "d", tmp_path / "audio", {"a.wav": none}))
    assert review.intake.recordings == 1
    assert all_events(review) == []
    with review.store.reading() as db:
        assert queue(db, "random", ListFilter(), limit=5, after=None)["events"] == []
        assert listing.review_progress(db, ListFilter())["precision"] is None


def test_a_recording_touches_the_days_and_hours_it_lasts() -> None:
    assert _days_and_hours("2024-05-01T23:30:00", 3600) == ("2024-05-01", "2024-05-02", 1 << 23 | 1)
    assert _days_and_hours("2024-05-01T07:00:00", 3600) == ("2024-05-01", "2024-05-01", 1 << 7)
    assert _days_and_hours("2024-05-01T07:00:00", 90_000)[2] == (1 << 24) - 1
    assert _days_and_hours("", 60) == ("", "", 0)
