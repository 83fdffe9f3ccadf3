"""`evaluate` one system, `compare` two: everything measured, with intervals, ready for a file."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mast.evaluation.bootstrap import Difference, Interval, intervals, paired_differences
from mast.evaluation.breakdown import recall_by, reliability
from mast.evaluation.metrics import metrics_of
from mast.evaluation.outcome import Outcome, match_scene
from mast.evaluation.scene import Scene, Scoring, build_scene

RESAMPLES = 1_000  # our choice: the ends of a 95 % interval then rest on 25 resamples each


@dataclass(frozen=True)
class Evaluation:
    """One system on one set.

    Attributes:
        scoring: space, front end and overlap of the comparison.
        threshold: score from which predictions count; None for all.
        metrics: by the names in :mod:`mast.evaluation.metrics`, where each is defined.
        intervals: 95 % bootstrap interval over recordings of each metric; NaN where recordings do not differ.
        n_recordings: reviewed recordings.
        n_truth: truths that count.
        n_predictions: predictions that count, at or above the threshold.
        min_score: lowest score of all predictions, which AP and ECE use; NaN without any. Where it is high, lower ones
            were left out before, and the end of AP's curve is missing.
        n_ignored: predictions where nobody listened: neither right nor wrong.
        n_ignored_truth: truths outside the reviewed spans.
        n_outside: truths and predictions left out because they lie outside the band (grid space).
        recall_by: recall by size, band and SNR of the truth.
        reliability: data of the reliability diagram.
    """

    scoring: Scoring
    threshold: float | None
    metrics: dict[str, float]
    intervals: dict[str, Interval]
    n_recordings: int
    n_truth: int
    n_predictions: int
    min_score: float
    n_ignored: int
    n_ignored_truth: int
    n_outside: int
    recall_by: pd.DataFrame
    reliability: pd.DataFrame

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON; what has no value is None.

        >>> import json
        >>> import pandas as pd
        >>> from mast.evaluation import evaluate
        >>> box = {"recording": "a.wav", "start_s": 1.0, "end_s": 2.0, "low_hz": 2000.0, "high_hz": 3000.0}
        >>> found = evaluate(pd.DataFrame([box]), pd.DataFrame([box])).as_dict()
        >>> json.dumps({name: found[name] for name in ("precision", "recall", "f1", "n_truth")})
        '{"precision": 1.0, "recall": 1.0, "f1": 1.0, "n_truth": 1}'
        """
        front_end = self.scoring.front_end
        groups = {
            str(by): group.drop(columns="by").to_dict("records")
            for by, group in self.recall_by.groupby("by", sort=False)
        }
        plain: dict[str, Any] = without_nan(
            {
                "space": self.scoring.space,
                "band_hz": [front_end.low_hz, front_end.high_hz] if self.scoring.space != "hz" else None,
                "iou_threshold": self.scoring.iou_threshold,
                "threshold": self.threshold,
                **self.metrics,
                "n_truth": self.n_truth,
                "n_predictions": self.n_predictions,
                "min_score": self.min_score,
                "n_recordings": self.n_recordings,
                "n_ignored": self.n_ignored,
                "n_ignored_truth": self.n_ignored_truth,
                "n_outside": self.n_outside,
                "intervals": {name: list(bounds) for name, bounds in self.intervals.items()},
                "recall_by": groups,
                "reliability": self.reliability.to_dict("records"),
            }
        )
        return plain


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same recordings, and the difference ``b − a`` of each metric with its interval."""

    a: Evaluation
    b: Evaluation
    differences: dict[str, Difference]

    def as_dict(self) -> dict[str, Any]:
        """The first system as :meth:`Evaluation.as_dict` gives it; the second under ``other``."""
        differences = {name: difference._asdict() for name, difference in self.differences.items()}
        return {**self.a.as_dict(), "other": self.b.as_dict(), "differences": without_nan(differences)}


def evaluate(
    truth: pd.DataFrame,
    predictions: pd.DataFrame,
    *,
    reviewed: pd.DataFrame | None = None,
    scoring: Scoring | None = None,
    threshold: float | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Evaluation:
    """Measure predictions against truth.

    Args:
        truth: the expert's events, in the event schema.
        predictions: the detector's events with ``score``; ``file`` may stand for ``recording``.
        reviewed: ``recording, start_s, end_s`` of what was listened to. Give it: without it, a recording that
            was heard and holds nothing is unknown, and false alarms in it are not counted.
        scoring: space, front end, overlap; the paper's by default.
        threshold: predictions below this score are left out of all but AP and ECE; None keeps all.
        resamples: bootstrap draws over recordings; 0 for no intervals.
        seed: of the draws.

    >>> columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score"]
    >>> truth = pd.DataFrame([["a.wav", 1, 2, 2000, 3000, 1], ["a.wav", 4, 4.5, 500, 900, 1]], columns=columns)
    >>> found = pd.DataFrame([["a.wav", 1.1, 2, 2000, 3000, 0.9], ["a.wav", 7, 7.5, 500, 900, 0.4]], columns=columns)
    >>> [evaluate(truth, found, resamples=0).metrics[name] for name in ("precision", "recall", "f1")]
    [0.5, 0.5, 0.5]
    """
    scene = build_scene(truth, predictions, reviewed=reviewed, scoring=scoring)
    _warn_of_ignored(scene, "the predictions")
    return _evaluation(match_scene(scene), threshold, resamples, seed)


def compare(
    truth: pd.DataFrame,
    a: pd.DataFrame,
    b: pd.DataFrame,
    *,
    reviewed: pd.DataFrame | None = None,
    scoring: Scoring | None = None,
    thresholds: tuple[float | None, float | None] = (None, None),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Measure two systems against the same truth; the bootstrap is paired, so it is about the difference.

    Args:
        truth: the expert's events.
        a: events of the first system.
        b: events of the second.
        reviewed: as in :func:`evaluate`.
        scoring: as in :func:`evaluate`.
        thresholds: score threshold of each system.
        resamples: bootstrap draws.
        seed: of the draws.

    >>> columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score"]
    >>> truth = pd.DataFrame([["a.wav", 1, 2, 2000, 3000, 1], ["a.wav", 4, 4.5, 500, 900, 1]], columns=columns)
    >>> found = pd.DataFrame([["a.wav", 1.1, 2, 2000, 3000, 0.9], ["a.wav", 7, 7.5, 500, 900, 0.4]], columns=columns)
    >>> difference = compare(truth, found, found[:1], resamples=0).differences["precision"]
    >>> difference.a, difference.b, difference.difference
    (0.5, 1.0, 0.5)
    """
    outcomes = []
    for name, predictions in (("the first predictions", a), ("the second predictions", b)):
        scene = build_scene(truth, predictions, reviewed=reviewed, scoring=scoring)
        _warn_of_ignored(scene, name)
        outcomes.append(match_scene(scene))
    systems = list(zip(outcomes, thresholds, strict=True))
    return Comparison(
        _evaluation(*systems[0], resamples, seed),
        _evaluation(*systems[1], resamples, seed),
        paired_differences(systems[0], systems[1], resamples=resamples, seed=seed),
    )


def _evaluation(outcome: Outcome, threshold: float | None, resamples: int, seed: int) -> Evaluation:
    scene = outcome.scene
    return Evaluation(
        scoring=scene.scoring,
        threshold=threshold,
        metrics={name: float(values[0]) for name, values in metrics_of(outcome, threshold).items()},
        intervals=intervals(outcome, threshold, resamples=resamples, seed=seed),
        n_recordings=len(scene.recordings),
        n_truth=len(scene.truth),
        n_predictions=outcome.kept(threshold),
        min_score=float(outcome.scores[-1]) if len(outcome.scores) else math.nan,
        n_ignored=scene.predictions.n_unreviewed,
        n_ignored_truth=scene.truth.n_unreviewed,
        n_outside=scene.truth.n_outside + scene.predictions.n_outside,
        recall_by=recall_by(outcome, threshold),
        reliability=reliability(outcome),
    )


def _warn_of_ignored(scene: Scene, what: str) -> None:
    if ignored := scene.predictions.n_unreviewed:
        warnings.warn(
            f"{ignored:,} of {what} {'lies' if ignored == 1 else 'lie'} where nobody listened (recordings or spans "
            f"that the truth does not mark as reviewed) and {'is' if ignored == 1 else 'are'} ignored",
            stacklevel=3,
        )


def without_nan(value: Any) -> Any:
    """Nested values with NaN and infinities as None: JSON has no word for them."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
