from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from toy_recipe import small_recipe

from mast.errors import ConfigError, MastError
from mast.models.checkpoint import load_checkpoint
from mast.models.encoder import Encoder
from mast.models.mae import MaskedAutoencoder, latent_targets
from mast.reports.reconstruction import draw_reconstructions
from mast.training.pretraining import pretrain
from mast.training.recipe import Recipe
from mast.version import __version__


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(folder).model.state_dict()


def test_learns_and_leaves_a_model(
    tones: Path, tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAST_COMMIT", "c0ffee")
    seen: list[tuple[int, int]] = []
    result = pretrain(
        [tones], tmp_path, recipe, progress=lambda done, total, text: seen.append((done, total))
    )
    assert seen[-1] == (result.steps, result.steps)
    first, *_ = (json.loads(line) for line in (tmp_path / "curves.jsonl").read_text().splitlines())
    assert result.best["error"] < first["train/loss"]
    assert result.best["mean_row_error"] <= result.best["mean_patch_error"]
    model, card = load_checkpoint(tmp_path / "best")
    assert isinstance(model, MaskedAutoencoder)
    assert card.front_end == recipe.front_end
    assert card.provenance["epoch"] == result.best_epoch
    assert (card.provenance["commit"], card.provenance["mast"]) == ("c0ffee", __version__)
    picture = draw_reconstructions(tmp_path / "best", tones, tmp_path / "picture.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


LATENT = {"pretrain__latent_weight": 1.0, "pretrain__ema_decay": 0.9, "pretrain__masking": "blocks"}


@pytest.mark.usefixtures("smaller_models")
@pytest.mark.parametrize("further", [{}, LATENT], ids=["plain", "latent"])
def test_killed_anywhere_and_resumed_is_the_same_run(
    tones: Path, tmp_path: Path, further: dict[str, object]
) -> None:
    recipe = small_recipe(pretrain__save_every_s=0.05, **further)
    whole = pretrain([tones], tmp_path / "whole", recipe)
    for stop in (2, whole.steps // 2, whole.steps - 1):
        pretrain([tones], tmp_path / "killed", recipe, stop_after=stop)
    resumed = pretrain([tones], tmp_path / "killed", recipe)
    assert resumed.best == whole.best
    expected = weights(tmp_path / "whole" / "last")
    for name, tensor in weights(tmp_path / "killed" / "last").items():
        assert torch.equal(tensor, expected[name]), name
    whole_curve, killed_curve = (
        (tmp_path / run / "curves.jsonl").read_text().splitlines() for run in ("whole", "killed")
    )
    assert killed_curve == whole_curve


@pytest.mark.usefixtures("smaller_models")
def test_continues_from_a_model(tones: Path, tmp_path: Path, recipe: Recipe) -> None:
    first = pretrain([tones], tmp_path / "a", recipe)
    second = pretrain([tones], tmp_path / "b", recipe, init=tmp_path / "a" / "best")
    assert second.best["error"] < first.best["error"]


@pytest.mark.usefixtures("smaller_models")
def test_latent_targets_come_from_the_average_of_the_encoder(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teachers: list[tuple[int, torch.Tensor]] = []

    def watched(teacher: Encoder, spectrograms: torch.Tensor) -> torch.Tensor:
        assert not any(weight.requires_grad for weight in teacher.parameters())  # the model's own would learn
        teachers.append((id(teacher), teacher.cls_token.detach().clone()))
        return latent_targets(teacher, spectrograms)

    monkeypatch.setattr("mast.training.pretraining.latent_targets", watched)
    result = pretrain([tones], tmp_path / "latent", small_recipe(**LATENT))
    assert len(teachers) == result.steps
    assert len({teacher for teacher, _ in teachers}) == 1
    assert not torch.equal(teachers[0][1], teachers[-1][1])  # it follows
    # a plain autoencoder goes on from its encoder
    start = tmp_path / "latent" / "best"
    pretrain([tones], tmp_path / "plain", small_recipe(), init=start, stop_after=1)
    assert len(teachers) == result.steps  # plain pretraining has no teacher


def test_latent_targets_need_an_average() -> None:
    with pytest.raises(ConfigError, match=r"set pretrain\.ema_decay"):
        small_recipe(pretrain__latent_weight=1.0)


def test_refuses_another_recipe_in_the_same_folder(tones: Path, tmp_path: Path, recipe: Recipe) -> None:
    pretrain([tones], tmp_path, recipe, stop_after=1)
    with pytest.raises(ConfigError, match="was made with other settings"):
        pretrain([tones], tmp_path, small_recipe(pretrain__epochs=9))


def test_sound_shorter_than_half_a_chunk(tones: Path, tmp_path: Path) -> None:
    recipe = small_recipe(front_end={"chunk_frames": 4096, "n_bins": 64})
    with pytest.raises(MastError, match="no recording is as long as half a chunk"):
        pretrain([tones], tmp_path, recipe)


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_batch(
    tones: Path, tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = MaskedAutoencoder.forward

    def broken(self: MaskedAutoencoder, *args: object, **kwargs: object) -> object:
        result = forward(self, *args, **kwargs)  # type: ignore[arg-type]
        return result._replace(loss=result.loss * float("nan"))

    monkeypatch.setattr(MaskedAutoencoder, "forward", broken)
    with pytest.raises(MastError, match=r"loss, gradient became nan at step 0 on the batch of S1_.*\.wav at"):
        pretrain([tones], tmp_path, recipe)
