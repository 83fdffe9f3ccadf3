"""What a choice is tried on: the user's recordings, each held back in turn, or stretches of the only one with boxes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mast.arrays import BoolArray, FloatArray, IntArray
from mast.evaluation.part_tables import PartTables

STRETCHES = 5  # of a single recording that are held back in turn


@dataclass(frozen=True, eq=False)
class Units:
    """Detections and boxes, grouped into the units that are held back in turn.

    Attributes:
        scores: of the detections, highest first.
        hit: which of them are right.
        of_found: the unit of each detection.
        of_truth: the unit of each true box.
        n: how many units there are. Recordings without boxes are among them: false alarms there count.
        stretches: whether units are stretches of the only recording with boxes.
    """

    scores: FloatArray
    hit: BoolArray
    of_found: IntArray
    of_truth: IntArray
    n: int
    stretches: bool

    def counts(self, thresholds: FloatArray | float = -np.inf) -> FloatArray:
        """(units, 3) right, found and true boxes at one threshold, or at one for each unit."""
        kept = self.scores >= np.broadcast_to(thresholds, self.n)[self.of_found]
        columns = (self.of_found[self.hit & kept], self.of_found[kept], self.of_truth)
        return np.stack([np.bincount(own, minlength=self.n) for own in columns], axis=1).astype(np.float64)


def units_of(part: PartTables) -> Units:
    """All detections of a part and its boxes, whatever the threshold."""
    outcome = part.match()
    truth, order = outcome.scene.truth, np.argsort(-outcome.scene.scores, kind="stable")
    of_truth, of_found = truth.recording.copy(), outcome.recording.copy()
    stretches = len(np.unique(truth.recording)) == 1
    if stretches:
        # stretches with equally many boxes; a detection belongs to the stretch that it begins in
        starts = np.sort(truth.boxes[:, 0])
        bounds = starts[[len(starts) * k // STRETCHES for k in range(1, STRETCHES)]]
        of_truth = np.searchsorted(bounds, truth.boxes[:, 0], side="right")
        of_found = np.searchsorted(bounds, outcome.scene.predictions.boxes[order, 0], side="right")
    of_found[outcome.hit] = of_truth[outcome.truth[outcome.hit]]
    n = max(len(part.recordings), STRETCHES)
    return Units(outcome.scores, outcome.hit, of_found, of_truth, n, stretches)
