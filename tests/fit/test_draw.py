"""How the detectors of a run draw boxes: as the user does, where held-out boxes are fitted better that way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from toy_archive import run_fit, toy_recipe, write_both

import mast
from mast.detect_options import DetectOptions
from mast.evaluation.evidence import Tally
from mast.evaluation.part_tables import PartTables
from mast.events import as_events
from mast.fit import draw, fit_run, judge
from mast.fit.pipeline import Fitted
from mast.habit import Habit
from mast.loaded_model import LoadedModel
from mast.models.architecture import DetectorConfig
from mast.models.card import ModelCard, load_card
from mast.models.checkpoint import save_checkpoint
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation
from mast.training.chosen_chunks import Chunks
from mast.training.chunk_scores import detect_by_plan

SONGS = Habit(join_s=0.1)
Fit = Callable[..., Fitted]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``labelled/``, ``archive/`` and ``start/``, a detector that has learnt nothing."""
    root = tmp_path_factory.mktemp("drawn")
    write_both(root)
    recipe = toy_recipe()
    assert isinstance(recipe.detector, DetectorConfig)
    torch.manual_seed(3)
    card = ModelCard(
        kind="detector",
        architecture=recipe.detector,
        front_end=recipe.front_end,
        normalisation=Normalisation(mean=-7.0, std=3.0),
        thresholds={"score": 0.2, "nms_iou": 0.5},
    )
    save_checkpoint(root / "start", MastDetector(recipe.detector), card)
    return root


def nothing_measured(detectors: Mapping[str, Path], parts: object, folder: Path, *_: Any, **__: Any) -> Any:
    """How good each detector is on each part is not asked here."""
    folder.mkdir(parents=True, exist_ok=True)
    return {"detectors": {name: {"parts": {"val": {"f1": 0.0}}} for name in detectors}}


@pytest.fixture
def fit(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fit:
    """A run in which training beats the start, and self-training beats that, whatever they learn."""
    monkeypatch.setattr(judge, "write_fit_report", lambda run, out, *_, **__: out.write_text("report"))
    monkeypatch.setattr(judge, "measure_detectors", nothing_measured)
    f1 = {"train": 0.5, "selftrain": 0.6}

    def tally(folder: Path, *_: object, **__: object) -> Tally:
        return Tally.of([[round(20 * f1.get(folder.parent.name, 0.3)), 20, 20]] * 5)

    monkeypatch.setattr(fit_run, "validation_tally", tally)

    def run(unlabelled: Sequence[str] = (), **given: Any) -> Fitted:
        others = [data / name for name in unlabelled]
        arguments = (data / "labelled", others, tmp_path / "run", toy_recipe(train__epochs=1))
        return run_fit(*arguments, init=data / "start", **given)

    return run


def finds(monkeypatch: pytest.MonkeyPatch, *, notes_of: Callable[[Path], bool]) -> None:
    """Let detectors find every box: those that ``notes_of`` says as two notes of it, 80 ms apart."""

    def found(model: LoadedModel, chunks: Chunks, *how: Any, **given: Any) -> PartTables:
        assert model.card.habit is None  # boxes as the model gives them
        measured = detect_by_plan(model, chunks, *how, **given)
        truth = measured.truth.assign(score=0.9)
        middle = (truth["start_s"] + truth["end_s"]) / 2
        notes = [truth.assign(end_s=middle - 0.04), truth.assign(start_s=middle + 0.04)]
        events = pd.concat(notes, ignore_index=True) if notes_of(model.folder) else truth
        return replace(measured, found=as_events(events))

    monkeypatch.setattr(draw, "detect_by_plan", found)


def test_a_trained_model_keeps_the_habit_that_validation_shows(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch, notes_of=lambda folder: True)
    told: list[str] = []
    assert fit(messages=told).metrics["recommended"] == "trained"
    best, trained = load_card(tmp_path / "run" / "best"), load_card(tmp_path / "run" / "train" / "best")
    assert best.habit == SONGS
    assert mast.load(tmp_path / "run", device="cpu").habit == SONGS  # without an option
    assert trained.habit is None
    assert best.weights_sha256 == trained.weights_sha256
    assert best.calibration is not None
    said = "train: the model draws whole calls, joined over gaps of up to 0.1 s (validation F1 1.000, 0.000 without)"
    assert said in told
    # what is done is not done again
    monkeypatch.setattr(draw, "detect_by_plan", lambda *_, **__: pytest.fail("measured again"))
    again: list[str] = []
    fit(messages=again)
    assert "train-habit: nothing has changed, skipped" in again
    assert said in again


def test_a_model_that_learnt_to_draw_by_itself_needs_no_habit(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch, notes_of=lambda folder: folder.name == "start")
    told: list[str] = []
    fit(messages=told)
    assert load_card(tmp_path / "run" / "habit").habit == SONGS  # of the start
    trained = load_card(tmp_path / "run" / "train" / "best")
    assert load_card(tmp_path / "run" / "best") == trained
    assert trained.habit is None
    assert any("no longer helps the model, so its boxes stay as they are" in text for text in told)


def test_so_does_a_self_trained_one(fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, notes_of=lambda folder: folder.parts[-2:] != ("train", "best"))
    assert fit(["archive"]).metrics["recommended"] == "self-trained"
    assert load_card(tmp_path / "run" / "train" / "habit").habit is None
    assert load_card(tmp_path / "run" / "best").habit == SONGS


def test_the_threshold_is_chosen_for_boxes_as_they_are_drawn(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where validation has boxes enough; with few, the start's stays."""
    finds(monkeypatch, notes_of=lambda folder: True)
    fit()
    assert load_card(tmp_path / "run" / "best").thresholds["score"] == 0.2
    monkeypatch.setattr("mast.training.start.FEW_BOXES", 1)
    (tmp_path / "run" / "stages" / "train-habit.json").unlink()
    (tmp_path / "run" / "stages" / "calibrate.json").unlink()
    fit()
    assert load_card(tmp_path / "run" / "best").thresholds["score"] == pytest.approx(0.9)


def test_the_start_draws_as_asked_until_boxes_say_otherwise(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch, notes_of=lambda folder: True)
    fit(drawn=DetectOptions(join_s=0.08))
    assert load_card(tmp_path / "run" / "start").habit == Habit(join_s=0.08)
    assert load_card(tmp_path / "run" / "best").habit == Habit(join_s=0.08)  # it fits as well as any
    told: list[str] = []
    fit(messages=told, drawn=DetectOptions(box="strongest"))
    assert any(text.startswith("start: habit ") and text.endswith("repeating") for text in told)
    assert load_card(tmp_path / "run" / "start").habit == Habit(box="strongest")
    assert load_card(tmp_path / "run" / "best").habit == SONGS
