"""Adapters A_ψ: from the encoder's 64 × 8 tokens to a map fine enough for boxes (App. "Adapter Designs").

Each takes (B, D, T/16, F/16) and gives ``channels`` channels, 256 in the paper. At the paper's sizes
(D = 768, 256 channels) each has 2–4 M parameters, as the paper says; where its words leave a choice, the
choice that meets this range was taken and is named at the layer. Axes are (time, frequency).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from mast.models.architecture import ADAPTER_UPSAMPLING, AdapterName
from mast.models.blocks import ConvBlock, ResidualBlock, SeparableConv


class ConvAdapter(nn.Sequential):
    """(i) Three 3 × 3 convolutions 768 → 512 → 256 → 256 with ReLU, at 64 × 8.

    The first is in two groups: dense, it alone would have 3.5 M weights and the adapter 5.3 M.
    """

    def __init__(self, width: int, channels: int = 256) -> None:
        super().__init__(
            ConvBlock(width, 2 * channels, groups=2),
            ConvBlock(2 * channels, channels),
            ConvBlock(channels, channels),
        )


class AnisotropicAdapter(nn.Module):
    """(ii) Stem, residual block, separable 3 × 1 / 1 × 3, reduction, residual block, frequency × 4; 64 × 32.

    The stem is 1 × 1 and the 512-channel residual block goes through an eighth of its channels: dense 3 × 3
    layers at this width would have 3.5 M and 4.7 M weights.
    """

    def __init__(self, width: int, channels: int = 256) -> None:
        super().__init__()
        wide = 2 * channels
        self.stem = ConvBlock(width, wide, (1, 1))
        self.wide_residual = ResidualBlock(wide, hidden=wide // 8)
        self.separable = SeparableConv(wide)
        self.reduce = ConvBlock(wide, channels, (1, 1))
        self.residual = ResidualBlock(channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, D, T/16, F/16) → (B, C, T/16, F/4)."""
        x = self.separable(self.wide_residual(self.stem(tokens)))
        x = self.residual(self.reduce(x))
        scale = tuple(float(u) for u in ADAPTER_UPSAMPLING["anisotropic"])
        return F.interpolate(x, scale_factor=scale, mode="nearest")


class UpsamplingAdapter(nn.Module):
    """(iii, default) Reduction, residual block, learnable upsampling, separable and 3 × 3 refinement.

    × 2 in time and × 4 in frequency: 128 × 32, strides 8 × 4 (Prop. "Optimal upsampling allocation"); × 4 and
    × 8 as "fine", which is ours.
    """

    def __init__(self, width: int, channels: int = 256, factors: tuple[int, int] = (2, 4)) -> None:
        super().__init__()
        self.reduce = ConvBlock(width, channels, (1, 1))
        self.residual = ResidualBlock(channels)
        self.upsample = nn.ConvTranspose2d(channels, channels, factors, stride=factors)
        self.separable = SeparableConv(channels)
        self.refine = ResidualBlock(channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, D, T/16, F/16) → (B, C, T/8, F/4)."""
        x = self.upsample(self.residual(self.reduce(tokens)))
        refined: Tensor = self.refine(self.separable(x))
        return refined


def build_adapter(name: AdapterName, width: int, channels: int = 256) -> nn.Module:
    """The adapter of that name; ``"none"`` is a plain 1 × 1 projection (Table "Pipeline ablation")."""
    match name:
        case "upsampling" | "fine":
            return UpsamplingAdapter(width, channels, ADAPTER_UPSAMPLING[name])
        case "anisotropic":
            return AnisotropicAdapter(width, channels)
        case "conv":
            return ConvAdapter(width, channels)
        case "none":
            return nn.Conv2d(width, channels, 1)
