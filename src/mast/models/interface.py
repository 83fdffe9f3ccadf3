"""What every box detector can do, MAST's and the baselines': a loss to train by, boxes to show."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from mast.models.decode import Detections


class BoxDetector(nn.Module, ABC):
    """A class-agnostic detector on normalised spectrograms (B, 1, T, F); boxes are ``t1, f1, t2, f2`` in cells."""

    config: BaseModel

    @property
    @abstractmethod
    def chunk(self) -> tuple[int, int]:
        """Frames and bins of a chunk."""

    @abstractmethod
    def loss(
        self,
        spectrograms: Tensor,
        boxes: Sequence[Tensor],
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """``loss`` to minimise, and each of its terms.

        Args:
            spectrograms: (B, 1, T, F).
            boxes: for each chunk (M_i, 4) true boxes in cells; (0, 4) where there is none.
            weights: (B,) confidence of each chunk's boxes; 1 by default.
            generator: source of the loss's random draws, on the spectrograms' device.
        """

    @abstractmethod
    def detect(
        self,
        spectrograms: Tensor,
        *,
        score_threshold: float = 0.05,
        nms_iou: float = 0.5,
        max_boxes: int = 300,
    ) -> list[Detections]:
        """Boxes in each chunk, best first: (B, 1, T, F) → B times (K, 4) cells and (K,) scores."""
