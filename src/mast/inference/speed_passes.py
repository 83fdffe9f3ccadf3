"""A recording searched at several speeds, and what is found at most of them.

To a detector, a call at another speed is another call: longer or shorter, lower or higher. Its mistakes change with
the speed, but the calls remain. So boxes found at all speeds are right more often than those found at one
(``results/thorough.json``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mast.arrays import FloatArray
from mast.grid import FrontEnd, events_to_cells, grid_to_events, in_band
from mast.inference.fusion import SAME_BOX, fuse_boxes
from mast.inference.pieces import Piece
from mast.inference.stitch import Embeddings, ScoredBoxes, Stitcher, without_nested
from mast.probability import expit, logits

# playing speeds of a thorough search, as shares of the band; chosen before anything was measured with them
SPEEDS = (1.0, 0.88, 1.13)
# added to the logit of a mean over the speeds. A speed that misses a call counts as 0, so the mean is less than the
# share of boxes that are right, on clips that the embedded model was not trained on (results/thorough_scores.json)
CAUTION = 0.5


class SpeedPass:
    """What is found in a recording that is played at one speed.

    Args:
        front_end: played at that speed.

    Attributes:
        end_s: where the sound heard so far ends.
    """

    def __init__(self, front_end: FrontEnd) -> None:
        self.front_end = front_end
        self.end_s = 0.0
        self._stitcher = Stitcher()
        self._done: list[ScoredBoxes] = []

    def add(self, piece: Piece, found: Sequence[ScoredBoxes]) -> None:
        """Take the next windows, and what was found in each."""
        for start_s, valid_s, inside in zip(piece.starts_s, piece.valid_s, found, strict=True):
            start, valid = start_s / self.front_end.hop_s, valid_s / self.front_end.hop_s
            heard = inside.boxes[:, 0] < valid  # what begins in the padding is not an event
            boxes, scores = inside.boxes[heard], inside.scores[heard]
            embeddings = None if inside.embeddings is None else inside.embeddings[heard]
            boxes[:, 2] = np.minimum(boxes[:, 2], valid)
            boxes[:, 0::2] += start
            done = self._stitcher.add(start, start + valid, boxes, scores, embeddings)
            if len(done.scores):  # most windows of a quiet day hold nothing
                self._done.append(done)
        self.end_s = piece.end_s

    def finish(self, nested: float) -> ScoredBoxes:
        """All events, in cells from the recording's start; scores are the detector's own.

        Args:
            nested: of two events that share more than this of the smaller one, the lower-scored is dropped; 1 for none.
        """
        parts = [*self._done, self._stitcher.finish()]
        boxes, scores = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        embeddings = [part.embeddings for part in parts if part.embeddings is not None]
        vectors = np.concatenate(embeddings) if embeddings else None
        if nested >= 1:
            return ScoredBoxes(boxes, scores, vectors)
        rows = without_nested(boxes, scores, nested)
        return ScoredBoxes(boxes[rows], scores[rows], None if vectors is None else vectors[rows])


class Events(NamedTuple):
    """What was found in a recording.

    Attributes:
        boxes: (N, 4) rows ``start_s, low_hz, end_s, high_hz``.
        scores: (N,) probabilities, where the detector was calibrated.
        embeddings: (N, D), if requested.
    """

    boxes: FloatArray
    scores: FloatArray
    embeddings: Embeddings | None = None


def combine_speeds(found: Sequence[Events], front_ends: Sequence[FrontEnd]) -> Events:
    """The fused boxes of all speeds; scores are probabilities again.

    They follow from the mean over the speeds at which a box lies in the band: a speed that moves high calls above the
    band cannot miss them.

    Args:
        found: events at each speed, the recording's own first.
        front_ends: at each of these speeds.
    """
    reference = front_ends[0]
    edges = reference.hz_to_bins([reference.low_hz, reference.high_hz])
    within = []
    for boxes, scores, _ in found:
        inside = in_band(boxes, reference)
        cells = events_to_cells(boxes[inside], reference)
        cells[:, 1::2] = np.clip(cells[:, 1::2], *edges)
        within.append((cells, scores[inside]))
    fused, means = fuse_boxes(within)
    tops = reference.hz_to_bins([one.high_hz for one in front_ends])
    heard = np.minimum(means * len(found) / _count_covering_bands(fused, tops), 1.0)
    return Events(grid_to_events(fused, reference), expit(logits(heard) + CAUTION))


def _count_covering_bands(boxes: FloatArray, tops: FloatArray) -> FloatArray:
    """(N,) number of bands, given by their upper edges (S,), that hold enough of a box for it to be found there."""
    low, high = boxes[:, 1, None], boxes[:, 3, None]
    return np.asarray((np.minimum(high, tops) - low >= SAME_BOX * (high - low)).sum(axis=1))
