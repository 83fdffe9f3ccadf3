import pytest
import torch
from adapter_theory import isotropic_parameters, separable_parameters
from torch import nn

from mast.models.adapters import build_adapter
from mast.models.architecture import ADAPTER_UPSAMPLING, AdapterName
from mast.models.blocks import SeparableConv


def n_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("name", ["upsampling", "anisotropic", "conv"])
def test_two_to_four_million_parameters_at_base_size(name: AdapterName) -> None:
    with torch.device("meta"):
        assert 2e6 <= n_parameters(build_adapter(name, 768)) <= 4e6


@pytest.mark.parametrize(
    ("name", "grid"),
    [("upsampling", (128, 32)), ("anisotropic", (64, 32)), ("conv", (64, 8)), ("none", (64, 8))],
)
def test_grids_of_the_paper(name: AdapterName, grid: tuple[int, int]) -> None:
    with torch.device("meta"):
        out = build_adapter(name, 768)(torch.zeros(1, 768, 64, 8))
    assert out.shape == (1, 256, *grid)
    assert ADAPTER_UPSAMPLING[name] == (grid[0] // 64, grid[1] // 8)


@pytest.mark.parametrize("name", ["upsampling", "anisotropic", "conv", "none"])
def test_every_parameter_learns(name: AdapterName) -> None:
    torch.manual_seed(0)
    adapter = build_adapter(name, 24, 32)
    adapter(torch.randn(2, 24, 4, 2)).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in adapter.parameters())


@pytest.mark.parametrize("k", [3, 5])
def test_separable_filters_of_prop_3(k: int) -> None:
    channels = 8
    convs = [m for m in SeparableConv(channels, k).modules() if isinstance(m, nn.Conv2d)]
    assert sum(n_parameters(m) for m in convs) == separable_parameters(channels, k)
    assert n_parameters(nn.Conv2d(channels, channels, k, bias=False)) == isotropic_parameters(channels, k)
    assert isotropic_parameters(channels, k) / separable_parameters(channels, k) == k / 2

    # (ii) an impulse reaches k × k cells; (iii) each channel pair's kernel has rank at most min(C, k)
    impulse = torch.zeros(1, channels, 11, 11)
    impulse[0, 0, 5, 5] = 1.0
    response = nn.Sequential(*convs)(impulse)[0]  # (C, 11, 11)
    reached = (response.abs().sum(0) > 0).nonzero()
    assert (reached.max(0).values - reached.min(0).values + 1).tolist() == [k, k]

    narrow = [m for m in SeparableConv(8, 5).modules() if isinstance(m, nn.Conv2d)]
    with torch.no_grad():
        narrow[0].weight[2:] = 0  # two channels between the filters
    kernel = nn.Sequential(*narrow)(impulse)[0, 3, 3:8, 3:8]
    assert torch.linalg.matrix_rank(kernel) == 2
