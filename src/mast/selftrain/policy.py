"""The confidence policy q(·) of Π_q: one threshold for all recordings, or one for each.

The paper sets q on validation "to balance precision and coverage". The precision π_q it buys there need not hold
elsewhere: a box that scores just above q is believable among many sure ones, and hardly so in a recording that
holds nothing better. With ``adaptive = "recording"`` the threshold rises where that is the case (our own):

1. On in-domain validation, learn p(s), the chance that a box of score s ≥ q is right (Platt scaling), and π_q, the
   share of those boxes that is right.
2. In an unlabelled recording, the mean of p(s) over the boxes at or above a threshold is the precision to be
   expected of them. q(S) is the lowest threshold, from q upwards, at which it is at least π_q.
3. It never rises above the model's own threshold: what the detector would report by itself is always kept, or a
   new site where every score is lower would teach nothing at all.

So q ≤ q(S) ≤ the model's own threshold, no unlabelled recording's labels are needed, and a recording that looks like
validation keeps q.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mast.arrays import FloatArray
from mast.evaluation.calibration import calibrate
from mast.evaluation.part_tables import PartTables
from mast.probability import Calibration


class Trust(NamedTuple):
    """What validation says about a detector's boxes at or above q."""

    calibration: Calibration  # score → chance of being right
    precision: float  # π_q


def measure_trust(validation: PartTables) -> Trust | None:
    """Learn from validation what the scores of a detector are worth; None where it found nothing there.

    Args:
        validation: validation chunks, with every box at or above q.
    """
    if validation.found.empty:
        return None
    outcome = validation.match()
    return Trust(calibrate(outcome, "platt"), float(outcome.hit.mean()))


def recording_thresholds(
    scores: ArrayLike,
    probabilities: ArrayLike,
    recordings: ArrayLike,
    *,
    min_threshold: float,
    max_threshold: float,
    precision: float,
) -> FloatArray:
    """q(S) of each box's recording: the lowest threshold at which the expected precision is reached.

    Args:
        scores: (N,) of boxes, all at least ``min_threshold``.
        probabilities: (N,) chance of each being right; must not fall as the score rises.
        recordings: (N,) whole numbers, the recording of each box.
        min_threshold: q.
        max_threshold: the highest threshold there may be; at least ``min_threshold``.
        precision: expected of the boxes that a recording keeps.

    Returns:
        (N,) within ``min_threshold`` and ``max_threshold``; boxes of one recording share one value.

    >>> limits = {"min_threshold": 0.1, "max_threshold": 0.5}
    >>> recording_thresholds([0.9, 0.2, 0.2], [0.9, 0.3, 0.3], [0, 0, 1], **limits, precision=0.6).tolist()
    [0.1, 0.1, 0.5]
    """
    s, p = np.asarray(scores, dtype=np.float64), np.asarray(probabilities, dtype=np.float64)
    group = np.asarray(recordings, dtype=np.int64)
    order = np.lexsort((-s, group))
    thresholds = np.full(len(s), max_threshold)
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        own = s[rows]  # descending
        expected = np.cumsum(p[rows]) / np.arange(1, len(rows) + 1)
        # equal scores are kept or dropped together
        together = np.append(own[1:] < own[:-1], True)[: len(own)]
        enough = np.flatnonzero(together & (expected >= precision))
        if len(enough):
            everything = enough[-1] == len(own) - 1
            thresholds[rows] = min_threshold if everything else min(float(own[enough[-1]]), max_threshold)
    return thresholds
