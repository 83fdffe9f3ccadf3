"""`mast fit --init` of a detector: the start is measured, and kept where training does not beat it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_archive import run_fit, toy_recipe, write_both
from typer.testing import CliRunner

import mast
from mast.cli.main import app
from mast.data.recordings import load_dataset
from mast.detect_options import DetectOptions
from mast.errors import ConfigError
from mast.evaluation.evidence import TRUSTED_BOXES, Tally, TrainingEvidence
from mast.evaluation.part_tables import PartTables
from mast.fit import draw, fit_run, judge, learn, pipeline
from mast.fit.habit_choice import HabitChoice
from mast.fit.pipeline import Fitted
from mast.fit.threshold_choice import ThresholdChoice
from mast.grid import FrontEnd
from mast.habit import Habit
from mast.models.architecture import DetectorConfig
from mast.models.card import LEARNT_FROM, ModelCard, load_card
from mast.models.checkpoint import save_checkpoint, update_card
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation
from mast.probability import StoredCalibration
from mast.reports.fit_verdict import f1_table, recommend_detector, verdict
from mast.training.chosen_chunks import labelled_chunks
from mast.training.detector_training import DetectorRun
from mast.training.effort import Rates
from mast.training.leakage import fingerprint
from mast.training.loop import Result
from mast.training.recipe import Recipe
from mast.training.training_run import TrainingRun

CALIBRATION = StoredCalibration.model_validate(
    {
        "calibration": {"method": "platt", "slope": 2.0, "intercept": 0.5},
        "n_recordings": 24,
        "n_truth": 100,
        "least_score": 0.05,
        "iou_threshold": 0.5,
        "log_loss_before": 0.5,
        "log_loss_after": 0.4,
    }
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``labelled/``, ``archive/`` and ``start/``, a detector that has learnt nothing, with its own calibration."""
    root = tmp_path_factory.mktemp("start")
    write_both(root)
    recipe = toy_recipe()
    assert isinstance(recipe.detector, DetectorConfig)
    torch.manual_seed(3)
    card = ModelCard(
        kind="detector",
        architecture=recipe.detector,
        front_end=recipe.front_end,
        normalisation=Normalisation(mean=-7.0, std=3.0),
        thresholds={"score": 0.0123, "nms_iou": 0.5},
        calibration=CALIBRATION,
    )
    save_checkpoint(root / "start", MastDetector(recipe.detector), card)
    return root


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "write_fit_report", lambda run, out, *_, **__: out.write_text("report"))


def plenty(f1: float | None) -> Tally:
    """That F1 on boxes enough for the higher one to decide."""
    return Tally.of([] if f1 is None else [[round(200 * f1), 200, 200], *([0, 0, 1] for _ in range(4))])


def validation_says(monkeypatch: pytest.MonkeyPatch, **f1: float) -> None:
    """F1 of a detector by the folder it lies in."""
    by_folder = {
        "start": f1["start"],
        "train": f1["trained"],
        "selftrain": f1.get("self_trained"),
        "habit": f1.get("habit"),
    }

    def told(folder: Path, *_: object, **__: object) -> Tally:
        return plenty(by_folder[folder.parent.name if folder.parent.name in by_folder else folder.name])

    monkeypatch.setattr(fit_run, "validation_tally", told)


def measured_anew(run: Path) -> None:
    for note in (run / "stages").glob("validate-*.json"):
        note.unlink()


def test_the_start_is_measured_like_the_trained_model(data: Path, tmp_path: Path, no_pictures: None) -> None:
    told: list[str] = []
    recipe = toy_recipe(train__epochs=1)
    fitted = run_fit(data / "labelled", [], tmp_path / "run", recipe, init=data / "start", messages=told)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert list(metrics["detectors"]) == ["start", "trained"]
    start = metrics["detectors"]["start"]
    assert start["threshold"] == 0.0123  # its own, not one chosen on this validation
    assert start["weights_sha256"] == load_card(data / "start").weights_sha256
    for name, found in metrics["detectors"].items():
        assert found["parts"].keys() == {"val", "test", "site_ood"}
        assert "f1" in found["parts"]["test"]["intervals"]
        # what decides is what the table shows
        assert metrics["validation_f1"][name] == pytest.approx(found["parts"]["val"]["f1"])
    assert [(pair["of"], pair["to"]) for pair in metrics["differences"]] == [
        ("trained", "start"),
    ]
    assert any(text.startswith("start: ") and "as is: validation F1" in text for text in told)
    table, sentence = fitted.summary()[:-1], fitted.summary()[-1]
    assert re.search(r"as is +trained$", table[0])
    assert re.match(r"validation, 1 recording, \d+ boxes +\d\.\d\d", table[1])
    assert "on validation (F1 as is" in sentence


def test_a_start_is_not_judged_on_what_it_has_learnt_from(
    data: Path, tmp_path: Path, no_pictures: None
) -> None:
    """It was fitted to one of the recordings that the usual division would validate on."""
    labelled, start, told = tmp_path / "labelled", tmp_path / "start", list[str]()
    shutil.copytree(data / "labelled", labelled)
    (labelled / "recordings.csv").unlink()  # and with it the split column
    recipe, dataset = toy_recipe(train__epochs=1), load_dataset(labelled)
    known = str(labelled_chunks(dataset, recipe.front_end)["val"].table["recording"].iloc[0])
    shutil.copytree(data / "start", start)
    learnt = {LEARNT_FROM: {fingerprint(dataset.path(known)): [[0.0, 1e4]]}}
    update_card(start, load_card(start).model_copy(update={"provenance": learnt}))
    fitted = run_fit(labelled, [], tmp_path / "run", recipe, init=start, messages=told)
    (said,) = (text for text in told if "was trained on" in text)
    assert said.startswith(
        f"note: {start} was trained on 1 of these {len(dataset)} recordings, so it stays in training"
    )
    assert known not in PartTables.load(tmp_path / "run" / "evaluate" / "start", "val").recordings
    kept = load_card(tmp_path / "run" / "train" / "best").provenance[LEARNT_FROM]
    assert fingerprint(dataset.path(known)) in kept
    again = run_fit(labelled, [], tmp_path / "run", recipe, init=start, messages=told)
    assert again.metrics == fitted.metrics
    assert "train: nothing has changed, skipped" in told


def test_a_few_boxes_make_no_test_part_and_nothing_claims_one(data: Path, tmp_path: Path) -> None:
    labelled, run, told = tmp_path / "labelled", tmp_path / "run", list[str]()
    shutil.copytree(data / "labelled", labelled)
    (labelled / "recordings.csv").unlink()  # and with it the split column
    dataset = load_dataset(labelled)
    names, boxes = dataset.recordings["file"], dataset.annotations.events
    heard = dataset.recordings[["file"]].assign(start_s=0.0, end_s=dataset.recordings["duration_s"])
    heard.loc[names == boxes["recording"].iloc[0], "end_s"] = 1.0
    heard.to_csv(labelled / "reviewed.csv", index=False)
    recipe = toy_recipe(train__epochs=1)
    fitted = run_fit(labelled, [], run, recipe, init=data / "start", messages=told)
    (unused,) = [text.removeprefix("scan: ") for text in told if "not used" in text]
    assert re.match(rf"\d+ of {len(boxes)} boxes are not used", unused)
    assert f"{unused}." in fitted.report.read_text(encoding="utf-8")
    assert "scan: no test part: fewer than 100 boxes are too few for one" in told
    assert any(re.fullmatch(r"scan: labelled chunks .* by part: train \d+, val \d+", text) for text in told)
    assert list(fitted.metrics["parts"]) == ["val"]
    assert not any("test" in line for line in fitted.summary())
    kept = json.loads((run / "train" / "recipe.json").read_text())
    assert kept["split"]["fractions"] == [0.7, 0.3, 0.0]
    lead = fitted.report.read_text(encoding="utf-8").partition('id="data"')[0]
    assert "There is no test part" in lead
    assert "test recordings" not in lead


def test_the_report_says_when_a_trained_model_has_the_calibration_of_the_start(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validation_says(monkeypatch, start=0.1, trained=0.9)
    recipe = toy_recipe(train__epochs=1)
    fitted = run_fit(data / "labelled", [], tmp_path / "run", recipe, init=data / "start")
    assert fitted.metrics["recommended"] == "trained"
    assert load_card(fitted.model).probabilities == CALIBRATION.calibration  # too few boxes for another
    text = fitted.report.read_text(encoding="utf-8")
    assert "came with the starting model: it is from 24 other recordings, not from yours" in text
    assert "precision on validation" not in text


def test_a_start_that_training_does_not_beat_is_kept(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pictures: None
) -> None:
    validation_says(monkeypatch, start=0.26, trained=0.10)
    told: list[str] = []
    arguments = (data / "labelled", [], tmp_path / "run", toy_recipe(train__epochs=1))
    fitted = run_fit(*arguments, init=data / "start")
    assert fitted.metrics["recommended"] == "start"
    assert fitted.summary()[-1] == (
        "Training did not beat the model it started from on validation (F1 as is 0.26, trained 0.10), "
        "so that model is kept and recommended as is."
    )
    best, start = load_card(tmp_path / "run" / "best"), load_card(data / "start")
    assert best == start  # weights, threshold, calibration
    events = mast.load(tmp_path / "run", device="cpu").detect(next((data / "archive" / "audio").iterdir()))
    assert (events["model"] == f"mast-{start.weights_sha256[:12]}").all()
    # nothing is done twice, and the recommendation is remembered
    monkeypatch.setattr(fit_run, "validation_tally", lambda *_, **__: pytest.fail("measured again"))
    monkeypatch.setattr(learn, "fit_detector", lambda *_, **__: pytest.fail("trained again"))
    again = run_fit(*arguments, init=data / "start", messages=told)
    assert again.metrics["recommended"] == "start"
    assert "train: nothing has changed, skipped" in told
    # what helps is recommended instead
    validation_says(monkeypatch, start=0.26, trained=0.30)
    measured_anew(tmp_path / "run")
    helped = run_fit(*arguments, init=data / "start")
    assert helped.metrics["recommended"] == "trained"
    assert load_card(tmp_path / "run" / "best") == load_card(tmp_path / "run" / "train" / "best")


def test_a_habit_that_boxes_show_is_kept_in_the_model(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt = Habit(box="strongest", time_db=20.0)

    def choose(part: PartTables, start: Habit, path_of: Callable[[str], Path]) -> HabitChoice:
        assert start == Habit()
        assert len(part.truth)
        assert len(part.recordings) == 6  # of train and validation
        tones = part.truth.sort_values("start_s").groupby("recording")
        assert (
            tones["end_s"].shift() - part.truth["start_s"]
        ).max() < 0.02  # each once, though chunks overlap
        assert (part.above_threshold["score"] >= 0.0123).all()
        assert path_of(part.recordings[0]).is_file()
        return HabitChoice(learnt, start, plenty(0.2), plenty(0.6))

    monkeypatch.setattr(draw, "choose_habit", choose)
    validation_says(monkeypatch, start=0.26, habit=0.40, trained=0.30)
    told: list[str] = []
    arguments = (data / "labelled", [], tmp_path / "run", toy_recipe(train__epochs=1))
    fitted = run_fit(*arguments, init=data / "start", examples=0, messages=told)
    assert list(fitted.metrics["detectors"]) == ["start", "habit", "trained"]
    assert fitted.metrics["recommended"] == "habit"
    pairs = [(pair["of"], pair["to"]) for pair in fitted.metrics["differences"]]
    assert pairs == [("habit", "start"), ("trained", "start")]
    assert re.search(r"as is +adjusted +trained$", fitted.summary()[0])
    assert fitted.summary()[-1].endswith("is kept and recommended, adjusted to your boxes.")
    best, start = load_card(tmp_path / "run" / "best"), load_card(data / "start")
    assert best == start.model_copy(update={"habit": learnt})
    assert mast.load(tmp_path / "run", device="cpu").habit == learnt
    assert any("your boxes are drawn as the strongest harmonic (down to 25 dB)" in text for text in told)
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "adjusted" in report
    assert "What adjusting the starting model to your boxes changed" in report
    assert (
        "It draws the strongest harmonic (down to 25 dB), without echo (20 dB), as your boxes are drawn"
        in report
    )
    # nothing is learnt twice
    monkeypatch.setattr(draw, "choose_habit", lambda *_: pytest.fail("learnt again"))
    run_fit(*arguments, init=data / "start", examples=0)


def test_self_training_continues_from_the_better_one(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pictures: None
) -> None:
    class Reached(Exception):
        pass

    def reached(data: object, parts: object, sources: object, run: TrainingRun, **_: object) -> None:
        assert run.start.path is not None
        raise Reached(run.start.path.relative_to(tmp_path / "run").as_posix())

    monkeypatch.setattr(learn, "fit_rounds", reached)
    arguments = (data / "labelled", [data / "archive"], tmp_path / "run", toy_recipe(train__epochs=1))
    for trained, teacher in ((0.1, "start"), (0.4, "train/best")):
        validation_says(monkeypatch, start=0.26, trained=trained)
        measured_anew(tmp_path / "run")
        with pytest.raises(Reached, match=f"^{teacher}$"):
            run_fit(*arguments, init=data / "start")


def test_self_training_from_the_start_and_all_three_are_measured(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validation_says(monkeypatch, start=0.26, trained=0.1, self_trained=0.3)
    fitted = run_fit(
        data / "labelled",
        [data / "archive"],
        tmp_path / "run",
        toy_recipe(train__epochs=1),
        init=data / "start",
        examples=0,
    )
    assert list(fitted.metrics["detectors"]) == ["start", "trained", "self-trained"]
    assert fitted.metrics["recommended"] == "self-trained"
    pairs = [(pair["of"], pair["to"]) for pair in fitted.metrics["differences"]]
    assert pairs == [("trained", "start"), ("self-trained", "start")]
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for words in ("as is", "What training changed", "What self-training changed", fitted.summary()[-1]):
        assert words in report


def test_in_another_band_the_start_hears_what_the_fitted_one_hears(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pictures: None
) -> None:
    seen: list[FrontEnd] = []

    def look(folder: Path, *_: object, **__: object) -> Tally:
        seen.append(load_card(folder).front_end)
        return plenty(0.5)

    def train(*_: object, **__: object) -> Result:
        raise KeyboardInterrupt  # far enough

    monkeypatch.setattr(fit_run, "validation_tally", look)
    monkeypatch.setattr(learn, "fit_detector", train)
    slow = toy_recipe(front_end=toy_recipe().front_end.at_band(4_000).model_dump())
    with pytest.raises(KeyboardInterrupt):
        run_fit(data / "labelled", [], tmp_path / "run", slow, init=data / "start")
    assert seen == [slow.front_end]
    assert load_card(data / "start").front_end != slow.front_end


def test_the_machine_chooses_the_epochs_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pictures: None
) -> None:
    """A resumed run keeps its plan, however fast the machine is by then."""
    monkeypatch.setattr("mast.training.effort.LOOKS", 480)
    trained: list[int] = []

    def train(learn: object, held: object, run: DetectorRun, **_: object) -> Result:
        trained.append(run.plan.epochs)
        raise KeyboardInterrupt

    monkeypatch.setattr(learn, "fit_detector", train)
    told: list[str] = []
    arguments: dict[str, Any] = {"init": data / "start", "fixed": ["train.batch_size"], "messages": told}
    for seconds in (1e-6, 1e6):
        monkeypatch.setattr(learn, "measure_rates", lambda *_, s=seconds, **__: Rates(s, s))
        with pytest.raises(KeyboardInterrupt):
            run_fit(data / "labelled", [], tmp_path / "run", **arguments)
    assert trained[0] == trained[1] > 12  # few chunks: more epochs than the recipe has
    assert sum(text.startswith("plan: about ") for text in told) == 1
    with pytest.raises(KeyboardInterrupt):
        run_fit(data / "labelled", [], tmp_path / "other", **arguments)
    assert trained[2] == 3  # a slow machine
    with pytest.raises(KeyboardInterrupt):
        run_fit(data / "labelled", [], tmp_path / "third", **arguments | {"fixed": None})
    assert trained[3] == toy_recipe().train.epochs  # as the recipe says


def test_a_preset_of_ones_own_wins(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, list[str] | None, int]] = []

    def fit(data: object, unlabelled: object, out: object, recipe: Recipe, **given: Any) -> None:
        fixed = None if given["fixed"] is None else sorted(given["fixed"])
        seen.append((recipe.size, fixed, recipe.train.epochs))
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "fit", fit)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    arguments = ["fit", str(data / "labelled"), "--out", str(tmp_path / "run")]
    for further in (
        ["--init", str(data / "start")],
        ["--init", str(data / "start"), "--set", "train.epochs=5"],
        ["--init", str(data / "start"), "--preset", "small"],
        [],
    ):
        assert CliRunner().invoke(app, [*arguments, *further]).exit_code == 130
    assert seen == [("tiny", [], 12), ("tiny", ["train.epochs"], 5), ("small", None, 60), ("tiny", [], 12)]


def test_how_the_start_draws_is_an_option(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[DetectOptions] = []
    f1 = {"trained": 0.5}
    shutil.copytree(data / "start", tmp_path / "run" / "best")
    best = tmp_path / "run" / "best"
    update_card(best, load_card(best).model_copy(update={"habit": Habit(join_s=0.3)}))

    def fit(data: object, unlabelled: object, out: object, recipe: Recipe, **given: Any) -> Fitted:
        asked.append(given["drawn"])
        detectors = {"trained": {"parts": {}}}
        metrics = {
            "validation_f1": f1,
            "validation_counts": {"trained": plenty(f1["trained"]).as_lists()},
            "learnt_from": {"boxes": 8, "recordings": 2},
            "recommended": "trained",
            "parts": {},
            "detectors": detectors,
        }
        return Fitted(best, tmp_path / "report.html", metrics)

    monkeypatch.setattr(pipeline, "fit", fit)
    arguments = ["fit", str(data / "labelled"), "--out", str(tmp_path / "run")]
    drawn = ["--box", "strongest", "--join", "0.25"]
    with pytest.raises(
        ConfigError, match="--box, --join: say how the detector to start from draws boxes; give one"
    ):
        CliRunner().invoke(app, [*arguments, *drawn], catch_exceptions=False)
    done = CliRunner().invoke(app, [*arguments, *drawn, "--init", str(data / "start")])
    assert done.exit_code == 0, done.output
    assert asked == [DetectOptions(box="strongest", join_s=0.25)]
    assert "It draws whole calls, joined over gaps of up to 0.3 s; mast detect --box all" in done.output
    assert "Next: mast detect" in done.output
    f1["trained"] = 0.0
    useless = CliRunner().invoke(app, [*arguments, "--init", str(data / "start")])
    assert "so it cannot be used yet" in useless.output
    assert "Next:" not in useless.output


@pytest.mark.parametrize(
    ("f1", "chosen"),
    [
        ({"trained": 0.1}, "trained"),
        ({"trained": 0.3, "self-trained": 0.2}, "self-trained"),
        ({"start": 0.2, "trained": 0.2}, "start"),
        ({"start": 0.2, "trained": 0.21}, "trained"),
        ({"start": None, "trained": 0.0}, "start"),
        ({"start": None, "trained": None}, "start"),
        ({"start": 0.2, "trained": None}, "start"),
        ({"start": 0.2, "trained": 0.3, "self-trained": 0.25}, "self-trained"),
        ({"start": 0.2, "trained": 0.3, "self-trained": 0.1}, "trained"),
        ({"start": 0.2, "trained": 0.1, "self-trained": 0.3}, "self-trained"),
        ({"start": 0.2, "trained": 0.1, "self-trained": 0.1}, "start"),
        ({"start": 0.2, "habit": 0.3, "trained": 0.25}, "habit"),
        ({"start": 0.2, "habit": 0.3, "trained": 0.35}, "trained"),
        ({"start": 0.2, "habit": 0.2, "trained": 0.1}, "habit"),
        ({"start": 0.2, "habit": 0.1, "trained": 0.21}, "trained"),
    ],
)
def test_the_recommended_detector_has_beaten_the_start(f1: dict[str, float | None], chosen: str) -> None:
    found = {name: plenty(value) for name, value in f1.items()}
    assert recommend_detector(found, TrainingEvidence()) == chosen
    sentence = verdict(found, TrainingEvidence())
    assert ("recommended as is" in sentence) == (chosen == "start")
    assert len(sentence) < 300


LUCKY = {"start": 3, "trained": 5}  # boxes right, of eight in one recording


@pytest.mark.parametrize(
    ("right", "chosen", "so"),
    [
        (
            LUCKY,
            "start",
            "so the model it started from is kept and recommended as is: draw boxes in more recordings",
        ),
        (LUCKY | {"habit": 3, "trained": 6}, "habit", "recommended, adjusted to your boxes:"),
        (LUCKY | {"trained": 3}, "start", ""),
    ],
)
def test_on_few_boxes_training_may_have_been_lucky(right: dict[str, int], chosen: str, so: str) -> None:
    found = {name: Tally.of([[n, 8, 8]]) for name, n in right.items()}
    assert recommend_detector(found, TrainingEvidence()) == chosen
    sentence = verdict(found, TrainingEvidence())
    if so:
        assert sentence.startswith("Training looked better on validation (F1 as is 0.38, ")
        assert "but on 8 boxes in 1 recording that may be due to chance, " in sentence
        assert so in sentence
    else:
        assert sentence.startswith("Training did not beat the model it started from on validation")


def test_what_was_learnt_from_several_recordings_needs_no_proof() -> None:
    found = {name: Tally.of([[n, 8, 8]]) for name, n in LUCKY.items()}
    assert recommend_detector(found, TrainingEvidence(20, 3)) == "trained"
    # it may have learnt these recordings alone
    assert recommend_detector(found, TrainingEvidence(1_000, 2)) == "start"
    assert recommend_detector(found, TrainingEvidence(19, 3)) == "start"
    assert verdict(found, TrainingEvidence(20, 3)).startswith("On validation the trained detector beats")
    worse = {name: Tally.of([[n, 8, 8]]) for name, n in (LUCKY | {"trained": 2}).items()}
    assert recommend_detector(worse, TrainingEvidence(TRUSTED_BOXES - 1, 30)) == "start"


def test_a_fit_from_few_boxes_averages_with_the_start(data: Path, tmp_path: Path) -> None:
    told: list[str] = []
    recipe = toy_recipe(train__epochs=1)
    arguments: dict[str, Any] = {"init": data / "start", "examples": 0, "messages": told}
    fitted = run_fit(
        data / "labelled",
        [],
        tmp_path / "run",
        recipe,
        fixed=["train.epochs", "train.batch_size"],
        **arguments,
    )
    learnt = fitted.metrics["learnt_from"]
    assert learnt["averaged"]
    assert load_card(tmp_path / "run" / "train" / "best").provenance["recipe"]["train"]["start_share"] == 0.5
    size = TrainingEvidence(**learnt).size
    assert f"train: {size} are few, so the trained weights are averaged with the starting model's" in told
    assert fitted.metrics["recommended"] == "trained"
    told.clear()
    fixed = run_fit(
        data / "labelled", [], tmp_path / "fixed", recipe, **arguments
    )  # every setting was chosen
    assert not fixed.metrics["learnt_from"]["averaged"]
    assert not any("averaged" in text for text in told)


def test_where_validation_is_too_small_a_training_on_many_boxes_is_recommended() -> None:
    right = {"start": 3, "trained": 2, "self-trained": 2}
    found = {name: Tally.of([[n, 8, 8]]) for name, n in right.items()}
    # self-training has no more boxes to rely on
    assert recommend_detector(found, TrainingEvidence(55, 7)) == "trained"
    assert verdict(found, TrainingEvidence(55, 7)) == (
        "Validation is too small to compare detectors (8 boxes in 1 recording; F1 as is 0.38, trained 0.25, "
        "self-trained 0.25). The trained one learnt from 55 boxes in 7 recordings, which usually helps, and is "
        "recommended."
    )
    few = TrainingEvidence(8, 2)
    assert recommend_detector(found, few) == "start"
    assert recommend_detector(found, few._replace(averaged=True)) == "trained"
    assert (
        "The trained one learnt from 8 boxes in 2 recordings and is averaged with the model it started from, which "
        "usually helps, and is recommended."
    ) in verdict(found, few._replace(averaged=True))


@pytest.mark.parametrize(
    ("f1", "remedy"),
    [
        ({"trained": 0.0}, "start from the embedded model with --init default"),
        ({"trained": 0.3, "self-trained": 0.0}, "--init default"),
        ({"start": 0.0, "trained": 0.0}, "choose another --band or another model to start from"),
    ],
)
def test_a_detector_that_finds_nothing_right_is_not_recommended(f1: dict[str, float], remedy: str) -> None:
    sentence = verdict({name: plenty(value) for name, value in f1.items()}, TrainingEvidence())
    assert sentence.startswith("The detector found nothing correctly on validation (F1 ")
    assert sentence.endswith(f"{remedy}.")


def test_a_table_for_the_terminal() -> None:
    result = {"f1": 0.255, "intervals": {"f1": [0.1, 0.4]}}
    nothing = {"f1": None, "intervals": {"f1": [None, None]}}
    metrics = {
        "parts": {"val": {"recordings": 1, "boxes": 11}, "site_ood": {"recordings": 2, "boxes": 1}},
        "detectors": {
            "start": {"parts": {"val": result, "site_ood": nothing}},
            "trained": {"parts": {"val": nothing, "site_ood": result}},
        },
    }
    assert f1_table(metrics) == [
        "F1 (95 % interval)                 as is             trained",
        "validation, 1 recording, 11 boxes  0.26 (0.10–0.40)  –",
        "other sites, 2 recordings, 1 box   –                 0.26 (0.10–0.40)",
    ]


def test_a_threshold_that_boxes_ask_for_goes_into_all_that_is_made(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(part: PartTables, start: float) -> ThresholdChoice:
        assert start == load_card(data / "start").thresholds["score"]
        assert (part.found["score"] < start).any()  # a lower one can be chosen, too
        return ThresholdChoice(0.02, start, plenty(0.2), plenty(0.6))

    monkeypatch.setattr(draw, "choose_threshold", choose)
    validation_says(monkeypatch, start=0.26, habit=0.40, trained=0.30)
    told: list[str] = []
    arguments = (data / "labelled", [], tmp_path / "run", toy_recipe(train__epochs=1))
    fitted = run_fit(*arguments, init=data / "start", examples=0, messages=told)
    assert fitted.metrics["recommended"] == "habit"
    best, start = load_card(tmp_path / "run" / "best"), load_card(data / "start")
    assert best == start.model_copy(update={"thresholds": {**start.thresholds, "score": 0.02}})
    # validation has too few boxes to choose another
    assert load_card(tmp_path / "run" / "train" / "best").thresholds["score"] == 0.02
    assert any(re.match(r"threshold: a minimum score of \S+ fits your boxes better", text) for text in told)
    assert "train: done; validation has too few boxes to choose another threshold" in told
    assert not any(text.startswith("train: validation F1") for text in told)  # at which threshold?
