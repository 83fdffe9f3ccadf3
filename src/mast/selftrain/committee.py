"""Several detectors that label together: boxes that they agree on become one, and count for more.

Each box first gets the probability that its own detector's calibration gives it; then boxes of different detectors that
overlap are fused (:mod:`mast.inference.fusion`). Beyond the paper, where one detector labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from mast.arrays import FloatArray
from mast.errors import MastError
from mast.grid import FrontEnd
from mast.inference.fusion import fuse_boxes, fusion_threshold
from mast.loaded_model import LoadedModel
from mast.models.card import ModelCard
from mast.models.decode import Detections
from mast.selftrain.thorough import ThoroughModel, best_boxes


class Committee:
    """Several detectors as one, with boxes in the same cells; for labelling, not for shipping.

    Args:
        members: at least two, with the same band and the same chunks.
    """

    def __init__(self, members: Sequence[LoadedModel | ThoroughModel]) -> None:
        first = members[0]
        for other in members[1:]:
            if other.front_end != first.front_end:
                raise MastError(
                    f"{other.folder}: searches another band than {first.folder}, so they cannot label together"
                )
        self.members = list(members)
        # boxes of several detectors follow no single detector's habit or threshold
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
        found = [self._detect_with(member, sound, nms_iou) for member in self.members]
        fused = [fuse_boxes(own) for own in zip(*found, strict=True)]
        return [
            best_boxes(boxes, scores, self.card, min_score=score_threshold, nms_iou=nms_iou)
            for boxes, scores in fused
        ]

    def _detect_with(
        self, member: LoadedModel | ThoroughModel, sound: Tensor, nms_iou: float | None
    ) -> list[tuple[FloatArray, FloatArray]]:
        """A member's boxes and probabilities in each chunk."""
        calibration, threshold = member.card.probabilities, fusion_threshold(member.card)
        if threshold is None:
            return [(np.empty((0, 4)), np.empty(0))] * len(sound)
        return [
            (boxes.double().cpu().numpy(), calibration.apply(scores.double().cpu().numpy()))
            for boxes, scores in member.detect(sound, score_threshold=threshold, nms_iou=nms_iou)
        ]
