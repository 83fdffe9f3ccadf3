"""Half of the way from a start to what was trained from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toy_archive import run_fit, toy_recipe, write_both

from mast.evaluation.evidence import Tally
from mast.fit import fit_run, judge
from mast.fit.halfway import save_mean
from mast.models.checkpoint import ModelCard, load_card, load_checkpoint, save_checkpoint
from mast.models.mast_detector import DetectorConfig, MastDetector
from mast.normalisation import Normalisation
from mast.training.recipe import Recipe


def detector(folder: Path, recipe: Recipe, seed: int) -> Path:
    assert isinstance(recipe.detector, DetectorConfig)
    torch.manual_seed(seed)
    card = ModelCard(
        kind="detector",
        architecture=recipe.detector,
        front_end=recipe.front_end,
        normalisation=Normalisation(mean=-7.0, std=3.0),
        thresholds={"score": 0.0123, "nms_iou": 0.5},
    )
    save_checkpoint(folder, MastDetector(recipe.detector), card)
    return folder


def test_every_weight_lies_in_the_middle(tmp_path: Path) -> None:
    recipe = toy_recipe()
    start, trained = (
        detector(tmp_path / name, recipe, seed) for seed, name in enumerate(("start", "trained"))
    )
    save_mean(start, trained, tmp_path / "mean", {"calibration": None})
    a, b, mean = (
        load_checkpoint(tmp_path / name).model.state_dict() for name in ("start", "trained", "mean")
    )
    assert any(not torch.equal(a[name], b[name]) for name in a)
    for name, own in mean.items():
        expected = (a[name] + b[name]) / 2 if own.is_floating_point() else b[name]
        assert torch.allclose(own, expected, atol=1e-6), name
    assert any("mean of the weights" in note for note in load_card(tmp_path / "mean").provenance["notes"])


def test_what_only_the_trained_one_has_is_kept(tmp_path: Path) -> None:
    """A contrastive loss has weights of its own."""
    plain = toy_recipe(train__detector__contrastive_weight=0.0)
    start = detector(tmp_path / "start", plain, 0)
    trained = detector(tmp_path / "trained", toy_recipe(train__detector__contrastive_weight=0.1), 1)
    save_mean(start, trained, tmp_path / "mean", {})
    theirs, b, mean = (load_checkpoint(tmp_path / n).model.state_dict() for n in ("start", "trained", "mean"))
    own = set(mean) - set(theirs)
    assert own
    assert all(torch.equal(mean[name], b[name]) for name in own)


def test_a_fit_makes_it_from_the_start_and_the_trained_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "write_fit_report", lambda run, out, *_, **__: out.write_text("report"))
    write_both(tmp_path)
    recipe = toy_recipe(train__epochs=1)
    start, told = detector(tmp_path / "start", recipe, 3), list[str]()
    fitted = run_fit(tmp_path / "labelled", [], tmp_path / "run", recipe, init=start, told=told)
    run = tmp_path / "run"
    assert list(fitted.metrics["detectors"]) == ["start", "trained", "halfway"]
    save_mean(run / "start", run / "train" / "best", tmp_path / "mean", {})
    halfway = load_card(run / "halfway")
    assert halfway.weights_sha256 == load_card(tmp_path / "mean").weights_sha256
    # validation has few boxes, so the start's threshold is kept; it is calibrated where it is recommended
    assert halfway.thresholds["score"] == 0.0123
    assert halfway.calibration is None
    assert any(text.startswith("half-way: the mean of start and trained detector") for text in told)
    # nothing is averaged where the trained one has another shape
    monkeypatch.setattr("mast.fit.halfway.save_mean", lambda *_: pytest.fail("averaged"))
    other = toy_recipe(train__epochs=1, train__detector__head_convs=2)
    assert list(
        run_fit(tmp_path / "labelled", [], tmp_path / "other", other, init=start).metrics["detectors"]
    ) == [
        "start",
        "trained",
    ]


def test_it_is_the_model_to_use_where_it_beats_the_start_and_the_trained_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_both(tmp_path)
    recipe = toy_recipe(train__epochs=1)
    start = detector(tmp_path / "start", recipe, 3)
    right = {"start": 50, "best": 40, "halfway": 60}
    monkeypatch.setattr(
        fit_run, "validation_tally", lambda folder, *_, **__: Tally.of([[right[folder.name], 100, 100]])
    )
    fitted = run_fit(tmp_path / "labelled", [], tmp_path / "run", recipe, init=start, examples=0)
    assert fitted.metrics["recommended"] == "halfway"
    assert fitted.metrics["validation_counts"]["halfway"] == [[60, 100, 100]]
    best, halfway = load_card(tmp_path / "run" / "best"), load_card(tmp_path / "run" / "halfway")
    assert best.weights_sha256 == halfway.weights_sha256
    assert best.calibration is not None
    assert "On validation the half-way detector beats the one it started from" in fitted.summary()[-1]
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert fitted.summary()[-1] in report
    assert "What going half-way changed" in report
