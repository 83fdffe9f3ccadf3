"""What a model's card keeps of a small validation."""

from __future__ import annotations

from typing import Any

from mast.probability import Calibration, StoredCalibration


def stored_calibration(calibration: Calibration = Calibration(), **facts: Any) -> StoredCalibration:
    """The calibration of three recordings with nine boxes; facts replace these."""
    small: dict[str, Any] = {"n_recordings": 3, "n_truth": 9, "least_score": 0.05, "iou_threshold": 0.5}
    return StoredCalibration(calibration=calibration, **(small | facts))
