"""From matched validation data to what a model card stores (:class:`mast.probability.StoredCalibration`)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from mast.evaluation.bootstrap import draw_weights, interval
from mast.evaluation.calibration import fit_best, resampled_precision
from mast.evaluation.elsewhere import counts_by_place, precision_elsewhere
from mast.evaluation.outcome import Outcome
from mast.evaluation.report import RESAMPLES
from mast.probability import MIN_KEPT, OperatingPoint, StoredCalibration

# Target precisions for which the curve is as exact as the data itself: every 5 %, and every 1 % from one half up.
# Our choice; for other targets, the points are this close.
TARGETS = tuple(percent / 100 for percent in [*range(5, 50, 5), *range(50, 101)])


def store_calibration(
    outcome: Outcome,
    *,
    min_score: float,
    data: str = "",
    places: Mapping[str, str] | None = None,
    seed: int = 0,
) -> StoredCalibration:
    """Calibrate on validation data and keep what later questions need.

    Args:
        outcome: validation data, matched, with the detector's own scores.
        min_score: the threshold at which the predictions were made.
        data: what the validation recordings are, in words.
        places: where each recording was made; without it nothing is said about other places.
        seed: of the folds and of the bootstrap draws.
    """
    best = fit_best(outcome, seed)
    return StoredCalibration(
        calibration=best.calibration,
        n_recordings=len(outcome.scene.recordings),
        n_truth=len(outcome.scene.truth),
        data=data,
        least_score=min_score,
        iou_threshold=outcome.scene.scoring.iou_threshold,
        log_loss_before=best.log_loss.get("none"),
        log_loss_after=best.log_loss.get(best.calibration.method),
        curve=operating_curve(outcome, places=places, seed=seed),
    )


def operating_curve(
    outcome: Outcome,
    *,
    resamples: int = RESAMPLES,
    places: Mapping[str, str] | None = None,
    seed: int = 0,
) -> tuple[OperatingPoint, ...]:
    """For each target the lowest threshold that reached it, and the highest precision reached at all.

    Only thresholds at which precision is higher than at every lower one are worth keeping: any other gives less
    recall for no more precision. So the points rise in both.

    Args:
        outcome: validation data, matched.
        resamples: bootstrap draws over recordings, for the intervals.
        places: as in :func:`store_calibration`.
        seed: of the draws.
    """
    scores, hits = outcome.scores, outcome.hit.cumsum()
    precision = hits / np.arange(1, len(scores) + 1)
    possible = hits >= 1
    possible[: MIN_KEPT - 1] = False
    possible[:-1] &= scores[1:] < scores[:-1]  # equal scores are kept or dropped together
    best: list[int] = []  # numbers of predictions minus one, falling; precision rises
    for last in np.flatnonzero(possible)[::-1].tolist():
        if not best or precision[last] > precision[best[-1]]:
            best.append(last)
    wanted = {int(np.searchsorted(precision[best], target)) for target in TARGETS}
    chosen = sorted((wanted | {len(best) - 1}) & set(range(len(best))))
    weights = draw_weights(len(outcome.scene.recordings), resamples, seed)
    named = [(places or {}).get(name, "") for name in outcome.scene.recordings]
    place = np.unique(named, return_inverse=True)[1]
    points: list[OperatingPoint] = []
    for last in (best[k] for k in chosen):
        low, high = interval(resampled_precision(outcome, last + 1, weights))
        known = math.isfinite(low)
        points.append(
            OperatingPoint(
                threshold=float(scores[last]),
                precision=float(precision[last]),
                low=low if known else None,
                high=high if known else None,
                recall=float(hits[last] / len(outcome.scene.truth)),
                n_kept=last + 1,
                elsewhere=precision_elsewhere(counts_by_place(outcome, last + 1, place)),
            )
        )
    return tuple(points)
