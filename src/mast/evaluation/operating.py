"""What a checkpoint remembers of its validation: what its scores mean, and which threshold reached which precision.

Small enough for a model card, and enough to answer for any precision without the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mast.errors import ConfigError, MastError
from mast.evaluation.bootstrap import draw_weights, interval
from mast.evaluation.calibration import LEAST_KEPT, Calibration, fit_best, resampled_precision
from mast.evaluation.outcome import Outcome
from mast.evaluation.report import RESAMPLES

# Precisions that are answered as exactly as with the data itself: every fifth percent, from one half every percent.
# Our choice; points for others are as near as these.
TARGETS = tuple(percent / 100 for percent in [*range(5, 50, 5), *range(50, 101)])


class OperatingPoint(BaseModel):
    """A threshold (predictions at or above are kept) and what it gave on validation."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    threshold: float = Field(ge=0, le=1, description="of the detector's own score, before calibration")
    precision: float = Field(ge=0, le=1)
    low: float | None = Field(description="of the 95 % interval of precision over recordings; none from one")
    high: float | None
    recall: float = Field(ge=0, le=1)
    n_kept: int = Field(ge=1, description="predictions at or above")


class StoredCalibration(BaseModel):
    """The field ``calibration`` of a model card; :meth:`as_card` writes it, :meth:`of_card` reads it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    calibration: Calibration
    n_recordings: int = Field(ge=0, description="of the validation set")
    data: str = Field(
        default="", description="what these recordings are, and who boxed them where it was not an expert"
    )
    n_truth: int = Field(ge=0, description="expert boxes in them")
    least_score: float = Field(ge=0, le=1, description="predictions scored lower were not looked at")
    iou_threshold: float = Field(gt=0, le=1, description="overlap from which a prediction counts as right")
    log_loss_before: float | None = Field(
        default=None, description="of the scores, nats a prediction; none where nothing could be held out"
    )
    log_loss_after: float | None = Field(
        default=None, description="of the probabilities, each from a fit without its recording"
    )
    curve: tuple[OperatingPoint, ...] = Field(
        default=(), description="rising in threshold and in precision; see operating_curve"
    )

    @classmethod
    def of_card(cls, field: Mapping[str, Any], source: object) -> Self | None:
        """What a model card holds; None where it was never calibrated.

        Args:
            field: ``card.calibration``.
            source: where the card lies, for a message.
        """
        if not field:
            return None
        try:
            return cls.model_validate(field)
        except (ValidationError, ConfigError) as error:
            first = str(error) if isinstance(error, ConfigError) else error.errors()[0]["msg"]
            raise MastError(
                f"{source}: its calibration cannot be read ({first}); was it written by another version? "
                "Calibrate the model again"
            ) from None

    def as_card(self) -> dict[str, Any]:
        """Plain values for ``card.calibration``."""
        return self.model_dump(mode="json")

    def threshold_for(self, precision: float) -> OperatingPoint | None:
        """The stored threshold with the highest recall that reached a precision; None where none did.

        For the precisions of :data:`TARGETS` that is the lowest threshold of all that reached it; for one in
        between, at most the next one's.
        """
        if not 0 < precision <= 1:
            raise ConfigError(f"precision to reach is {precision:g}; expected above 0 and at most 1")
        return next((point for point in self.curve if point.precision >= precision), None)

    def require(self, precision: float, source: object) -> OperatingPoint:
        """:meth:`threshold_for`, or a sentence that says what was reached instead.

        Args:
            precision: the target.
            source: the model, for the message.
        """
        point = self.threshold_for(precision)
        if point is not None:
            return point
        where = f"{source}: precision {precision:g} was not reached on {self.recordings}"
        if not self.curve:
            raise MastError(
                f"{where}: fewer than {LEAST_KEPT} predictions were kept, or none was right; give a threshold instead"
            )
        best = self.curve[-1]
        possible = math.floor(best.precision * 1000) / 1000  # rounded up, it could not be asked for
        raise MastError(
            f"{where}; the best was {possible:g} at threshold {self.seen(best):.3g} (recall {best.recall:.2g}; "
            f"{LEAST_KEPT} predictions at least), so ask for that or less, or give a threshold instead"
        )

    def seen(self, point: OperatingPoint) -> float:
        """The point's threshold as a probability, which is what users see."""
        return float(self.calibration.apply(point.threshold))

    @property
    def recordings(self) -> str:
        """The validation recordings in words: how many, and of what."""
        plural = "" if self.n_recordings == 1 else "s"
        return f"{self.n_recordings} validation recording{plural}" + (f" of {self.data}" if self.data else "")

    def describe(self, point: OperatingPoint) -> str:
        """One sentence for the user."""
        if point.low is None or point.high is None:
            spread = f"no interval from {self.n_recordings} recording{'s' if self.n_recordings != 1 else ''}"
        else:
            spread = f"95 % interval {point.low:.2f}–{point.high:.2f}"
        return (
            f"threshold {self.seen(point):.3g} reached precision {point.precision:.2f} ({spread}, "
            f"recall {point.recall:.2f}) on {self.recordings}; other recordings may give another"
        )


def store_calibration(
    outcome: Outcome, *, least_score: float, data: str = "", seed: int = 0
) -> StoredCalibration:
    """Calibrate on validation data and keep what later questions need.

    Args:
        outcome: validation data, matched, with the detector's own scores.
        least_score: the threshold at which the predictions were made.
        data: what the validation recordings are, for those who ask.
        seed: of the folds and of the bootstrap draws.
    """
    best = fit_best(outcome, seed)
    return StoredCalibration(
        calibration=best.calibration,
        n_recordings=len(outcome.scene.recordings),
        n_truth=len(outcome.scene.truth),
        data=data,
        least_score=least_score,
        iou_threshold=outcome.scene.scoring.iou_threshold,
        log_loss_before=best.log_loss.get("none"),
        log_loss_after=best.log_loss.get(best.calibration.method),
        curve=operating_curve(outcome, seed=seed),
    )


def operating_curve(
    outcome: Outcome,
    *,
    targets: Sequence[float] = TARGETS,
    least_kept: int = LEAST_KEPT,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[OperatingPoint, ...]:
    """For each target the lowest threshold that reached it, and the highest precision reached at all.

    Only thresholds at which precision is higher than at every lower one are worth asking for: another gives less
    recall for no more precision. So the points rise in both.

    Args:
        outcome: validation data, matched.
        targets: precisions to answer exactly.
        least_kept: thresholds that keep fewer predictions than this are not trusted.
        resamples: bootstrap draws over recordings, for the intervals.
        seed: of the draws.
    """
    scores, hits = outcome.scores, outcome.hit.cumsum()
    precision = hits / np.arange(1, len(scores) + 1)
    possible = hits >= 1
    possible[: least_kept - 1] = False
    possible[:-1] &= scores[1:] < scores[:-1]  # equal scores are kept or dropped together
    best: list[int] = []  # numbers of predictions less one, falling; precision rises
    for last in np.flatnonzero(possible)[::-1].tolist():
        if not best or precision[last] > precision[best[-1]]:
            best.append(last)
    wanted = {int(np.searchsorted(precision[best], target)) for target in targets}
    chosen = sorted((wanted | {len(best) - 1}) & set(range(len(best))))
    weights = draw_weights(len(outcome.scene.recordings), resamples, seed)
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
            )
        )
    return tuple(points)
