from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf

from mast.data.chunks import chunk_table
from mast.data.recordings import load_dataset
from mast.errors import AnnotationError, AudioError, MastError
from mast.grid import FrontEnd

sys.path.insert(0, str(Path(__file__).parents[1] / "audio"))
from hostile_recordings import deny_listing, with_guano

BOX = "start_s,end_s,low_hz,high_hz,label"


def sound(path: Path, seconds: float = 2.0, rate: int = 16_000, channels: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0).normal(0, 0.1, (round(seconds * rate), channels))
    sf.write(path, noise, rate)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three recordings in ``audio/``, one of them boxed."""
    for name in ("A_20230510_060000.wav", "A_20230510_070000.wav", "B_20230511_060000.wav"):
        sound(tmp_path / "audio" / name)
    (tmp_path / "boxes.csv").write_text(f"file,{BOX}\nA_20230510_060000.wav,0.5,1.0,1000,2000,owl\n")
    return tmp_path


def test_a_bare_folder_is_inferred_and_unlabelled(folder: Path) -> None:
    (folder / "boxes.csv").unlink()
    dataset = load_dataset(folder)
    assert dataset.recordings["file"].tolist() == [
        "A_20230510_060000.wav",
        "A_20230510_070000.wav",
        "B_20230511_060000.wav",
    ]
    assert dataset.recordings["site"].tolist() == ["A", "A", "B"]
    assert dataset.recordings["datetime"].iloc[1] == "2023-05-10T07:00:00"
    assert dataset.recordings["duration_s"].tolist() == [2.0] * 3
    assert dataset.recordings["sample_rate"].tolist() == [16_000] * 3
    assert dataset.reviewed_recordings == []
    assert all(dataset.path(name).is_file() for name in dataset.recordings["file"])


def test_without_a_listing_only_boxed_recordings_are_reviewed(folder: Path) -> None:
    dataset = load_dataset(folder)
    assert len(dataset) == 3
    assert dataset.reviewed_recordings == dataset.boxed_recordings == ["A_20230510_060000.wav"]
    assert dataset.annotations.reviewed[["start_s", "end_s"]].to_numpy().tolist() == [[0.0, 2.0]]


def test_a_listing_beside_boxes_means_that_all_were_listened_to(folder: Path) -> None:
    (folder / "recordings.csv").write_text("file\nA_20230510_060000.wav\nB_20230511_060000.wav\n")
    dataset = load_dataset(folder)
    assert len(dataset) == 2
    assert dataset.reviewed_recordings == ["A_20230510_060000.wav", "B_20230511_060000.wav"]
    assert dataset.boxed_recordings == ["A_20230510_060000.wav"]


def test_a_listing_without_boxes_means_nothing_was_listened_to(folder: Path) -> None:
    (folder / "boxes.csv").unlink()
    (folder / "recordings.csv").write_text("file\nA_20230510_060000.wav\n")
    assert load_dataset(folder).reviewed_recordings == []


def test_the_column_reviewed_decides(folder: Path) -> None:
    (folder / "recordings.csv").write_text(
        "file,reviewed\nA_20230510_060000.wav,true\nA_20230510_070000.wav,no\nB_20230511_060000.wav,\n"
    )
    assert load_dataset(folder).reviewed_recordings == ["A_20230510_060000.wav"]
    (folder / "recordings.csv").write_text(
        "file,reviewed\nA_20230510_060000.wav,1\nA_20230510_070000.wav,0\n"
    )
    assert load_dataset(folder).reviewed_recordings == ["A_20230510_060000.wav"]
    (folder / "recordings.csv").write_text("file,reviewed\nA_20230510_060000.wav,partly\n")
    with pytest.raises(
        MastError, match=r"reviewed of A_20230510_060000.wav: found 'partly', expected true or false"
    ):
        load_dataset(folder)


def test_reviewed_csv_decides_before_all_else(folder: Path) -> None:
    (folder / "recordings.csv").write_text(
        "file,reviewed\nA_20230510_060000.wav,true\nB_20230511_060000.wav,true\n"
    )
    (folder / "reviewed.csv").write_text("file,start_s,end_s\nB_20230511_060000.wav,0.5,\n")
    dataset = load_dataset(folder)
    assert dataset.reviewed_recordings == ["B_20230511_060000.wav"]
    assert dataset.annotations.reviewed[["start_s", "end_s"]].to_numpy().tolist() == [[0.5, 2.0]]


def test_raven_tables_say_themselves_what_was_listened_to(folder: Path) -> None:
    header = "Selection\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\n"
    raven = folder / "raven"
    raven.mkdir()
    (raven / "A_20230510_070000.Table.1.selections.txt").write_text(header + "1\t0.1\t0.9\t500\t900\n")
    (raven / "B_20230511_060000.Table.1.selections.txt").write_text(header)
    dataset = load_dataset(folder, annotations=raven)
    assert dataset.boxed_recordings == ["A_20230510_070000.wav"]
    assert dataset.reviewed_recordings == ["A_20230510_070000.wav", "B_20230511_060000.wav"]
    assert dataset.annotations.reviewed["end_s"].tolist() == [2.0, 2.0]


def test_what_the_listing_gives_is_taken_and_the_rest_inferred(folder: Path) -> None:
    (folder / "recordings.csv").write_text(
        "file,site,split,licence,habitat,channels\nA_20230510_060000.wav,Pond,train,CC0,marsh,\n"
    )
    record = load_dataset(folder).recordings.iloc[0]
    assert record["site"] == "Pond"
    assert record["datetime"] == "2023-05-10T06:00:00"
    assert (record["split"], record["licence"], record["habitat"]) == ("train", "CC0", "marsh")
    assert (record["duration_s"], record["channels"]) == (2.0, 1)


def test_events_get_site_and_clock_of_their_recording(folder: Path) -> None:
    (event,) = load_dataset(folder).annotations.events.to_dict("records")
    assert event["site"] == "A"
    assert event["datetime"] == "2023-05-10T06:00:00.500000"


def test_names_with_folders(tmp_path: Path) -> None:
    for name in ("one/x.wav", "two/x.wav", "two/y.wav"):
        sound(tmp_path / name)
    (tmp_path / "boxes.csv").write_text(
        f"file,{BOX}\ntwo/x.wav,0,1,1000,2000,a\ny.wav,0,1,1000,2000,a\none\\x.wav,0,1,1000,2000,a\n"
    )
    dataset = load_dataset(tmp_path)
    assert dataset.annotations.events["recording"].tolist() == ["two/x.wav", "two/y.wav", "one/x.wav"]
    (tmp_path / "boxes.csv").write_text(f"file,{BOX}\nx.wav,0,1,1000,2000,a\n")
    with pytest.raises(AnnotationError, match=r"holds several recordings x\.wav \(one/x\.wav, two/x\.wav\)"):
        load_dataset(tmp_path)


def test_the_same_name_outside_and_inside_audio(tmp_path: Path) -> None:
    sound(tmp_path / "x.wav", 1.0)
    sound(tmp_path / "audio" / "x.wav", 3.0)
    dataset = load_dataset(tmp_path)
    assert dict(zip(dataset.recordings["file"], dataset.recordings["duration_s"], strict=True)) == {
        "x.wav": 1.0,
        "audio/x.wav": 3.0,
    }
    assert dataset.path("audio/x.wav") == tmp_path / "audio" / "x.wav"
    assert dataset.path("x.wav") == tmp_path / "x.wav"


def test_boxes_after_the_end_are_warned_of(folder: Path) -> None:
    with (folder / "boxes.csv").open("a") as boxes:
        boxes.write("A_20230510_070000.wav,7,8,1000,2000,a\n")
    with pytest.warns(
        UserWarning, match=r"1 box starts after its recording has ended.*row 2 .*7 s of A_2023"
    ):
        load_dataset(folder)


def test_boxes_above_half_the_sample_rate_are_cut_or_left_out_and_reported(folder: Path) -> None:
    name = "A_20230510_060000.wav"
    (folder / "boxes.csv").write_text(
        f"file,{BOX}\n{name},0.5,1.0,1000,2000,owl\n{name},0.5,1.0,7000,9000,bat\n{name},0.5,1.0,8000,9000,bat\n"
    )
    with pytest.warns(UserWarning, match="half the sample rate") as told:
        events = load_dataset(folder).annotations.events
    assert events[["low_hz", "high_hz"]].to_numpy().tolist() == [[1000, 2000], [7000, 8000]]
    assert [str(warning.message) for warning in told] == [
        f"{folder / 'boxes.csv'}: 1 of 3 boxes reached above half the sample rate and were cut to it; "
        "1 of 3 boxes lie wholly above half the sample rate and are left out"
    ]


@pytest.mark.parametrize("listed", [False, True])
def test_a_recording_whose_boxes_all_lie_above_half_the_sample_rate_is_not_empty(
    folder: Path, listed: bool
) -> None:
    owl, bat, empty = "A_20230510_060000.wav", "A_20230510_070000.wav", "B_20230511_060000.wav"
    (folder / "boxes.csv").write_text(
        f"file,{BOX}\n{owl},0.5,1.0,1000,2000,owl\n{bat},0.5,1.0,20000,40000,bat\n"
    )
    if listed:
        (folder / "recordings.csv").write_text(f"file\n{owl}\n{bat}\n{empty}\n")
    with pytest.warns(UserWarning, match="1 recording with no other boxes counts as not listened to"):
        dataset = load_dataset(folder)
    assert dataset.boxed_recordings == [owl]
    assert dataset.annotations.reviewed_empty() == ([empty] if listed else [])
    chunks = chunk_table(dataset, FrontEnd(chunk_frames=128))
    assert set(chunks["recording"][chunks["labelled"]]) == ({owl, empty} if listed else {owl})


def test_a_broken_recording_is_reported_not_hidden(folder: Path) -> None:
    (folder / "audio" / "broken.wav").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"1 of 4 recordings cannot be read .*broken.wav"):
        dataset = load_dataset(folder)
    assert len(dataset) == 3
    assert dataset.failures["file"].tolist() == ["broken.wav"]


@pytest.mark.filterwarnings("ignore:.*cannot be read")
def test_nothing_but_broken_recordings(tmp_path: Path) -> None:
    (tmp_path / "broken.wav").write_text("not sound")
    with pytest.raises(AudioError, match=r"no recording can be read \(1 tried\)"):
        load_dataset(tmp_path)


@pytest.mark.parametrize(
    ("listing", "message"),
    [
        ("file\nC.wav\n", r"recordings.csv: 1 of 1 recording is not in .* \(C\.wav\); give the folder"),
        (
            "file\nA_20230510_060000.wav\nA_20230510_060000.wav\n",
            r"line 3, file: .* listed twice \(first in line 2\)",
        ),
        ("file,site\n,A\n", "line 2, file: empty"),
        ("site\nA\n", "column file missing; found site"),
        (
            "file,datetime\nA_20230510_060000.wav,10 May\n",
            "line 2, datetime: '10 May' is not a valid time; expected ISO 8601",
        ),
        (
            "file,duration_s\nA_20230510_060000.wav,long\n",
            "line 2, duration_s: found 'long', expected a number",
        ),
        ("file\n", "lists no recording"),
    ],
)
def test_mistakes_in_the_listing(folder: Path, listing: str, message: str) -> None:
    (folder / "recordings.csv").write_text(listing)
    with pytest.raises(MastError, match=message):
        load_dataset(folder)


def test_missing_folders_and_files(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MastError, match="no such folder"):
        load_dataset(tmp_path / "nowhere")
    with pytest.raises(MastError, match=r"boxes\.csv: is a file; expected a folder of recordings$"):
        load_dataset(folder / "boxes.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MastError, match="no recording in this folder"):
        load_dataset(tmp_path / "empty")
    with pytest.raises(AnnotationError, match=r"other.csv: no such file or folder of annotations"):
        load_dataset(folder, annotations=folder / "other.csv")


def test_selecting(folder: Path) -> None:
    (folder / "recordings.csv").write_text(
        "file,split\nA_20230510_060000.wav,train\nA_20230510_070000.wav,train\nB_20230511_060000.wav,test\n"
    )
    dataset = load_dataset(folder)
    train, test = dataset.select(split="train"), dataset.select(split="test")
    assert (len(train), len(test)) == (2, 1)
    assert (len(train.annotations.events), len(test.annotations.events)) == (1, 0)
    assert test.reviewed_recordings == ["B_20230511_060000.wav"]
    assert dataset.select(recordings=["A_20230510_070000.wav"]).recordings["file"].tolist() == [
        "A_20230510_070000.wav"
    ]
    with pytest.raises(MastError, match="no recording is in split 'val'; found test, train"):
        dataset.select(split="val")
    with pytest.raises(MastError, match=r"no recording nobody.wav"):
        dataset.select(recordings=["nobody.wav"])


@pytest.mark.real
@pytest.mark.filterwarnings("ignore:.*boxes reached above half the sample rate")  # nbm_xc has such
@pytest.mark.parametrize(
    ("name", "n_recordings", "n_boxes", "n_empty", "minutes"),
    [
        ("birdeep_am1", 20, 87, 5, 20.0),
        ("nbm_xc", 36, 407, None, 6.1),
        ("tagus_fish", 9, 639, None, 38.8),
        ("cr_bats", 4, 146, None, 0.2),
    ],
)
def test_the_real_sets_load(
    shared_data: Path, name: str, n_recordings: int, n_boxes: int, n_empty: int | None, minutes: float
) -> None:
    dataset = load_dataset(shared_data / name)
    assert len(dataset) == n_recordings
    assert len(dataset.annotations.events) == n_boxes
    assert len(dataset.reviewed_recordings) == n_recordings
    if n_empty is not None:
        assert n_recordings - len(dataset.boxed_recordings) == n_empty
    assert dataset.recordings["duration_s"].sum() / 60 == pytest.approx(minutes, abs=0.06)
    assert dataset.failures.empty


@pytest.mark.real
def test_a_real_set_without_its_listing_infers_the_same(shared_data: Path, tmp_path: Path) -> None:
    listed = load_dataset(shared_data / "birdeep_am1")
    (tmp_path / "audio").symlink_to(shared_data / "birdeep_am1" / "audio")
    inferred = load_dataset(tmp_path, annotations=shared_data / "birdeep_am1" / "boxes.csv")
    columns = ["file", "site", "datetime", "duration_s", "sample_rate"]
    pd.testing.assert_frame_equal(inferred.recordings[columns], listed.recordings[columns])
    assert inferred.reviewed_recordings == listed.boxed_recordings  # the empty five are unlabelled now


@pytest.mark.parametrize(
    ("duration", "rate"), [("1e12", "16000"), ("-3", "16000"), ("2", "0"), ("0", "16000")]
)
def test_a_listed_length_that_the_file_cannot_have_is_measured(
    folder: Path, duration: str, rate: str
) -> None:
    name = "A_20230510_060000.wav"
    (folder / "recordings.csv").write_text(f"file,duration_s,sample_rate\n{name},{duration},{rate}\n")
    table = load_dataset(folder).recordings
    assert (table["duration_s"][0], table["sample_rate"][0]) == (2.0, 16_000)


def test_times_at_the_end_of_all_calendars(folder: Path) -> None:
    (folder / "recordings.csv").write_text("file,datetime\nA_20230510_060000.wav,9999-12-31T23:59:59\n")
    with pytest.raises(MastError, match="'9999-12-31T23:59:59' is not a valid time"):
        load_dataset(folder)


def test_names_that_are_not_text(folder: Path) -> None:
    (folder / "boxes.csv").unlink()
    source = folder / "audio" / "A_20230510_060000.wav"
    for name in (b"caf\xe9.wav", b"caf\\xe9.wav"):
        shutil.copy(source, os.fsencode(folder / "audio") + b"/" + name)
    dataset = load_dataset(folder)
    assert {"caf\\xe9.wav", "caf\\udce9.wav"} < set(dataset.recordings["file"])
    paths = [dataset.path(name) for name in dataset.recordings["file"]]
    assert len(set(paths)) == 5
    assert all(path.is_file() for path in paths)
    (folder / "recordings.csv").write_text("file\ncaf\\xe9.wav\ncaf\\udce9.wav\n")
    listed = load_dataset(folder)
    assert len({listed.path(name) for name in listed.recordings["file"]}) == 2


def test_a_folder_that_cannot_be_listed_is_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound(folder / "locked" / "a.wav")
    deny_listing(monkeypatch, folder / "locked")
    with pytest.warns(UserWarning, match="1 of 4 recordings cannot be read"):
        dataset = load_dataset(folder)
    assert dataset.failures["file"].tolist() == ["locked/"]
    assert "cannot be listed" in dataset.failures["error"][0]


def test_whatever_one_recording_raises_is_its_own_failure(folder: Path) -> None:
    with_guano(folder / "audio" / "g.wav", "Timestamp:2023-05-10T07:30:00+25:00")
    assert "g.wav" in set(load_dataset(folder).recordings["file"])
    (folder / "audio" / "text.wav").write_text("no sound")
    with pytest.warns(UserWarning, match="1 of 5 recordings cannot be read"):
        assert load_dataset(folder).failures["file"].tolist() == ["text.wav"]
