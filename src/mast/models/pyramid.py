"""The neck N_γ: a feature pyramid over the adapter's map (App. "Architecture Details", "Neck and fusion")."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mast.models.architecture import FUSION_EPSILON
from mast.models.blocks import ConvBlock, ResidualBlock


class Smooth(nn.Module):
    """x + a mix of 3 × 3, 3 × 1 and 1 × 3: narrow-band detail kept, temporal context widened.

    "Lightweight": each of the three gives a quarter of the channels, a 1 × 1 mixes them (our choice).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        kernels = ((3, 3), (3, 1), (1, 3))
        self.branches = nn.ModuleList(ConvBlock(channels, channels // 4, kernel) for kernel in kernels)
        self.mix = nn.Conv2d(channels // 4 * len(kernels), channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, T', F') → the same."""
        smoothed: Tensor = x + self.mix(torch.cat([branch(x) for branch in self.branches], dim=1))
        return smoothed


class Pyramid(nn.Module):
    """Finest level = the adapter's map; each further one half as fine (docs/paper_notes.md 8).

    ``blocks``: residual blocks after each halving; none in the paper.
    """

    def __init__(self, channels: int = 256, levels: int = 4, blocks: int = 0) -> None:
        super().__init__()
        self.down = nn.ModuleList(ConvBlock(channels, channels, stride=2) for _ in range(levels - 1))
        self.deepen = nn.ModuleList(
            nn.Sequential(*(ResidualBlock(channels) for _ in range(blocks))) for _ in range(levels - 1)
        )
        self.lateral = nn.ModuleList(nn.Conv2d(channels, channels, 1) for _ in range(levels))
        self.smooth = nn.ModuleList(Smooth(channels) for _ in range(levels))
        # before softplus; one pair (own level, level above) per fusion, equal at the start
        self.fusion = nn.Parameter(torch.zeros(levels - 1, 2))

    def fusion_weights(self) -> Tensor:
        """(levels − 1, 2) non-negative, each pair summing to one."""
        positive = F.softplus(self.fusion)
        return positive / (positive.sum(dim=1, keepdim=True) + FUSION_EPSILON)

    def forward(self, finest: Tensor) -> list[Tensor]:
        """(B, C, T', F') → as many maps as levels, finest first, sizes halving (rounded up)."""
        bottom_up = [finest]
        for down, deepen in zip(self.down, self.deepen, strict=True):
            bottom_up.append(deepen(down(bottom_up[-1])))
        fused: list[Tensor] = [lateral(x) for lateral, x in zip(self.lateral, bottom_up, strict=True)]
        weights = self.fusion_weights()
        for i in range(len(fused) - 2, -1, -1):  # from the second coarsest down to the finest
            above = F.interpolate(fused[i + 1], size=fused[i].shape[2:], mode="nearest")
            fused[i] = weights[i, 0] * fused[i] + weights[i, 1] * above
        return [smooth(x) for smooth, x in zip(self.smooth, fused, strict=True)]
