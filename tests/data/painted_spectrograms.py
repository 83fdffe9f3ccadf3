"""Spectrograms whose calls are bright rectangles."""

from __future__ import annotations

import torch
from torch import Tensor

from mast.data.transforms import BoxTable, box_table

QUIET, LOUD = -8.0, 4.0
BRIGHT = (QUIET + LOUD) / 2  # above it a cell belongs to a call


def painted(*examples: list[list[int]], shape: tuple[int, int]) -> tuple[Tensor, BoxTable]:
    """Quiet noise of ``shape`` with a bright rectangle at each box."""
    noise = torch.Generator().manual_seed(1)
    spectrograms = QUIET + 0.1 * torch.randn(len(examples), 1, *shape, generator=noise)
    for spectrogram, boxes in zip(spectrograms, examples, strict=True):
        for t1, f1, t2, f2 in boxes:
            spectrogram[0, t1:t2, f1:f2] = LOUD
    return spectrograms, box_table([torch.tensor(b, dtype=torch.float32).reshape(-1, 4) for b in examples])
