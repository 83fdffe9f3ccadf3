import argparse
import json
import os
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from mast.errors import MastError
from mast.grid import FrontEnd
from mast.models.architecture import DetectorConfig, EncoderConfig, MaeConfig
from mast.models.card import ModelCard, load_card
from mast.models.checkpoint import (
    StoredType,
    load_audiomae,
    load_checkpoint,
    load_encoder,
    load_weights,
    save_checkpoint,
    update_card,
)
from mast.models.mae import MaskedAutoencoder
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation

ENCODER = EncoderConfig(chunk_frames=64, n_bins=32, width=32, depth=2, heads=2)
DETECTOR = DetectorConfig(encoder=ENCODER, channels=32, levels=2, head_convs=1)
MAE = MaeConfig(encoder=ENCODER, decoder_width=16, decoder_depth=1, decoder_heads=2)
FRONT_END = FrontEnd(chunk_frames=64, n_bins=32).at_band(2_000)
STATISTICS = Normalisation(mean=-5.0, std=3.0)
CARD = ModelCard(
    kind="detector",
    architecture=DETECTOR,
    front_end=FRONT_END,
    normalisation=STATISTICS,
    thresholds={"score": 0.3},
    provenance={"recipe": {"epochs": 3}},
    licence="CC0-1.0",
)


def same(a: nn.Module, b: nn.Module) -> bool:
    x, y = a.state_dict(), b.state_dict()
    return x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x)


def test_round_trip_of_a_detector(tmp_path: Path) -> None:
    model = MastDetector(DETECTOR)
    written = save_checkpoint(tmp_path / "run" / "best", model, CARD)
    loaded = load_checkpoint(tmp_path / "run" / "best")
    assert isinstance(loaded.model, MastDetector)
    assert same(loaded.model, model)
    assert loaded.card == written
    assert loaded.card.model_copy(update={"weights_sha256": ""}) == CARD
    assert sorted(os.listdir(tmp_path / "run" / "best")) == ["model.json", "model.safetensors"]
    assert json.loads((tmp_path / "run" / "best" / "model.json").read_text())["thresholds"] == {"score": 0.3}


def test_round_trip_of_an_autoencoder(tmp_path: Path) -> None:
    model = MaskedAutoencoder(MAE)
    save_checkpoint(
        tmp_path,
        model,
        ModelCard(kind="mae", architecture=MAE, front_end=FRONT_END, normalisation=STATISTICS),
    )
    loaded = load_checkpoint(tmp_path)
    assert isinstance(loaded.model, MaskedAutoencoder)
    assert same(loaded.model, model)


@pytest.mark.parametrize(("kind", "config"), [("detector", DETECTOR), ("mae", MAE)])
def test_nothing_is_drawn_that_the_weights_replace(
    tmp_path: Path, kind: Literal["detector", "mae"], config: DetectorConfig | MaeConfig
) -> None:
    model = MastDetector(config) if isinstance(config, DetectorConfig) else MaskedAutoencoder(config)
    save_checkpoint(
        tmp_path,
        model,
        ModelCard(kind=kind, architecture=config, front_end=FRONT_END, normalisation=STATISTICS),
    )
    before = torch.get_rng_state()
    loaded = load_checkpoint(tmp_path).model
    assert torch.equal(torch.get_rng_state(), before)
    buffers = dict(loaded.named_buffers())  # also those that are not stored, such as the points
    assert all(torch.equal(buffers.pop(name), buffer) for name, buffer in model.named_buffers())
    assert not buffers
    type(model)(config)  # type: ignore[arg-type]
    assert not torch.equal(torch.get_rng_state(), before)  # a fresh one is drawn as before


@pytest.mark.parametrize(("dtype", "error"), [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_weights_stored_in_half_the_space(tmp_path: Path, dtype: StoredType, error: float) -> None:
    model = MastDetector(DETECTOR)
    save_checkpoint(tmp_path / "whole", model, CARD)
    written = save_checkpoint(tmp_path / "half", model, CARD, dtype=dtype)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "whole")]
    assert sizes[0] < 0.6 * sizes[1]
    loaded = load_checkpoint(tmp_path / "half")
    assert loaded.card == written
    for name, tensor in loaded.model.state_dict().items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=error, atol=1e-7)
    assert not same(loaded.model, model)
    update_card(tmp_path / "half", written.model_copy(update={"licence": "CC-BY-4.0"}))  # keeps the weights
    assert (tmp_path / "half" / "model.safetensors").stat().st_size < 0.6 * sizes[1]
    encoder = MaskedAutoencoder(MAE)
    load_encoder(encoder, tmp_path / "half")
    assert same(encoder.encoder, loaded.model.encoder)


def test_a_weight_that_half_precision_cannot_hold(tmp_path: Path) -> None:
    model = MastDetector(DETECTOR)
    with torch.no_grad():
        model.head.scales[0, 0] = 1e6
    with pytest.raises(MastError, match=r"head\.scales holds 1e\+06, too large for float16"):
        save_checkpoint(tmp_path, model, CARD, dtype="float16")
    save_checkpoint(tmp_path, model, CARD, dtype="bfloat16")


def test_the_encoder_goes_from_autoencoder_to_detector(tmp_path: Path) -> None:
    mae, model = MaskedAutoencoder(MAE), MastDetector(DETECTOR)
    save_checkpoint(
        tmp_path, mae, ModelCard(kind="mae", architecture=MAE, front_end=FRONT_END, normalisation=STATISTICS)
    )
    head = model.head.classify.weight.clone()
    load_encoder(model, tmp_path)
    assert same(model.encoder, mae.encoder)
    assert torch.equal(model.head.classify.weight, head)


def kill_after(monkeypatch: pytest.MonkeyPatch, moves_before: int) -> None:
    """Stop the next write when this many files have been moved into place."""
    moves, move = [], os.replace

    def killed(beside: Path, place: Path) -> None:
        if len(moves) == moves_before:
            raise KeyboardInterrupt
        moves.append(place)
        move(beside, place)

    monkeypatch.setattr("mast.files.os.replace", killed)


@pytest.mark.parametrize("moves_before_the_kill", [0, 1])
def test_a_kill_during_the_write_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves_before_the_kill: int
) -> None:
    old, new = MastDetector(DETECTOR), MastDetector(DETECTOR)
    save_checkpoint(tmp_path, old, CARD)
    kill_after(monkeypatch, moves_before_the_kill)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, new, CARD.model_copy(update={"thresholds": {"score": 0.9}}))
    loaded = load_checkpoint(tmp_path)
    survivor, score = (new, 0.9) if moves_before_the_kill else (old, 0.3)
    assert same(loaded.model, survivor)
    assert loaded.card.thresholds == {"score": score}

    monkeypatch.undo()  # and the next write succeeds
    save_checkpoint(tmp_path, new, CARD)
    assert same(load_checkpoint(tmp_path).model, new)
    assert sorted(os.listdir(tmp_path)) == ["model.json", "model.safetensors"]


def test_a_card_is_updated_in_both_places(tmp_path: Path) -> None:
    model = MastDetector(DETECTOR)
    written = save_checkpoint(tmp_path, model, CARD)
    changed = written.model_copy(update={"licence": "CC0-1.0"})
    update_card(tmp_path, changed)
    assert load_card(tmp_path) == changed
    assert same(load_checkpoint(tmp_path).model, model)
    (tmp_path / "model.json").unlink()  # somebody copies the weights alone
    assert load_card(tmp_path) == changed
    with pytest.raises(MastError, match="describes 0000"):
        update_card(tmp_path, changed.model_copy(update={"weights_sha256": "0000"}))


@pytest.mark.parametrize("moves_before_the_kill", [0, 1])
def test_a_kill_during_an_update_leaves_the_old_card_and_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves_before_the_kill: int
) -> None:
    model = MastDetector(DETECTOR)
    written = save_checkpoint(tmp_path, model, CARD)
    changed = written.model_copy(update={"licence": "CC0-1.0"})
    with monkeypatch.context() as patch:
        kill_after(patch, moves_before_the_kill)
        with pytest.raises(KeyboardInterrupt):
            update_card(tmp_path, changed)
    loaded = load_checkpoint(tmp_path)
    assert same(loaded.model, model)
    assert loaded.card == written
    update_card(tmp_path, changed)
    assert load_card(tmp_path) == changed


def test_what_a_kill_left_beside_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".model.safetensors.77.part").write_bytes(b"half")
    (tmp_path / ".model.json.77.part").write_bytes(b"{")
    save_checkpoint(tmp_path, MastDetector(DETECTOR), CARD)
    assert sorted(os.listdir(tmp_path)) == ["model.json", "model.safetensors"]


def test_mismatches_name_the_first_tensor(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, MastDetector(DETECTOR), CARD)
    three_levels = MastDetector(DETECTOR.model_copy(update={"levels": 3}))
    with pytest.raises(MastError, match=r"pyramid\.fusion has shape \(1, 2\), expected \(2, 2\)"):
        load_weights(three_levels, tmp_path)
    plain = MastDetector(DETECTOR.model_copy(update={"contrastive_weight": 0.0}))
    with pytest.raises(MastError, match=r"projection\.0\.\w+ is not part of the model \(4 are not\)"):
        load_weights(plain, tmp_path)
    save_checkpoint(tmp_path, plain, CARD)
    with pytest.raises(MastError, match=r"projection\.0\.weight is missing \(4 of"):
        load_checkpoint(tmp_path)
    with pytest.raises(MastError, match=r"decoder\.mask_token is missing"):
        load_weights(MaskedAutoencoder(MAE), tmp_path)


def test_what_is_not_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(MastError, match="no such file"):
        load_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(MastError, match="damaged"):
        load_checkpoint(tmp_path)
    save_checkpoint(tmp_path, MastDetector(DETECTOR), CARD)
    content = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(MastError, match="damaged"):
        load_checkpoint(tmp_path)


def audiomae_layout(windowed_decoder: bool) -> dict[str, Tensor]:
    """Small tensors under AudioMAE's names; its released decoder has relative positions, a plain one none."""
    source = MaskedAutoencoder(MAE)
    weights = dict(source.encoder.state_dict())
    for name, tensor in source.decoder.state_dict().items():
        theirs = name if name == "mask_token" else "decoder_" + name.replace("predict.", "pred.")
        weights[theirs] = tensor
    if windowed_decoder:
        weights["decoder_blocks.0.attn.relative_position_bias_table"] = torch.zeros(49, 2)
    return weights


@pytest.mark.parametrize("windowed_decoder", [False, True])
def test_audiomae_into_an_autoencoder(tmp_path: Path, windowed_decoder: bool) -> None:
    weights = audiomae_layout(windowed_decoder)
    file = tmp_path / "pretrained.pth"
    torch.save({"model": weights, "epoch": 32, "args": argparse.Namespace(norm_pix_loss=True)}, file)
    model = MaskedAutoencoder(MAE)
    fresh = model.decoder.mask_token.clone()
    report = load_audiomae(model, file)
    assert all(torch.equal(t, weights[n]) for n, t in model.encoder.state_dict().items())
    assert set(report.loaded) | set(report.ignored) == set(weights)
    if windowed_decoder:
        assert all(n.startswith("decoder_") or n == "mask_token" for n in report.ignored)
        assert torch.equal(model.decoder.mask_token, fresh)
    else:
        assert report.ignored == ()
        assert torch.equal(model.decoder.predict.weight, weights["decoder_pred.weight"])
    assert "2 ×" in report.note


def test_audiomae_into_a_detector_ignores_its_decoder(tmp_path: Path) -> None:
    weights = audiomae_layout(True)
    torch.save({"model": weights}, tmp_path / "pretrained.pth")
    model = MastDetector(DETECTOR)
    report = load_audiomae(model, tmp_path / "pretrained.pth")
    assert torch.equal(model.encoder.blocks[1].attn.qkv.weight, weights["blocks.1.attn.qkv.weight"])
    assert set(report.loaded) == set(model.encoder.state_dict())


def test_audiomae_is_loaded_strictly(tmp_path: Path) -> None:
    file = tmp_path / "pretrained.pth"
    weights = audiomae_layout(False)
    del weights["blocks.1.norm2.bias"]
    torch.save({"model": weights}, file)
    with pytest.raises(MastError, match=r"blocks\.1\.norm2\.bias is missing"):
        load_audiomae(MaskedAutoencoder(MAE), file)
    weights = audiomae_layout(False)
    weights["pos_embed"] = torch.zeros(1, 513, 32)
    torch.save({"model": weights}, file)
    with pytest.raises(MastError, match=r"pos_embed has shape \(1, 513, 32\)"):
        load_audiomae(MaskedAutoencoder(MAE), file)


class Arbitrary:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch should-not-exist",)


def test_audiomae_files_cannot_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"model": Arbitrary()}, "pretrained.pth")
    with pytest.raises(MastError, match="cannot be read as a plain PyTorch checkpoint"):
        load_audiomae(MaskedAutoencoder(MAE), "pretrained.pth")
    assert not Path("should-not-exist").exists()
    torch.save([1, 2], "pretrained.pth")
    with pytest.raises(MastError, match='under "model"'):
        load_audiomae(MaskedAutoencoder(MAE), "pretrained.pth")
    with pytest.raises(MastError, match="no such file"):
        load_audiomae(MaskedAutoencoder(MAE), "other.pth")
