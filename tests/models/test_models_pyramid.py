import pytest
import torch

from mast.models.pyramid import Pyramid, Smooth


@pytest.mark.parametrize("levels", [3, 4])
def test_each_level_is_half_as_fine(levels: int) -> None:
    maps = Pyramid(32, levels)(torch.randn(2, 32, 128, 32))
    assert [tuple(m.shape) for m in maps] == [(2, 32, 128 >> i, 32 >> i) for i in range(levels)]


def test_odd_sizes_round_up() -> None:
    maps = Pyramid(32, 4)(torch.randn(1, 32, 5, 1))
    assert [tuple(m.shape[2:]) for m in maps] == [(5, 1), (3, 1), (2, 1), (1, 1)]


def test_fusion_weights_are_shares() -> None:
    pyramid = Pyramid(32, 4)
    torch.nn.init.normal_(pyramid.fusion, std=5.0)
    weights = pyramid.fusion_weights()
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(3), atol=2e-2, rtol=0)


def test_fusion_against_naive() -> None:
    torch.manual_seed(0)
    pyramid = Pyramid(32, 3).eval()
    torch.nn.init.normal_(pyramid.fusion)
    x = torch.randn(1, 32, 8, 4)
    c = [x, pyramid.down[0](x), pyramid.down[1](pyramid.down[0](x))]
    weights = pyramid.fusion_weights()
    p = pyramid.lateral[2](c[2])
    expected = [pyramid.smooth[2](p)]
    for level in (1, 0):
        above = p.repeat_interleave(2, 2).repeat_interleave(2, 3)
        p = weights[level, 0] * pyramid.lateral[level](c[level]) + weights[level, 1] * above
        expected.insert(0, pyramid.smooth[level](p))
    for ours, theirs in zip(pyramid(x), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_smoothing_mixes_the_three_kernels() -> None:
    kernels = [tuple(branch[0].kernel_size) for branch in Smooth(32).branches]
    assert kernels == [(3, 3), (3, 1), (1, 3)]


def test_every_parameter_learns() -> None:
    torch.manual_seed(0)
    pyramid = Pyramid(32, 3)
    sum(m.square().mean() for m in pyramid(torch.randn(2, 32, 8, 8))).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in pyramid.parameters())
