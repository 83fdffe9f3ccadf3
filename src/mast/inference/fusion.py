"""Boxes of several detectors, or of one that searched the same sound several times, as one list.

Detectors that were trained separately make different mistakes, and so does one that hears a recording at another speed.
What several of them find is right more often than what each finds alone. A fused box is the mean of theirs, weighted by
their probabilities (as in Weighted Boxes Fusion, Solovyev et al., 2021). Its score is the mean probability, where
detectors that did not find it count as 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mast.arrays import FloatArray
from mast.events import match_boxes
from mast.models.card import ModelCard

SAME_BOX = 0.5  # IoU from which boxes of two detectors are one; 0.3 to 0.6 labelled about equally well
MIN_PROBABILITY = 0.01  # boxes below this are ignored; our choice


def fusion_threshold(card: ModelCard) -> float | None:
    """The minimum score of boxes, on the detector's own scale; None where no box is likely enough.

    Not below the lowest score that its calibration was measured on: what a lower score means is not known.
    """
    threshold = card.probabilities.min_score(MIN_PROBABILITY)
    if threshold is None or card.calibration is None:
        return threshold
    return max(threshold, card.calibration.least_score)


def fuse_boxes(found: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """Boxes (N, 4) and mean probabilities (N,) of what several detectors found in one chunk.

    A box joins the box of the earlier detectors that it overlaps most, the most probable first; no two boxes of one
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
        share = np.divide(own_weights[new], total, out=np.full(len(total), 0.5), where=total > 0)[:, None]
        boxes[known] = (1 - share) * boxes[known] + share * own_boxes[new]
        weights[known] = total
        apart = np.setdiff1d(np.arange(len(own_boxes)), new)
        boxes = np.concatenate([boxes, own_boxes[apart]])
        weights = np.concatenate([weights, own_weights[apart]])
    return boxes, weights / len(found)
