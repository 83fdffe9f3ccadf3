"""Which point is responsible for which true box: ATSS (default) or centre sampling (App. "Architecture Details").

Both work on the whole batch at once, do not look at the predictions, and never wait for the GPU. Both return
``owner`` (B, R): the row of the truth each point answers for, −1 for background.

Every truth gets at least one point (our choice): neither rule gives one to a box that lies between points or
under a better-fitting neighbour, and such a box would be taught as background.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mast.models.boxes import PaddedBoxes, centres_and_extents, iou
from mast.models.points import Points, anchor_boxes

_ROUNDS = 4  # of give_every_truth_a_point
_OTHER_LEVEL = 1e3  # costs more than any distance within a level (at most 1024 strides)


def assign_atss(points: Points, truths: PaddedBoxes, *, top_k: int = 9) -> Tensor:
    """Adaptive Training Sample Selection (Zhang et al. 2020); a point's anchor is its starting box.

    Distances are counted in strides, separately in time and in frequency, so that candidates surround a box
    evenly on the grid.

    Args:
        points: R points.
        truths: (B, M) boxes.
        top_k: candidates per truth and level (9, as in ATSS).

    Returns:
        (B, R) int64.
    """
    centres, _ = centres_and_extents(truths.boxes)  # (B, M, 2)
    # 1. candidates: on each level the top_k points nearest to the truth's centre
    distance = _distance_in_strides(points, centres)  # (B, M, R)
    candidates, start = [], 0
    for count in points.counts:
        nearest = distance[:, :, start : start + count].topk(min(top_k, count), dim=2, largest=False).indices
        candidates.append(nearest + start)
        start += count
    candidate = torch.cat(candidates, dim=2)  # (B, M, K)
    # 2. how well each candidate's anchor fits the truth
    overlap = iou(anchor_boxes(points)[candidate], truths.boxes[:, :, None])  # (B, M, K)
    # 3. threshold of this truth: mean + standard deviation over its candidates
    threshold = overlap.mean(2, keepdim=True) + overlap.std(2, keepdim=True)
    # 4. positives: fit at least that well, and lie inside the truth
    positive = (overlap >= threshold) & _inside(points.centres[candidate], truths.boxes[:, :, None])
    positive &= truths.valid[:, :, None]
    # 5. a point wanted by several truths goes to the one its anchor fits best
    fit = torch.full_like(distance, -1.0).scatter(2, candidate, torch.where(positive, overlap, -1.0))
    best, owner = fit.max(dim=1)  # (B, R)
    owner = torch.where(best >= 0, owner, -1)
    return give_every_truth_a_point(owner, points, truths, _best_fitting_level(points, truths.boxes))


def assign_centre_sampling(
    points: Points, truths: PaddedBoxes, *, radius: float = 1.5, first_range: float = 8.0
) -> Tensor:
    """FCOS centre sampling: the points near a box's centre, on the level that suits its size.

    Args:
        points: R points.
        truths: (B, M) boxes.
        radius: how far from the centre, in strides of the level, along each axis (1.5, as in FCOS).
        first_range: the finest level takes boxes up to this many of its strides from centre to edge along
            both axes, each further level twice as many, the last all others (8: FCOS's 64 px at stride 8).

    Returns:
        (B, R) int64.
    """
    centres, extents = centres_and_extents(truths.boxes)  # (B, M, 2)
    reach = (extents / 2 / points.strides[0]).amax(dim=2)  # (B, M) centre to edge, in finest strides
    home = torch.ceil(torch.log2((reach / first_range).clamp(min=1.0)))  # (B, M)
    home = home.clamp(max=len(points.counts) - 1).long()
    offset = (points.centres - centres[:, :, None]).abs() / points.strides  # (B, M, R, 2)
    near = (offset < radius).all(dim=3)
    inside = _inside(points.centres, truths.boxes[:, :, None])
    positive = near & inside & (points.level == home[:, :, None]) & truths.valid[:, :, None]  # (B, M, R)
    # a point wanted by several truths goes to the smallest
    area = (extents[..., 0] * extents[..., 1])[:, :, None]
    smallest, owner = torch.where(positive, area, torch.inf).min(dim=1)  # (B, R)
    owner = torch.where(smallest.isfinite(), owner, -1)
    return give_every_truth_a_point(owner, points, truths, home)


def give_every_truth_a_point(owner: Tensor, points: Points, truths: PaddedBoxes, home: Tensor) -> Tensor:
    """Let each truth that owns no point take the nearest free one, on its own level if there is one.

    Truths that want the same point settle it by distance (then by order) and the others look again, four
    times in all: enough unless more than four truths are left over at one place, that is, the same box
    drawn again and again.

    Args:
        owner: (B, R) as the rule left it.
        points: R points.
        truths: (B, M) boxes.
        home: (B, M) the level that suits each truth.

    Returns:
        (B, R).
    """
    b, m = truths.valid.shape
    centres, _ = centres_and_extents(truths.boxes)
    cost = _distance_in_strides(points, centres)  # (B, M, R)
    cost = cost + _OTHER_LEVEL * (points.level - home[:, :, None]).abs()
    order = torch.arange(m, device=owner.device)
    nobody = torch.full((b, 1), -1, device=owner.device)
    for _ in range(_ROUNDS):
        owned = torch.zeros(b, m + 1, dtype=torch.long, device=owner.device)
        owned = owned.scatter_add(1, owner + 1, torch.ones_like(owner))[:, 1:]  # (B, M) points per truth
        needy = truths.valid & (owned == 0)
        price, place = cost.masked_fill(owner[:, None] >= 0, torch.inf).min(dim=2)  # (B, M)
        # rival[b, i, j]: truth j wants the same place as truth i, and comes first
        same = needy[:, None, :] & (place[:, :, None] == place[:, None, :])
        nearer = price[:, None, :] < price[:, :, None]
        tied = (price[:, None, :] == price[:, :, None]) & (order[None, :] < order[:, None])
        wins = needy & price.isfinite() & ~(same & (nearer | tied)).any(dim=2)
        # losers write into one extra place behind the last point
        place = torch.where(wins, place, owner.shape[1])
        owner = torch.cat([owner, nobody], dim=1).scatter(1, place, order.expand(b, m))[:, :-1]
    return owner


def _distance_in_strides(points: Points, centres: Tensor) -> Tensor:
    """(B, M, 2) centres → (B, M, R) Euclidean distance to each point, in strides of the point's level."""
    time = (points.centres[:, 0] - centres[..., :1]) / points.strides[:, 0]
    frequency = (points.centres[:, 1] - centres[..., 1:]) / points.strides[:, 1]
    return torch.hypot(time, frequency)


def _inside(centres: Tensor, boxes: Tensor) -> Tensor:
    """(…, 2), (…, 4) → (…) bool, strictly inside."""
    return ((centres > boxes[..., :2]) & (centres < boxes[..., 2:])).all(dim=-1)


def _best_fitting_level(points: Points, boxes: Tensor) -> Tensor:
    """(B, M, 4) → (B, M) the level whose anchor, laid on the box's centre, overlaps it most."""
    first = [sum(points.counts[:level]) for level in range(len(points.counts))]
    anchors = torch.stack([points.anchors[row] for row in first])  # (levels, 2)
    _, extents = centres_and_extents(boxes)
    shared = torch.minimum(extents[:, :, None], anchors).prod(dim=3)  # (B, M, levels)
    union = extents.prod(dim=2)[:, :, None] + anchors.prod(dim=1) - shared
    return (shared / union).argmax(dim=2)
