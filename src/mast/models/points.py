"""Where the head predicts: one point in the middle of every cell of every pyramid level.

With four levels over the upsampling adapter: 128 × 32 + 64 × 16 + 32 × 8 + 16 × 4 = 5440 points.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from mast.models.architecture import ANCHOR_STRIDES


class Points(NamedTuple):
    """R points, finest level first, time-major within a level. All in cells of the spectrogram."""

    centres: Tensor  # (R, 2) time, frequency
    strides: Tensor  # (R, 2) time, frequency
    anchors: Tensor  # (R, 2) extent of the box each point starts from, ``anchor_strides`` strides each way
    level: Tensor  # (R,) int64
    counts: tuple[int, ...]  # points in each level


class WithPoints(nn.Module):
    """A model that keeps its points as buffers: they follow its device and are not saved with its weights."""

    point_centres: Tensor
    point_strides: Tensor
    point_anchors: Tensor
    point_level: Tensor

    def keep_points(self, points: Points) -> None:
        """Take these."""
        self._counts = points.counts
        for name in ("centres", "strides", "anchors", "level"):
            self.register_buffer(f"point_{name}", getattr(points, name), persistent=False)

    @property
    def points(self) -> Points:
        """Where boxes are predicted from."""
        return Points(
            self.point_centres, self.point_strides, self.point_anchors, self.point_level, self._counts
        )


def make_points(
    finest_grid: tuple[int, int],
    finest_strides: tuple[float, float],
    levels: int,
    *,
    anchor_strides: float = ANCHOR_STRIDES,
) -> Points:
    """Points of a pyramid.

    Args:
        finest_grid: cells of the finest level in time and frequency.
        finest_strides: spectrogram cells per cell of the finest level, in time and frequency.
        levels: pyramid levels; grids halve (rounded up), strides double.
        anchor_strides: side of each point's starting box, in strides (8, as in ATSS).
    """
    centres, strides, level, counts = [], [], [], []
    (n_time, n_frequency), (s_time, s_frequency) = finest_grid, finest_strides
    for index in range(levels):
        time = (torch.arange(n_time) + 0.5) * s_time
        frequency = (torch.arange(n_frequency) + 0.5) * s_frequency
        centres.append(torch.cartesian_prod(time, frequency).reshape(-1, 2))
        counts.append(n_time * n_frequency)
        strides.append(torch.tensor([[float(s_time), float(s_frequency)]]).expand(counts[-1], 2))
        level.append(torch.full((counts[-1],), index))
        n_time, n_frequency = (n_time + 1) // 2, (n_frequency + 1) // 2
        s_time, s_frequency = 2 * s_time, 2 * s_frequency
    all_strides = torch.cat(strides)
    return Points(
        torch.cat(centres), all_strides, anchor_strides * all_strides, torch.cat(level), tuple(counts)
    )


def anchor_boxes(points: Points) -> Tensor:
    """(R, 4) the box each point starts from, centred on it."""
    return torch.cat([points.centres - points.anchors / 2, points.centres + points.anchors / 2], dim=1)
