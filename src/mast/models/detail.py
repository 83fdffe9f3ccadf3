"""A convolutional path from the spectrogram to the adapter's grid. Ours, off by default: the paper has none.

A token of the encoder is 16 × 16 cells, 0.16 s by 16 mel bins, and the encoder as a whole has to learn where in it a
call begins. Convolutions know from the start that a call is the same call one frame later, and they see single
cells. What they see is added to the adapter's map, as the spatial prior of ViT-Adapter (Chen et al. 2022) is.
"""

from __future__ import annotations

import math

from torch import nn

from mast.errors import ConfigError
from mast.models.blocks import ConvBlock, ResidualBlock


class DetailPath(nn.Sequential):
    """(B, 1, T, F) → (B, outputs, T / stride, F / stride): halving steps, twice the channels at each.

    Args:
        channels: after the first step.
        outputs: of the adapter's map.
        strides: of the adapter's map, in cells of time and frequency; powers of two.
    """

    def __init__(self, channels: int, outputs: int, strides: tuple[float, float]) -> None:
        steps = [round(math.log2(stride)) for stride in strides]
        if any(2.0**n != stride for n, stride in zip(steps, strides, strict=True)):
            raise ConfigError(f"the detail path halves: strides {strides} are not powers of two")
        layers: list[nn.Module] = []
        inputs = 1
        for step in range(max(steps)):
            stride = (2 if step < steps[0] else 1, 2 if step < steps[1] else 1)
            layers.append(ConvBlock(inputs, channels, (5, 5) if step == 0 else (3, 3), stride=stride))
            if step > 0:  # at full width a residual block would cost more than the encoder
                layers.append(ResidualBlock(channels))
            inputs, channels = channels, min(2 * channels, outputs)
        last = nn.Conv2d(inputs, outputs, 1)
        nn.init.zeros_(last.weight)  # adds nothing at first: a detector trained without it starts unchanged
        assert last.bias is not None
        nn.init.zeros_(last.bias)
        super().__init__(*layers, last)
