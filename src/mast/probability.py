"""What a detector's scores mean: the probability that a box is right, and the thresholds that reached a precision.

:mod:`mast.evaluation.calibration` and :mod:`mast.evaluation.operating` learn it from validation data; every calibrated
model card holds it.
"""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, model_validator

from mast.arrays import FloatArray
from mast.errors import ConfigError, MastError
from mast.wording import counted

Method = Literal["none", "temperature", "platt", "isotonic"]  # from the simplest to the most flexible

MIN_KEPT = 10  # our choice: one lucky prediction at the top is not a precision of 100 %
CLIP = 1e-6  # scores closer to 0 or 1 than this are moved to this distance: logits and log-losses stay finite


class Calibration(BaseModel):
    """How scores become probabilities; ``model_dump(mode="json")`` goes into a model card and comes back.

    ``none`` leaves scores as they are. ``temperature`` and ``platt`` give ``sigmoid(slope · logit(score) +
    intercept)``, the former without intercept. ``isotonic`` joins its knots by straight lines; beyond the
    outer knots scores share a probability.

    >>> Calibration(method="temperature", slope=0.5).apply([0.5, 0.8]).round(3).tolist()
    [0.5, 0.667]
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    method: Method = "none"
    slope: float = Field(default=1.0, gt=0, description="of the logit; 1 / temperature")
    intercept: float = Field(default=0.0, description="added to the logit")
    knot_scores: tuple[float, ...] = Field(default=(), description="ascending")
    knot_probabilities: tuple[float, ...] = Field(default=(), description="not descending, within 0–1")
    n_predictions: int = Field(default=0, ge=0, description="that it was fitted on")
    n_hits: int = Field(default=0, ge=0, description="how many of them matched a truth")

    @model_validator(mode="after")
    def _knots_rise(self) -> Self:
        scores, probabilities = np.array(self.knot_scores), np.array(self.knot_probabilities)
        rising = (
            len(scores) == len(probabilities)
            and bool((np.diff(scores) > 0).all() and (np.diff(probabilities) >= 0).all())
            and bool(((probabilities >= 0) & (probabilities <= 1)).all())
        )
        if not rising or (self.method == "isotonic") != (len(scores) > 0):
            raise ConfigError(
                f"calibration: method {self.method} with {len(scores)} knot scores and {len(probabilities)} "
                f"knot probabilities; expected as many of both, rising, within 0–1, for isotonic alone; "
                f"fit it again"
            )
        return self

    @property
    def temperature(self) -> float:
        """What logits are divided by: above 1 where the detector is too sure of itself."""
        return 1 / self.slope

    def apply(self, scores: ArrayLike) -> FloatArray:
        """Probabilities of scores in 0–1, in the same shape; a higher score never gets a lower probability."""
        given = checked_scores(scores)
        if self.method == "none":
            return given
        if self.method == "isotonic":
            return np.asarray(np.interp(given, self.knot_scores, self.knot_probabilities), dtype=np.float64)
        return expit(self.slope * logits(given) + self.intercept)

    def min_score(self, probability: float) -> float | None:
        """The lowest score that has at least this probability; None where no score has.

        Found by halving, down to the last bit, so that it agrees with :meth:`apply` whatever the method.
        """
        low, high = 0.0, 1.0
        if self.apply(low) >= probability:
            return low
        if not self.apply(high) >= probability:
            return None
        while low < (middle := (low + high) / 2) < high:
            low, high = (low, middle) if self.apply(middle) >= probability else (middle, high)
        return high


class OperatingPoint(BaseModel):
    """A threshold (predictions at or above are kept) and what it gave on validation."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    threshold: float = Field(ge=0, le=1, description="of the detector's own score, before calibration")
    precision: float = Field(ge=0, le=1)
    low: float | None = Field(
        description="of the 95 % interval of precision over recordings; none where they do not differ"
    )
    high: float | None
    recall: float = Field(ge=0, le=1)
    n_kept: int = Field(ge=1, description="predictions at or above")
    elsewhere: tuple[float, float] | None = Field(
        default=None,
        description="95 % prediction interval of precision at another place; none from two places or one",
    )
    found: dict[str, float] = Field(
        default={},
        description="precision at this threshold on experts' recordings not used for any choice, by what they hold",
    )


class StoredCalibration(BaseModel):
    """What a model card holds about validation: what scores mean, and which threshold reached which precision.

    Small enough for a card, and enough to answer for any precision without the data.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    calibration: Calibration
    n_recordings: int = Field(ge=0, description="of the validation set")
    data: str = Field(
        default="", description="what these recordings are, and who boxed them where it was not an expert"
    )
    n_truth: int = Field(ge=0, description="expert boxes in them")
    least_score: float = Field(ge=0, le=1, description="predictions scored lower were ignored")
    iou_threshold: float = Field(gt=0, le=1, description="overlap from which a prediction counts as right")
    log_loss_before: float | None = Field(
        default=None, description="of the scores, nats a prediction; none where nothing could be held out"
    )
    log_loss_after: float | None = Field(
        default=None, description="of the probabilities, each from a fit without its recording"
    )
    curve: tuple[OperatingPoint, ...] = Field(
        default=(), description="rising in threshold and in precision; see mast.evaluation.operating"
    )

    def threshold_for(self, precision: float) -> OperatingPoint | None:
        """The stored threshold with the highest recall that reached a precision; None where none did.

        For the precisions of :data:`mast.evaluation.operating.TARGETS` that is the lowest threshold of all that
        reached it; for one in between, at most the next one's.
        """
        if not 0 < precision <= 1:
            raise ConfigError(f"precision to reach is {precision:g}; expected above 0 and at most 1")
        return next((point for point in self.curve if point.precision >= precision), None)

    def require(self, precision: float, source: object) -> OperatingPoint:
        """:meth:`threshold_for`, or an error that says what was reached instead.

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
                f"{where}: fewer than {MIN_KEPT} predictions were kept, or none was right; give a threshold instead"
            )
        best = self.curve[-1]
        possible = math.floor(best.precision * 1000) / 1000  # rounded up, it would be out of reach
        raise MastError(
            f"{where}; the best was {possible:g} at threshold {self.shown_threshold(best):.3g} (recall "
            f"{best.recall:.2g}; at least {MIN_KEPT} predictions), so ask for that or less, or give a threshold instead"
        )

    def shown_threshold(self, point: OperatingPoint) -> float:
        """The point's threshold as a probability, which is what users see."""
        return float(self.calibration.apply(point.threshold))

    @property
    def recordings(self) -> str:
        """The validation recordings in words: how many, and of what."""
        return counted(self.n_recordings, "validation recording") + (f" of {self.data}" if self.data else "")

    def describe(self, point: OperatingPoint) -> str:
        """One sentence for the user."""
        if point.low is None or point.high is None:
            alone = self.n_recordings == 1
            spread = "no interval from 1 recording" if alone else "no interval: too few recordings differ"
        else:
            spread = f"95 % interval {point.low:.2f}–{point.high:.2f}"
        if point.found:
            shares = [f"{share:.2f} for {name}" for name, share in point.found.items()]
            other = f"on other recordings, boxed by experts, it was {', '.join(shares)}"
        elif point.elsewhere is None:
            other = "on other recordings it may be different"
        else:
            low, high = point.elsewhere
            other = f"judging by how their places differ, another place may give anything from {low:.2f} to {high:.2f}"
        return (
            f"threshold {self.shown_threshold(point):.3g} reached precision {point.precision:.2f} ({spread}, "
            f"recall {point.recall:.2f}) on {self.recordings}; {other}"
        )


def checked_scores(scores: ArrayLike) -> FloatArray:
    """A copy of the scores; refuses what is not a number from 0 to 1."""
    values = np.array(scores, dtype=np.float64)  # a copy: what ``apply`` returns is the caller's to change
    outside = ~((values >= 0) & (values <= 1))  # NaN is outside
    if outside.any():
        raise ConfigError(
            f"calibration: {int(outside.sum())} of {values.size} scores are not numbers from 0 to 1 (the first: "
            f"{values[outside].flat[0]:g}); expected the scores that a detector gives"
        )
    return values


def expit(z: FloatArray) -> FloatArray:
    """1 / (1 + e^−z) without overflow; scipy.special has it too, and takes 0.2 s to import at every detect."""
    small = np.exp(-np.abs(z))  # at most 1
    return np.asarray(np.where(z >= 0, 1.0, small) / (1.0 + small), dtype=np.float64)


def logits(scores: FloatArray) -> FloatArray:
    """log(p / (1 − p)), finite also at 0 and 1."""
    p = np.clip(scores, CLIP, 1 - CLIP)
    return np.asarray(np.log(p / (1.0 - p)), dtype=np.float64)
