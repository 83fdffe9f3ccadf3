"""A second look at the boxes that the head proposes: is it a call, and where exactly? Ours, off by default.

The head judges a box from the one point that proposes it. Here the box's own content is pooled, 7 × 7 cells of every
pyramid level added up (adaptive pooling, Liu et al. 2018), and two layers make one vector of it. Three answers come
from that vector: whether it is a call, how the box is corrected, and the projection of the contrastive loss, so that
telling calls from background and verifying them are one task. One-stage proposals with a second look are CenterNet2's
(Zhou et al. 2021), and so is the score: the geometric mean of both opinions.

All tensors have one size for every image, with a mask: nothing waits for the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mast.models.boxes import Truths, align_boxes, centres_and_extents, iou
from mast.models.contrastive import draw_by_score
from mast.models.losses import giou_loss, mean_over_processes, over_positives

_CELLS = 7  # per side of a region, as in Faster R-CNN
_WIDTH = 4  # of the two layers, in channels of the pyramid: 1,024 for 256, as in Faster R-CNN
# how much of a region one unit of correction moves and stretches; as in Faster R-CNN
_SHIFT, _STRETCH = 0.1, 0.2
BACKGROUND_IOU = 0.3  # a region that overlaps every box by less is background
_CALL_IOU = 0.5  # a region is a call if it overlaps one by this
_LOG_SIZE = 4.0  # largest correction of a size: 55 times


class SecondLookOutput(NamedTuple):
    """What a second look says about K regions of each image."""

    vectors: Tensor  # (B, K, D)
    logits: Tensor  # (B, K) float32, of being a call
    boxes: Tensor  # (B, K, 4) float32, corrected, not clipped


class Regions(NamedTuple):
    """What the second look learns from."""

    boxes: Tensor  # (B, K, 4)
    valid: Tensor  # (B, K) bool
    overlap: Tensor  # (B, K) IoU with the best true box
    true: Tensor  # (B, K, 4) that box

    @property
    def positive(self) -> Tensor:
        """(B, K) which are calls."""
        return self.valid & (self.overlap >= _CALL_IOU)


class SecondLook(nn.Module):
    """See the module docstring.

    Args:
        channels: of the pyramid.
        strides: spectrogram cells per cell of each level, in time and frequency, finest first.
    """

    def __init__(self, channels: int, strides: Sequence[tuple[float, float]]) -> None:
        super().__init__()
        self.strides = tuple(strides)
        self.width = _WIDTH * channels
        self.first = nn.Linear(channels * _CELLS * _CELLS, self.width)
        self.second = nn.Linear(self.width, self.width)
        self.verdict = nn.Linear(self.width, 1)
        self.correction = nn.Linear(self.width, 4)
        for last in (self.verdict, self.correction):  # begins undecided, with the proposals as they are
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def vectors(self, levels: Sequence[Tensor], boxes: Tensor) -> Tensor:
        """Pyramid levels, finest first, and (B, K, 4) regions in cells → (B, K, D)."""
        pooled = torch.stack(
            [
                align_boxes(level, boxes, strides, cells=(_CELLS, _CELLS), samples=2)
                for level, strides in zip(levels, self.strides, strict=True)
            ]
        ).sum(dim=0)  # (B, K, C, 7, 7)
        return F.relu(self.second(F.relu(self.first(pooled.flatten(2)))))

    def forward(self, levels: Sequence[Tensor], boxes: Tensor) -> SecondLookOutput:
        """The same → what it says about each region."""
        vectors = self.vectors(levels, boxes)
        correction = self.correction(vectors).float()
        centres, extents = centres_and_extents(boxes)
        centres = centres + _SHIFT * correction[..., :2] * extents
        half = extents * (_STRETCH * correction[..., 2:]).clamp(max=_LOG_SIZE).exp() / 2
        corrected = torch.cat([centres - half, centres + half], dim=-1)
        return SecondLookOutput(vectors, self.verdict(vectors).squeeze(-1).float(), corrected)


def choose_regions(
    truths: Truths, jittered: Tensor, proposals: Tensor, logits: Tensor, noise: Tensor, *, count: int
) -> Regions:
    """The true boxes, their jittered copies, and proposals drawn in proportion to their score.

    Regions whose best overlap is with a doubtful box do not count, unless they hardly overlap it.

    Args:
        truths: (B, M).
        jittered: (B, M, P, 4).
        proposals: (B, R, 4) of the head, inside the chunk.
        logits: (B, R) of their classification.
        noise: (B, R) uniform in [0, 1).
        count: proposals per image.

    Returns:
        K = M + M·P + ``count`` regions, in that order.
    """
    drawn = draw_by_score(logits, noise, count).indices
    chosen = proposals.gather(1, drawn[:, :, None].expand(-1, -1, 4))
    boxes = torch.cat([truths.boxes, jittered.flatten(1, 2), chosen], dim=1)  # (B, K, 4)
    copies = truths.sure[:, :, None].expand(jittered.shape[:3]).flatten(1, 2)
    valid = torch.cat([truths.sure, copies, torch.ones_like(drawn, dtype=torch.bool)], dim=1)
    overlaps = iou(boxes[:, None], truths.boxes[:, :, None]) * truths.valid[:, :, None]  # (B, M, K)
    overlap, owner = overlaps.max(dim=1)  # (B, K)
    true = truths.boxes.gather(1, owner[:, :, None].expand(-1, -1, 4))
    clear = truths.sure.gather(1, owner) | (overlap < BACKGROUND_IOU)
    return Regions(boxes, valid & clear, overlap, true)


def second_look_losses(
    looked: SecondLookOutput, regions: Regions, weights: Tensor | None
) -> dict[str, Tensor]:
    """Is it a call, over all regions, and GIoU of the corrected box, over the calls."""
    positive = regions.positive
    verdict = F.binary_cross_entropy_with_logits(looked.logits, positive.float(), reduction="none")
    place = giou_loss(looked.boxes, regions.true)
    counts = [mean_over_processes(some.sum().float()) for some in (regions.valid, positive)]
    return {
        "verdict": over_positives(verdict * regions.valid, weights, counts[0]),
        "correction": over_positives(place * positive, weights, counts[1]),
    }
