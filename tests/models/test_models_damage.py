"""Damaged models, and those made to do harm: one sentence, before they cost memory or find nothing."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mast.errors import MastError
from mast.grid import FrontEnd
from mast.models.architecture import DetectorConfig, EncoderConfig, MaeConfig
from mast.models.baselines import BaselineConfig, build_baseline
from mast.models.card import ModelCard, load_card
from mast.models.checkpoint import (
    load_audiomae,
    load_checkpoint,
    load_encoder,
    load_weights,
    save_checkpoint,
    update_card,
)
from mast.models.damage import SizeGuard, fingerprint, refuse_invalid
from mast.models.mae import MaskedAutoencoder
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation

ENCODER = EncoderConfig(chunk_frames=64, n_bins=32, width=32, depth=2, heads=2)
DETECTOR = DetectorConfig(encoder=ENCODER, channels=32, levels=2, head_convs=1)
MAE = MaeConfig(encoder=ENCODER, decoder_width=16, decoder_depth=1, decoder_heads=2)
FRONT_END = FrontEnd(chunk_frames=64, n_bins=32)
STATISTICS = Normalisation(mean=-5.0, std=3.0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    card = ModelCard(
        kind="detector",
        architecture=DETECTOR,
        front_end=FRONT_END,
        normalisation=STATISTICS,
        thresholds={"score": 0.3},
    )
    save_checkpoint(tmp_path / "model", MastDetector(DETECTOR), card)
    return tmp_path / "model"


def set_field(model: Path, field: str, value: Any) -> None:
    """Change one field of model.json, as an editor would; the copy in the weights stays."""
    card = json.loads((model / "model.json").read_text())
    *way, last = field.split(".")
    inside = card
    for part in way:
        inside = inside[part]
    inside[last] = value
    (model / "model.json").write_text(json.dumps(card))


def test_one_flipped_byte_of_the_weights_is_noticed(model: Path) -> None:
    path = model / "model.safetensors"
    content = bytearray(path.read_bytes())
    (header,) = struct.unpack("<Q", content[:8])
    for place in (8 + header, (8 + header + len(content)) // 2, len(content) - 1):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(MastError, match=r"have changed since they were written .*; the file is damaged"):
            load_checkpoint(model)
    with pytest.raises(MastError, match="have changed"):
        load_weights(MastDetector(DETECTOR), model)
    with pytest.raises(MastError, match="have changed"):
        load_encoder(MaskedAutoencoder(MAE), model)
    with pytest.raises(MastError, match="have changed"):  # nor is damage written again as if it were sound
        update_card(model, load_card(model))
    path.write_bytes(content)
    load_checkpoint(model)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused_though_their_fingerprint_fits(
    model: Path, number: float
) -> None:
    weights = load_file(model / "model.safetensors")
    weights["head.classify.weight"].flatten()[7] = number
    text = (model / "model.json").read_text()
    text = text.replace(load_card(model).weights_sha256, fingerprint(weights))
    (model / "model.json").write_text(text)
    save_file(weights, model / "model.safetensors", metadata={"model.json": text})
    with pytest.raises(MastError, match=r"head\.classify\.weight holds 1 of 288 numbers that are not finite"):
        load_checkpoint(model)


def test_large_numbers_are_finite() -> None:
    refuse_invalid({"a": torch.full((9,), 3e38), "b": torch.full((9,), 6e4).half()}, Path("a"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("thresholds.nms_iou", value) for value in (float("nan"), -5, 2, float("inf"), "0.5 or so", None)),
        *(("thresholds.score", value) for value in (float("nan"), -0.1, 1e400, 10**400)),
        *(("normalisation.mean", value) for value in (float("nan"), float("-inf"), 1e30, 10**400)),
        *(("normalisation.std", value) for value in (float("nan"), 0, -1, float("inf"), 1e-300)),
        *(("front_end.mel_corner_hz", value) for value in (float("nan"), float("inf"), 0)),
        *(("front_end.chunk_frames", value) for value in (10**9, 10**4000, 0, 1.5)),
        *(("front_end.sample_rate", value) for value in (-1, 10**12)),
        *(("front_end.window_samples", value) for value in (10**9,)),
        *(("architecture.nested", value) for value in (float("nan"), 0, 7)),
        *(("architecture.contrastive_jitter", value) for value in (float("nan"),)),
        *(("architecture.head_convs", value) for value in (10**6, 10**4000, -1)),
        *(("architecture.encoder.depth", value) for value in (10**6, 0)),
        ("architecture.encoder.heads", 7),
        ("weights_sha256", 5),
        ("more", 1),
    ],
)
def test_values_that_make_no_sense_are_one_sentence(model: Path, field: str, value: Any) -> None:
    set_field(model, field, value)
    with pytest.raises(MastError, match=rf"^{model / 'model.json'}: ") as caught:
        load_checkpoint(model)
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


def test_a_front_end_that_the_model_is_not_made_for(model: Path) -> None:
    set_field(model, "front_end.chunk_frames", 128)
    with pytest.raises(MastError, match="chunks of 128 × 32 cells, but the model is made for 64 × 32"):
        load_checkpoint(model)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\xff{",
        '{"kind": "detectör"}'.encode("latin-1"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"provenance": {"seed": ' + b"9" * 5_000 + b"}}",
        b"",
        b"null",
        b"3",
    ],
    ids=["binary", "latin-1", "brackets", "objects", "digits", "empty", "null", "number"],
)
def test_text_that_is_not_a_json_object(model: Path, content: bytes) -> None:
    (model / "model.json").write_bytes(content)
    with pytest.raises(MastError, match="is not a JSON object"):
        load_checkpoint(model)


def test_a_card_larger_than_any_is_not_read(model: Path) -> None:
    with open(model / "model.json", "r+b") as file:
        file.truncate(10**12)  # takes no space
    with pytest.raises(MastError, match=r"is 1,000,000 MB; expected .* at most 16 MB"):
        load_card(model)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("architecture.head_convs", 1_000),
        ("architecture.channels", 65_536),
        ("architecture.encoder.depth", 1_000),
        ("architecture.encoder.width", 65_536),
        ("architecture.encoder.chunk_frames", 16_384),
    ],
)
def test_sizes_are_compared_before_memory_is_taken(model: Path, field: str, value: int) -> None:
    set_field(model, field, value)
    if field.endswith("chunk_frames"):
        set_field(model, "architecture.encoder.patch", 1)
        set_field(model, "architecture.encoder.width", 65_536)
    with pytest.raises(MastError, match="describes a larger model than these weights; the two"):
        load_checkpoint(model)


@pytest.mark.parametrize(
    ("name", "options", "larger"),
    [
        ("faster_rcnn", {"backbone": "resnet18", "width": 16, "channels": 32}, {"width": 65_536}),
        ("fcos", {"backbone": "resnet18", "width": 16, "channels": 32}, {"channels": 65_536}),
        ("detr", {"backbone": "resnet18", "width": 32, "heads": 2, "feed_forward": 32}, {"width": 65_536}),
        (
            "detr",
            {"backbone": "resnet18", "width": 32, "heads": 2, "feed_forward": 32},
            {"decoder_layers": 999},
        ),
        ("yolo26", {"scale": "n"}, {}),
    ],
)
def test_baselines_load_within_the_bounds_and_larger_ones_do_not(
    tmp_path: Path, name: str, options: dict[str, Any], larger: dict[str, int]
) -> None:
    if name in ("detr", "yolo26"):
        pytest.importorskip("transformers" if name == "detr" else "ultralytics")
    config = BaselineConfig.model_validate(
        {"name": name, "chunk_frames": 64, "n_bins": 32, "options": options}
    )
    card = ModelCard(kind="detector", architecture=config, front_end=FRONT_END, normalisation=STATISTICS)
    save_checkpoint(tmp_path, build_baseline(config), card)
    load_checkpoint(tmp_path)
    for option, value in larger.items():
        set_field(tmp_path, f"architecture.options.{option}", value)
        with pytest.raises(MastError, match="describes a larger model"):
            load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "take",
    [
        lambda: torch.empty(2**12, 2**13),
        lambda: torch.zeros((2**12, 2**13)),
        lambda: torch.ones(size=(2**12, 2**13)),
        lambda: torch.arange(2**25),
        lambda: torch.arange(2**13)[:, None] * torch.arange(2**13),
        lambda: [torch.empty(1) for _ in range(2_000)],
    ],
)
def test_bounds(take: Callable[[], object]) -> None:
    with SizeGuard([(3, 4)], Path("a")), pytest.raises(MastError, match="larger model"):
        take()


def test_within_the_bounds() -> None:
    with SizeGuard([(3, 4)], Path("a")):
        torch.empty(2**10, 2**10)
        torch.arange(2**10)[:, None] * torch.arange(2**10)
        torch.conv2d(torch.zeros(1, 8, 64, 64), torch.zeros(4096, 8, 3, 3))  # shapes that are not joined
        torch.conv2d(
            torch.zeros(1, 96, 64, 64), torch.zeros(96, 96, 1, 1)
        )  # would fit each other, but are not
        for _ in range(500):
            torch.empty(1)


def test_a_type_that_weights_do_not_have(model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    weights["head.classify.weight"] = torch.zeros(weights["head.classify.weight"].shape, dtype=torch.int64)
    text = (model / "model.json").read_text()
    text = text.replace(load_card(model).weights_sha256, fingerprint(weights))
    (model / "model.json").write_text(text)
    save_file(weights, model / "model.safetensors", metadata={"model.json": text})
    with pytest.raises(MastError, match=r"holds torch\.int64, expected torch\.float32"):
        load_checkpoint(model)


def nested_list(depth: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.update({"cls_token": torch.full((1, 1, 32), float("nan"))}), "not finite"),
        (
            lambda weights: weights.update({"cls_token": torch.zeros(1, 1, 32, dtype=torch.cfloat)}),
            "not a plain",
        ),
        (lambda weights: weights.update({"cls_token": torch.zeros(1, 1, 32, device="meta")}), "not a plain"),
        (lambda weights: weights.update({"cls_token": torch.zeros(1).expand(10**12)}), "not a plain"),
        (lambda weights: weights.update({5: torch.zeros(1)}), "expected named tensors"),
        (lambda weights: weights.update({"cls_token": [1.0]}), "holds list under 'cls_token'"),
    ],
    ids=["nan", "complex", "meta", "expanded", "numbered", "list"],
)
def test_files_of_others(tmp_path: Path, change: Callable[[dict[Any, Any]], None], message: str) -> None:
    weights: dict[Any, Any] = dict(MaskedAutoencoder(MAE).encoder.state_dict())
    change(weights)
    torch.save({"model": weights}, tmp_path / "pretrained.pth")
    with pytest.raises(MastError, match=message):
        load_audiomae(MaskedAutoencoder(MAE), tmp_path / "pretrained.pth")


def test_a_file_of_others_that_is_nested_too_deep(tmp_path: Path) -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        torch.save(nested_list(5_000), tmp_path / "pretrained.pth")
    finally:
        sys.setrecursionlimit(limit)
    with pytest.raises(MastError, match=r"under .model.|cannot be read"):
        load_audiomae(MaskedAutoencoder(MAE), tmp_path / "pretrained.pth")
