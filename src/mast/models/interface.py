"""What every box detector can do, MAST's and the baselines': a loss to train with, boxes to show."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from mast.errors import ConfigError
from mast.models.decode import Detections


class BoxDetector(nn.Module, ABC):
    """A class-agnostic detector on normalised spectrograms (B, 1, T, F); boxes are ``t1, f1, t2, f2`` in cells.

    Attributes:
        config: its architecture, as in its checkpoint's card.
        backbone_prefixes: prefixes of the parameters that may start from weights trained on other data, and then
            train more slowly.
    """

    config: BaseModel
    backbone_prefixes: ClassVar[tuple[str, ...]] = ()

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
        doubtful: Sequence[Tensor] | None = None,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """``loss`` to minimise, and each of its terms.

        Args:
            spectrograms: (B, 1, T, F).
            boxes: for each chunk (M_i, 4) true boxes in cells; (0, 4) where there is none.
            doubtful: for each chunk (D_i, 4) boxes that are perhaps calls; none by default. MAST learns nothing from
                them; to some baselines they are background.
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

    def load_backbone(self, path: Path) -> str:
        """Start the backbone from a file of other people's weights; returns a sentence about it."""
        raise ConfigError(
            f"{path}: {type(self).__name__} cannot start from such a file; leave --init out to train from scratch"
        )
