"""`mast convert`: counts, losses, refusals."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
import typer
from typer.testing import CliRunner

from mast.annotations import FORMATS, AnnotationSet, read_annotations, write_annotations
from mast.annotations.detections import DONE, FACTS, DetectionRun, mark_path, write_run
from mast.cli import convert as module
from mast.cli.convert import convert
from mast.errors import AnnotationError, ConfigError

CSV = "file,start_s,end_s,low_hz,high_hz,label,score\n"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two recordings of 2 s at 16 kHz, one with a box above Nyquist, one heard and empty."""
    folder = tmp_path / "data"
    (folder / "audio").mkdir(parents=True)
    for name in ("a.wav", "b.wav"):
        soundfile.write(folder / "audio" / name, np.zeros(32_000), 16_000)
    (folder / "boxes.csv").write_text(CSV + "a.wav,0.5,1.25,1000,9000,robin,0.5\n")
    (folder / "recordings.csv").write_text("file\na.wav\nb.wav\n")
    return folder


def run(*arguments: object) -> tuple[str, str]:
    app = typer.Typer()
    app.command()(convert)
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_dataset_goes_to_every_format_and_back(name: str, dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / f"out{'' if FORMATS[name].folder else FORMATS[name].suffix}"
    stdout, stderr = run(dataset, out, "--to", name, "--audio", dataset / "audio", "--quiet")
    assert stdout == f"2 recordings, 1 event, 1 recording heard and empty → {out} ({name})\n"
    assert ("events' score" in stderr) == (name in ("audacity", "birdeep"))
    run(out, tmp_path / "back.csv", "--to", "csv", "--quiet")
    back = read_annotations(tmp_path / "back.csv")
    row = back.events[["recording", "start_s", "end_s", "low_hz", "high_hz", "label"]].values.tolist()
    assert row == [["a.wav", 0.5, 1.25, 1000.0, 8000.0, "robin"]]
    assert back.reviewed_empty() == ["b.wav"]


def test_what_the_recordings_say_is_not_called_lost(dataset: Path, tmp_path: Path) -> None:
    tables = tmp_path / "raven"
    run(dataset / "boxes.csv", tables, "--to", "raven", "--audio", dataset / "audio")
    _, stderr = run(tables, tmp_path / "boxes.csv", "--to", "csv", "--audio", dataset / "audio")
    assert "dropped" not in stderr
    _, stderr = run(tables, tmp_path / "alone.csv", "--to", "csv")
    assert "dropped, because csv cannot store it: recordings' duration_s" in stderr


def test_cut_frequencies_and_losses_are_said(dataset: Path, tmp_path: Path) -> None:
    _, stderr = run(
        dataset / "boxes.csv", tmp_path / "labels", "--to", "audacity", "--audio", dataset / "audio"
    )
    assert "1 of 1 events reached above half the sample rate and were cut to it" in stderr
    assert "dropped, because audacity cannot store it: events' score" in stderr


def test_the_folder_of_a_dataset_is_also_the_folder_of_its_recordings(dataset: Path, tmp_path: Path) -> None:
    """--audio data finds data/audio/a.wav by the name that the table has for it."""
    _, stderr = run(dataset / "boxes.csv", tmp_path / "o.csv", "--to", "csv", "--audio", dataset)
    assert "1 of 1 events reached above half the sample rate and were cut to it" in stderr
    assert stderr.count("warning") == 1  # no recording is missing
    assert read_annotations(tmp_path / "o.csv").events["high_hz"].tolist() == [8000.0]


@pytest.mark.parametrize("name", ["csv", "raven", "kaleidoscope"])
def test_recordings_that_are_not_there_are_said(name: str, dataset: Path, tmp_path: Path) -> None:
    table = tmp_path / f"in{FORMATS[name].suffix}"
    boxes = read_annotations(dataset / "boxes.csv")
    more = boxes.events.assign(recording="nowhere.wav")
    write_annotations(AnnotationSet(pd.concat([boxes.events, more])), table, name)
    arguments = (table, tmp_path / "o.csv", "--to", "csv", "--audio", dataset)
    _, stderr = run(*arguments)
    told = (
        f"1 of 2 recordings is not in {dataset} (nowhere.wav), so its duration and sample rate are not known"
    )
    assert f"mast: warning: {told}\n" in stderr
    assert "nowhere" not in run(*arguments, "--quiet")[1]


@pytest.mark.parametrize("name", ["csv", "raven", "audacity", "kaleidoscope", "coco", "yolo", "aoef"])
def test_a_folder_with_none_of_the_recordings_is_refused(name: str, dataset: Path, tmp_path: Path) -> None:
    table = tmp_path / f"in{'' if FORMATS[name].folder else FORMATS[name].suffix}"
    wrong, out = tmp_path / "card", tmp_path / "o.csv"
    run(dataset, table, "--to", name, "--audio", dataset)
    wrong.mkdir()
    for there in ("x.wav", "y.wav", "z.wav"):
        soundfile.write(wrong / there, np.zeros(32_000), 16_000)
    with pytest.raises(AnnotationError) as refused:
        convert(table, out, "csv", audio=wrong)
    assert str(refused.value).startswith(f"{table}: none of its recordings (a")
    assert str(refused.value).endswith(
        f"is in {wrong} (there are x.wav, y.wav and 1 more); give their folder with --audio, or correct their names"
    )
    assert not out.exists()


def test_the_right_folder_is_not_refused_because_nothing_there_can_be_read(
    dataset: Path, tmp_path: Path
) -> None:
    (dataset / "audio" / "a.wav").write_bytes(b"broken")
    _, stderr = run(dataset / "boxes.csv", tmp_path / "o.csv", "--to", "csv", "--audio", dataset)
    told = "1 of 1 recording cannot be read (a.wav), so its duration and sample rate are not known"
    assert f"mast: warning: {told}\n" in stderr
    assert read_annotations(tmp_path / "o.csv").annotated() == ["a.wav"]


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """Two sites whose recorders started at the same second, and a third recording."""
    for name in ("SiteA/20240514_053000.WAV", "SiteB/20240514_053000.WAV", "SiteB/20240514_054000.WAV"):
        (tmp_path / "sites" / name).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(tmp_path / "sites" / name, np.zeros(32_000), 16_000)
    return tmp_path / "sites"


RAVEN = "Begin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\tBegin File\n"


def raven_table(path: Path, *names: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(RAVEN + "".join(f"0.5\t1\t1000\t2000\t{name}\n" for name in names))
    return path


def test_a_name_that_recordings_at_two_sites_have_is_refused(sites: Path, tmp_path: Path) -> None:
    tables, out = raven_table(tmp_path / "tables" / "x.txt", "20240514_053000.WAV").parent, tmp_path / "o.csv"
    twice = (
        f"is in {sites} more than once: 20240514_053000.WAV is in SiteA and SiteB; "
        "put its table into a folder SiteA or SiteB, or add a column Begin Path"
    )
    with pytest.raises(AnnotationError) as refused:
        convert(tables, out, "csv", audio=sites)
    assert str(refused.value) == f"{tables}: 1 of 1 recording {twice}"
    raven_table(tables / "x.txt", "20240514_053000.WAV", "nowhere.wav")
    with pytest.raises(AnnotationError) as refused:
        convert(tables, out, "csv", audio=sites)
    assert str(refused.value).startswith(f"{tables}: 1 of 2 recordings {twice}; 1 of 2 recordings is not in ")
    assert not out.exists()
    raven_table(tables / "x.txt", "20240514_053000.WAV", "20240514_054000.WAV")
    _, stderr = run(tables, out, "--to", "csv", "--audio", sites)
    assert stderr.endswith(f"mast: warning: 1 of 2 recordings {twice}\n")
    assert read_annotations(out).annotated() == ["20240514_053000.WAV", "SiteB/20240514_054000.WAV"]


def test_what_to_do_about_a_name_twice_depends_on_the_format(sites: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(CSV + "20240514_053000.WAV,0,1,1000,2000,x,1\n")
    with pytest.raises(AnnotationError, match=r"write the folder, too, as in SiteA/20240514_053000\.WAV$"):
        convert(table, tmp_path / "o.csv", "csv", audio=sites)
    soundfile.write(sites / "20240514_054000.wav", np.zeros(32_000), 16_000)
    soundfile.write(sites / "20240514_054000.flac", np.zeros(32_000), 16_000)
    raven_table(tmp_path / "t.txt", "20240514_054000.mp3")
    with pytest.raises(AnnotationError, match=r"may be .*; write in full which one it is$"):
        convert(tmp_path / "t.txt", tmp_path / "o.csv", "csv", audio=sites)


def test_a_table_in_a_folder_of_the_same_name_means_the_recording_there(sites: Path, tmp_path: Path) -> None:
    tables, out = tmp_path / "tables", tmp_path / "o.csv"
    for site in ("SiteA", "SiteB"):
        raven_table(tables / site / "x.txt", "20240514_053000.WAV")
    (sites / "SiteB" / "20240514_053000.WAV").write_bytes(b"")  # an empty battery
    _, stderr = run(tables, out, "--to", "csv", "--audio", sites)
    assert "1 of 2 recordings cannot be read (SiteB/20240514_053000.WAV), so its duration" in stderr
    both = ["SiteA/20240514_053000.WAV", "SiteB/20240514_053000.WAV"]
    assert read_annotations(out).annotated() == both
    run(tables / "SiteA" / "x.txt", out, "--to", "csv", "--audio", sites)
    assert read_annotations(out).annotated() == both[:1]


def test_no_line_is_longer_than_a_few_hundred_characters(dataset: Path, tmp_path: Path) -> None:
    """Whatever names, labels and headers of a table hold."""
    table = tmp_path / "in.csv"
    table.write_text(
        f"file,start_s,end_s,low_hz,high_hz,{'x' * 100_000}\n{'n' * 100_000}.wav,0,1,1000,2000,7\n"
        "a.wav,0,1,1000,2000,7\n"
    )
    _, stderr = run(table, tmp_path / "o.csv", "--to", "birdeep", "--audio", dataset)
    assert "1 of 2 recordings is not in " in stderr
    assert "dropped, because birdeep cannot store it: events' xxx" in stderr
    assert max(map(len, stderr.splitlines())) <= 400


def test_boxes_after_the_end_are_said(dataset: Path, tmp_path: Path) -> None:
    (dataset / "boxes.csv").write_text(CSV + "a.wav,30,31,1000,2000,robin,0.5\n")
    _, stderr = run(dataset, tmp_path / "o.csv", "--to", "csv", "--audio", dataset)
    assert "warning: the only event starts after its recording has ended; does it belong to" in stderr
    for rows, told in ((1, "1 of 2 events starts after its"), (2, "2 of 3 events start after their")):
        late = "a.wav,30,31,1000,2000,robin,0.5\n" * rows
        (dataset / "boxes.csv").write_text(f"{CSV}a.wav,0,1,1000,2000,robin,0.5\n{late}")
        _, stderr = run(dataset, tmp_path / f"{rows}.csv", "--to", "csv", "--audio", dataset)
        assert f"warning: {told} recording has ended" in stderr
    (dataset / "boxes.csv").write_text(CSV + "a.wav,30,9000,1000,2000,robin,0.5\n")
    with pytest.raises(AnnotationError, match=r"event 1: ends at 9000 s, but a\.wav lasts 2 s"):
        convert(dataset, tmp_path / "o2.csv", "csv", audio=dataset)


def test_frequencies_in_khz_are_said(dataset: Path, tmp_path: Path) -> None:
    (dataset / "boxes.csv").write_text(CSV + "a.wav,0.5,1,2.5,4,robin,0.5\n")
    _, stderr = run(dataset, tmp_path / "o.csv", "--to", "csv", "--audio", dataset)
    told = "all events lie below 8 Hz, so their frequencies are probably in kHz; multiply them by 1000 and try again"
    assert f"mast: warning: {dataset}: {told}\n" in stderr
    (dataset / "boxes.csv").write_text(
        CSV + "a.wav,0.5,1,2.5,4,elephant,0.5\na.wav,0.5,1,10,20,elephant,0.5\n"
    )
    _, stderr = run(dataset, tmp_path / "o2.csv", "--to", "csv", "--audio", dataset)
    assert "kHz" not in stderr


def test_a_folder_that_detect_left_is_read(dataset: Path, tmp_path: Path) -> None:
    """Its own table counts, whatever else was written beside it."""
    left = tmp_path / "detections"
    found = read_annotations(dataset / "boxes.csv")
    (left / "recordings").mkdir(parents=True)
    found.events.to_parquet(left / "detections.parquet")
    found.events.to_csv(left / "detections.csv", index=False)
    for name in ("raven", "audacity"):
        write_annotations(found, left / name, name)
    for folder in (left, left / "raven"):
        stdout, _ = run(folder, tmp_path / f"{folder.name}.csv", "--to", "csv")
        assert stdout.startswith("1 recording, 1 event, 0 recordings heard and empty")
    (left / "detections.parquet").unlink()
    assert run(left, tmp_path / "again.csv", "--to", "csv")[0].startswith("1 recording, 1 event")


@pytest.mark.parametrize("name", ["kaleidoscope", "birdeep"])
def test_a_table_that_detect_left_in_another_format_is_read(name: str, dataset: Path, tmp_path: Path) -> None:
    """It has the name of our own table, and its header says what it is."""
    left = tmp_path / name
    left.mkdir()
    write_annotations(read_annotations(dataset / "boxes.csv"), left / "detections.csv", name)
    for options in ((), ("--from", name)):
        stdout, _ = run(left, tmp_path / "again.csv", "--to", "csv", *options)
        assert stdout.startswith("1 recording, 1 event, 0 recordings heard and empty")


@pytest.mark.parametrize("name", ["coco", "yolo", "aoef"])
def test_a_folder_that_detect_left_knows_its_recordings(name: str, dataset: Path, tmp_path: Path) -> None:
    """So --audio is not needed where a format asks for durations and sample rates."""
    left = tmp_path / "detections"
    write_run(left, DetectionRun(root=str(dataset), made_with={"root": str(dataset)}))
    read_annotations(dataset / "boxes.csv").events.to_parquet(left / "detections.parquet")
    facts = {"recording": "a.wav", "duration_s": 2.0, "sample_rate": 16_000, "site": "OAK", "datetime": ""}
    mark = mark_path(left, "a.wav", DONE)
    mark.parent.mkdir()
    table = pa.table({"start_s": [0.5]})
    pq.write_table(table.replace_schema_metadata({FACTS: json.dumps(facts).encode()}), mark)
    out = tmp_path / f"out{FORMATS[name].suffix}"
    stdout, _ = run(left, out, "--to", name)
    assert stdout.startswith("1 recording, 1 event, 0 recordings heard and empty")
    assert read_annotations(out, name).durations() == {"a.wav": 2.0}
    assert "dropped" not in run(left, tmp_path / "same.csv", "--to", "csv")[1]


def test_a_name_that_is_not_text_is_spelt_out(dataset: Path, tmp_path: Path) -> None:
    raw = os.fsdecode(b"caf\xe9.wav")
    (dataset / "audio" / "a.wav").rename(dataset / "audio" / raw)
    labels = tmp_path / "labels"
    labels.mkdir()
    (labels / os.fsdecode(b"caf\xe9.txt")).write_text("0.5\t1\trobin\n\\\t1000\t9000\n")
    _, stderr = run(labels, tmp_path / "o.csv", "--to", "csv", "--from", "audacity", "--audio", dataset)
    assert "1 of 1 events reached above half the sample rate" in stderr
    assert read_annotations(tmp_path / "o.csv").events["recording"].tolist() == ["caf\\xe9.wav"]


def test_recordings_that_are_not_mentioned_are_not_carried_along(dataset: Path, tmp_path: Path) -> None:
    run(dataset / "boxes.csv", tmp_path / "c.json", "--to", "coco", "--audio", dataset / "audio", "--quiet")
    assert read_annotations(tmp_path / "c.json").names() == ["a.wav"]


def test_notes_are_joined_into_songs(tmp_path: Path) -> None:
    notes = pd.DataFrame(
        {"file": "a.wav", "start_s": [0.0, 1.0, 9.0], "end_s": [0.5, 1.5, 9.5], "low_hz": 100.0}
    )
    notes.assign(high_hz=900.0, score=[0.3, 0.6, 0.5]).to_csv(tmp_path / "notes.csv", index=False)
    said, _ = run(tmp_path / "notes.csv", tmp_path / "songs.csv", "--to", "csv", "--join", 0.5)
    assert "1 recording, 2 events" in said
    songs = pd.read_csv(tmp_path / "songs.csv")
    assert songs[["start_s", "end_s", "score", "notes"]].to_numpy().tolist() == [
        [0, 1.5, 0.6, 2],
        [9, 9.5, 0.5, 1],
    ]


def test_boxes_that_a_new_table_lacks_are_kept(tmp_path: Path) -> None:
    out, row = tmp_path / "boxes.csv", "{}.wav,0.5,1.25,1000,9000,robin,0.5\n"
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(CSV + row.format(name))
        (tmp_path / f"{name}.reviewed.csv").write_text(f"file\n{name}.wav\n")
    run(tmp_path / "a.csv", out, "--to", "csv")
    _, stderr = run(tmp_path / "b.csv", out, "--to", "csv", "--quiet")
    kept = tmp_path / "boxes.earlier.csv"
    assert f"the old one is kept as {kept}" in stderr
    assert read_annotations(out).annotated() == ["b.wav"]
    earlier = read_annotations(kept)
    assert (earlier.events["recording"].tolist(), earlier.reviewed["recording"].tolist()) == (
        ["a.wav"],
        ["a.wav"],
    )
    run(tmp_path / "a.csv", out, "--to", "csv")
    assert read_annotations(tmp_path / "boxes.earlier-2.csv").annotated() == ["b.wav"]


def test_spans_that_were_narrowed_by_hand_are_kept(dataset: Path, tmp_path: Path) -> None:
    """A new table that says that more was listened to, or less, leaves the old spans beside it."""
    out, reviewed = tmp_path / "boxes.csv", tmp_path / "reviewed.csv"
    run(dataset, tmp_path / "raven", "--to", "raven", "--audio", dataset)
    next((tmp_path / "raven").glob("b*.txt")).unlink()
    again = (tmp_path / "raven", out, "--to", "csv", "--audio", dataset)
    run(*again)
    reviewed.write_text("file,start_s,end_s\na.wav,0,1.5\n")
    _, stderr = run(*again)
    assert (
        "said that less was listened to than the new one says (in a.wav), so the old one is kept as" in stderr
    )
    assert read_annotations(out).reviewed["end_s"].tolist() == [2.0]
    assert read_annotations(tmp_path / "boxes.earlier.csv").reviewed["end_s"].tolist() == [1.5]
    reviewed.write_text("file,start_s,end_s\na.wav,0,2\nb.wav,0,2\n")
    run(*again)
    assert "b.wav" in (tmp_path / "boxes.earlier-2.reviewed.csv").read_text()
    run(*again)
    assert not (tmp_path / "boxes.earlier-3.csv").exists()


@pytest.mark.parametrize("name", ["csv", "raven", "coco", "aoef", "kaleidoscope", "birdeep"])
def test_the_same_again_or_more_keeps_no_copy(name: str, dataset: Path, tmp_path: Path) -> None:
    out = (tmp_path / "out" / "boxes").with_suffix(FORMATS[name].suffix)
    out.parent.mkdir()
    for more in ("", "b.wav,0.25,1.0,1000,2000,wren,0.5\n"):
        with (dataset / "boxes.csv").open("a") as table:
            table.write(more)
        for _ in range(2):
            run(dataset, out, "--to", name, "--audio", dataset)
    assert not list(out.parent.glob("*earlier*"))


def test_wrong_wishes_are_refused(dataset: Path, tmp_path: Path) -> None:
    boxes = dataset / "boxes.csv"
    with pytest.raises(AnnotationError, match="--to ravn: no such format; choose one of csv, raven"):
        convert(boxes, tmp_path / "x", "ravn")
    with pytest.raises(
        ConfigError, match=r"x\.xlsx: expected the name of a table, ending in \.csv or \.parquet"
    ):
        convert(boxes, tmp_path / "x.xlsx", "csv")
    with pytest.raises(AnnotationError, match="is also the input"):
        convert(boxes, boxes, "csv")
    with pytest.raises(AnnotationError, match="is not empty"):
        convert(boxes, dataset, "raven")
    with pytest.raises(AnnotationError, match="no such file or folder"):
        convert(tmp_path / "nowhere", tmp_path / "x", "raven")


def test_help_names_every_format() -> None:
    assert module._FORMATS.split(", ") == list(FORMATS)
    assert "Example:" in inspect.getdoc(convert)  # type: ignore[operator]


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "boxes.csv").write_text(CSV + "a.wav,2,1,0,1,x,1\n")
    command = [sys.executable, "-m", "mast.cli.main", "convert"]
    done = subprocess.run(
        [*command, str(tmp_path / "boxes.csv"), str(tmp_path / "out"), "--to", "raven"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "boxes.csv, line 2: starts at 2 s after it ends at 1 s" in done.stderr
    assert not (tmp_path / "out").exists()
