"""Scores as sums over recordings, so that the value and its bootstrap come from the same code.

Definitions (TP: matched predictions at or above the score threshold):

- ``precision`` TP / predictions, ``recall`` TP / truths, ``f1`` 2 TP / (predictions + truths): pooled over
  all recordings.
- ``f1_macro``: F1 of each chunk (10.24 s at the paper's front end, not overlapping), averaged over the chunks
  that hold a truth or a prediction. A box belongs to the chunk of its centre, a matched prediction to its
  truth's chunk.
- ``miou``: mean IoU of the matched pairs.
- ``f1_time``: F1 when only time is compared (IoU of intervals).
- ``f1_iom``: F1 when overlap is intersection over the smaller box, forgiving where annotators disagree on
  extent.
- ``ap50``, ``ap50_95``: COCO's 101-point average precision at IoU 0.5, and its mean over 0.5, 0.55 … 0.95.
  ``ap50_voc11``: the 11-point average precision of PASCAL VOC 2007 at IoU 0.5, which is what the paper's
  tables show. All three use every prediction, regardless of the threshold. Predictions with equal scores enter the
  curve together, since no threshold tells them apart (COCO's evaluator takes them in the order of the file).
- ``ece``: expected calibration error over every prediction: ten equal score bins, the gap between mean score
  and share matched, weighted by count. Defined for scores in 0–1 only.

A ratio with nothing to divide by is NaN: ``precision`` without predictions, ``recall`` and AP without truths, ``miou``
without matches, F1 with neither. F1 is 0 when only one side has boxes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mast.arrays import BoolArray, FloatArray, IntArray
from mast.evaluation.outcome import Outcome

METRICS = (
    "precision",
    "recall",
    "f1",
    "f1_macro",
    "miou",
    "f1_time",
    "f1_iom",
    "ap50",
    "ap50_voc11",
    "ap50_95",
    "ece",
)
CALIBRATION_BINS = 10  # our choice, the usual one

_COCO_RECALLS: FloatArray = np.linspace(0.0, 1.0, 101)
_VOC_RECALLS: FloatArray = np.arange(11) / 10  # not linspace: its 0.30000000000000004 is above 3 / 10


def metrics_of(
    outcome: Outcome, threshold: float | None, weights: FloatArray | None = None
) -> dict[str, FloatArray]:
    """All :data:`METRICS`, each (B,), with each recording counted as often as its weight says.

    Args:
        outcome: what matched.
        threshold: predictions below this score are left out (of all but AP and ECE).
        weights: (B, recordings); without it one row of ones, the plain value.
    """
    if weights is None:
        weights = np.ones((1, len(outcome.scene.recordings)))
    metrics = {**_count_metrics(outcome, threshold, weights), **_average_precisions(outcome, weights)}
    metrics["ece"] = _expected_calibration_error(outcome, weights)
    return {name: metrics[name] for name in METRICS}


def ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """Ratio; NaN where the denominator is 0."""
    out = np.full(np.shape(above), np.nan)
    np.divide(above, below, out=out, where=below > 0)
    return out


def _count_metrics(outcome: Outcome, threshold: float | None, weights: FloatArray) -> dict[str, FloatArray]:
    """Precision, recall, the F1s and mIoU from per-recording counts."""
    n_recordings = len(outcome.scene.recordings)
    kept = outcome.kept(threshold)
    recording = outcome.recording[:kept]

    def total(values: FloatArray | BoolArray | None, where: IntArray) -> FloatArray:
        """Sum within each recording, then over recordings by weight, (B,)."""
        amounts = None if values is None else values.astype(np.float64)
        return weights @ np.bincount(where, weights=amounts, minlength=n_recordings)

    truths = total(None, outcome.scene.truth.recording)
    predictions = total(None, recording)
    hits = total(outcome.hit[:kept], recording)
    chunk_f1, chunk_recording = _chunk_f1(outcome, kept)
    return {
        "precision": ratio(hits, predictions),
        "recall": ratio(hits, truths),
        "f1": ratio(2 * hits, predictions + truths),
        "f1_macro": ratio(total(chunk_f1, chunk_recording), total(None, chunk_recording)),
        "miou": ratio(total(outcome.iou[:kept], recording), hits),
        "f1_time": ratio(2 * total(outcome.hit_time[:kept], recording), predictions + truths),
        "f1_iom": ratio(2 * total(outcome.hit_iom[:kept], recording), predictions + truths),
    }


def _chunk_f1(outcome: Outcome, kept: int) -> tuple[FloatArray, IntArray]:
    """F1 of each chunk that holds a box, and the recording it belongs to."""
    truth = outcome.scene.truth
    recording = np.concatenate([truth.recording, outcome.recording[:kept]])
    place = np.stack([recording, np.concatenate([truth.chunk, outcome.chunk[:kept]])], axis=1)
    chunks, of_box = np.unique(place, axis=0, return_inverse=True)
    hits = np.concatenate([np.zeros(len(truth)), outcome.hit[:kept]])
    of_box = of_box.reshape(-1)
    boxes = np.bincount(of_box, minlength=len(chunks))
    return 2 * np.bincount(of_box, weights=hits, minlength=len(chunks)) / np.maximum(boxes, 1), chunks[:, 0]


def _average_precisions(outcome: Outcome, weights: FloatArray) -> dict[str, FloatArray]:
    """``ap50``, ``ap50_voc11`` and ``ap50_95``, each (B,).

    Precision can only peak at a hit, so a curve is kept only at its hits; the ten curves of a row share the
    number of predictions that came before.
    """
    n_recordings = len(outcome.scene.recordings)
    truths = weights @ np.bincount(outcome.scene.truth.recording, minlength=n_recordings)  # (B,)
    curves = [_Curve.of(outcome.scores, hit, hit) for hit in outcome.hit_at]
    coco = np.full((len(weights), len(curves)), np.nan)
    voc = np.full(len(weights), np.nan)
    for b in np.flatnonzero(truths > 0):
        times = weights[b][outcome.recording]  # (P,) how often each prediction counts
        cumulative = times.cumsum()
        for k, curve in enumerate(curves):
            recall, precision = curve.points(times, cumulative, truths[b])
            best_beyond = np.maximum.accumulate(precision[::-1])[::-1]
            coco[b, k] = _mean_precision(recall, best_beyond, _COCO_RECALLS)
            if k == 0:
                voc[b] = _mean_precision(recall, best_beyond, _VOC_RECALLS)
    return {"ap50": coco[:, 0], "ap50_voc11": voc, "ap50_95": coco.mean(axis=1)}


def precision_recall(outcome: Outcome) -> tuple[FloatArray, FloatArray]:
    """Recall and precision with each prediction's score as threshold, (P,) both: what AP is an average of."""
    times = np.ones(len(outcome.scores))
    curve = _Curve.of(outcome.scores, outcome.hit, times > 0)
    return curve.points(times, times.cumsum(), max(len(outcome.scene.truth), 1))


@dataclass(frozen=True)
class _Curve:
    """Precision against recall at some predictions; those with equal scores count together.

    Attributes:
        hit: (H,) the predictions that are right.
        last: (K,) for each prediction that the curve is drawn at, the last with the same score.
        hits: (K,) how many hits there are up to there.
    """

    hit: IntArray
    last: IntArray
    hits: IntArray

    @classmethod
    def of(cls, scores: FloatArray, hit: BoolArray, at: BoolArray) -> _Curve:
        """From (P,) descending scores, which of them are right, and at which the curve is drawn."""
        where = np.flatnonzero(hit)
        last = np.searchsorted(-scores, -scores[at], side="right") - 1
        return cls(where, last, np.searchsorted(where, last, side="right"))

    def points(
        self, times: FloatArray, cumulative: FloatArray, truths: float
    ) -> tuple[FloatArray, FloatArray]:
        """Recall and precision, (K,) both, where each of P predictions counts ``times``, and their cumulative sum."""
        found = np.append(0.0, times[self.hit].cumsum())[self.hits]
        counted = cumulative[self.last]
        # before the first that counts there is nothing to be right: a precision of 0 is never the best
        return found / truths, np.divide(found, counted, out=np.zeros(len(found)), where=counted > 0)


def _mean_precision(recall: FloatArray, best_beyond: FloatArray, points: FloatArray) -> float:
    """Mean over recall points of the best precision at that recall or beyond, 0 where it is not reached."""
    at = np.searchsorted(recall, points, side="left")
    return float(best_beyond[at[at < len(recall)]].sum() / len(points))


def calibration_bins(outcome: Outcome) -> IntArray | None:
    """The bin of each prediction; None where scores are not probabilities."""
    if len(outcome.scores) and not (outcome.scores.min() >= 0 and outcome.scores.max() <= 1):
        return None
    return np.minimum((outcome.scores * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)


def _expected_calibration_error(outcome: Outcome, weights: FloatArray) -> FloatArray:
    bins = calibration_bins(outcome)
    if bins is None:
        return np.full(len(weights), np.nan)
    n_recordings = len(outcome.scene.recordings)
    cell = outcome.recording * CALIBRATION_BINS + bins
    # |mean score − share matched| × count = |sum of (score − matched)|
    excess = np.bincount(
        cell, weights=outcome.scores - outcome.hit, minlength=n_recordings * CALIBRATION_BINS
    )
    gaps = np.abs(weights @ excess.reshape(n_recordings, CALIBRATION_BINS)).sum(axis=1)
    return ratio(gaps, weights @ np.bincount(outcome.recording, minlength=n_recordings))
