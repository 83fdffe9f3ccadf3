from __future__ import annotations

import json
from pathlib import Path

import pytest

from mast.errors import ConfigError
from mast.grid import FrontEnd
from mast.training.recipe import PRESETS, Recipe, check_and_save_recipe, load_recipe, parse_override


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_load(preset: str) -> None:
    recipe = load_recipe(preset)
    assert recipe.detector.encoder == recipe.autoencoder.encoder


def test_paper_is_the_tables() -> None:
    recipe = load_recipe("paper")
    p, t, d = recipe.pretrain, recipe.train, recipe.detector
    # Table "Masked Audio pretraining hyperparameters"
    assert (p.batch_size, p.epochs, p.lr, p.min_lr, p.warmup_epochs) == (64, 400, 5e-5, 5e-7, 20)
    assert (p.betas, p.weight_decay, p.clip) == ((0.9, 0.95), 0.05, 1.0)
    assert (p.mask_ratio, p.time_mask_ratio, p.frequency_mask_ratio) == (0.75, 0.6, 0.3)
    # Table "Detector fine-tuning hyperparameters"
    assert (t.batch_size, t.epochs, t.lr, t.weight_decay, t.clip) == (64, 200, 3e-4, 1e-3, 1.0)
    assert (t.backbone_lr_multiplier, t.head_lr_multiplier, t.ema_decay) == (0.1, 1.0, 0.9995)
    assert t.augmentation is not None
    assert t.augmentation.probability == 0.9
    assert (d.adapter, d.levels, d.channels) == ("upsampling", 4, 256)
    assert (d.contrastive_weight, d.contrastive_temperature) == (0.5, 0.1)
    assert (d.contrastive_dimension, d.contrastive_negatives) == (128, 32)
    assert (d.encoder.width, d.encoder.depth, d.encoder.heads, d.encoder.patch) == (768, 12, 12, 16)


def test_one_field_switches_each_part_off() -> None:
    assert load_recipe("tiny", {"train.detector.contrastive_weight": 0.0}).detector.contrastive_weight == 0
    assert load_recipe("tiny", {"train.detector.adapter": "none"}).detector.adapter == "none"


def test_a_file_with_differences_only(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('size = "small"\n[train]\nepochs = 7\n')
    recipe = load_recipe(path, {"train.lr": 0.01})
    assert (recipe.size, recipe.train.epochs, recipe.train.lr, recipe.pretrain.epochs) == (
        "small",
        7,
        0.01,
        400,
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"train.epoch": 5}, r"tiny: unknown setting 'train\.epoch'; did you mean 'train\.epochs'\?"),
        (
            {"train.augmentation.time_shft": 1},
            r"'train\.augmentation\.time_shft'; did you mean 'train\.augmentation\.time_shift'\?",
        ),
        (
            {"train.detector.adaptor": "conv"},
            r"train\.detector: unknown setting 'adaptor'; did you mean 'adapter'\?",
        ),
        ({"train.epochs": "many"}, r"train\.epochs is 'many': input should be a valid integer"),
        ({"train.epochs": 0}, r"train\.epochs is 0: input should be greater than 0"),
        ({"train.detector.adapter": "magic"}, r"adapter is 'magic'"),
        ({"train.lr": float("nan")}, r"train\.lr is nan: input should be"),
        ({"train.lr": float("inf")}, r"train\.lr is inf: input should be a finite number"),
        ({"train.augmentation.probability": float("nan")}, "probability is nan"),
        ({"selftrain.threshold": float("nan")}, r"selftrain\.threshold.* is nan"),
        ({"selftrain.threshold": -5}, r"selftrain\.threshold.* is -5"),
        ({"front_end.low_hz": float("nan")}, r"front_end\.low_hz is nan"),
        ({"front_end.n_bins": 10**9}, r"front_end\.n_bins is 1000000000: input should be less than"),
    ],
)
def test_mistakes_name_the_field(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe("tiny", overrides)


def test_unknown_and_broken_recipes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="huge: no such recipe; expected a TOML file or one of tiny, small"):
        load_recipe("huge")
    for content in (b"epochs = = 3", b"\xff\xfe", b"a = " + b"9" * 5_000, b"a = " + b"[" * 50_000):
        (tmp_path / "x.toml").write_bytes(content)
        with pytest.raises(ConfigError, match="not valid TOML"):
            load_recipe(tmp_path / "x.toml")


def test_overrides_from_the_command_line() -> None:
    assert parse_override("train.epochs=5") == ("train.epochs", 5)
    assert parse_override("train.detector.adapter = conv") == ("train.detector.adapter", "conv")
    assert parse_override("pretrain.betas=[0.9, 0.95]") == ("pretrain.betas", [0.9, 0.95])
    assert parse_override("selftrain.max_chunks = null") == (
        "selftrain.max_chunks",
        None,
    )  # as recipe.json has it
    with pytest.raises(ConfigError, match="not of the form name=value"):
        parse_override("train.epochs")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b"{}", b"null", b"9" * 5_000]
)
def test_settings_that_are_damaged_are_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "recipe.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"recipe\.json: is damaged.*delete"):
        check_and_save_recipe(load_recipe("tiny"), tmp_path, about={"seed": 0})


def test_a_run_refuses_other_settings(tmp_path: Path) -> None:
    run = tmp_path / "run"
    check_and_save_recipe(load_recipe("tiny"), run, about={"seed": 0})
    check_and_save_recipe(load_recipe("tiny"), run, about={"seed": 0})
    with pytest.raises(
        ConfigError, match=r"was made with other settings \(recipe\.train\.epochs was 12, now 9"
    ):
        check_and_save_recipe(load_recipe("tiny", {"train.epochs": 9}), run, about={"seed": 0})
    with pytest.raises(ConfigError, match="seed was 0, now 1"):
        check_and_save_recipe(load_recipe("tiny"), run, about={"seed": 1})
    assert json.loads((run / "recipe.json").read_text())["seed"] == 0  # what was refused is not remembered


def test_a_run_begins_in_no_folder_with_somebodys_files(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()  # ours
    check_and_save_recipe(load_recipe("tiny"), tmp_path, about={"seed": 0})
    (tmp_path / "recipe.json").unlink()
    (tmp_path / "best").mkdir()
    with pytest.raises(ConfigError, match="holds files but no run of mast; choose a new folder"):
        check_and_save_recipe(load_recipe("tiny"), tmp_path, about={"seed": 0})
    assert not (tmp_path / "recipe.json").exists()


def test_a_run_resumes_with_other_workers(tmp_path: Path) -> None:
    """They change nothing that is learnt."""
    check_and_save_recipe(load_recipe("tiny"), tmp_path, about={})
    changed = load_recipe("tiny", {"workers": 3, "compile": False, "train.save_every_s": 9.0})
    check_and_save_recipe(changed, tmp_path, about={})


def test_a_recipe_keeps_the_band_that_was_asked_for() -> None:
    fish = load_recipe("tiny", {"band_hz": 2_000})
    assert (fish.band_hz, fish.front_end) == (2_000, FrontEnd.for_band(2_000))
    short = load_recipe("tiny", {"band_hz": 2_000, "front_end.chunk_frames": 256})
    assert short.front_end == FrontEnd(chunk_frames=256).at_band(2_000)
    again = Recipe.model_validate(short.model_dump(mode="json"))
    assert again == short
    assert load_recipe("tiny").band_hz is None
    with pytest.raises(ConfigError, match="band_hz is -1"):
        load_recipe("tiny", {"band_hz": -1})


def test_a_run_of_before_recipes_kept_their_band_is_continued(tmp_path: Path) -> None:
    fish = load_recipe("tiny", {"band_hz": 2_000})
    older = {"recipe": fish.model_dump(mode="json", exclude={"band_hz"})}
    (tmp_path / "recipe.json").write_text(json.dumps(older))
    check_and_save_recipe(fish, tmp_path, about={})
    with pytest.raises(ConfigError, match=r"high_hz was 2000\.0, now 8000\.0"):
        check_and_save_recipe(load_recipe("tiny"), tmp_path, about={})


def test_none_switches_gradual_unfreezing_off(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('[selftrain.stage1]\nunfreezing = "none"\n')
    stages = load_recipe(path).selftrain
    assert stages.stage1.unfreezing is None
    assert stages.stage2.unfreezing is not None
