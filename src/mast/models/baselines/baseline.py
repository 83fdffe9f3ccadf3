"""What the baseline detectors share: chunks, and how boxes are chosen from those they score."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from mast.errors import ConfigError
from mast.models.baselines.config import BaselineConfig
from mast.models.decode import Detections, select_boxes
from mast.models.interface import BoxDetector


class Baseline(BoxDetector):
    """A detector to compare with.

    Attributes:
        nms: whether overlaps are suppressed, as for every detector.
    """

    config: BaselineConfig
    nms: bool = True

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def chunk(self) -> tuple[int, int]:
        """Frames and bins of a chunk."""
        return self.config.chunk_frames, self.config.n_bins

    def loss(
        self,
        spectrograms: Tensor,
        boxes: Sequence[Tensor],
        *,
        doubtful: Sequence[Tensor] | None = None,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """``loss`` to minimise, and each of its terms; see :meth:`BoxDetector.loss`.

        Doubtful boxes are neither calls nor background to Faster R-CNN and FCOS, but background to YOLO26 and DETR,
        whose losses have no third case.
        """
        if len(boxes) != len(spectrograms):
            raise ConfigError(f"{len(boxes)} lists of boxes given for {len(spectrograms)} chunks")
        return self.terms(spectrograms, boxes, doubtful, weights, generator)

    @torch.no_grad()
    def detect(
        self,
        spectrograms: Tensor,
        *,
        score_threshold: float = 0.05,
        nms_iou: float = 0.5,
        max_boxes: int = 300,
    ) -> list[Detections]:
        """Boxes in each chunk, best first: (B, 1, T, F) → B times (K, 4) cells and (K,) scores."""
        was_training = self.training
        self.eval()
        boxes, scores = self.scored_boxes(spectrograms)
        self.train(was_training)
        return select_boxes(
            boxes,
            scores,
            chunk=self.chunk,
            score_threshold=score_threshold,
            nms_iou=nms_iou if self.nms else 1.0,
            max_boxes=max_boxes,
        )

    @abstractmethod
    def terms(
        self,
        spectrograms: Tensor,
        boxes: Sequence[Tensor],
        doubtful: Sequence[Tensor] | None,
        weights: Tensor | None,
        generator: torch.Generator | None,
    ) -> dict[str, Tensor]:
        """What :meth:`loss` returns."""

    @abstractmethod
    def scored_boxes(self, spectrograms: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 1, T, F) → every box that was looked at, (B, R, 4) cells, not clipped, and its score (B, R)."""
