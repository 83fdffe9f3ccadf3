"""`mast train --detector` and what follows: a baseline is a detector like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import typer
from toy_recipe import save_small_detector, small_recipe
from typer.testing import CliRunner

from mast.cli.detect import detect
from mast.cli.train import train
from mast.detect_options import DetectOptions
from mast.errors import ConfigError, MastError
from mast.inference import Detector
from mast.models.baselines import BaselineConfig
from mast.models.baselines.torchvision_detectors import FcosDetector
from mast.models.checkpoint import load_checkpoint
from mast.selftrain.watch import load_detector
from mast.training.detector_training import train_detector
from mast.training.machine import prepare_machine
from mast.training.recipe import Recipe, load_recipe

FRONT_END = {"n_bins": 32, "chunk_frames": 128}
OPTIONS = {"backbone": "resnet18", "width": 16, "channels": 32, "frequency_stretch": 1}
SETTINGS = {
    "train.batch_size": 8,
    "train.epochs": 2,
    "train.validate_every_epochs": 2,
    "train.lr": 3e-3,
    "train.ema_decay": 0.9,
    **{f"front_end.{name}": value for name, value in FRONT_END.items()},
    **{f"train.detector.{name}": value for name, value in OPTIONS.items()},
}


def run(command: object, *arguments: str | Path) -> None:
    app = typer.Typer()
    app.command()(command)  # type: ignore[type-var]
    result = CliRunner().invoke(app, ["--quiet", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output


def recipe_of(model: str, **changes: object) -> Recipe:
    return load_recipe("tiny", {"model": model, **SETTINGS, **changes})


@pytest.fixture(scope="module")
def trained(tones: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fcos") / "run"
    settings = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    run(train, tones, "--detector", "fcos", "--preset", "tiny", "--out", out, *settings)
    return out


def test_trains_calibrates_and_finds_tones(trained: Path, tones: Path, tmp_path: Path) -> None:
    model, card = load_checkpoint(trained / "best")
    assert isinstance(model, FcosDetector)
    assert card.kind == "detector"
    assert card.architecture == BaselineConfig(name="fcos", **FRONT_END, options=OPTIONS)
    assert card.calibration is not None
    rows = [json.loads(line) for line in (trained / "curves.jsonl").read_text().splitlines()]
    losses = [row["train/loss"] for row in rows if "train/loss" in row]
    assert sum(losses[-5:]) < 0.85 * sum(losses[:5])  # 0.6–0.7 with other seeds
    recordings = sorted((tones / "audio").iterdir())[:2]
    run(detect, *recordings, "--model", trained, "--out", tmp_path, "--threshold", "0.0")
    found = pd.read_csv(tmp_path / "detections.csv")
    assert set(found["recording"]) == {path.name for path in recordings}
    assert ((found["end_s"] > found["start_s"]) & (found["high_hz"] > found["low_hz"])).all()


def test_continues_from_its_own_kind_only(trained: Path, tones: Path, tmp_path: Path) -> None:
    longer = recipe_of("fcos", **{"train.epochs": 1, "train.validate_every_epochs": 1})
    train_detector(tones, tmp_path / "more", longer, init=trained / "best", stop_after=1)
    with pytest.raises(
        ConfigError, match=r"holds the baseline fcos, which faster_rcnn with these settings cannot"
    ):
        train_detector(tones, tmp_path / "x", recipe_of("faster_rcnn"), init=trained / "best")
    mast = small_recipe(front_end=longer.front_end.model_dump())
    with pytest.raises(
        ConfigError, match="holds the baseline fcos, which mast with these settings cannot start from"
    ):
        train_detector(tones, tmp_path / "y", mast, init=trained / "best")
    frozen = recipe_of("fcos", **{"train.top_blocks": 2})
    with pytest.raises(ConfigError, match="FcosDetector: has no encoder blocks to freeze"):
        train_detector(tones, tmp_path / "z", frozen)


def test_a_baseline_is_compiled_only_on_request(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mast.inference.torch_network._can_compile", lambda device: True)  # as on a GPU
    assert not Detector(trained, DetectOptions(device="cpu")).network.compiled
    asked = "compile on cpu: only models on a CUDA GPU"
    with pytest.raises(ConfigError, match=asked):
        Detector(trained, DetectOptions(device="cpu", compile=True))
    mast = save_small_detector(tmp_path / "mast", score=0.5)
    with pytest.raises(ConfigError, match=asked):  # MAST without asking
        Detector(mast, DetectOptions(device="cpu", runtime="torch"))


def test_what_needs_an_encoder_is_refused(trained: Path) -> None:
    with pytest.raises(
        MastError, match="is a baseline \\(FcosDetector\\) without the encoder that embeddings"
    ):
        Detector(trained, DetectOptions(embed=True))


def test_self_training_continues_a_baseline_of_the_recipes_kind_alone(trained: Path) -> None:
    own, other = recipe_of("fcos"), recipe_of("faster_rcnn")
    assert load_detector(trained / "best", own, prepare_machine(own)).box_detector.config == own.detector
    with pytest.raises(MastError, match="its detector is not the one this recipe describes"):
        load_detector(trained / "best", other, prepare_machine(other))


def test_a_recipe_names_its_detector() -> None:
    assert recipe_of("faster_rcnn").detector == BaselineConfig(
        name="faster_rcnn", **FRONT_END, options=OPTIONS
    )
    with pytest.raises(ConfigError, match="tiny: model is 'rcnn'"):
        load_recipe("tiny", {"model": "rcnn"})
    with pytest.raises(ConfigError, match="fcos: unknown option 'chanels'; did you mean 'channels'"):
        recipe_of("fcos", **{"train.detector.chanels": 32})


def test_the_backbone_is_slowed_down_only_where_it_comes_pretrained(tmp_path: Path) -> None:
    from mast.models.baselines import build_baseline
    from mast.training.detector_training import _trainable

    recipe = recipe_of("fcos", **{"train.backbone_lr_multiplier": 0.1})
    assert isinstance(recipe.detector, BaselineConfig)
    model = build_baseline(recipe.detector)
    for pretrained, expected in ((False, {"": 1.0}), (True, {"": 1.0, "backbone.body.": 0.1})):
        multipliers, thaw = _trainable(model, recipe.train, pretrained=pretrained)
        assert multipliers == expected
        assert not thaw(0)
