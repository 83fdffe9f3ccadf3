"""Public datasets in their own layouts, imitated small."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile as sf
import typer
from typer.testing import CliRunner

from mast.cli.convert import convert
from mast.data import load_dataset
from mast.data.layouts.birdeep import birdeep_splits, read_birdeep
from mast.data.layouts.birdset import hub_rows, parquet_rows, write_birdset
from mast.data.layouts.rainforest import read_rainforest
from mast.errors import AnnotationError, MastError

RAVEN = "Selection\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\tSonotype\n"


def sound(path: Path, seconds: float = 2.0, rate: int = 16_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(path.name))
    sf.write(path, rng.normal(0, 0.01, int(seconds * rate)), rate)


def run(*arguments: object) -> str:
    app = typer.Typer()
    app.command()(convert)
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


# BIRDeep


@pytest.fixture
def birdeep(tmp_path: Path) -> Path:
    """Four recorders; one name with a blank and AM02 as in the published folder, one recording is absent."""
    root = tmp_path / "BIRDeep_AudioAnnotations"
    files = [
        "AM1/2023_05_10/AM1_20230510_060000.WAV",
        "AM1/2023_05_30/AM1_20230530_060000.WAV",
        "AM2/2023_05_09/AM02_20230509_094000 .WAV",
        "AM4/2023_05_30/AM4_20230530_091000.WAV",
        "AM8/2023_03_01/AM8_20230301_060000.WAV",
        "AM8/2023_05_29/AM8_20230529_060000.WAV",
        "AM8/2023_05_30/AM8_20230530_060000.WAV",
        "AM15/2023_10_09/AM15_20231009_063000.WAV",
    ]
    for file in files:
        sound(root / "Audios" / file)
        (root / "Audios" / f"{file}:Zone - copia.Identifier").write_bytes(b"")
    header = "path,annotator,recorder,date,time,audio_duration,start_time,end_time,low_frequency,"
    header += "high_frequency,specie,bbox\n"

    def row(file: str, start: str = "0.5,1.0,1000,2000,Robin,", recorder: str | None = None) -> str:
        stamp = Path(file).stem.strip().split("_")
        day, clock = stamp[1], stamp[2]
        date, time = f"{day[:4]}/{day[4:6]}/{day[6:]}", f"{clock[:2]}:{clock[2:4]}:{clock[4:]}"
        name = file.replace(" .", ".").replace("AM02", "AM2")
        return f"{name},Ana,{recorder or file.split('/')[0]},{date},{time},00:00:02,{start}\n"

    (root / "train_file.csv").write_text(
        header
        + row(files[0])
        + row(files[0], "1.2,1.5,-1,-1,Wren,")
        + row(files[2], recorder="AM02")
        + "".join(row(f) for f in files[3:5])
        + row("AM3/2023_04_01/AM3_20230401_060000.WAV")
    )
    (root / "validation_file.csv").write_text(header + row(files[1], "0,0,0,0,No audio,") + row(files[5]))
    (root / "test_file.csv").write_text(header + row(files[6]) + row(files[7]))
    return root


def test_birdeep_becomes_a_dataset_with_its_held_out_parts(birdeep: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="1 of 9 recordings in the tables are not in"):
        said = run(birdeep, tmp_path / "out", "--from", "birdeep", "--to", "dataset")
    assert said.startswith("8 recordings (")
    dataset = load_dataset(tmp_path / "out")
    split = {Path(f).stem.strip(): s for f, s in dataset.recordings[["file", "split"]].to_numpy()}
    assert split == {
        "AM1_20230510_060000": "",
        "AM1_20230530_060000": "temporal_ood",
        "AM02_20230509_094000": "",
        "AM4_20230530_091000": "site_ood",
        "AM8_20230301_060000": "",
        "AM8_20230529_060000": "temporal_ood",
        "AM8_20230530_060000": "temporal_ood",
        "AM15_20231009_063000": "site_ood",
    }
    assert set(dataset.recordings["site"]) == {"AM1", "AM2", "AM4", "AM8", "AM15"}
    assert len(dataset.annotations.events) == 8
    assert dataset.annotations.events["high_hz"].max() == 8_000.0  # an open limit
    assert len(dataset.reviewed_recordings) == 8  # one of them was heard and is empty
    assert len(dataset.boxed_recordings) == 7
    clock = dict(zip(dataset.recordings["file"], dataset.recordings["datetime"], strict=True))
    assert clock["AM1/2023_05_10/AM1_20230510_060000.WAV"] == "2023-05-10T06:00:00"


@pytest.mark.filterwarnings("ignore:.*not in")
def test_birdeep_with_other_dates_and_the_published_split(birdeep: Path) -> None:
    table = read_birdeep(birdeep, ood_dates=["2023-05-10"], published_split=True).annotations.recordings
    split = {Path(f).stem.strip(): s for f, s in table[["recording", "split"]].to_numpy()}
    assert split["AM1_20230510_060000"] == "temporal_ood"
    assert split["AM1_20230530_060000"] == "val"
    assert split["AM8_20230530_060000"] == "test"
    assert split["AM02_20230509_094000"] == "train"
    assert split["AM15_20231009_063000"] == "site_ood"


def test_birdeep_keeps_a_date_of_every_site_to_learn_from() -> None:
    one = pd.DataFrame({"site": ["AM8", "AM1"], "datetime": ["2023-05-30T06:00:00"] * 2})
    assert birdeep_splits(one) == ["", ""]


def test_birdeep_elsewhere_is_an_error_that_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(AnnotationError, match="expected the folder of BIRDeep_AudioAnnotations"):
        read_birdeep(tmp_path)


# BirdSet


def ogg(seconds: float = 1.5) -> bytes:
    buffer = io.BytesIO()
    sf.write(buffer, np.random.default_rng(0).normal(0, 0.05, int(seconds * 32_000)), 32_000, format="OGG")
    return buffer.getvalue()


def xcm_row(name: str, **more: object) -> dict[str, object]:
    row: dict[str, object] = {
        "audio": {"bytes": ogg(), "path": name},
        "filepath": name,
        "start_time": None,
        "end_time": None,
        "low_freq": None,
        "high_freq": None,
        "ebird_code": 1,
        "ebird_code_multilabel": [1],
        "ebird_code_secondary": [],
        "call_type": "song",
        "sex": "male",
        "lat": 37.01,
        "long": -6.43,
        "length": 1,
        "microphone": "focal",
        "license": "//creativecommons.org/licenses/by-nc-sa/4.0/",
        "source": "xenocanto",
        "local_time": "06:10",
        "detected_events": [[0.1, 0.4], [0.6, 1.2]],
        "event_cluster": [0, 1],
        "peaks": [0.3, 0.9],
        "quality": "A",
        "recordist": "A. Person",
    }
    return {**row, **more}


def as_parquet(rows: list[dict[str, object]], path: Path) -> None:
    table = pa.Table.from_pylist(rows)
    features = {"ebird_code": {"names": ["norcar", "eurrob1"], "_type": "ClassLabel"}}
    about = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(about), path)


def test_xcm_from_parquet_is_unlabelled_sound(tmp_path: Path) -> None:
    hub = tmp_path / "BirdSet"
    as_parquet([xcm_row(f"XC{k}.ogg") for k in range(3)], hub / "XCM" / "train-00000-of-00002.parquet")
    as_parquet([xcm_row("XC9.ogg", detected_events=[])], hub / "XCM" / "train-00001-of-00002.parquet")
    said = run(hub, tmp_path / "xcm", "--from", "birdset", "--to", "dataset", "--part", "train", "--quiet")
    assert said.startswith("4 recordings, 0 boxes, 6 detected events, 0 failures")
    dataset = load_dataset(tmp_path / "xcm")
    assert list(dataset.recordings["file"]) == ["XC0.ogg", "XC1.ogg", "XC2.ogg", "XC9.ogg"]
    assert dataset.reviewed_recordings == []  # nobody listened for boxes
    assert set(dataset.recordings["ebird_code"]) == {"eurrob1"}
    assert set(dataset.recordings["licence"]) == {"//creativecommons.org/licenses/by-nc-sa/4.0/"}
    inside = pq.read_table(hub / "XCM" / "train-00000-of-00002.parquet").to_pylist()[0]["audio"]["bytes"]
    assert dataset.path("XC0.ogg").read_bytes() == inside
    detected = pd.read_csv(tmp_path / "xcm" / "detected_events.csv")
    assert detected.iloc[1].tolist() == ["XC0.ogg", 0.6, 1.2, 1]


def test_rows_with_boxes_are_boxes_of_one_recording(tmp_path: Path) -> None:
    box = {"start_time": 0.2, "end_time": 0.9, "low_freq": 1000, "high_freq": 3000, "detected_events": None}
    rows = [xcm_row("HSN_001_20150708_061805.ogg", **box) for _ in range(2)]
    rows[1] |= {"start_time": 1.0, "end_time": 1.4, "ebird_code": 0}
    as_parquet(rows, tmp_path / "hub" / "HSN" / "test-00000.parquet")
    counts = write_birdset(parquet_rows(tmp_path / "hub", split="test"), tmp_path / "out")
    assert counts == (1, 2, 0, 0)
    dataset = load_dataset(tmp_path / "out")
    assert list(dataset.annotations.events["label"]) == ["eurrob1", "norcar"]
    assert dataset.reviewed_recordings == ["HSN_001_20150708_061805.ogg"]
    assert dataset.recordings["datetime"].tolist() == ["2015-07-08T06:18:05"]


def test_a_box_that_cannot_be_is_left_out_and_listed(tmp_path: Path) -> None:
    box = {"start_time": 0.2, "end_time": 0.9, "low_freq": 1000, "high_freq": 3000, "detected_events": None}
    rows = [xcm_row("a.ogg", **box), xcm_row("b.ogg", **{**box, "end_time": 1e22})]
    as_parquet(rows, tmp_path / "hub" / "test.parquet")
    assert write_birdset(parquet_rows(tmp_path / "hub"), tmp_path / "out") == (2, 1, 0, 1)
    (failure,) = pd.read_csv(tmp_path / "out" / "failures.csv").to_dict("records")
    assert failure["file"] == "b.ogg"
    assert failure["error"].startswith("a box is left out: ends at 1e+22 s")
    assert len(load_dataset(tmp_path / "out").annotations.events) == 1


def test_sound_beside_the_tables_a_limit_and_a_bad_row(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    beside = {"audio": {"bytes": None, "path": None}}
    rows = [xcm_row("broken.ogg", audio={"bytes": b"no sound", "path": "broken.ogg"})]
    rows += [xcm_row(f"sub/XC{k}.ogg", **beside) for k in range(3)]
    as_parquet(rows, hub / "train.parquet")
    for k in range(3):
        (hub / "sub").mkdir(exist_ok=True)
        (hub / "sub" / f"XC{k}.ogg").write_bytes(ogg())
    counts = write_birdset(parquet_rows(hub), tmp_path / "out", limit=2)
    assert (counts.recordings, counts.failures) == (2, 1)
    assert pd.read_csv(tmp_path / "out" / "failures.csv")["file"].tolist() == ["broken.ogg"]
    assert sorted(p.name for p in (tmp_path / "out" / "audio").iterdir()) == ["XC0.ogg", "XC1.ogg"]


def test_the_hub_is_streamed_without_decoding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[object] = []

    class Stream:
        def __init__(self) -> None:
            self.features = {"ebird_code": SimpleNamespace(names=["norcar", "eurrob1"])}

        def cast_column(self, column: str, kind: object) -> Stream:
            asked.append((column, kind))
            return self

        def __iter__(self):  # type: ignore[no-untyped-def]
            for k in range(10**9):  # never read to its end
                yield xcm_row(f"XC{k}.ogg")

    module = ModuleType("datasets")
    module.load_dataset = lambda *a, **k: asked.append((a, k)) or Stream()  # type: ignore[attr-defined]
    module.Audio = lambda decode: f"decode={decode}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    said = run(
        "DBD-research-group/BirdSet", tmp_path / "out", "--from", "birdset", "--to", "dataset", "--limit", "2"
    )
    assert said.startswith("2 recordings")
    assert asked == [
        (("DBD-research-group/BirdSet", "XCM"), {"split": "train", "streaming": True}),
        ("audio", "decode=False"),
    ]
    assert set(load_dataset(tmp_path / "out").recordings["ebird_code"]) == {"eurrob1"}


def test_without_datasets_the_hub_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MastError, match="needs the package datasets; install it"):
        next(hub_rows())


def test_a_folder_without_parquet(tmp_path: Path) -> None:
    with pytest.raises(AnnotationError, match="no Parquet files of split test"):
        next(parquet_rows(tmp_path, split="test"))


# rainforest


@pytest.fixture
def rainforest(tmp_path: Path) -> Path:
    """Two sites with the same file names, tables beside and in a tree of their own, one day unheard."""
    root = tmp_path / "kalimantan"
    for place in ("13A/2018-07-10", "13A/2018_07_11", "13B/20180710"):
        for clock in ("060000", "070000"):
            sound(root / place / f"{clock}.wav")
    (root / "notes.txt").write_text("recorders were moved in June\n")
    home = root / "13A" / "2018-07-10"
    (home / "060000.Table.1.selections.txt").write_text(
        RAVEN + "1\t0.1\t0.5\t1000\t2000\tcicada 7\n2\t0.9\t1.2\t300\t600\tgibbon\n"
    )
    (home / "070000.Table.1.selections.txt").write_text(RAVEN)
    whole_day = RAVEN.rstrip("\n") + "\tBegin File\n1\t0.2\t0.4\t2000\t3000\tfrog 2\t070000.wav\n"
    for name in ("annotations/13B/2018-07-10/all.txt", "annotations/13A/2018-07-11/day.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(whole_day)
    return root


def test_rainforest_sites_dates_and_sonotypes(rainforest: Path, tmp_path: Path) -> None:
    said = run(rainforest, tmp_path / "out", "--from", "rainforest", "--to", "dataset")
    assert said.startswith("6 recordings (")
    dataset = load_dataset(tmp_path / "out")
    table = dataset.recordings.set_index("file")
    assert table["split"].to_dict() == {
        "13A/2018-07-10/060000.wav": "",
        "13A/2018-07-10/070000.wav": "",
        "13A/2018_07_11/060000.wav": "",
        "13A/2018_07_11/070000.wav": "temporal_ood",
        "13B/20180710/060000.wav": "",
        "13B/20180710/070000.wav": "site_ood",
    }
    assert set(table["site"]) == {"13A", "13B"}
    assert table.loc["13B/20180710/070000.wav", "datetime"] == "2018-07-10T07:00:00"
    assert sorted(dataset.annotations.events["label"]) == ["cicada 7", "frog 2", "frog 2", "gibbon"]
    assert len(dataset.boxed_recordings) == 3
    assert len(dataset.reviewed_recordings) == 4  # one heard and empty; two were never heard


def test_rainforest_home_is_a_choice(rainforest: Path) -> None:
    table = read_rainforest(rainforest, home=("13B", "2018-07-10")).annotations.recordings
    split = dict(zip(table["recording"], table["split"], strict=True))
    assert split["13B/20180710/070000.wav"] == ""
    assert split["13A/2018-07-10/060000.wav"] == "site_ood"
    with pytest.raises(
        AnnotationError, match="nothing of 13C/2018-07-10 was annotated; choose one of 13A/2018"
    ):
        read_rainforest(rainforest, home=("13C", "2018-07-10"))


def test_rainforest_tables_of_no_recording(rainforest: Path) -> None:
    (rainforest / "13A" / "2018-07-10" / "elsewhere.txt").write_text(RAVEN + "1\t0\t1\t10\t20\tx\n")
    with pytest.raises(AnnotationError, match=r"elsewhere is not a recording of 13A/2018-07-10"):
        read_rainforest(rainforest)


@pytest.mark.parametrize("options", [[], ["--from", "coco"]])
def test_a_layout_must_be_named(tmp_path: Path, options: list[str]) -> None:
    app = typer.Typer()
    app.command()(convert)
    result = CliRunner().invoke(app, [str(tmp_path), str(tmp_path / "out"), "--to", "dataset", *options])
    assert isinstance(result.exception, AnnotationError)
    assert "choose one of birdeep, birdset, rainforest" in str(result.exception)


def test_a_folder_with_files_is_never_written_into(rainforest: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    app = typer.Typer()
    app.command()(convert)
    options = ["--from", "rainforest", "--to", "dataset"]
    result = CliRunner().invoke(app, [str(rainforest), str(tmp_path / "out"), *options])
    assert "choose a new folder" in str(result.exception)


def test_a_script_here_is_not_a_name_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # it would run the script
    (tmp_path / "birds.py").write_text("", encoding="utf-8")
    with pytest.raises(MastError, match="is a file; expected a folder of Parquet files"):
        next(hub_rows(str(tmp_path / "birds.py")))
