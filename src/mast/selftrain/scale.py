"""Scores of a detector that learnt from its own boxes, on the scale that they had before.

Its scores have risen, rightly or not, and without labels nothing can tell. But the same sound holds as many calls as
before. So scores are shifted until as many boxes are above the threshold as before, and about as many above any higher
one: which boxes the detector reports may change, but not how many.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mast.arrays import FloatArray
from mast.probability import Calibration, StoredCalibration, expit, logits

_MIN_PAIRS = 10  # below which only the threshold is moved
_STEEPEST = 4.0  # our choice: a few boxes with similar scores could give any slope


class Shift(NamedTuple):
    """How present scores become earlier ones: ``slope · logit(score) + intercept``, as a logit."""

    slope: float = 1.0
    intercept: float = 0.0

    def to_new_score(self, score: float) -> float:
        """The present score that was this one before."""
        return float(expit((logits(np.array([score])) - self.intercept) / self.slope)[0])


def match_box_counts(before: FloatArray, now: FloatArray, threshold: float) -> Shift:
    """The shift after which as many boxes score above the threshold as before.

    Args:
        before: scores of all boxes that the starting detector found in some sound.
        now: scores of those that the detector finds there now.
        threshold: of the starting detector, on its own scale.
    """
    before, now = np.sort(before)[::-1], np.sort(now)[::-1]
    count = int((before >= threshold).sum())
    if not count or not len(now):
        return Shift()
    pairs = min(2 * count, len(before), len(now))
    x, y = logits(now[:pairs]), logits(before[:pairs])
    slope = 1.0
    if pairs >= _MIN_PAIRS and x.std() > 0:
        slope = float(np.clip(np.polyfit(x, y, 1)[0], 1 / _STEEPEST, _STEEPEST))
    last = min(count, len(now))
    below = now[last] if last < len(now) else now[last - 1] / 2
    middle = (float(logits(now[last - 1 : last])[0]) + float(logits(np.array([below]))[0])) / 2
    return Shift(slope, float(logits(np.array([threshold]))[0]) - slope * middle)


def shift_calibration(stored: StoredCalibration, shift: Shift) -> StoredCalibration:
    """What present scores mean, given what the earlier ones meant."""
    curve = tuple(
        point.model_copy(update={"threshold": shift.to_new_score(point.threshold)}) for point in stored.curve
    )
    return stored.model_copy(
        update={
            "calibration": _shift_scale(stored.calibration, shift),
            "least_score": shift.to_new_score(stored.least_score),
            "curve": curve,
        }
    )


def _shift_scale(scale: Calibration, shift: Shift) -> Calibration:
    if scale.method == "isotonic":
        knots = tuple(shift.to_new_score(score) for score in scale.knot_scores)
        return scale.model_copy(update={"knot_scores": knots})
    return scale.model_copy(
        update={
            "method": "platt",
            "slope": scale.slope * shift.slope,
            "intercept": scale.slope * shift.intercept + scale.intercept,
        }
    )
