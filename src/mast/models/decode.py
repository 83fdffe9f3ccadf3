"""From the head's numbers to boxes, and from many boxes to few: decoding and class-agnostic NMS."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mast.models.architecture import LOG_SIZE
from mast.models.boxes import clip_boxes
from mast.models.kernels import nms
from mast.models.nested import CANDIDATES, MAX_BOXES, drop_nested
from mast.models.points import Points


class Detections(NamedTuple):
    """Boxes found in one chunk, best first."""

    boxes: Tensor  # (K, 4) cells, inside the chunk
    scores: Tensor  # (K,) in (0, 1)


def decode_boxes(regression: Tensor, points: Points) -> Tensor:
    """The boxes that the head's regression stands for (see ``head.py``).

    Args:
        regression: (B, R, 4) centre offset in strides and log size, each time then frequency.
        points: R points.

    Returns:
        (B, R, 4), not clipped.
    """
    centres = points.centres + regression[..., :2] * points.strides
    half = points.anchors * regression[..., 2:].clamp(*LOG_SIZE).exp() / 2
    return torch.cat([centres - half, centres + half], dim=-1)


def box_scores(logits: Tensor, centreness: Tensor) -> Tensor:
    """σ(classification) · σ(centreness), docs/paper_notes.md 9: (…), (…) → (…).

    The plain product, as in the FCOS paper; its square root (torchvision) ranks boxes alike, but the paper's
    pseudo-label threshold of 0.10 refers to the product.
    """
    return logits.sigmoid() * centreness.sigmoid()


def select_boxes(
    boxes: Tensor,
    scores: Tensor,
    *,
    chunk: tuple[int, int],
    score_threshold: float = 0.05,
    nms_iou: float = 0.5,
    nested: float = 1.0,
    max_boxes: int = MAX_BOXES,
) -> list[Detections]:
    """Threshold, clip, class-agnostic NMS, no box inside another if requested, and at most ``max_boxes``, per image.

    Args:
        boxes: (B, R, 4).
        scores: (B, R).
        chunk: frames and bins; boxes are clipped to it, and dropped where nothing is left.
        score_threshold: boxes scored lower are dropped.
        nms_iou: of two boxes that overlap more, the lower-scored is dropped.
        nested: the same for two that are left and share more than this of the smaller one; 1 for never.
        max_boxes: kept per image.

    Returns:
        For each image its boxes in descending score.
    """
    b = len(boxes)
    top, index = scores.topk(min(CANDIDATES, scores.shape[1]), dim=1)  # (B, K)
    candidates = clip_boxes(boxes.gather(1, index[:, :, None].expand(-1, -1, 4)), chunk)
    keep = (top >= score_threshold) & (candidates[..., 2:] > candidates[..., :2]).all(dim=2)
    image = torch.arange(b, device=boxes.device)[:, None].expand_as(top)[keep]  # (N,)
    candidates, top = candidates[keep], top[keep]
    # One NMS for the batch: images laid side by side along time. In float64 the shift is exact, so that what
    # is kept does not depend on which chunks share a batch.
    apart = candidates.to(torch.float64, copy=True)  # a copy, because it is shifted below
    apart[:, 0::2] += image[:, None] * (chunk[0] + 1.0)
    kept = nms(apart, top.double(), nms_iou)  # by descending score over all images
    kept = kept[image[kept].argsort(stable=True)]
    counts: list[int] = torch.bincount(image[kept], minlength=b).tolist()
    if nested < 1:
        parts = zip(
            torch.split(candidates[kept].double().cpu(), counts), torch.split(kept, counts), strict=True
        )
        alone = [
            rows[torch.from_numpy(drop_nested(own.numpy(), nested)).to(rows.device)] for own, rows in parts
        ]
        kept, counts = torch.cat(alone), [len(rows) for rows in alone]
    image_boxes, image_scores = torch.split(candidates[kept], counts), torch.split(top[kept], counts)
    return [Detections(x[:max_boxes], s[:max_boxes]) for x, s in zip(image_boxes, image_scores, strict=True)]
