"""`mast name`: a classifier's names in the table, honestly unknown where it is not sure."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
import pytest
import soundfile as sf
import typer
from typer.testing import CliRunner, Result

sys.path.insert(0, str(Path(__file__).parents[1] / "classifiers"))

from toy_classifier import LABELS, RATE, tones, write_classifier, write_labels

from mast.annotations.detections import DetectionRun, write_run
from mast.cli.convert import convert
from mast.cli.name import name
from mast.errors import AnnotationError, AudioError, ConfigError, MastError
from mast.review.decisions import change_event
from mast.review.open_review import open_review

pytest.importorskip("onnxruntime")
app, converting = typer.Typer(), typer.Typer()
app.command()(name)
converting.command()(convert)
COLUMNS = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score", "label"]


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """Detections of a low tone, a high one and a silence in two recordings, and a classifier beside them."""
    audio, folder = tmp_path / "audio", tmp_path / "found"
    audio.mkdir()
    folder.mkdir()
    sf.write(audio / "a.wav", tones((2, 3, 1_000), (20, 21, 2_000), seconds=40), RATE)
    sf.write(
        audio / "b.wav", tones((0.0, 0.6, 1_000), seconds=0.6, rate=16_000), 16_000
    )  # less than a window
    write_run(folder, DetectionRun(root=str(audio), made_with={"root": str(audio)}))
    rows = [
        ("a.wav", 20.1, 20.9, 1_800, 2_200, 0.9, "song"),
        ("b.wav", 0.2, 0.4, 800, 1_200, 0.9, ""),
        ("a.wav", 2.1, 2.9, 800, 1_200, 0.9, ""),
        ("a.wav", 35.0, 35.5, 3_000, 3_500, 0.9, ""),
    ]
    pd.DataFrame(rows, columns=COLUMNS).to_csv(folder / "detections.csv", index=False)
    write_classifier(tmp_path)
    write_labels(tmp_path)
    return folder


def run(found: Path, *arguments: object, out: str = "named.csv", quiet: bool = True) -> Result:
    model, labels = found.parent / "tones.onnx", found.parent / "labels.txt"
    given = ["--with", model, "--labels", labels, "--rate", RATE] if "--with" not in arguments else []
    words = [found, "--out", found.parent / out, *given, *arguments, *(["--quiet"] if quiet else [])]
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_boxes_are_named_or_unknown(found: Path, ending: str) -> None:
    result = run(found, out=f"named.{ending}")
    assert result.exit_code == 0, result.exception
    out = found.parent / f"named.{ending}"
    assert result.stdout == f"3 of 4 boxes named (2 different names), the others unknown → {out}.\n"
    table = pd.read_csv(out, keep_default_na=False) if ending == "csv" else pd.read_parquet(out)
    assert table["label"].tolist() == ["Sonus acutus", "Sonus gravis", "Sonus gravis", "unknown"]
    assert table["given_label"].tolist() == ["song", "", "", ""]
    assert (table["label_source"] == "tones.onnx").all()
    assert (table["label_score"][:3] > 0.5).all()
    assert table["label_score"][3] < 0.2
    assert table["likely_label"][3] in ("Sonus acutus", "Sonus gravis")
    beside = json.loads((found.parent / f"named.{ending}.calibration.json").read_text())
    assert (beside["default"], beside["by_label"], beside["band"]) == (0.5, {}, False)


def test_raven_tables_carry_the_names(found: Path) -> None:
    assert run(found).exit_code == 0
    out = found.parent / "raven"
    words = [found.parent / "named.csv", out, "--to", "raven", "--audio", found.parent / "audio", "--quiet"]
    result = CliRunner().invoke(converting, [*map(str, words)])
    assert result.exit_code == 0, result.exception
    tables = "".join(path.read_text() for path in out.rglob("*.txt"))
    assert "Sonus acutus" in tables
    assert "tones.onnx" in tables


def test_common_names_and_possible_species(found: Path) -> None:
    species = found.parent / "species.txt"
    species.write_text("high tone\nPica pica\n", encoding="utf-8")
    assert run(found, "--species", species, "--common", "--threshold", "0.9").exit_code == 0
    table = pd.read_csv(found.parent / "named.csv")
    assert table["label"].tolist() == ["High Tone", "unknown", "unknown", "unknown"]


def test_possible_species_by_site_and_season(found: Path) -> None:
    table = pd.read_csv(found / "detections.csv")
    table.assign(site="S01", datetime="2024-05-14T06:00:00").to_csv(found / "detections.csv", index=False)
    species = found.parent / "species.csv"
    species.write_text("species,site,first_day\nhigh tone,S01,\nlow tone,S02,\n", encoding="utf-8")
    result = run(found, "--species", species, "--common", quiet=False)
    assert result.exit_code == 0
    assert f"{species}: site S02 is not among these detections' sites (S01)" in result.output
    assert "not used" not in result.output
    assert set(pd.read_csv(found.parent / "named.csv")["likely_label"]) == {"High Tone"}
    species.write_text("species,site,first_day\nhigh tone,S02,\n", encoding="utf-8")
    result = run(found, "--species", species)
    assert "the list of species has none for site 'S01' on 05-14" in str(result.exception)


def test_reviewed_boxes_choose_the_threshold_of_their_label(found: Path) -> None:
    audio, rows = found.parent / "audio", []
    sf.write(
        audio / "many.wav", tones(*((20.0 * k, 20.0 * k + 1, 1_000) for k in range(12)), seconds=240), RATE
    )
    rows = [("many.wav", 20.0 * k, 20.0 * k + 0.9, 800, 1_200, 0.9, "") for k in range(12)]
    pd.DataFrame(rows, columns=COLUMNS).to_csv(found / "detections.csv", index=False)
    people = pd.DataFrame(rows, columns=COLUMNS).assign(label=["low tone"] * 6 + ["something else"] * 6)
    people.to_csv(found.parent / "people.csv", index=False)
    result = run(found, "--reviewed", found.parent / "people.csv", "--precision", "0.5")
    assert result.exit_code == 0, result.exception
    assert "12 reviewed boxes gave 1 label a threshold of its own" in result.stdout
    assert result.stdout.startswith("12 of 12 boxes named")
    result = run(found, "--reviewed", found.parent / "people.csv", "--precision", "0.9")
    assert result.stdout.startswith("0 of 12 boxes named")  # never right often enough
    beside = json.loads((found.parent / "named.csv.calibration.json").read_text())
    assert beside["by_label"] == {"Sonus gravis": 2.0}


def test_a_folder_that_was_reviewed_on_the_page_will_do(found: Path) -> None:
    table = pd.read_csv(found / "detections.csv", keep_default_na=False)
    table = table.sort_values("recording").reset_index(drop=True)  # as mast detect writes it
    table.to_parquet(found / "detections.parquet")
    review = open_review(found)
    try:
        with review.store.reading() as db:
            events = [dict(row) for row in db.execute("SELECT id, version, low_hz FROM events")]
        for event in events:
            status = {"status": "rejected"} if event["low_hz"] == 3_000 else {"label": "Low Tone"}
            change_event(review.store, "anna", event["id"], {**status, "version": event["version"]})
    finally:
        review.close()
    result = run(found, "--reviewed", found)
    assert result.exit_code == 0, result.exception
    assert "4 reviewed boxes gave 0 labels a threshold of their own, the others have 0.5" in result.stdout


def test_a_missing_recording_leaves_its_boxes_unknown(found: Path) -> None:
    (found.parent / "audio" / "b.wav").unlink()
    result = run(found)
    assert result.exit_code == 4
    assert result.stdout.endswith("; recordings that are missing or cannot be read: 1.\n")
    table = pd.read_csv(found.parent / "named.csv")
    assert table["label"].tolist() == ["Sonus acutus", "unknown", "Sonus gravis", "unknown"]
    assert table["label_score"].isna().tolist() == [False, True, False, False]


def test_bad_input_is_one_sentence(found: Path) -> None:
    here = found.parent
    (here / "none.csv").write_text("file,start_s,end_s,low_hz,high_hz\n")
    (here / "empty").mkdir()
    (here / "short.txt").write_text(LABELS[0])
    pd.DataFrame([("x.wav", 0, 1, 0, 1, 1, "")], columns=COLUMNS).to_csv(here / "others.csv", index=False)
    for kind, says, arguments in (
        (ConfigError, "give its labels too", ("--with", here / "tones.onnx")),
        (ConfigError, "holds 1 labels, but tones.onnx gives 2", ("--labels", here / "short.txt")),
        (
            ConfigError,
            "x.onnx: no such classifier or file; expected birdnet, or a .onnx or .tflite file",
            ("--with", here / "x.onnx", "--labels", here / "labels.txt"),
        ),
        (ConfigError, "--with perch: no such classifier or file", ("--with", "perch")),
        (ConfigError, "are for other classifiers", ("--with", "BirdNET", "--rate", "48000")),
        (ConfigError, "are for other classifiers", ("--with", "birdnet", "--rate", "48000")),
        (
            ConfigError,
            "nowhere: no such folder; expected the folder of the recordings",
            ("--audio", here / "nowhere"),
        ),
        (AudioError, "no box could be classified (4 tried)", ("--audio", here / "empty")),
        (AudioError, "no such recording here; give its folder with --audio", ("--audio", here / "empty")),
        (
            ConfigError,
            "none of its 0 boxes matches one that is to be named",
            ("--reviewed", here / "others.csv"),
        ),
        (ConfigError, "no such file; expected a text file", ("--species", here / "no.txt")),
    ):
        result = run(found, *arguments)
        assert isinstance(result.exception, kind), (says, result.exception)
        assert says in str(result.exception)
        assert "\n" not in str(result.exception)
    assert isinstance(run(found, out="named.xlsx").exception, ConfigError)
    nothing = CliRunner().invoke(
        app,
        [str(here / "none.csv"), "--out", str(here / "n.csv"), "--with", str(here / "tones.onnx"),
         "--labels", str(here / "labels.txt"), "--rate", str(RATE)],
    )  # fmt: skip
    assert isinstance(nothing.exception, AnnotationError)
    assert isinstance(nothing.exception, MastError)
    assert "there is nothing to name" in str(nothing.exception)


def test_an_output_that_cannot_be_written_is_noticed_before_any_work(
    found: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: object) -> None:
        raise AssertionError("heard first")

    monkeypatch.setattr("mast.classifiers.box_names.name_boxes", never)
    (found.parent / "file").touch()
    result = run(found, out="file/n.csv")
    assert isinstance(result.exception, NotADirectoryError), result.exception
    assert result.exception.filename == str(found.parent / "file" / "n.csv")
