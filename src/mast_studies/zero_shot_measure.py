"""How good the boxes of one system are on one labelled set, and in which way they are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from mast.arrays import FloatArray
from mast.evaluation import Evaluation, Scoring, best_threshold, compare, evaluate
from mast.evaluation.scene import build_scene
from mast.events import pairwise_iom, pairwise_iou
from mast_studies.whole_recordings import SearchResult
from mast_studies.zero_shot_sets import LabelledSet

ROW_METRICS = ("precision", "recall", "f1", "ap50", "miou", "f1_time", "f1_iom")
TOUCHING = 0.1  # IoU from which a box says anything about another
INSIDE = 0.5  # a box is a piece of another if this share of it lies inside


def scoring_of(labelled_set: LabelledSet, iou: float = 0.5) -> Scoring:
    """Boxes in seconds × mel, on the grid of the set's band."""
    return Scoring(space="grid", front_end=labelled_set.front_end, iou_threshold=iou)


def measure(
    labelled_set: LabelledSet, events: pd.DataFrame, *, threshold: float | None = None, resamples: int = 1_000
) -> Evaluation:
    """Metrics with bootstrap intervals over recordings."""
    return evaluate(
        labelled_set.truth,
        events,
        reviewed=labelled_set.reviewed,
        scoring=scoring_of(labelled_set),
        threshold=threshold,
        resamples=resamples,
    )


def as_row(found: Evaluation, *, scores: Evaluation | None = None) -> dict[str, Any]:
    """The metrics shown, each with its interval; average precision from ``scores`` alone, or none."""
    row: dict[str, Any] = {}
    for name in ROW_METRICS:
        source = scores if name == "ap50" else found
        if source is None:
            continue  # equal scores have no order, so there is no curve
        low, high = source.intervals[name]
        row[name] = _rounded(source.metrics[name])
        row[f"{name}_interval"] = [_rounded(low), _rounded(high)]
    return row | {"n_predictions": found.n_predictions, "n_truth": found.n_truth}


def measure_thresholds(
    labelled_set: LabelledSet, found: SearchResult, *, resamples: int = 1_000
) -> dict[str, Any]:
    """A model at its own threshold, and at the one that is best on this set (which flatters)."""
    here = measure(labelled_set, found.events, resamples=resamples)
    rows: dict[str, Any] = {}
    everything = measure(labelled_set, found.scored, resamples=resamples)
    rows["own threshold"] = as_row(here, scores=everything) | {"threshold": round(found.threshold, 6)}
    if len(found.scored):
        best = best_threshold(
            labelled_set.truth, found.scored, reviewed=labelled_set.reviewed, scoring=scoring_of(labelled_set)
        ).value
        at_best = measure(labelled_set, found.scored, threshold=best, resamples=resamples)
        rows["best on this set"] = as_row(at_best, scores=everything) | {"threshold": best}
    else:
        rows["best on this set"] = rows["own threshold"]
    rows["diagnosis"] = diagnose(labelled_set, found.events)
    splits = labelled_set.dataset.recordings.groupby("split")["file"].agg(list)
    if len(splits) > 1:
        rows["by split"] = {
            str(split): as_row(
                measure(
                    _select_recordings(labelled_set, files),
                    _select_files(found.events, files),
                    resamples=resamples,
                )
            )
            for split, files in splits.items()
        }
    return rows


def difference(labelled_set: LabelledSet, a: pd.DataFrame, b: pd.DataFrame) -> dict[str, float | None]:
    """F1 of ``b`` minus F1 of ``a`` with its paired interval."""
    found = compare(
        labelled_set.truth, a, b, reviewed=labelled_set.reviewed, scoring=scoring_of(labelled_set)
    ).differences["f1"]
    return {name: _rounded(getattr(found, name)) for name in ("difference", "low", "high")}


def diagnose(labelled_set: LabelledSet, events: pd.DataFrame) -> dict[str, float | None]:
    """How the boxes are wrong, not just how many are right.

    Returns:
        ``f1_iou30``: F1 when an overlap of 0.3 is enough. Shares of truths: ``missed`` (no box touches it), ``split``
        (two or more boxes lie in it); of detections: ``stray`` (touches no truth), ``merging`` (two or more truths lie
        in it). ``longer`` and ``taller``: median ratio of a detection's length and height (in mel bins) to those of the
        truth that it overlaps most.
    """
    scene = build_scene(
        labelled_set.truth, events, reviewed=labelled_set.reviewed, scoring=scoring_of(labelled_set)
    )
    truth, found = scene.truth, scene.predictions
    missed = split = stray = merging = 0
    lengths: list[float] = []
    heights: list[float] = []
    for recording in range(len(scene.recordings)):
        t = truth.boxes[truth.recording == recording]
        p = found.boxes[found.recording == recording]
        if not len(t) or not len(p):
            missed, stray = missed + len(t), stray + len(p)
            continue
        iou, inner = pairwise_iou(t, p), _shared_area(t, p)
        touching = (iou >= TOUCHING) | (pairwise_iom(t, p) >= INSIDE)
        missed += int((~touching.any(axis=1)).sum())
        stray += int((~touching.any(axis=0)).sum())
        split += int(((inner / _area(p)[None] >= INSIDE).sum(axis=1) >= 2).sum())
        merging += int(((inner / _area(t)[:, None] >= INSIDE).sum(axis=0) >= 2).sum())
        for row, column in zip(range(len(t)), iou.argmax(axis=1), strict=True):
            if iou[row, column] >= TOUCHING:
                ratio = (p[column, 2:] - p[column, :2]) / (t[row, 2:] - t[row, :2])
                lengths.append(float(ratio[0]))
                heights.append(float(ratio[1]))
    rough = evaluate(
        labelled_set.truth,
        events,
        reviewed=labelled_set.reviewed,
        scoring=scoring_of(labelled_set, iou=0.3),
        resamples=0,
    ).metrics["f1"]
    return {
        "f1_iou30": _rounded(rough),
        "missed": _share(missed, len(truth)),
        "split": _share(split, len(truth)),
        "stray": _share(stray, len(found)),
        "merging": _share(merging, len(found)),
        "longer": _rounded(float(np.median(lengths))) if lengths else None,
        "taller": _rounded(float(np.median(heights))) if heights else None,
    }


def _shared_area(a: FloatArray, b: FloatArray) -> FloatArray:
    """(A, B) area that two boxes share."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    return np.asarray(np.clip(high - low, 0, None).prod(axis=2))


def _area(boxes: FloatArray) -> FloatArray:
    return np.asarray((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))


def _select_recordings(labelled_set: LabelledSet, files: list[str]) -> LabelledSet:
    return LabelledSet(
        labelled_set.name,
        labelled_set.part,
        labelled_set.dataset.select(recordings=files),
        labelled_set.band_hz,
    )


def _select_files(events: pd.DataFrame, files: list[str]) -> pd.DataFrame:
    return events[events["recording"].isin(files)]


def _share(part: int, whole: int) -> float | None:
    return _rounded(part / whole) if whole else None


def _rounded(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None
