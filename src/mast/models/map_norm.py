"""Group norm of maps that are kept channels last, as convolutions want them on a GPU.

torch's group norm transposes such a map, normalises it in float32 and transposes it back, and so does its gradient. In
a detector with 256 channels at cells of 4 × 2, that took longer than the convolutions. Here the map stays as it is,
bfloat16 included: only its sums are float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class MapNorm(nn.GroupNorm):
    """torch's group norm, also of a map of a single cell, and without transposing maps on a GPU."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, T', F') → the same shape."""
        stays = x.is_cuda and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
        if stays and not torch.compiler.is_compiling():  # compiled code fuses torch's own
            normed: Tensor = ChannelsLastNorm.apply(  # type: ignore[no-untyped-call]
                x, self.weight, self.bias, self.num_groups, self.eps
            )
            return normed
        return torch.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class ChannelsLastNorm(torch.autograd.Function):
    """Group norm and its gradient as one factor and one shift for every channel of every image.

    With mean m and deviation 1/r of a group of n values, y = (x − m) r γ + β is x · s + t for s = r γ and t = β − m s.
    Its gradient is g · s + x · u + v, where u and v of a group follow from the sums of g γ and of g γ x.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
        """(B, C, T', F') → the same shape and type."""
        images, channels, *_ = x.shape
        n = x[0, 0].numel() * (channels // groups)
        with torch.autocast(x.device.type, enabled=False):  # autocast would copy the map to float32
            total = x.sum(dim=(2, 3), dtype=_sums(x))
            squares = torch.linalg.vector_norm(x, dim=(2, 3), dtype=_sums(x)).square()
        mean = total.view(images, groups, -1).sum(-1) / n  # (B, G)
        spread = squares.view(images, groups, -1).sum(-1) / n - mean.square()
        rate = (spread.clamp(min=0) + eps).rsqrt()
        factor = _per_channel(rate, channels) * weight.to(rate)  # (B, C)
        shift = bias.to(rate) - _per_channel(mean, channels) * factor
        ctx.save_for_backward(x, weight, mean, rate)
        return _scaled(x, factor, shift[:, :, None, None], x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """The gradients of x, γ and β."""
        x, weight, mean, rate = ctx.saved_tensors
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        (images, channels, *_), groups = x.shape, mean.shape[1]
        n = x[0, 0].numel() * (channels // groups)
        scale = weight.to(rate)
        total = gradient.sum(dim=(2, 3), dtype=_sums(x))  # (B, C)
        nothing = torch.zeros(1, dtype=_sums(x), device=x.device)  # adding it makes the products float32
        product = torch.addcmul(nothing, gradient, x).sum(dim=(2, 3))  # (B, C)
        sums, products = ((s * scale).view(images, groups, -1).sum(-1) for s in (total, product))  # (B, G)
        along = (sums * mean - products) * rate**3 / n
        constant = -along * mean - sums * rate / n
        moved = _scaled(
            x, _per_channel(along, channels), _per_channel(constant, channels)[:, :, None, None], _sums(x)
        )
        of_x = _scaled(gradient, _per_channel(rate, channels) * scale, moved, x.dtype)
        of_weight = ((product - total * _per_channel(mean, channels)) * _per_channel(rate, channels)).sum(0)
        return of_x, of_weight.to(weight), total.sum(0).to(weight), None, None


def _sums(x: Tensor) -> torch.dtype:
    """The type for sums over a map."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _per_channel(of_groups: Tensor, channels: int) -> Tensor:
    """(B, G) → (B, C)."""
    return of_groups.repeat_interleave(channels // of_groups.shape[1], dim=1)


def _scaled(x: Tensor, factor: Tensor, shift: Tensor, dtype: torch.dtype) -> Tensor:
    """x · factor + shift in one pass, rounded once: (B, C, T', F'), (B, C), what broadcasts → (B, C, T', F')."""
    return torch.addcmul(shift, x, factor[:, :, None, None], out=torch.empty_like(x, dtype=dtype))
