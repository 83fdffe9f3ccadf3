"""`mast fit` on seconds of sound: everything once, nothing twice, and the same after kills."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest
from toy_archive import SETTINGS, run_fit, toy_recipe, write_archive, write_both
from typer.testing import CliRunner

import mast
from mast.cli.main import app
from mast.errors import MastError
from mast.events import EVENT_COLUMNS
from mast.fit import judge, learn
from mast.normalisation import Normalisation
from mast.training.effort import Rates
from mast.training.training_run import TrainingRun

KILLS = int(os.environ.get("MAST_FIT_KILLS", "2"))
STAGES = ("scan", "plan", "statistics", "pretrain", "train", "self-train", "calibrate", "evaluate", "report")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run, beside its ``labelled/`` and ``archive/``."""
    root = tmp_path_factory.mktemp("fit")
    labelled, archive = write_both(root)
    run_fit(labelled, [archive], root / "run")
    return root / "run"


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    """The run and its data in another place."""
    for name in ("run", "labelled", "archive"):
        shutil.copytree(whole.parent / name, tmp_path / name)  # keeps the times of files
    return tmp_path / "run"


class Reached(Exception):
    """A stage was started."""


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take seconds."""
    monkeypatch.setattr(judge, "write_fit_report", lambda run, out, *_, **__: out.write_text("report"))


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch, no_report: None) -> None:
    """Training stages tell that they were reached, and stop there."""
    for name in ("fit_encoder", "fit_detector", "fit_rounds"):

        def reached(*_: object, name: str = name, **__: object) -> None:
            raise Reached(name)

        monkeypatch.setattr(learn, name, reached)


def test_a_run_ends_in_a_model_metrics_and_a_report(whole: Path) -> None:
    recording = next((whole.parent / "archive" / "audio").iterdir())
    events = mast.load(whole, device="cpu").detect(recording)
    assert list(events.columns) == list(EVENT_COLUMNS)

    metrics = json.loads((whole / "metrics.json").read_text())
    assert list(metrics["parts"]) == ["val", "test", "site_ood"]
    assert list(metrics["detectors"]) == ["trained", "self-trained"]
    weights = {d: m["weights_sha256"] for d, m in metrics["detectors"].items()}
    assert weights["trained"] != weights["self-trained"]
    assert (
        weights["self-trained"] == json.loads((whole / "best" / "model.json").read_text())["weights_sha256"]
    )
    for detector in metrics["detectors"].values():
        for result in detector["parts"].values():
            assert result["threshold"] == detector["threshold"]  # from validation, whatever the part
            assert set(result["intervals"]) >= {"f1", "precision", "recall", "ap50"}
    (changed,) = metrics["differences"]
    assert (changed["of"], changed["to"]) == ("self-trained", "trained")
    assert changed["parts"].keys() == metrics["parts"].keys()
    assert metrics["recommended"] == "self-trained"

    listing = pd.read_csv(whole / "scan" / "recordings.csv")
    assert listing["kind"].value_counts().to_dict() == {"labelled": 9, "unlabelled": 4}
    assert listing["boxes"].sum() == 32


def test_the_report_needs_nothing_else(whole: Path) -> None:
    text = (whole / "report.html").read_text(encoding="utf-8")
    for word in (
        "Data",
        "Accuracy",
        "Scores",
        "Examples",
        "Self-training",
        "Training curves",
        "Use the model",
    ):
        assert f">{word}</h2>" in text
    assert text.count("data:image/png;base64,") >= 8
    without_pictures = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert not re.search(r"https?://|<script|<link|url\(", without_pictures)
    assert f"mast detect recordings/ --model {whole}" in text
    assert "`" not in without_pictures
    heard = json.loads((whole / "metrics.json").read_text())["parts"]["test"]["recordings"]
    assert heard < 10
    assert f"These figures rest on {heard} recording" in text


def test_the_second_time_nothing_is_done(whole: Path, no_training: None) -> None:
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}
    told: list[str] = []
    run_fit(whole.parent / "labelled", [whole.parent / "archive"], whole, messages=told)
    for stage in STAGES:
        assert f"{stage}: nothing has changed, skipped" in told
    assert {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()} == before


def test_boxes_outside_the_band_are_left_out_and_counted_once(tmp_path: Path, no_training: None) -> None:
    data, told = write_archive(tmp_path / "labelled"), list[str]()
    boxes = pd.read_csv(data / "boxes.csv")
    boxes.loc[boxes.index[:9], ["low_hz", "high_hz"]] = [6_500.0, 7_500.0]
    boxes.to_csv(data / "boxes.csv", index=False)
    recipe = toy_recipe(front_end__high_hz=6_400.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with pytest.raises(Reached):
            run_fit(data, [], tmp_path / "run", recipe, messages=told)
    assert [text for text in told if "outside the band" in text] == [
        f"note: {data}: 9 of 32 boxes lie outside the band of 20–6400 Hz and are left out (--band 7500 would include "
        "them)"
    ]
    assert any(text.startswith("scan: 9 recordings") and text.endswith("with 23 boxes") for text in told)
    assert pd.read_csv(tmp_path / "run" / "scan" / "recordings.csv")["boxes"].sum() == 23


def test_a_run_may_move_with_its_data(copied: Path, no_training: None) -> None:
    told: list[str] = []
    run_fit(copied.parent / "labelled", [copied.parent / "archive"], copied, messages=told)
    assert sum("nothing has changed" in text for text in told) == len(STAGES)


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ({"selftrain__stage2__lr": 1e-5}, "fit_rounds"),
        ({"train__lr": 1e-5}, "fit_detector"),
        ({"pretrain__lr": 1e-5}, "fit_encoder"),
        ({"workers": 0, "train__save_every_s": 100.0, "pretrain__log_every_steps": 3}, None),
    ],
)
def test_another_setting_starts_over_from_there(
    copied: Path, no_training: None, change: dict[str, object], first: str | None
) -> None:
    data = (copied.parent / "labelled", [copied.parent / "archive"], copied, toy_recipe(**change))
    if first is None:
        run_fit(*data)
        return
    folder = {"fit_rounds": "selftrain", "fit_detector": "train", "fit_encoder": "pretrain"}[first]
    weights = (copied / folder / "best" / "model.safetensors").read_bytes()
    with pytest.raises(Reached, match=first):
        run_fit(*data)
    assert (copied / "earlier" / f"{folder}-1" / "best" / "model.safetensors").read_bytes() == weights
    assert not (copied / folder / "best").exists()


def test_other_boxes_train_again_but_the_encoder_is_kept(copied: Path, no_training: None) -> None:
    boxes = copied.parent / "labelled" / "boxes.csv"
    table = pd.read_csv(boxes)
    told: list[str] = []
    # another name for the same box changes nothing for a detector of boxes
    table.assign(label="frog").to_csv(boxes, index=False)
    run_fit(boxes.parent, [copied.parent / "archive"], copied, messages=told)
    assert "train: nothing has changed, skipped" in told
    table.iloc[:-1].to_csv(boxes, index=False)
    with pytest.raises(Reached, match="fit_detector"):
        run_fit(boxes.parent, [copied.parent / "archive"], copied, messages=told)
    assert told.count("pretrain: nothing has changed, skipped") == 2
    assert (copied / "report.html").read_text() == "report"  # the species stand there
    changed = "train: your boxes or what was listened to changed (32 boxes, now 31 boxes); starting over"
    assert any(text.startswith(changed) for text in told)
    assert told.count(f"scan: {boxes.parent} changed; repeating") == 2  # no fingerprints


def test_a_recording_that_was_moved_is_named_once_and_the_others_are_learnt_from(
    tmp_path: Path, no_training: None
) -> None:
    labelled, archive = write_both(tmp_path)
    gone = labelled / "audio" / "S1_20240501_063000.wav"
    gone.unlink()
    told: list[str] = []
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*left out")
        with pytest.raises(Reached):
            run_fit(labelled, [archive], tmp_path / "run", messages=told)
    assert [text for text in told if "left out" in text] == [
        f"note: {labelled / 'boxes.csv'}: 1 of 8 boxed recordings is not in {labelled} ({gone.name}) and is left out "
        "with its 4 boxes; was it moved or renamed?"
    ]
    assert pd.read_csv(tmp_path / "run" / "scan" / "failures.csv")["file"].tolist() == [gone.name]


def test_other_sound_pretrains_again(copied: Path, no_training: None) -> None:
    audio = copied.parent / "archive" / "audio"
    first = sorted(audio.iterdir())[0]
    first.rename(audio / "S3_20240601_000000.wav")
    with pytest.raises(Reached, match="fit_encoder"):
        run_fit(copied.parent / "labelled", [copied.parent / "archive"], copied)


def test_a_start_without_unlabelled_sound(whole: Path, tmp_path: Path) -> None:
    told: list[str] = []
    recipe, init = toy_recipe(train__epochs=1), whole / "pretrain"
    run_fit(whole.parent / "labelled", [], tmp_path / "run", recipe, init=init, messages=told, examples=0)
    assert f"pretrain: skipped, starting from {init / 'best'}" in told
    assert any(text.startswith("self-train: skipped") for text in told)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert list(metrics["detectors"]) == ["trained"]
    assert metrics["differences"] == []
    assert ">Self-training</h2>" not in (tmp_path / "run" / "report.html").read_text()


def test_the_command_tells_what_came_of_it_and_what_to_do_next(copied: Path, no_training: None) -> None:
    options = [text for name, value in SETTINGS.items() for text in ("--set", f"{name}={value}")]
    data = [str(copied.parent / "labelled"), "--unlabelled", str(copied.parent / "archive")]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(copied.parent)
        arguments = ["fit", *data, "--out", "run", "--preset", "tiny", *options]
        shown = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert shown.exit_code == 0
    assert "train: nothing has changed, skipped" in shown.output
    assert re.search(r"F1 \(95 % interval\) +trained +self-trained\n", shown.output)
    assert re.search(r"test, 1 recording, 4 boxes +\d.\d\d.* +\d.\d\d", shown.output)
    assert "Model: run/best (as trained here). Report: run/report.html." in shown.output
    # so small a model may find nothing
    found = json.loads((copied / "metrics.json").read_text())["validation_f1"]["self-trained"]
    assert ("Next: mast detect RECORDINGS/ --model run --out detections" in shown.output) == (found != 0)


def test_a_detector_that_finds_nothing_in_the_archive_is_still_a_detector(
    copied: Path, monkeypatch: pytest.MonkeyPatch, no_report: None
) -> None:
    def nothing(data: object, parts: object, sources: object, run: TrainingRun, **_: object) -> None:
        (run.out / "round-1").mkdir(parents=True)
        pd.DataFrame({"chunk": []}).to_parquet(run.out / "round-1" / "pseudo.parquet")
        raise MastError("the detector finds nothing in the unlabelled sound")

    monkeypatch.setattr(learn, "fit_rounds", nothing)
    told: list[str] = []
    recipe = toy_recipe(selftrain__threshold=0.9)
    fitted = run_fit(copied.parent / "labelled", [copied.parent / "archive"], copied, recipe, messages=told)
    assert any("self-train: skipped (the detector finds nothing" in text for text in told)
    assert list(fitted.metrics["detectors"]) == ["trained"]


def test_mistakes(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(MastError, match="no boxes to learn from"):
        run_fit(write_archive(tmp_path / "plain", n=3, boxed=False), [], tmp_path / "a")
    labelled = whole.parent / "labelled"
    with pytest.raises(MastError, match="holds no model; expected default"):
        run_fit(labelled, [], tmp_path / "b", init=tmp_path / "plain")
    with pytest.raises(MastError, match="is a file"):
        run_fit(labelled, [], labelled / "boxes.csv")
    with pytest.raises(MastError, match="no such folder"):
        run_fit(labelled, [tmp_path / "nowhere"], tmp_path / "c")


@pytest.mark.parametrize("into", ["labelled", "mine"])
def test_a_run_begins_in_no_folder_with_somebodys_files(tmp_path: Path, into: str) -> None:
    labelled, _ = write_both(tmp_path)
    (tmp_path / into / "evaluate").mkdir(parents=True)  # where a run would put tables of its own
    (tmp_path / into / "evaluate" / "precious.txt").write_text("notes")
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(MastError, match=r"holds files but no run of mast; choose a new folder"):
        run_fit(labelled, [], tmp_path / into)
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_killed_and_continued_it_ends_the_same(whole: Path) -> None:
    """``MAST_FIT_KILLS=20`` for more kills than the usual few."""
    script = str(Path(__file__).with_name("killed_fits.py"))
    command = [sys.executable, script, "--kills", str(KILLS), "--whole", str(whole)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["exit_code"] == 0, done.stderr
    assert (
        result["landed"] >= 1
    )  # a machine that is busy one moment and quiet the next may be done before a kill
    assert result["differences"] == []


@pytest.mark.parametrize("levelled", [False, True])
@pytest.mark.parametrize("from_others", [False, True])
def test_what_trains_first_gets_the_statistics_of_all_sound(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, levelled: bool, from_others: bool
) -> None:
    given: list[Normalisation | None] = []

    def reached(learn: object, held: object, run: TrainingRun, **_: object) -> None:
        given.append(run.normalisation)
        raise Reached

    monkeypatch.setattr(learn, "fit_detector" if from_others else "fit_encoder", reached)
    monkeypatch.setattr(learn, "measure_rates", lambda *_, **__: Rates(1.0, 1.0, 1.0))
    (tmp_path / "weights.pth").write_bytes(b"")
    data, recipe = whole.parent, toy_recipe(levelled=levelled)
    init = tmp_path / "weights.pth" if from_others else None
    with pytest.raises(Reached):
        run_fit(data / "labelled", [data / "archive"], tmp_path / "run", recipe, init=init)
    kept = (tmp_path / "run" / "statistics" / "normalisation.json").read_text()
    assert given == [Normalisation.model_validate_json(kept)]
    assert given[0] is not None
    assert given[0].levelled == levelled
    assert not list((tmp_path / "run").glob("*train/normalisation.json"))


def test_a_stopped_stage_resumes_with_other_workers(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder keeps all settings, for people and for the report; the ledger alone decides whether it is resumed."""
    monkeypatch.setattr(learn, "measure_rates", lambda *_, **__: Rates(1.0, 1.0, 1.0))
    monkeypatch.setattr(learn, "fit_encoder", lambda *_, **__: (_ for _ in ()).throw(Reached))
    told: list[str] = []
    for workers in (None, 0):
        with pytest.raises(Reached):
            run_fit(whole.parent / "labelled", [], tmp_path, toy_recipe(workers=workers), messages=told)
        kept = json.loads((tmp_path / "pretrain" / "recipe.json").read_text())
        assert kept["recipe"]["workers"] == workers
    assert "pretrain: was stopped, resuming" in told
