"""A saved detector's card after calibration on validation chunks."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import expit, logit
from toy_recipe import FRONT_END, small_recipe

from mast.data.recordings import load_dataset
from mast.errors import MastError
from mast.evaluation.calibration import fit_best
from mast.evaluation.operating import operating_curve
from mast.evaluation.part_tables import PartTables
from mast.events import as_events
from mast.loaded_model import LoadedModel
from mast.models.architecture import DetectorConfig, MaeConfig
from mast.models.card import ModelCard, load_card
from mast.models.checkpoint import load_checkpoint, save_checkpoint, update_card
from mast.models.mae import MaskedAutoencoder
from mast.models.mast_detector import MastDetector
from mast.models.onnx_detector import measure_ranges
from mast.normalisation import Normalisation
from mast.probability import StoredCalibration
from mast.training import calibrate, detector_training
from mast.training.calibrate import calibrate_checkpoint, ranges_of
from mast.training.chosen_chunks import Chunks, labelled_chunks
from mast.training.chunk_scores import detect_chunks
from mast.training.detector_training import train_detector
from mast.training.machine import Machine, prepare_machine
from mast.training.recipe import Recipe

STATISTICS = Normalisation(mean=-8.0, std=4.0)


@pytest.fixture(scope="module")
def held(tones: Path) -> Chunks:
    return labelled_chunks(load_dataset(tones), FRONT_END)["val"]


@pytest.fixture(scope="module")
def machine() -> Machine:
    return prepare_machine(small_recipe())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An untrained detector with scores all over (0, 1)."""
    torch.manual_seed(0)
    recipe = small_recipe()
    config = recipe.detector_for(recipe.train)
    untrained = MastDetector(config)
    with torch.no_grad():
        untrained.head.classify.weight.normal_(0, 0.1)
        untrained.head.classify.bias.zero_()
    card = ModelCard(
        kind="detector",
        architecture=config,
        front_end=FRONT_END,
        normalisation=STATISTICS,
        thresholds={"score": 0.31, "nms_iou": 0.4},
    )
    save_checkpoint(tmp_path / "model", untrained, card)
    return tmp_path / "model"


def boastful(*_: object, **__: object) -> PartTables:
    """What a detector finds that is too sure of itself: right as often as a quarter of the logit would say."""
    rng = np.random.default_rng(2)
    n = 1_500
    score = rng.uniform(0.05, 0.99, n)
    start = 0.2 * np.arange(n)
    table = pd.DataFrame(
        {
            "recording": [f"r{i % 12:02d}" for i in range(n)],
            "start_s": start,
            "end_s": start + 0.09,
            "low_hz": 500.0,
            "high_hz": 3_000.0,
            "score": score,
        }
    )
    found = as_events(table)
    right = rng.random(n) < expit(0.25 * logit(score))
    reviewed = pd.DataFrame({"recording": sorted(set(table["recording"])), "start_s": 0.0, "end_s": np.inf})
    return PartTables(found[right].reset_index(drop=True), found, reviewed, FRONT_END)


def test_the_card_holds_what_validation_says(
    model: Path, held: Chunks, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "detect_chunks", boastful)
    before = load_checkpoint(model)
    found = calibrate_checkpoint(model, held, machine, seed=4)
    after = load_checkpoint(model)
    assert after.card.calibration == found
    rest = after.card.model_copy(update={"calibration": None, "ranges": None})
    assert rest == before.card  # the tuned threshold stays a raw score
    assert all(torch.equal(t, after.model.state_dict()[n]) for n, t in before.model.state_dict().items())

    outcome = boastful().match()
    best = fit_best(outcome, 4)
    assert found.calibration == best.calibration
    assert found.calibration.method != "none"
    assert (found.log_loss_before, found.log_loss_after) == (
        best.log_loss["none"],
        min(best.log_loss.values()),
    )
    assert found.curve == operating_curve(outcome, seed=4)
    assert (found.n_recordings, found.calibration.n_predictions) == (12, 1_500)
    assert found.data == Path(held.table["root"].iloc[0]).name  # whose boxes they were, without a path
    assert calibrate_checkpoint(model, held, machine, data="marsh, by two students", seed=4) == (
        found.model_copy(update={"data": "marsh, by two students"})
    )
    assert found.calibration.apply(0.95) == pytest.approx(expit(0.25 * logit(0.95)), abs=0.06)
    assert calibrate_checkpoint(model, held, machine, seed=4) == found  # the same again


def test_the_saved_detector_is_asked_as_in_validation(model: Path, tones: Path, machine: Machine) -> None:
    parts = labelled_chunks(load_dataset(tones), FRONT_END, seed=3)
    shown = LoadedModel.load(model, device="cpu")
    assert shown.nms_iou == 0.4
    measured = detect_chunks(shown, parts["val"], score_threshold=0.5, nms_iou=0.4)
    assert len(measured.found)
    found = calibrate_checkpoint(model, parts["val"], machine, seed=3, min_score=0.5)
    assert found.calibration.n_predictions == len(measured.found)
    assert found.n_truth == len(measured.truth)
    assert found.n_recordings == parts["val"].table["recording"].nunique()
    assert load_card(model).calibration == found
    assert found.least_score == 0.5


def test_a_kill_between_the_two_files_leaves_a_model_to_calibrate_again(
    model: Path, held: Chunks, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "detect_chunks", boastful)
    weights, move = load_checkpoint(model).model.state_dict(), os.replace

    def killed(part: Path, place: Path) -> None:
        if place.name == "model.json":
            raise KeyboardInterrupt
        move(part, place)

    with monkeypatch.context() as patch:
        patch.setattr("mast.files.os.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            calibrate_checkpoint(model, held, machine)
    left = load_checkpoint(model)
    assert left.card.calibration is None
    assert all(torch.equal(tensor, left.model.state_dict()[name]) for name, tensor in weights.items())
    found = calibrate_checkpoint(model, held, machine)
    assert load_card(model).calibration == found


def test_only_detectors(tmp_path: Path, held: Chunks, machine: Machine) -> None:
    encoder = small_recipe().detector_for(small_recipe().train).encoder
    config = MaeConfig(encoder=encoder, decoder_width=16, decoder_depth=1, decoder_heads=2)
    card = ModelCard(kind="mae", architecture=config, front_end=FRONT_END, normalisation=STATISTICS)
    save_checkpoint(tmp_path, MaskedAutoencoder(config), card)
    with pytest.raises(MastError, match="holds a pretrained encoder, not a detector"):
        calibrate_checkpoint(tmp_path, held, machine)


@pytest.mark.usefixtures("smaller_models")
def test_a_finished_run_is_calibrated_once(
    tones: Path, tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []

    def counted(folder: Path, *arguments: object, **options: object) -> StoredCalibration:
        calls.append(folder)
        return calibrate_checkpoint(folder, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(detector_training, "calibrate_checkpoint", counted)
    train_detector(tones, tmp_path, recipe, stop_after=1)
    assert calls == []
    train_detector(tones, tmp_path, recipe)
    assert calls == [tmp_path / "best"]
    card = load_card(tmp_path / "best")
    stored = card.calibration
    assert stored is not None
    assert stored.least_score == recipe.train.score_threshold
    train_detector(tones, tmp_path, recipe)  # a finished run is read, not repeated
    assert len(calls) == 1
    assert load_card(tmp_path / "best") == card


@pytest.mark.parametrize("kept", [True, False])
def test_ranges_are_those_of_the_chunks(
    model: Path, held: Chunks, machine: Machine, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Also where the start's calibration is kept."""
    monkeypatch.setattr(calibrate, "detect_chunks", boastful)
    first = calibrate_checkpoint(model, held, machine)
    calibrate_checkpoint(model, held, machine, kept=first if kept else None)
    card = load_checkpoint(model).card
    loaded = LoadedModel.load(model, device="cpu")
    sounds = [held.examples[row].waveform for row in range(len(held))]
    seen = [loaded.spectrograms(sound[None])[0, 0].numpy() for sound in sounds]
    weights = {name: value.numpy() for name, value in loaded.model.state_dict().items()}
    assert isinstance(card.architecture, DetectorConfig)
    assert card.ranges == measure_ranges(card.architecture, weights, seen)


def test_ranges_are_measured_once(
    model: Path, held: Chunks, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They belong to the weights; a few chunks of a user's must not replace what many gave."""
    monkeypatch.setattr(calibrate, "detect_chunks", boastful)
    wide = {"adapter.upsample": (-9.0, 9.0)}
    card = load_card(model)
    update_card(model, card.model_copy(update={"ranges": wide}))
    calibrate_checkpoint(model, held, machine)
    assert load_card(model).ranges == wide


def test_a_detector_that_runs_in_torch_alone_has_no_ranges(
    model: Path, held: Chunks, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = LoadedModel.load(model, device="cpu")
    assert ranges_of(loaded, held) is not None
    monkeypatch.setattr(calibrate, "can_write", lambda config: False)
    assert ranges_of(loaded, held) is None
