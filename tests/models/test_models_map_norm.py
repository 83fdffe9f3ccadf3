from __future__ import annotations

import pytest
import torch

from mast.models.map_norm import ChannelsLastNorm, MapNorm


def some_maps(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(2, 16, 9, 7, generator=generator, dtype=torch.float64) * 3 + 1
    weight, bias = (torch.randn(16, generator=generator, dtype=torch.float64) for _ in range(2))
    gradient = torch.randn(2, 16, 9, 7, generator=generator, dtype=torch.float64)
    maps, gradient = (t.to(dtype, memory_format=torch.channels_last) for t in (maps, gradient))
    return maps, weight, bias, gradient


def gradients(
    normed: torch.Tensor, inputs: tuple[torch.Tensor, ...], of: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(normed, inputs, of.to(normed.dtype))


@pytest.mark.parametrize("groups", [1, 4, 16])
def test_values_and_gradients_are_those_of_torch(groups: int) -> None:
    maps, weight, bias, gradient = some_maps(torch.float64)
    inputs = tuple(t.requires_grad_() for t in (maps, weight, bias))
    expected = torch.group_norm(maps, groups, weight, bias, 1e-5)
    found = ChannelsLastNorm.apply(*inputs, groups, 1e-5)
    torch.testing.assert_close(found, expected)
    assert found.is_contiguous(memory_format=torch.channels_last)
    for one, other in zip(
        gradients(found, inputs, gradient), gradients(expected, inputs, gradient), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_bfloat16_stays_bfloat16_and_is_rounded_once() -> None:
    maps, weight, bias, gradient = some_maps(torch.bfloat16)
    inputs = (maps.requires_grad_(), weight.float().requires_grad_(), bias.float().requires_grad_())
    found = ChannelsLastNorm.apply(*inputs, 4, 1e-5)
    exact = (maps.detach().double().requires_grad_(), weight.requires_grad_(), bias.requires_grad_())
    expected = torch.group_norm(exact[0], 4, exact[1], exact[2], 1e-5)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, rtol=2**-8, atol=1e-5)
    own, true = gradients(found, inputs, gradient), gradients(expected, exact, gradient.double())
    assert [t.dtype for t in own] == [torch.bfloat16, torch.float32, torch.float32]
    torch.testing.assert_close(own[0].double(), true[0], rtol=2**-8, atol=1e-5)
    for one, other in zip(own[1:], true[1:], strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("size", [(9, 7), (1, 1)])
def test_on_a_cpu_it_is_torchs_own(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    norm, maps = MapNorm(4, 16), torch.randn(1, 16, *size)
    torch.testing.assert_close(norm(maps), torch.group_norm(maps, 4, norm.weight, norm.bias, norm.eps))
    assert list(norm.state_dict()) == ["weight", "bias"]
