"""The few convolutional layers that adapters, pyramid and head are made of."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from mast.models.architecture import GROUP
from mast.models.map_norm import MapNorm


def group_norm(channels: int) -> MapNorm:
    """Groups of eight channels (32 groups at 256): independent of the batch, so small batches train the same way."""
    return MapNorm(channels // GROUP, channels)


class ConvBlock(nn.Sequential):
    """Convolution (size kept unless strided), group norm, ReLU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: tuple[int, int] = (3, 3),
        *,
        stride: int | tuple[int, int] = 1,
        groups: int = 1,
    ) -> None:
        padding = (kernel[0] // 2, kernel[1] // 2)
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, groups=groups, bias=False),
            group_norm(outputs),
            nn.ReLU(inplace=True),
        )


class ResidualBlock(nn.Module):
    """x + two 3 × 3 convolutions through ``hidden`` channels."""

    def __init__(self, channels: int, hidden: int | None = None) -> None:
        super().__init__()
        hidden = channels if hidden is None else hidden
        self.first = ConvBlock(channels, hidden)
        self.second = nn.Conv2d(hidden, channels, 3, padding=1, bias=False)
        self.norm = group_norm(channels)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, T', F') → the same."""
        return F.relu(x + self.norm(self.second(self.first(x))))


class SeparableConv(nn.Sequential):
    """F_{1×k} ∘ F_{k×1} of Prop. "Parameter efficiency of separable filtering": time, then frequency.

    2 C² k weights instead of C² k².
    """

    def __init__(self, channels: int, k: int = 3) -> None:
        super().__init__(ConvBlock(channels, channels, (k, 1)), ConvBlock(channels, channels, (1, k)))
