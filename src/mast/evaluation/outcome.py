"""Which predictions are right: one-to-one matching, once for every score threshold.

Matching is by descending score, so what a prediction matches never depends on lower-scored ones. One
matching of all predictions therefore holds the answer for every threshold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mast.arrays import BoolArray, FloatArray, IntArray
from mast.evaluation.scene import Scene
from mast.events import OverlapMeasure, Pairs, match_pairs, overlapping_pairs, pairwise_iom, pairwise_iou

AP_IOUS: FloatArray = np.linspace(0.5, 0.95, 10)  # COCO's ten thresholds


@dataclass(frozen=True)
class Outcome:
    """What became of each prediction, in descending score (P) and of each truth (N).

    Attributes:
        scene: what was compared.
        scores: (P,) descending.
        recording: (P,) recording of each prediction.
        chunk: (P,) chunk of each prediction; a matched one counts in its truth's chunk.
        truth: (P,) the truth it matched at the scene's IoU threshold, −1 for none.
        iou: (P,) IoU of that match, 0 for none.
        hit_time: (P,) matched when only time is compared, at the same threshold.
        hit_iom: (P,) matched by intersection over the smaller box, at the same threshold.
        hit_at: (10, P) matched at each of :data:`AP_IOUS`.
    """

    scene: Scene
    scores: FloatArray
    recording: IntArray
    chunk: IntArray
    truth: IntArray
    iou: FloatArray
    hit_time: BoolArray
    hit_iom: BoolArray
    hit_at: BoolArray

    @property
    def hit(self) -> BoolArray:
        """(P,) matched at the scene's IoU threshold."""
        return self.truth >= 0

    def kept(self, threshold: float | None) -> int:
        """How many predictions score at or above the threshold (all without one): they are the first ones."""
        return len(self.scores) if threshold is None else int((self.scores >= threshold).sum())


def match_scene(scene: Scene) -> Outcome:
    """Match predictions to truths, one to one, by descending score.

    Of equal scores, the pair that overlaps most is matched first. Of truths that a prediction overlaps equally, it
    takes the last, which is what COCO's evaluator does. Equal scores are listed in the order recording name, then row.
    """
    order = np.argsort(-scene.scores, kind="stable")
    predictions = scene.predictions.boxes[order]
    recording = scene.predictions.recording[order]
    # truths backwards: the matcher takes the first of equals, COCO the last
    truths = scene.truth.boxes[::-1]
    truth_recording = scene.truth.recording[::-1]
    n_truth, n_predictions = len(truths), len(order)
    scores = scene.scores[order]

    def matched(pairs: Pairs) -> tuple[IntArray, FloatArray]:
        truth = np.full(n_predictions, -1, dtype=np.int64)
        overlap = np.zeros(n_predictions)
        matches = match_pairs(pairs, scores)
        truth[matches.prediction] = n_truth - 1 - matches.truth
        overlap[matches.prediction] = matches.overlap
        return truth, overlap

    def pairs_of(
        truth: FloatArray, predicted: FloatArray, min_overlap: float, measure: OverlapMeasure
    ) -> Pairs:
        return overlapping_pairs(
            truth,
            predicted,
            threshold=min_overlap,
            overlap=measure,
            truth_group=truth_recording,
            prediction_group=recording,
        )

    min_overlap = scene.scoring.iou_threshold
    by_iou = pairs_of(truths, predictions, min(min_overlap, float(AP_IOUS[0])), pairwise_iou)
    truth, iou = matched(_with_overlap(by_iou, min_overlap))
    hit_time, _ = matched(pairs_of(_time_only(truths), _time_only(predictions), min_overlap, pairwise_iou))
    hit_iom, _ = matched(pairs_of(truths, predictions, min_overlap, pairwise_iom))
    hit_at = np.stack([matched(_with_overlap(by_iou, float(t)))[0] >= 0 for t in AP_IOUS])

    chunk = scene.predictions.chunk[order]
    chunk[truth >= 0] = scene.truth.chunk[truth[truth >= 0]]
    return Outcome(
        scene=scene,
        scores=scores,
        recording=recording,
        chunk=chunk,
        truth=truth,
        iou=iou,
        hit_time=hit_time >= 0,
        hit_iom=hit_iom >= 0,
        hit_at=hit_at,
    )


def _with_overlap(pairs: Pairs, threshold: float) -> Pairs:
    keep = pairs.overlap >= threshold
    return Pairs(pairs.prediction[keep], pairs.truth[keep], pairs.overlap[keep])


def _time_only(boxes: FloatArray) -> FloatArray:
    """The same boxes, all from 0 to 1 in frequency."""
    flat = boxes.copy()
    flat[:, 1], flat[:, 3] = 0.0, 1.0
    return flat
