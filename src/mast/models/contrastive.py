"""The box-level contrastive loss L_con (Sec. Methods): events alike under jitter, unlike the background.

    L_con = 1/N₊ Σ_i −log  Σ_{p∈P_i} exp(⟨z_i, p⟩/τ) / ( Σ_{p∈P_i} exp(⟨z_i, p⟩/τ) + Σ_{n∈N} exp(⟨z_i, n⟩/τ) )

z_i is the normalised projection of the features pooled from true box i; P_i those of jittered copies of the
box; N those of proposals with low IoU, from the whole batch (a chunk with no event gives background too).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mast.models.boxes import PaddedBoxes, centres_and_extents, clip_boxes, iou


class Negatives(NamedTuple):
    """Background regions of each image."""

    boxes: Tensor  # (B, K, 4)
    valid: Tensor  # (B, K) bool; False where an image has fewer than K low-IoU proposals


class Projection(nn.Sequential):
    """Pooled features (256) → normalised embedding (128), Table "Detector fine-tuning hyperparameters"."""

    def __init__(self, channels: int = 256, dimension: int = 128) -> None:
        super().__init__(nn.Linear(channels, channels), nn.ReLU(inplace=True), nn.Linear(channels, dimension))

    def forward(self, pooled: Tensor) -> Tensor:
        """(…, C) → (…, dimension), length one."""
        projected: Tensor = self[2](self[1](self[0](pooled)))
        return F.normalize(projected, dim=-1)


def contrastive_loss(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    anchor_valid: Tensor,
    negative_valid: Tensor,
    temperature: float = 0.1,
) -> Tensor:
    """The bracket of the formula for each anchor, 0 for padding; the caller divides by N₊.

    Args:
        anchors: (A, E) z_i, normalised.
        positives: (A, P, E) the P_i.
        negatives: (N, E).
        anchor_valid: (A,) bool.
        negative_valid: (N,) bool. With no negative at all the loss is 0, as the formula gives.
        temperature: τ (0.1, Table "Detector fine-tuning hyperparameters").

    Returns:
        (A,).
    """
    to_positives = torch.einsum("ae,ape->ap", anchors, positives) / temperature
    to_negatives = (anchors @ negatives.T / temperature).masked_fill(~negative_valid, -torch.inf)  # (A, N)
    numerator = to_positives.logsumexp(dim=1)
    denominator = torch.cat([to_positives, to_negatives], dim=1).logsumexp(dim=1)
    return (denominator - numerator) * anchor_valid


def jitter_boxes(boxes: Tensor, noise: Tensor, *, amount: float, chunk: tuple[int, int]) -> Tensor:
    """Copies of boxes, moved and stretched a little in time and in frequency, clipped to the chunk.

    Args:
        boxes: (B, M, 4).
        noise: (B, M, P, 4) uniform in [−1, 1): shift in time and frequency, stretch in time and frequency.
        amount: largest shift and largest stretch, as a share of the box (0.1: IoU of about 0.7 or more).
        chunk: frames and bins of the chunk.

    Returns:
        (B, M, P, 4).
    """
    centres, extents = centres_and_extents(boxes[:, :, None])
    centres = centres + amount * noise[..., :2] * extents
    half = extents * (1 + amount * noise[..., 2:]) / 2
    return clip_boxes(torch.cat([centres - half, centres + half], dim=-1), chunk)


def sample_negatives(
    proposals: Tensor,
    logits: Tensor,
    truths: PaddedBoxes,
    noise: Tensor,
    *,
    count: int = 32,
    below_iou: float,
) -> Negatives:
    """Draw proposals that overlap no truth, in proportion to their score: the harder, the likelier.

    Args:
        proposals: (B, R, 4) predicted boxes.
        logits: (B, R) of their classification.
        truths: (B, M).
        noise: (B, R) uniform in [0, 1).
        count: per image (32, Table "Detector fine-tuning hyperparameters").
        below_iou: what "low IoU" means.
    """
    overlap = iou(proposals[:, None], truths.boxes[:, :, None])  # (B, M, R)
    overlap = (overlap * truths.valid[:, :, None]).amax(dim=1)  # (B, R)
    drawn = draw_by_score(logits.masked_fill(overlap >= below_iou, -torch.inf), noise, count)
    chosen = proposals.gather(1, drawn.indices[:, :, None].expand(-1, -1, 4))
    return Negatives(chosen, drawn.values.isfinite())


def draw_by_score(logits: Tensor, noise: Tensor, count: int) -> torch.return_types.topk:
    """Draw without replacement in proportion to the scores: (B, R), (B, R) → values and indices (B, count).

    Those whose logit is −∞ come last, with a value of −∞. Fewer than ``count`` candidates: all of them.
    """
    # the largest of log p + Gumbel noise are such a draw
    gumbel = -torch.log(-torch.log(noise.clamp(1e-7, 1 - 1e-7)))
    return (F.logsigmoid(logits) + gumbel).topk(min(count, logits.shape[1]), dim=1)
