"""Several detectors that label together: boxes that they agree on become one, and count for more.

Detectors that were trained apart make different mistakes, even with one recipe. So what two of them find is right more
often than what either finds alone. Each box first gets the probability that its own detector's calibration gives it;
then boxes of different detectors that overlap are fused:

- the box is the mean of theirs, weighted by their probabilities (as in Weighted Boxes Fusion, Solovyev et al., 2021);
- the score is the mean probability, where a detector that did not find it counts as 0.

Beyond the paper, where one detector labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mast.arrays import FloatArray
from mast.errors import MastError
from mast.events import best_of_overlapping, match_boxes, pairwise_iou
from mast.grid import FrontEnd
from mast.hearing import HearingModel
from mast.models.card import ModelCard
from mast.models.decode import Detections

SAME_BOX = 0.5  # IoU from which boxes of two detectors are one; 0.3 to 0.6 labelled about equally well
_LEAST_PROBABILITY = 0.01  # boxes below this are not looked at; our choice


class Committee:
    """Several detectors as one, with boxes in the same cells; for labelling, not for shipping.

    Args:
        members: at least two, which hear the same band in the same chunks.
    """

    def __init__(self, members: Sequence[HearingModel]) -> None:
        first = members[0]
        for other in members[1:]:
            if other.front_end != first.front_end:
                raise MastError(
                    f"{other.folder}: hears another band than {first.folder}, so they cannot label together"
                )
        self.members = list(members)
        # boxes of several are drawn by no one's habit, and pass no one's threshold
        self.card: ModelCard = first.card.model_copy(update={"habit": None, "thresholds": {}})

    @property
    def front_end(self) -> FrontEnd:
        """Band and chunks."""
        return self.card.front_end

    def detect(
        self, sound: Tensor, *, score_threshold: float, nms_iou: float | None = None
    ) -> list[Detections]:
        """Boxes in each chunk of sound, best first; scores are mean probabilities.

        Args:
            sound: (B, samples), anywhere.
            score_threshold: minimum mean probability.
            nms_iou: of two boxes that overlap more than this, one stays; each member's own by default.
        """
        found = [self._found_by(member, sound, nms_iou) for member in self.members]
        fused = [fuse_boxes(own) for own in zip(*found, strict=True)]
        detections = []
        for boxes, scores in fused:
            kept = np.flatnonzero(scores >= score_threshold)
            if nms_iou is not None:
                alone = best_of_overlapping(
                    boxes[kept], scores[kept], threshold=nms_iou, overlap=pairwise_iou
                )
                kept = kept[alone]
            kept = kept[np.argsort(-scores[kept], kind="stable")]
            detections.append(Detections(torch.from_numpy(boxes[kept]), torch.from_numpy(scores[kept])))
        return detections

    def _found_by(
        self, member: HearingModel, sound: Tensor, nms_iou: float | None
    ) -> list[tuple[FloatArray, FloatArray]]:
        """A member's boxes and probabilities in each chunk."""
        calibration = member.card.probabilities
        least = calibration.least_score(_LEAST_PROBABILITY)
        if least is None:
            return [(np.empty((0, 4)), np.empty(0))] * len(sound)
        return [
            (boxes.double().cpu().numpy(), calibration.apply(scores.double().cpu().numpy()))
            for boxes, scores in member.detect(sound, score_threshold=least, nms_iou=nms_iou)
        ]


def fuse_boxes(found: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """Boxes (N, 4) and mean probabilities (N,) of what several detectors found in one chunk.

    A box joins the one of the detectors before it that it overlaps most, the most probable first; no two boxes of one
    detector become one.

    Args:
        found: of each detector, (K, 4) boxes and (K,) probabilities.

    >>> boxes, scores = fuse_boxes([(np.array([[0.0, 0, 10, 4]]), np.array([0.9])),
    ...                             (np.array([[1.0, 0, 10, 4], [20, 0, 30, 4]]), np.array([0.3, 0.4]))])
    >>> boxes.tolist(), scores.round(2).tolist()
    ([[0.25, 0.0, 10.0, 4.0], [20.0, 0.0, 30.0, 4.0]], [0.6, 0.2])
    """
    boxes, weights = np.empty((0, 4)), np.empty(0)
    for own_boxes, own_weights in found:
        same = match_boxes(boxes, own_boxes, own_weights, threshold=SAME_BOX)
        known, new = same.truth, same.prediction
        total = weights[known] + own_weights[new]
        share = (own_weights[new] / total)[:, None]
        boxes[known] = (1 - share) * boxes[known] + share * own_boxes[new]
        weights[known] = total
        apart = np.setdiff1d(np.arange(len(own_boxes)), new)
        boxes = np.concatenate([boxes, own_boxes[apart]])
        weights = np.concatenate([weights, own_weights[apart]])
    return boxes, weights / len(found)
