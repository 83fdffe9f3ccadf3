"""The convolutional path beside the encoder."""

from __future__ import annotations

import pytest
import torch

from mast.errors import ConfigError
from mast.models.architecture import DetectorConfig
from mast.models.detail import DetailPath
from mast.models.mast_detector import MastDetector


def awake(path: DetailPath) -> DetailPath:
    """As after some training: its last layer, zero at first, says something."""
    torch.nn.init.normal_(path[-1].weight, std=0.2)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("adapter", ["upsampling", "anisotropic", "conv", "none"])
def test_it_ends_on_the_grid_of_every_adapter(adapter: str) -> None:
    config = DetectorConfig.named("tiny", chunk_frames=128, n_bins=64, adapter=adapter, detail=8)
    model = MastDetector(config).eval()
    spectrograms = torch.randn(2, 1, 128, 64)
    assert model.detail(spectrograms).shape == (2, config.channels, *config.finest_grid)
    assert model(spectrograms).levels[0].shape[2:] == config.finest_grid


def test_a_call_one_stride_later_is_the_same_one_cell_later() -> None:
    torch.manual_seed(0)
    path = awake(DetailPath(8, 32, (8.0, 4.0))).eval()
    spectrograms = torch.randn(1, 1, 128, 64)
    moved = spectrograms.roll(8, dims=2)
    here, there = path(spectrograms), path(moved)
    inside = slice(5, -5)  # group norm sees the whole map, so only nearly the same
    torch.testing.assert_close(there[:, :, 6:-4], here[:, :, inside], atol=0.15, rtol=0.1)


def test_the_detector_uses_it_and_it_learns() -> None:
    torch.manual_seed(0)
    model = MastDetector(DetectorConfig.named("tiny", chunk_frames=128, n_bins=64, detail=8))
    awake(model.detail)
    loss = model.loss(
        torch.randn(2, 1, 128, 64), [torch.tensor([[10.0, 5.0, 60.0, 20.0]]), torch.zeros(0, 4)]
    )
    loss["loss"].backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.detail.parameters())


def test_it_says_nothing_before_it_has_learnt() -> None:
    torch.manual_seed(0)
    path = DetailPath(8, 32, (8.0, 4.0))
    spectrograms = torch.randn(1, 1, 128, 64)
    assert (path(spectrograms) == 0).all()
    path(spectrograms).sum().backward()
    assert path[-1].weight.grad.abs().sum() > 0  # type: ignore[union-attr, operator]


def test_without_it_there_are_the_same_weights_as_ever() -> None:
    config = DetectorConfig.named("tiny", chunk_frames=128, n_bins=64)
    assert config.detail == 0
    assert not [name for name in MastDetector(config).state_dict() if name.startswith("detail")]


def test_strides_that_cannot_be_halved_are_refused() -> None:
    with pytest.raises(ConfigError, match="powers of two"):
        DetailPath(8, 32, (6.0, 4.0))
