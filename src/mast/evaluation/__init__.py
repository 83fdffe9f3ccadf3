"""How good are the boxes? Matching, scores, calibration, thresholds and honest intervals.

Every result says in which space boxes were compared and at which overlap and score threshold.
"""

from mast.evaluation.bootstrap import Difference
from mast.evaluation.calibration import (
    BestCalibration,
    calibrate,
    calibrated,
    fit_best,
    fit_calibration,
)
from mast.evaluation.outcome import AP_IOUS, Outcome, match_scene
from mast.evaluation.part_tables import PartTables
from mast.evaluation.report import Comparison, Evaluation, compare, evaluate
from mast.evaluation.scene import Scene, Scoring, align_recordings, build_scene
from mast.evaluation.threshold import Threshold, best_threshold
from mast.probability import Calibration

__all__ = [
    "AP_IOUS",
    "BestCalibration",
    "Calibration",
    "Comparison",
    "Difference",
    "Evaluation",
    "Outcome",
    "PartTables",
    "Scene",
    "Scoring",
    "Threshold",
    "align_recordings",
    "best_threshold",
    "build_scene",
    "calibrate",
    "calibrated",
    "compare",
    "evaluate",
    "fit_best",
    "fit_calibration",
    "match_scene",
]
