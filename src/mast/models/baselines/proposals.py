"""Faster R-CNN's region proposals, of a whole batch at once.

torchvision suppresses overlaps picture by picture, and on a GPU it decides box by box within each: 32 pictures of 7,000
boxes wait for each other in a long line. :func:`nms_mask` finds which boxes stay for all of them at the same time.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torchvision.models.detection.rpn import RegionProposalNetwork
from torchvision.ops import clip_boxes_to_image

from mast.models.boxes import iou

_PAIRS = 1 << 26  # of boxes compared at once: 64 million take 2 GB for a moment


class ProposalNetwork(RegionProposalNetwork):  # type: ignore[misc]
    """torchvision's, with proposals chosen by :func:`nms_mask` on a GPU; on a CPU torchvision's own way is faster."""

    def filter_proposals(
        self,
        proposals: Tensor,
        objectness: Tensor,
        image_shapes: list[tuple[int, int]],
        num_anchors_per_level: list[int],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The best boxes of each level that overlap no better one, then the best of all levels together.

        Args:
            proposals: (B, R, 4) pixels.
            objectness: (B, R) logits.
            image_shapes: height and width of each picture, all alike.
            num_anchors_per_level: boxes of each level; together R.

        Returns:
            For each picture its boxes by descending score, and the scores.
        """
        if proposals.device.type != "cuda":
            chosen: tuple[list[Tensor], list[Tensor]] = super().filter_proposals(
                proposals, objectness, image_shapes, num_anchors_per_level
            )
            return chosen
        return self.filter_batch(proposals, objectness, image_shapes[0], num_anchors_per_level)

    def filter_batch(
        self, proposals: Tensor, objectness: Tensor, shape: tuple[int, int], counts: list[int]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """``filter_proposals`` for all pictures together, one level after the other, on any device."""
        proposals, scores = clip_boxes_to_image(proposals.detach(), shape), objectness.detach().sigmoid()
        best, ranks = [], []
        for boxes, own in zip(torch.split(proposals, counts, 1), torch.split(scores, counts, 1), strict=True):
            # (B, K) by descending score
            top, index = own.topk(min(self.pre_nms_top_n(), own.shape[1]), dim=1)
            boxes = boxes.gather(1, index[:, :, None].expand(-1, -1, 4))
            large = ((boxes[..., 2:] - boxes[..., :2]) >= self.min_size).all(dim=2)
            best.append(boxes)
            ranks.append(top.where(nms_mask(boxes, large, self.nms_thresh), -1.0))
        together = torch.cat(ranks, dim=1)
        together, order = together.topk(min(self.post_nms_top_n(), together.shape[1]), dim=1)
        boxes = torch.cat(best, dim=1).gather(1, order[:, :, None].expand(-1, -1, 4))
        lengths = (together >= 0).sum(dim=1).tolist()
        pairs = list(zip(boxes, together, lengths, strict=True))
        return [own[:n] for own, _, n in pairs], [own[:n] for _, own, n in pairs]


def nms_mask(boxes: Tensor, candidates: Tensor, iou_threshold: float) -> Tensor:
    """Greedy non-maximum suppression of many pictures at once.

    A box stays if no better box that stays overlaps it. This rule has one solution: the best box stays, so the
    second is decided, and so on. Applying it to all boxes again and again, with all of them kept at first, decides at
    least one more box each time, and in practice all of them after a few rounds.

    Args:
        boxes: (B, K, 4), each picture's by descending score.
        candidates: (B, K) bool, those that may stay; the others suppress none.
        iou_threshold: boxes that overlap more suppress each other.

    Returns:
        (B, K) bool, those that stay.
    """
    at_once = max(1, _PAIRS // max(1, boxes.shape[1] ** 2))
    groups = zip(torch.split(boxes, at_once), torch.split(candidates, at_once), strict=True)
    return torch.cat([_nms_mask(own, may, iou_threshold) for own, may in groups])


def _nms_mask(boxes: Tensor, candidates: Tensor, iou_threshold: float) -> Tensor:
    overlaps = iou(boxes[:, :, None], boxes[:, None]) > iou_threshold  # (B, K, K)
    number = torch.half if boxes.device.type == "cuda" else torch.float
    # (B, K, K) of the better one, the worse one
    suppresses = overlaps.triu(diagonal=1).to(number)
    stay = candidates
    while True:
        suppressed = torch.bmm(stay[:, None].to(number), suppresses)[:, 0] > 0
        now = candidates & ~suppressed
        if torch.equal(now, stay):
            return now
        stay = now
