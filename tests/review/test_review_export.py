"""From decisions to annotations, and from annotations to training."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pandas as pd
import pytest
from review_folders import add_detections, detections, small_results, write_dataset, write_tones

from mast.annotations import FORMATS, AnnotationSet, read_annotations
from mast.data import load_dataset
from mast.data.chunks import chunk_table
from mast.grid import FrontEnd
from mast.review.decisions import add_event, change_event, delete_event, mark_reviewed
from mast.review.export_review import collect_annotations, export_folder, export_zip
from mast.review.open_review import Review, open_review
from mast.spans import merge_spans


def events_of(review: Review, recording_id: int = 1) -> list[dict[str, object]]:
    with review.store.reading() as db:
        rows = db.execute(
            "SELECT * FROM events WHERE recording_id = ? ORDER BY start_s", (recording_id,)
        ).fetchall()
    return [dict(row) for row in rows]


def collected(review: Review, *, complete: bool = False) -> AnnotationSet:
    with review.store.reading() as db:
        return collect_annotations(db, complete=complete)


def decide_all(review: Review, recording_id: int, status: str = "rejected") -> None:
    for event in events_of(review, recording_id):
        change_event(review.store, "Ana", str(event["id"]), {"version": event["version"], "status": status})


@pytest.fixture
def review(tmp_path: Path) -> Review:
    return open_review(small_results(tmp_path, recordings=3, events=6))


def test_only_what_a_person_said_is_exported(review: Review) -> None:
    a, b, c, d, *_ = (str(event["id"]) for event in events_of(review))
    change_event(review.store, "Ana", a, {"version": 0, "status": "accepted"})
    change_event(review.store, "Ana", b, {"version": 0, "start_s": 1.0, "end_s": 1.25, "label": "wren"})
    change_event(review.store, "Ben", c, {"version": 0, "status": "rejected"})
    delete_event(review.store, "Ben", d, 0)
    add_event(review.store, "Ben", 2, {"start_s": 3, "end_s": 4, "low_hz": 10, "high_hz": 99, "label": "owl"})
    found = collected(review)
    assert sorted(found.events["label"]) == ["", "owl", "wren"]
    assert set(found.events["source"]) == {"expert"}
    assert set(found.events["score"]) == {1.0}
    assert sorted(found.events["reviewer"]) == ["Ana", "Ana", "Ben"]
    moved = found.events[found.events["label"] == "wren"].iloc[0]
    assert (moved["start_s"], moved["end_s"]) == (1.0, 1.25)


def test_nothing_is_reviewed_unless_somebody_said_so(review: Review) -> None:
    decide_all(review, 1)
    assert collected(review).reviewed.empty
    assert len(collected(review, complete=True).reviewed) == 1
    whole = collected(review, complete=True).reviewed.iloc[0]
    assert (whole["start_s"], whole["end_s"]) == (0.0, 6.0)


def test_open_boxes_are_holes_in_what_was_reviewed(review: Review) -> None:
    mark_reviewed(review.store, "Ana", 1, 0.0, 6.0, True)
    events = events_of(review)
    for event in events[2:]:
        change_event(review.store, "Ana", str(event["id"]), {"version": 0, "status": "rejected"})
    spans = collected(review).reviewed
    for event in events[:2]:
        middle = (float(event["start_s"]) + float(event["end_s"])) / 2  # type: ignore[arg-type]
        assert not ((spans["start_s"] <= middle) & (middle < spans["end_s"])).any()
    holes = merge_spans([(float(e["start_s"]), float(e["end_s"])) for e in events[:2]])  # type: ignore[arg-type]
    heard = float((spans["end_s"] - spans["start_s"]).sum())
    assert heard == pytest.approx(6.0 - sum(b - a for a, b in holes))


def test_an_accepted_box_is_heard_for_its_own_extent(review: Review) -> None:
    event = events_of(review)[0]
    change_event(review.store, "Ana", str(event["id"]), {"version": 0, "status": "accepted"})
    spans = collected(review).reviewed
    assert spans[["start_s", "end_s"]].to_numpy().tolist() == [[event["start_s"], event["end_s"]]]


def test_heard_and_empty_is_not_unheard(review: Review) -> None:
    decide_all(review, 1)
    mark_reviewed(review.store, "Ana", 1, 0.0, 6.0, True)
    found = collected(review)
    with review.store.reading() as db:
        name = db.execute("SELECT name FROM recordings WHERE id = 1").fetchone()[0]
    assert found.reviewed_empty() == [name]
    assert len(found.names()) == 3


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_reads_back_boxes_and_spans(review: Review, tmp_path: Path, format: str) -> None:
    events = events_of(review)
    for event in events[:3]:
        change_event(review.store, "Ana", str(event["id"]), {"version": 0, "label": "wren"})
    for event in events[3:]:
        change_event(review.store, "Ana", str(event["id"]), {"version": 0, "status": "rejected"})
    mark_reviewed(review.store, "Ana", 1, 0.5, 5.5, True)
    decide_all(review, 2)
    mark_reviewed(review.store, "Ana", 2, 0.0, 6.0, True)
    done = export_folder(review.store, review.workspace, format, f"as {format}")
    assert done.path == review.workspace.folder / "review_export" / f"as {format}"
    source = done.path if FORMATS[format].folder else done.path / f"annotations{FORMATS[format].suffix}"
    expected = collected(review)
    found = read_annotations(source, format, recordings=expected.recordings)
    assert sorted(found.events["label"]) == ["wren"] * 3
    for column in ("start_s", "end_s", "low_hz", "high_hz"):
        assert found.events[column].tolist() == pytest.approx(
            expected.events[column].tolist(), abs=0.51 if column.endswith("hz") else 1e-3
        )

    def spans(some: AnnotationSet) -> list[tuple[str, float, float]]:
        rows = some.reviewed.sort_values(["recording", "start_s"]).itertuples()
        return [(str(r.recording), round(float(r.start_s), 3), round(float(r.end_s), 3)) for r in rows]  # type: ignore[arg-type]

    assert spans(found) == spans(expected)


def test_a_zip_holds_the_same_files(review: Review, tmp_path: Path) -> None:
    decide_all(review, 1, "accepted")
    folder = export_folder(review.store, review.workspace, "csv", "x").path
    export_zip(review.store, tmp_path / "x.zip", "csv")
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        for name in archive.namelist():
            assert archive.read(name) == (folder / name).read_bytes()
        assert {"boxes.csv", "recordings.csv", "reviewed.csv"} <= set(archive.namelist())


def test_an_export_is_replaced_whole(review: Review) -> None:
    decide_all(review, 1, "accepted")
    first = export_folder(review.store, review.workspace, "raven", "mine").path
    decide_all(review, 2, "accepted")
    assert "kept" not in export_folder(review.store, review.workspace, "raven", "mine").note
    assert [p.name for p in first.parent.iterdir() if p.name[0] != "."] == ["mine"]


def test_an_export_in_another_format_or_that_somebody_changed_is_kept(review: Review) -> None:
    decide_all(review, 1, "accepted")
    mine = export_folder(review.store, review.workspace, "raven", "mine").path
    tables = sorted(path.name for path in mine.glob("*.selections.txt"))
    done = export_folder(review.store, review.workspace, "csv", "mine")
    assert done.note.endswith(f"The earlier export is kept in {mine.parent / 'mine.earlier'}.")
    assert sorted(path.name for path in (mine.parent / "mine.earlier").glob("*.selections.txt")) == tables
    assert (mine / "boxes.csv").is_file()
    assert not list(mine.glob("*.selections.txt"))
    (mine / "boxes.csv").write_text("my own")
    done = export_folder(review.store, review.workspace, "csv", "mine")
    assert done.note.endswith(f"The earlier export is kept in {mine.parent / 'mine.earlier-2'}.")
    assert (mine.parent / "mine.earlier-2" / "boxes.csv").read_text() == "my own"
    assert (mine / "boxes.csv").read_text() != "my own"


def test_an_export_does_not_follow_a_link_out(review: Review, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (review.workspace.folder / "review_export").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="leads out"):
        export_folder(review.store, review.workspace, "csv", "x")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_review_of_detections_is_a_dataset_to_train_on(tmp_path: Path) -> None:
    """The loop: what was marked becomes labelled chunks, with the accepted boxes in them and no others."""
    write_tones(tmp_path / "audio" / "S1_20240501_060000.wav", 30.0)
    write_tones(tmp_path / "audio" / "S2_20240501_060000.wav", 30.0)
    names = sorted(p.name for p in (tmp_path / "audio").iterdir())
    tables = {name: detections(name, 8, seed=k, seconds=30.0) for k, name in enumerate(names)}
    folder = add_detections(tmp_path / "d", tmp_path / "audio", tables)
    review = open_review(folder)
    decide_all(review, 1, "accepted")
    mark_reviewed(review.store, "Ana", 1, 0.0, 30.0, True)
    done = export_folder(review.store, review.workspace, "csv", "round 1")
    assert done.note == ""
    dataset = load_dataset(done.path)
    assert dataset.reviewed_recordings == [names[0]]
    assert len(dataset.annotations.events) == 8
    chunks = chunk_table(dataset, FrontEnd())
    labelled = chunks.groupby("recording")["labelled"].all()
    assert labelled.to_dict() == {names[0]: True, names[1]: False}
    assert dataset.path(names[0]).resolve() == tmp_path / "audio" / names[0]
    assert set(dataset.recordings["site"]) == {"S1", "S2"}


def test_boxes_alone_come_with_a_word_on_spans(review: Review) -> None:
    assert "yet" in export_folder(review.store, review.workspace, "csv", "x").note
    decide_all(review, 1, "accepted")
    assert "marked" in export_folder(review.store, review.workspace, "csv", "x").note
    assert export_folder(review.store, review.workspace, "csv", "x", complete=True).note == ""


def test_a_dataset_exports_as_it_was_plus_what_changed(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "data")
    review = open_review(folder)
    before = load_dataset(folder)
    done = export_folder(review.store, review.workspace, "csv", "same")
    after = load_dataset(done.path)
    pd.testing.assert_frame_equal(
        after.annotations.events[["recording", "start_s", "label"]],
        before.annotations.events[["recording", "start_s", "label"]],
    )
    assert after.annotations.reviewed.to_dict("records") == before.annotations.reviewed.to_dict("records")
    assert after.recordings[["file", "site", "split"]].to_dict("records") == before.recordings[
        ["file", "site", "split"]
    ].to_dict("records")
    delete_event(review.store, "Ana", str(events_of(review)[0]["id"]), 0)
    add_event(review.store, "Ana", 3, {"start_s": 1, "end_s": 2, "low_hz": 10, "high_hz": 99, "label": "owl"})
    changed = load_dataset(export_folder(review.store, review.workspace, "csv", "changed").path)
    assert sorted(changed.annotations.events["label"]) == ["owl", "tone"]
    assert "c.wav" in set(changed.annotations.reviewed["recording"])


def test_recordings_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    folder = small_results(tmp_path, recordings=2)
    (tmp_path / "audio" / "A_1.wav").unlink()
    review = open_review(folder)
    for recording in (1, 2):
        decide_all(review, recording, "accepted")
    found = collected(review)
    assert "A_1.wav" not in found.names()
    assert len(found.events) == 10
