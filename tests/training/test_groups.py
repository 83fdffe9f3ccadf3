from __future__ import annotations

import torch

from mast.models.architecture import DetectorConfig, EncoderConfig
from mast.models.mast_detector import MastDetector
from mast.training.groups import encoder_multipliers, parameter_groups, set_trainable
from mast.training.schedule import Unfreezing


def small_detector() -> MastDetector:
    encoder = EncoderConfig(chunk_frames=64, n_bins=32, width=32, depth=3, heads=2)
    return MastDetector(DetectorConfig(encoder=encoder, channels=32, levels=2, head_convs=1))


def test_every_parameter_is_in_one_group_with_its_rate() -> None:
    model = small_detector()
    multipliers = {"": 1.0, "adapter.": 0.5, **encoder_multipliers(3, backbone=0.1, unfreezing=None)}
    groups = parameter_groups(model.named_parameters(), lr=1e-3, weight_decay=0.05, multipliers=multipliers)
    grouped = [id(p) for g in groups for p in g["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    rate = {id(p): g["base_lr"] for g in groups for p in g["params"]}
    decay = {id(p): g["weight_decay"] for g in groups for p in g["params"]}
    for name, parameter in model.named_parameters():
        expected = 1e-4 if name.startswith("encoder.") else 5e-4 if name.startswith("adapter.") else 1e-3
        assert rate[id(parameter)] == expected, name
        assert decay[id(parameter)] == (0.05 if parameter.ndim > 1 else 0.0), name


def test_unfrozen_blocks_have_their_own_rate() -> None:
    multipliers = encoder_multipliers(3, backbone=0.1, unfreezing=Unfreezing(lr_multiplier=0.005))
    groups = parameter_groups(
        small_detector().named_parameters(), lr=1.0, weight_decay=0.0, multipliers={"": 1.0, **multipliers}
    )
    rates = {g["name"].removesuffix(" (no decay)"): g["base_lr"] for g in groups}
    assert rates["encoder.blocks.2."] == 0.005
    assert rates["encoder."] == 0.1


def test_freezing() -> None:
    model = small_detector()
    assert set_trainable(model, depth=3, top_blocks=1, whole_encoder=False)
    trains = {name for name, p in model.named_parameters() if p.requires_grad}
    assert all(
        not n.startswith(("encoder.patch_embed", "encoder.blocks.0", "encoder.blocks.1")) for n in trains
    )
    assert any(n.startswith("encoder.blocks.2.") for n in trains)
    assert {n for n, _ in model.named_parameters() if not n.startswith("encoder.")} <= trains
    assert not set_trainable(model, depth=3, top_blocks=1, whole_encoder=False)  # nothing changed
    assert set_trainable(model, depth=3, top_blocks=0, whole_encoder=False)
    assert not any(p.requires_grad for p in model.encoder.parameters())
    assert set_trainable(model, depth=3, top_blocks=3, whole_encoder=True)
    assert all(p.requires_grad for p in model.parameters())


def test_a_frozen_block_does_not_move() -> None:
    model = small_detector()
    set_trainable(model, depth=3, top_blocks=1, whole_encoder=False)
    before = {n: p.clone() for n, p in model.named_parameters()}
    groups = parameter_groups(model.named_parameters(), lr=1e-2, weight_decay=0.1, multipliers={"": 1.0})
    optimizer = torch.optim.AdamW(groups)
    model.loss(torch.randn(2, 1, 64, 32), [torch.tensor([[4.0, 4, 20, 12]])] * 2)["loss"].backward()
    optimizer.step()
    after = dict(model.named_parameters())
    assert torch.equal(before["encoder.blocks.0.attn.qkv.weight"], after["encoder.blocks.0.attn.qkv.weight"])
    assert not torch.equal(
        before["encoder.blocks.2.attn.qkv.weight"], after["encoder.blocks.2.attn.qkv.weight"]
    )
