"""How good are the boxes? Matching, scores, calibration, thresholds and honest intervals.

Every result says in which space boxes were compared and at which overlap and score threshold.
"""

from mast.evaluation.report import Evaluation, compare, evaluate
from mast.evaluation.scene import Scoring
from mast.evaluation.threshold import best_threshold

__all__ = ["Evaluation", "Scoring", "best_threshold", "compare", "evaluate"]
