"""Learning rate over steps, and trainable encoder blocks over epochs. Pure functions."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field


def warmup_cosine(step: int, *, total_steps: int, warmup_steps: int, floor: float = 0.0) -> float:
    """Factor on the base learning rate: a linear rise to 1, then half a cosine down to ``floor``.

    >>> [round(warmup_cosine(s, total_steps=10, warmup_steps=2), 2) for s in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.04]
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))


class Unfreezing(BaseModel):
    """Gradual unfreezing of encoder blocks from the top (Remark "Unfreezing schedule")."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    warmup_epochs: int = Field(20, ge=0, description='Table "Staged self-training": Stage 1 20, Stage 2 3')
    interval_epochs: int = Field(10, gt=0, description="Stage 1 10, Stage 2 6")
    blocks_per_stage: int = Field(3, gt=0, description="Stage 1 3, Stage 2 6")
    lr_multiplier: float = Field(0.005, ge=0, description="of unfrozen blocks; Stage 1 0.005, Stage 2 0.05")

    def blocks_at(self, epoch: int, depth: int) -> int:
        """k(e): how many top blocks train in this epoch (counted from 0)."""
        if epoch < self.warmup_epochs:
            return 0
        stages = 1 + (epoch - self.warmup_epochs) // self.interval_epochs
        return min(depth, stages * self.blocks_per_stage)
