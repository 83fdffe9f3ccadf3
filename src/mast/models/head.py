"""The head D_θ: FCOS classification, centreness and box regression, shared by all levels.

Regression gives each point four numbers: how far the box's centre lies from the point, in strides, and how
large the box is, as the logarithm of a factor on the point's starting box (8 strides a side). FCOS predicts
the distances to the four sides instead, which is the same box for a point inside; ours can also reach a box
between two points, as one of one or two bins often is (Corollary "narrow-band events"), and starts at a
sensible size without a ReLU that could die.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mast.models.blocks import ConvBlock

PRIOR = 0.01  # probability of "event" everywhere at the start (focal loss's own choice)


class HeadOutput(NamedTuple):
    """Predictions at R points, in the order of :class:`mast.models.points.Points`; float32."""

    logits: Tensor  # (B, R)
    centreness: Tensor  # (B, R) logits
    regression: Tensor  # (B, R, 4) offset in time and frequency (strides), log size in time and frequency


class Head(nn.Module):
    """Two towers of 3 × 3 convolutions; classification on one, centreness and regression on the other."""

    def __init__(self, channels: int = 256, levels: int = 4, convs: int = 4) -> None:
        super().__init__()
        self.classification_tower = nn.Sequential(*(ConvBlock(channels, channels) for _ in range(convs)))
        self.box_tower = nn.Sequential(*(ConvBlock(channels, channels) for _ in range(convs)))
        self.classify = nn.Conv2d(channels, 1, 3, padding=1)
        self.regress = nn.Conv2d(channels, 5, 3, padding=1)  # the four numbers of a box, and centreness
        self.scales = nn.Parameter(torch.ones(levels, 4))  # per level, for both axes of offset and size
        for layer in (self.classify, self.regress):
            nn.init.normal_(layer.weight, std=0.01)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
        assert self.classify.bias is not None
        nn.init.constant_(self.classify.bias, -math.log((1 - PRIOR) / PRIOR))

    def forward(self, levels: list[Tensor]) -> HeadOutput:
        """Maps (B, C, T', F') of every level, finest first → predictions at all points."""
        logits, centreness, regression = [], [], []
        for scale, x in zip(self.scales, levels, strict=True):
            logits.append(self.classify(self.classification_tower(x)).flatten(1).float())  # (B, R_l)
            box = self.regress(self.box_tower(x)).flatten(2).transpose(1, 2).float()  # (B, R_l, 5)
            regression.append(box[..., :4] * scale)  # (B, R_l, 4)
            centreness.append(box[..., 4])  # (B, R_l)
        return HeadOutput(torch.cat(logits, 1), torch.cat(centreness, 1), torch.cat(regression, 1))
