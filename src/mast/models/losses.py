"""The terms of L_det (Sec. Methods), each a pure function of tensors that broadcast over images and points.

    L_det = λ_cls L_cls + λ_box L_box + λ_iou L_iou  (+ centreness)

Every function returns one value per point, (…); :func:`over_positives` turns these into the batch's loss.
With no true box every point is background and the box terms are sums over nothing: zero, graph intact.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from mast.models.boxes import centres_and_extents


def quality_focal_loss(logits: Tensor, quality: Tensor, *, beta: float = 2.0) -> Tensor:
    """Quality Focal Loss (Li et al. 2020): ``|y − σ|^β · BCE(σ, y)`` for a quality y in [0, 1].

    Args:
        logits: (…).
        quality: (…) IoU of the predicted with the true box at a positive point, 0 at background.
        beta: how much less a nearly right point counts (2, as in QFL).
    """
    distance = (quality - logits.sigmoid()).abs()
    return distance.pow(beta) * F.binary_cross_entropy_with_logits(logits, quality, reduction="none")


def focal_loss(logits: Tensor, positive: Tensor, *, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
    """Focal loss (Lin et al. 2017).

    Args:
        logits: (…).
        positive: (…) bool.
        alpha: weight of the positives, 1 − α of the background (0.25).
        gamma: how much less an easy point counts (2).
    """
    target = positive.to(logits.dtype)
    p = logits.sigmoid()
    wrong = torch.where(positive, 1 - p, p)
    weight = torch.where(positive, alpha, 1 - alpha)
    return weight * wrong.pow(gamma) * F.binary_cross_entropy_with_logits(logits, target, reduction="none")


def giou_loss(predicted: Tensor, true: Tensor, *, eps: float = 1e-7) -> Tensor:
    """L_iou = 1 − GIoU (Rezatofighi et al. 2019) of paired boxes: (…, 4), (…, 4) → (…).

    torchvision's function picks the overlapping pairs by a mask, for which the CPU has to wait until the GPU knows how
    many there are, and so does the gradient of ``prod``. This one computes all pairs and waits for nothing.
    """
    inner_low, inner_high = torch.maximum(predicted, true)[..., :2], torch.minimum(predicted, true)[..., 2:]
    outer_low, outer_high = torch.minimum(predicted, true)[..., :2], torch.maximum(predicted, true)[..., 2:]
    intersection = _area((inner_high - inner_low).clamp(min=0))
    hull = _area(outer_high - outer_low)
    union = sum(_area(boxes[..., 2:] - boxes[..., :2]) for boxes in (predicted, true)) - intersection
    return 1 - intersection / (union + eps) + (hull - union) / (hull + eps)


def _area(extents: Tensor) -> Tensor:
    return extents[..., 0] * extents[..., 1]


def corner_loss(predicted: Tensor, true: Tensor, anchors: Tensor) -> Tensor:
    """L_box: ℓ1 between the corners, as a share of the point's starting box, averaged over the four.

    Dividing by the starting box (8 strides a side) makes time and frequency, coarse and fine levels alike;
    dividing by the true box would let one-bin events outweigh everything (our choice).

    Args:
        predicted: (…, 4).
        true: (…, 4).
        anchors: (…, 2) extents of the starting boxes.
    """
    return ((predicted - true).abs() / torch.cat([anchors, anchors], dim=-1)).mean(dim=-1)


def centreness_target(centres: Tensor, strides: Tensor, true: Tensor) -> Tensor:
    """FCOS centreness: √(min(l, r)/max(l, r) · min(b, t)/max(b, t)) of a point in its box, in [0, 1].

    A box narrower than two strides is measured as if it were two strides wide (our choice): the point nearest
    to a tiny box may lie outside it, and a centreness of 0 would silence it for ever; so it has at least 1/3.

    Args:
        centres: (…, 2) points.
        strides: (…, 2) of their levels.
        true: (…, 4).
    """
    box_centres, extents = centres_and_extents(true)
    half = torch.maximum(extents / 2, strides)
    off = (centres - box_centres).abs()
    ratio = ((half - off) / (half + off)).clamp(min=0)
    return ratio.prod(dim=-1).sqrt()


def centreness_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Binary cross-entropy of the centreness branch: (…), (…) → (…)."""
    return F.binary_cross_entropy_with_logits(logits, target, reduction="none")


def over_positives(per_point: Tensor, weights: Tensor | None, n_positives: Tensor) -> Tensor:
    """Sum over points and images, divided by the number of positives.

    Args:
        per_point: (B, R), zero where a point does not count.
        weights: (B,) of the images, ḡ(S) in Stage 1 of self-training; 1 by default.
        n_positives: () of the whole batch, see :func:`mean_over_processes`.
    """
    per_image = per_point.sum(dim=1)  # (B,)
    if weights is not None:
        per_image = per_image * weights
    return per_image.sum() / n_positives.clamp(min=1)


def mean_over_processes(count: Tensor) -> Tensor:
    """A count averaged over the processes of a distributed run; itself in an ordinary one.

    Gradients are averaged over processes, so losses divided by this are those of the whole batch in one.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        count = count.clone()
        torch.distributed.all_reduce(count)
        count = count / torch.distributed.get_world_size()
    return count
