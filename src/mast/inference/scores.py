"""The scores that users see, and the score from which events count.

Internally, the detector's own ("raw") scores are compared: two windows are joined by them, and checkpoints are tuned
on them. What users see is a probability if the checkpoint was calibrated.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mast.errors import ConfigError, MastError
from mast.models.card import ModelCard
from mast.probability import Calibration


@dataclass(frozen=True)
class Scores:
    """How raw scores become those that users see, and the threshold in both.

    Attributes:
        calibration: method ``none`` where the checkpoint has no calibration.
        threshold: minimum score of an event as users see it.
        raw_threshold: the same as a raw score.
        operating_point: for a requested precision: the target, and what was reached on validation.
        sentence: the same in words for the user; empty if no precision was requested.
    """

    calibration: Calibration
    threshold: float
    raw_threshold: float
    operating_point: dict[str, Any] | None = None
    sentence: str = ""

    @property
    def fingerprint(self) -> str:
        """Differs if the same raw scores are shown as other scores."""
        if self.calibration.method == "none":
            return "none"
        return hashlib.sha256(self.calibration.model_dump_json().encode()).hexdigest()[:12]


def resolve_scores(
    card: ModelCard, folder: Path, *, threshold: float | None = None, precision_target: float | None = None
) -> Scores:
    """The threshold that was given, that reached a precision on validation, or that is the checkpoint's own.

    Args:
        card: of the checkpoint.
        folder: where it lies, for messages.
        threshold: minimum score as users see it.
        precision_target: above 0 and at most 1.

    Raises:
        ConfigError: both are given, or one that makes no sense.
        MastError: the checkpoint cannot answer, or no threshold reached the precision.
    """
    stored, calibration = card.calibration, card.probabilities
    if threshold is not None and precision_target is not None:
        raise ConfigError(
            f"threshold {threshold:g} and precision {precision_target:g}: a precision sets the threshold; "
            "give only one of the two"
        )
    if precision_target is not None:
        if stored is None:
            raise MastError(
                f"{folder}: was never calibrated, so the threshold for this precision is not known; "
                "give a threshold, or calibrate it"
            )
        point = stored.require(precision_target, folder)
        reached = {
            **point.model_dump(exclude={"threshold"}),
            "n_recordings": stored.n_recordings,
            "data": stored.data,
        }
        return Scores(
            calibration,
            stored.shown_threshold(point),
            point.threshold,
            {"target": precision_target, **reached},
            stored.describe(point),
        )
    if threshold is None:
        if "score" not in card.thresholds:
            raise MastError(f"{folder}: its model.json names no score threshold; give one, for example 0.3")
        own = card.thresholds["score"]
        _check(own)
        return Scores(calibration, float(calibration.apply(own)), own)
    _check(threshold)
    raw = calibration.min_score(threshold)
    if raw is None:
        raise ConfigError(
            f"threshold {threshold:g}: the calibrated scores of {folder} end at {calibration.apply(1.0):.3g}, so "
            "nothing would be found; give a lower one"
        )
    return Scores(calibration, threshold, raw)


def _check(threshold: float) -> None:
    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold {threshold:g}: expected a score between 0 and 1")
