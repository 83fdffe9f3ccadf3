"""`mast evaluate`: from files to numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import typer
from toy_recipe import save_small_detector
from typer.testing import CliRunner

from mast.annotations import read_annotations, write_annotations
from mast.annotations.detections import DONE, MARKS, DetectionRun, write_run
from mast.cli.evaluate import evaluate
from mast.errors import ConfigError, MastError
from mast.models.card import LEARNT_FROM, load_card
from mast.models.checkpoint import update_card
from mast.training.leakage import fingerprint

app = typer.Typer()
app.command()(evaluate)

HEADER = "file,start_s,end_s,low_hz,high_hz"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Four recordings in two splits: a and b hold a box each, c two, d was heard and is empty."""
    root = tmp_path / "dataset"
    (root / "audio").mkdir(parents=True)
    for name in "abcd":
        sf.write(root / "audio" / f"{name}.wav", np.zeros(32_000), 16_000)
    (root / "recordings.csv").write_text(
        "file,duration_s,sample_rate,split\na.wav,2,16000,val\nb.wav,2,16000,val\n"
        "c.wav,2,16000,test\nd.wav,2,16000,test\n"
    )
    (root / "boxes.csv").write_text(
        f"{HEADER},label\na.wav,0,1,1000,2000,x\nb.wav,0,1,1000,2000,x\n"
        "c.wav,0,1,1000,2000,x\nc.wav,1.2,1.8,3000,4000,x\n"
    )
    return root


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    """Right in a and b (0.6), half right in c, a false alarm in d, a low one in a."""
    path = tmp_path / "detections.csv"
    path.write_text(
        f"{HEADER},score\na.wav,0,1,1000,2000,0.6\nb.wav,0,1,1000,2000,0.7\nc.wav,0,1,1000,2000,0.8\n"
        "d.wav,0,1,1000,2000,0.65\na.wav,1.5,1.9,5000,6000,0.2\n"
    )
    return path


def run(*arguments: object):
    words = [str(a) for a in (*arguments, "--resamples", 30)]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def numbers(*arguments: object) -> dict:
    return json.loads(run(*arguments, "--json").stdout)


def test_json_by_hand(dataset, predictions):
    result = numbers("--truth", dataset, "--predictions", predictions, "--threshold", 0.5)
    assert (result["n_truth"], result["n_predictions"], result["n_recordings"]) == (4, 4, 4)
    assert result["precision"] == pytest.approx(3 / 4)
    assert result["recall"] == pytest.approx(3 / 4)
    assert result["f1"] == pytest.approx(3 / 4)
    assert result["f1_macro"] == pytest.approx((1 + 1 + 2 / 3 + 0) / 4)
    assert result["miou"] == 1.0
    assert result["ap50"] == pytest.approx((51 * 1 + 25 * 3 / 4) / 101)
    assert (result["space"], result["iou_threshold"], result["threshold"]) == ("grid", 0.5, 0.5)
    for key in ("ap50_voc11", "ap50_95", "ece", "f1_time", "f1_iom"):
        assert 0 <= result[key] <= 1
    low, high = result["intervals"]["f1"]
    assert low <= result["f1"] <= high


def test_without_a_threshold_all_predictions_count(dataset, predictions):
    result = numbers("--truth", dataset, "--predictions", predictions)
    assert (result["threshold"], result["n_predictions"]) == (None, 5)
    assert "5 boxes, all scores" in run("--truth", dataset, "--predictions", predictions).stdout


def test_truth_and_predictions_in_other_formats_give_the_same(dataset, predictions, tmp_path):
    expected = numbers("--truth", dataset, "--predictions", predictions)
    detections = read_annotations(predictions).with_recordings(read_annotations(dataset).recordings)
    detections.events.to_parquet(tmp_path / "p.parquet")
    write_annotations(detections, tmp_path / "raven", "raven")
    for path in (tmp_path / "p.parquet", tmp_path / "raven"):
        assert numbers("--truth", dataset, "--predictions", path) == expected
    renamed = pd.read_csv(predictions)
    renamed["file"] = "audio/" + renamed["file"]
    renamed.rename(columns={"file": "recording"}).to_csv(tmp_path / "renamed.csv", index=False)
    assert numbers("--truth", dataset, "--predictions", tmp_path / "renamed.csv") == expected


def test_a_table_of_boxes_knows_no_empty_recordings_and_says_so(dataset, predictions):
    result = run("--truth", dataset / "boxes.csv", "--predictions", predictions, "--json")
    assert json.loads(result.stdout)["n_recordings"] == 3
    assert json.loads(result.stdout)["n_ignored"] == 1  # the one in d
    assert "only recordings with boxes are judged" in result.stderr
    assert "1 of the predictions lies where nobody listened" in result.stderr
    quiet = run("--truth", dataset / "boxes.csv", "--predictions", predictions, "--json", "--quiet")
    assert quiet.stderr == ""


def test_predictions_for_unknown_recordings_are_counted_and_warned_about(dataset, predictions):
    with predictions.open("a") as file:
        file.write("other/a.wav.bak,0,1,1000,2000,0.9\nnowhere.wav,0,1,1000,2000,0.9\n")
    result = run("--truth", dataset, "--predictions", predictions, "--json")
    assert json.loads(result.stdout)["n_ignored"] == 2
    assert "2 of the predictions lie where nobody listened" in result.stderr


def test_predictions_that_are_all_of_other_recordings_are_one_sentence(dataset, tmp_path):
    """Not a page of zeros."""
    other = tmp_path / "other"
    write_run(other, DetectionRun(root="", made_with={"root": ""}))
    (tmp_path / "x.csv").write_text(f"{HEADER},score\nx.wav,0,1,1000,2000,0.9\n")
    found = read_annotations(tmp_path / "x.csv").events
    found.to_parquet(other / "detections.parquet")
    for path in (tmp_path / "x.csv", other):
        with pytest.raises(
            ConfigError, match=r"none of its recordings \(the first: x\.wav\) is in .*dataset"
        ):
            run("--truth", dataset, "--predictions", path)
    (other / MARKS).mkdir()  # a.wav was searched, and nothing found
    (other / MARKS / f"a.wav{DONE}").touch()
    assert numbers("--truth", dataset, "--predictions", other)["recall"] == 0


def test_recordings_that_were_not_searched_are_counted_in_a_warning(dataset, predictions, tmp_path):
    """Their boxes count as missed, which is no fault of the detector."""
    found = tmp_path / "found"
    write_run(found, DetectionRun(root="", made_with={"root": ""}))
    events = read_annotations(predictions).events
    events[events["recording"] == "a.wav"].to_parquet(found / "detections.parquet")
    (found / MARKS).mkdir()
    marks = [found / MARKS / f"{name}.wav{DONE}" for name in "abcd"]
    marks[0].touch()
    arguments = ("--truth", dataset, "--predictions", found)
    told = f"3 of the 4 recordings of {dataset} were not searched by {found}; their 3 boxes count as missed"
    assert f"mast: warning: {told}\n" in run(*arguments).stderr
    assert "its 1 box counts as missed" in run(*arguments, "--split", "val").stderr
    assert told in run("--truth", dataset, "--predictions", predictions, "--compare", found).stderr
    assert run(*arguments, "--quiet").stderr == ""
    for mark in marks[1:3]:  # d holds no box to miss
        mark.touch()
    assert "not searched" not in run(*arguments).stderr
    assert "not searched" not in run("--truth", dataset, "--predictions", predictions).stderr


def test_recordings_that_the_detector_was_trained_on_are_counted_in_a_warning(dataset, predictions, tmp_path):
    """Figures on them look too good."""
    for number, name in enumerate("abcd"):
        sf.write(dataset / "audio" / f"{name}.wav", np.full(32_000, number / 10), 16_000)
    model = save_small_detector(tmp_path / "model", score=0.1)
    learnt = {fingerprint(dataset / "audio" / f"{name}.wav"): [[0.0, 2.0]] for name in "ac"}
    update_card(model, load_card(model).model_copy(update={"provenance": {LEARNT_FROM: learnt}}))
    found = tmp_path / "found"

    def arguments(weights: str) -> tuple[object, ...]:
        run_of = DetectionRun(root="", model=str(model), weights_sha256=weights, made_with={"root": ""})
        write_run(found, run_of)
        read_annotations(predictions).events.to_parquet(found / "detections.parquet")
        return "--truth", dataset, "--predictions", found

    own = arguments(load_card(model).weights_sha256)
    assert f"{model} was trained on 2 of the 4 recordings of {dataset}, so the figures" in run(*own).stderr
    assert "was trained on 1 of the 2 recordings" in run(*own, "--split", "test").stderr
    assert (
        "was trained on" in run("--truth", dataset, "--predictions", predictions, "--compare", found).stderr
    )
    update_card(model, load_card(model).model_copy(update={"provenance": {LEARNT_FROM: {}}}))
    assert "was trained on" not in run(*own).stderr
    update_card(model, load_card(model).model_copy(update={"provenance": {LEARNT_FROM: learnt}}))
    assert "was trained on" not in run(*arguments("another model's")).stderr  # it was trained again since


@pytest.fixture
def searched(predictions, tmp_path):
    """A folder as detect leaves it, with events from a threshold up."""

    def make(name: str, threshold: float | None) -> Path:
        folder = tmp_path / name
        write_run(folder, DetectionRun(root="", threshold=threshold, made_with={"root": ""}))
        events = read_annotations(predictions).events
        events = events[events["score"] >= (threshold or 0)]
        events.to_parquet(folder / "detections.parquet")
        events.to_csv(folder / "detections.csv", index=False)
        return folder

    return make


def test_a_curve_that_detect_cut_off_is_said(dataset, predictions, searched):
    """AP is of the scores that are there, and "all" are not all that there could be."""
    half, low, unknown = searched("half", 0.5), searched("low", 0.01), searched("unknown", None)
    for path in (half, half / "detections.csv", half / "detections.parquet"):
        result = run("--truth", dataset, "--predictions", path)
        told = (
            f"mast: warning: {path}: AP counts events from score 0.50 up, because mast detect kept no others; for the "
            "whole curve search with --threshold 0.01, into a new folder\n"
        )
        assert result.stderr == told
        assert "4 boxes, all scores, 0.60 and up" in result.stdout
        assert run("--truth", dataset, "--predictions", path, "--quiet").stderr == ""
    for path in (low, unknown, predictions):
        assert run("--truth", dataset, "--predictions", path).stderr == ""
    assert numbers("--truth", dataset, "--predictions", half)["min_score"] == 0.6
    assert numbers("--truth", dataset, "--predictions", low, "--threshold", 0.5)["min_score"] == 0.2
    (half / "run.json").write_text("{}")  # of another program
    assert run("--truth", dataset, "--predictions", half / "detections.csv").stderr == ""


def test_two_searches_with_different_thresholds_are_said(dataset, predictions, searched):
    half, more, low, lower = (
        searched(f"from {threshold}", threshold) for threshold in (0.5, 0.62, 0.01, 0.02)
    )
    arguments = ("--truth", dataset, "--predictions", half, "--compare")
    result = run(*arguments, more, "--json")
    assert result.stderr == (
        f"mast: warning: mast detect kept events from score 0.50 up in {half} and from 0.62 up in {more}, so their AP "
        "cannot be compared; search both with --threshold 0.01, into new folders\n"
    )
    plain = json.loads(result.stdout)
    assert (plain["min_score"], plain["other"]["min_score"]) == (0.6, 0.65)
    assert "from score 0.50 up in" in run(*arguments, low).stderr
    assert run(*arguments, half).stderr.count("kept no others") == 1
    assert run(*arguments, predictions).stderr.count("kept no others") == 1
    assert run("--truth", dataset, "--predictions", low, "--compare", lower).stderr == ""


def test_a_split_leaves_the_others_out_without_a_warning(dataset, predictions):
    result = run("--truth", dataset, "--predictions", predictions, "--split", "test", "--json")
    plain = json.loads(result.stdout)
    assert (plain["n_truth"], plain["n_predictions"], plain["n_recordings"], plain["n_ignored"]) == (
        2,
        2,
        2,
        0,
    )
    assert result.stderr == ""


def test_threshold_tuned_on_one_split_and_applied_to_another(dataset, predictions):
    result = numbers(
        "--truth", dataset, "--predictions", predictions, "--split", "test", "--tune-split", "val"
    )
    assert result["threshold"] == 0.6
    assert result["n_predictions"] == 2


def test_two_systems(dataset, predictions, tmp_path):
    pd.read_csv(predictions).iloc[:3].to_csv(tmp_path / "better.csv", index=False)
    arguments = ("--truth", dataset, "--predictions", predictions, "--compare", tmp_path / "better.csv")
    result = numbers(*arguments)
    assert result["differences"]["precision"]["difference"] == pytest.approx(1 - 3 / 5)
    assert result["other"]["n_predictions"] == 3
    assert "difference" in run(*arguments).stdout


def test_spaces_and_bands(dataset, tmp_path):
    listing = dataset / "recordings.csv"
    listing.write_text(listing.read_text().replace("a.wav,2,16000", "a.wav,2,48000"))
    path = tmp_path / "p.csv"
    path.write_text(f"{HEADER},score\na.wav,0,1,1000,2000,0.6\na.wav,0,1,9000,9900,0.6\n")
    assert numbers("--truth", dataset, "--predictions", path)["n_predictions"] == 1
    assert numbers("--truth", dataset, "--predictions", path, "--space", "hz")["n_predictions"] == 2
    wide = numbers("--truth", dataset, "--predictions", path, "--band", 24_000)
    assert (wide["n_predictions"], wide["band_hz"]) == (2, [60.0, 24_000.0])
    assert "1 boxes outside the band" in run("--truth", dataset, "--predictions", path).stdout


@pytest.mark.parametrize("space", ["hz", "grid"])
def test_boxes_above_the_recordings_band_are_cut_on_both_sides(dataset, tmp_path, space):
    """There is no sound above half the sample rate: an expert's box up to 12 kHz and a detector's up to 8 are one."""
    truth = f"{HEADER},label\na.wav,0,1,1000,16000,x\nc.wav,0,1,1000,8000,x\n"
    (dataset / "boxes.csv").write_text(truth)
    path = tmp_path / "p.csv"
    path.write_text(f"{HEADER},score\na.wav,0,1,1000,8000,0.9\naudio/c.wav,0,1,1000,16000,0.8\n")
    result = run(
        "--truth",
        dataset,
        "--predictions",
        path,
        "--space",
        space,
        "--band",
        24_000,
        "--split",
        "test",
        "--json",
    )
    assert json.loads(result.stdout)["miou"] == 1.0
    said = "reached above half the sample rate and were cut to it"
    assert sorted(result.stderr.splitlines()) == [
        f"mast: warning: {dataset / 'boxes.csv'}: 1 of 2 boxes {said}",
        f"mast: warning: {path}: 1 of 2 predicted boxes {said}",
    ]
    assert numbers("--truth", dataset, "--predictions", path, "--space", space)["f1"] == 1.0

    with (
        path.open("a") as file,
        (dataset / "boxes.csv").open("a") as boxes,
    ):  # inaudible: no miss, no false alarm
        file.write("a.wav,0,1,9000,9900,0.6\n")
        boxes.write("c.wav,0,1,9000,9900,x\n")
    result = run("--truth", dataset, "--predictions", path, "--space", space, "--json")
    assert json.loads(result.stdout)["f1"] == 1.0
    assert "1 of 3 boxes lie wholly above half the sample rate and are left out" in result.stderr
    assert "1 of 3 predicted boxes lie wholly above half the sample rate and are left out" in result.stderr


@pytest.fixture
def insects(dataset: Path) -> Path:
    """At 48 kHz: a holds a bird, b insects above the band, c a bird and a box that reaches 10 Hz into the band."""
    listing = dataset / "recordings.csv"
    listing.write_text(listing.read_text().replace("16000", "48000"))
    (dataset / "boxes.csv").write_text(
        f"{HEADER}\na.wav,0,1,1000,2000\nb.wav,0,1,12000,15000\nc.wav,0,1,1000,2000\nc.wav,1,2,7990,12000\n"
    )
    return dataset


@pytest.mark.parametrize("as_json", [False, True])
def test_truth_outside_the_band_is_counted_in_a_warning(insects, predictions, as_json):
    arguments = ("--truth", insects, "--predictions", predictions, *(["--json"] if as_json else []))
    said = (
        f"mast: warning: {insects}: 2 of 4 truth boxes lie outside the band of 20–8000 Hz and are left out "
        "(--band 15000 would include them)"
    )
    assert run(*arguments).stderr.splitlines() == [said]
    for more in (("--quiet",), ("--band", 15_000), ("--space", "hz"), ("--split", "val", "--band", 15_000)):
        assert run(*arguments, *more).stderr == ""
    assert "1 of 2 truth boxes lie outside" in run(*arguments, "--split", "test").stderr


def test_truth_outside_the_band_is_no_miss_and_its_recording_is_empty(insects, tmp_path):
    path = tmp_path / "p.csv"
    path.write_text(f"{HEADER},score\na.wav,0,1,1000,2000,0.6\nc.wav,0,1,1000,2000,0.6\n")
    found = numbers("--truth", insects, "--predictions", path)
    assert (found["recall"], found["n_truth"], found["n_outside"], found["n_recordings"]) == (1.0, 2, 2, 4)
    with path.open(
        "a"
    ) as file:  # a false alarm among the insects, one in the last bin, and two that nobody can judge
        file.write("b.wav,0,1,1000,2000,0.6\nc.wav,1,2,7840,8000,0.6\n")
        file.write("b.wav,0,1,12000,15000,0.6\nc.wav,1,2,7990,12000,0.6\n")
    found = numbers("--truth", insects, "--predictions", path)
    assert (found["precision"], found["n_predictions"], found["n_outside"]) == (0.5, 4, 4)


def test_predictions_outside_the_band_do_not_make_an_empty_truth_a_mistake(insects, tmp_path):
    """Heard and empty is something to compare with."""
    (insects / "boxes.csv").write_text(f"{HEADER}\n")
    path = tmp_path / "p.csv"
    path.write_text(f"{HEADER},score\na.wav,0,1,12000,15000,0.6\nb.wav,0,1,1000,2000,0.6\n")
    found = numbers("--truth", insects, "--predictions", path)
    assert (found["precision"], found["n_truth"], found["n_outside"]) == (0.0, 0, 1)


def test_truth_that_lies_outside_the_band_is_one_sentence(dataset, tmp_path):
    """Not a page of dashes."""
    sf.write(dataset / "audio" / "a.wav", np.zeros(384_000), 192_000)
    (dataset / "recordings.csv").write_text("file\na.wav\n")
    (dataset / "boxes.csv").write_text(f"{HEADER}\na.wav,0,1,40000,60000\n")
    arguments = ("--truth", dataset, "--predictions", dataset / "boxes.csv")
    with pytest.raises(
        ConfigError, match=r"all 1 truth boxes lie outside the band of 20–8000 Hz.*up to 60000 Hz.*--band"
    ):
        run(*arguments)
    assert numbers(*arguments, "--band", 96_000)["f1"] == 1.0
    assert numbers(*arguments, "--space", "hz")["f1"] == 1.0

    left = tmp_path / "left"  # a run in a band of its own is compared there
    left.mkdir()
    write_run(left, DetectionRun(root="", band_hz=(240.0, 96_000.0), made_with={"root": ""}))
    read_annotations(dataset / "boxes.csv").events.to_parquet(left / "detections.parquet")
    for predictions in (left, left / "detections.parquet"):
        result = numbers("--truth", dataset, "--predictions", predictions)
        assert (result["f1"], result["band_hz"]) == (1.0, [240.0, 96_000.0])
    assert numbers("--truth", dataset, "--predictions", left, "--band", 64_000)["band_hz"] == [
        160.0,
        64_000.0,
    ]


def test_a_folder_that_detect_left_may_be_the_truth(dataset, predictions, tmp_path):
    left = tmp_path / "left"
    found = read_annotations(predictions).with_recordings(read_annotations(dataset).recordings)
    (left / "recordings").mkdir(parents=True)
    found.events.to_parquet(left / "detections.parquet")
    for name in ("raven", "audacity"):
        write_annotations(found, left / name, name)
    for folder in (left, left / "raven", left / "audacity"):
        result = numbers("--truth", folder, "--predictions", predictions)
        assert (result["n_truth"], result["recall"]) == (5, 1.0)


def test_no_predictions_at_all(dataset, tmp_path):
    (tmp_path / "none.csv").write_text(f"{HEADER},score\n")
    result = numbers("--truth", dataset, "--predictions", tmp_path / "none.csv")
    assert (result["precision"], result["recall"], result["f1"], result["n_predictions"]) == (None, 0, 0, 0)
    assert result["min_score"] is None
    assert "–" in run("--truth", dataset, "--predictions", tmp_path / "none.csv").stdout


def test_the_same_seed_gives_the_same_intervals(dataset, predictions):
    arguments = ("--truth", dataset, "--predictions", predictions, "--seed", 3)
    assert numbers(*arguments) == numbers(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["--threshold", "0.5", "--tune-split", "val"], ConfigError, "give one of them"),
        (["--split", "winter"], MastError, "winter"),
        (["--iou", "0"], ConfigError, "IoU threshold is 0"),
        (["--compare", "missing.csv"], MastError, "missing.csv: no such file"),
    ],
)
def test_mistakes_are_one_clear_sentence(dataset, predictions, options, error, message):
    with pytest.raises(error, match=message):
        CliRunner().invoke(
            app,
            ["--truth", str(dataset), "--predictions", str(predictions), *options],
            catch_exceptions=False,
        )


def test_recordings_without_boxes_are_no_truth(dataset, predictions):
    (dataset / "boxes.csv").unlink()
    (dataset / "recordings.csv").unlink()
    with pytest.raises(MastError, match=r"dataset: holds recordings but no boxes; expected boxes\.csv"):
        run("--truth", dataset, "--predictions", predictions)


def test_a_split_needs_a_dataset(dataset, predictions):
    with pytest.raises(ConfigError, match="this is not a dataset folder"):
        run("--truth", dataset / "boxes.csv", "--predictions", predictions, "--split", "val")


@pytest.mark.real
def test_real_truth_against_itself(shared_data):
    """Boxes taken for predictions are all right, whatever the set."""
    for name, band in (("birdeep_am1", 8_000), ("tagus_fish", 2_000), ("cr_bats", 250_000)):
        folder = shared_data / name
        result = numbers("--truth", folder, "--predictions", folder / "boxes.csv", "--band", band)
        assert (result["f1"], result["ap50_95"], result["miou"]) == (1.0, pytest.approx(1.0), 1.0)
        assert result["n_recordings"] == len(pd.read_csv(folder / "recordings.csv"))
