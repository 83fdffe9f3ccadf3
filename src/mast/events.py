"""The one event schema, and the geometry of boxes.

An event is a box in seconds × hertz with what is known about it. The same columns serve expert
annotations, detections, pseudo-labels and archives; ``source`` tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mast.arrays import FloatArray, IntArray
from mast.errors import AnnotationError

OverlapMeasure = Callable[[ArrayLike, ArrayLike], FloatArray]  # (N, 4), (M, 4) → (N, M)

_BLOCK = 256  # predictions compared with their neighbourhood at once: a few megabytes

# column → pandas dtype; this order is the order on disk
EVENT_COLUMNS: dict[str, str] = {
    "recording": "str",  # path of the recording relative to its dataset
    "start_s": "float64",
    "end_s": "float64",
    "low_hz": "float64",
    "high_hz": "float64",
    "score": "float64",  # 1.0 for an expert's box
    "label": "str",
    "site": "str",
    "datetime": "str",  # ISO 8601 wall clock of the event's start; empty where unknown
    "source": "str",  # "expert", "detector", "pseudo-1", "simulator" …
    "model": "str",
}
BOX_COLUMNS = ["start_s", "low_hz", "end_s", "high_hz"]  # the order of box rows everywhere
_DEFAULTS: dict[str, float] = {"score": 1.0}

# our choice: no recording lasts a year; dates in seconds since 1970 are beyond it
MAX_DURATION_S = 366 * 86_400.0
MAX_HZ = 1e7  # our choice: ten times what any recorder of animal sounds samples


def as_events(table: pd.DataFrame) -> pd.DataFrame:
    """Bring a table into the event schema: its columns are added, typed and ordered; other columns are kept after them.

    ``file`` is accepted for ``recording``. Text that is missing becomes the empty string.

    >>> table = pd.DataFrame({"file": ["a.wav"], "start_s": [0], "end_s": [1], "low_hz": [0], "high_hz": [9]})
    >>> as_events(table)[["recording", "start_s", "score", "label"]].to_dict("records")
    [{'recording': 'a.wav', 'start_s': 0.0, 'score': 1.0, 'label': ''}]
    """
    events = table
    if "recording" not in events and "file" in events:
        events = events.rename(columns={"file": "recording"})
    missing = [c for c in ("recording", *BOX_COLUMNS) if c not in events]
    if missing:
        raise AnnotationError(
            f"event table: column{'s' if len(missing) > 1 else ''} {', '.join(missing)} missing; "
            f"found {', '.join(map(str, table.columns)) or 'no columns'}"
        )
    return with_columns(events, EVENT_COLUMNS, "event table")


def with_columns(table: pd.DataFrame, columns: Mapping[str, str], what: str) -> pd.DataFrame:
    """The table with these columns first, each with its type and filled in if missing; other columns are kept.

    Args:
        table: with a column ``recording``, or ``file``, which is renamed.
        columns: their names and types, ``"str"`` or ``"float64"``.
        what: the table in words, for errors.
    """
    typed = table.reset_index(drop=True)
    if "recording" not in typed and "file" in typed:
        typed = typed.rename(columns={"file": "recording"})
    repeated = typed.columns[typed.columns.duplicated()]
    if len(repeated):
        raise AnnotationError(f"{what}: column {repeated[0]} appears twice; keep one of them")
    if "recording" not in typed:
        raise AnnotationError(
            f"{what}: column file (or recording) missing; found {', '.join(map(str, typed.columns))}"
        )
    for column, dtype in columns.items():
        if column not in typed:
            typed[column] = _DEFAULTS.get(column, "" if dtype == "str" else np.nan)
        given = typed[column]
        if given.dtype == dtype and not (dtype == "str" and given.hasnans):
            continue  # most tables were made here, and small ones come through many times
        if dtype == "str":
            filled = given.astype("object")
            typed[column] = filled.where(filled.notna(), "").astype(str)
        else:
            try:
                typed[column] = given.astype("float64")
            except (TypeError, ValueError, OverflowError) as error:
                raise AnnotationError(
                    f"{what}: column {column} holds something that is not a number ({error})"
                ) from None
    ordered = [*columns, *(name for name in typed.columns if name not in columns)]
    return typed if list(typed.columns) == ordered else typed[ordered]


def empty_events() -> pd.DataFrame:
    """An event table with no rows."""
    return _no_events().copy()


@cache
def _no_events() -> pd.DataFrame:
    return as_events(pd.DataFrame({c: [] for c in EVENT_COLUMNS}))


def check_events(
    events: pd.DataFrame,
    where: Callable[[int], str],
    *,
    blank_scores: bool = True,
    probabilities: bool = True,
) -> None:
    """Refuse the first event that no recording can hold, naming ``where(row)``: one rule for every format.

    Times are finite seconds within a year and not negative, frequencies finite hertz, both in order; points and lines
    (equal limits) are kept. A low frequency may be negative if the box reaches above 0 Hz: :func:`clip_at_zero`
    handles it. A score is a probability, or at least finite.

    Args:
        events: with the columns of a box; ``score`` may be missing.
        where: a row's place in words.
        blank_scores: whether NaN stands for an unknown score, as in a table with blank cells.
        probabilities: whether scores must lie in 0–1; some tools rank by decibels, which can be evaluated just as well.
    """
    box = boxes_of(events)
    start, low, end, high = box.T
    score = events["score"].to_numpy(dtype=np.float64) if "score" in events else np.ones(len(box))
    unknown = np.isnan(score) if blank_scores else np.zeros(len(box), dtype=bool)
    allowed = (score >= 0) & (score <= 1) if probabilities else np.isfinite(score)
    for bad, what in (
        (~np.isfinite(box).all(axis=1), "{start} to {end} s, {low} to {high} Hz; expected finite numbers"),
        (start < 0, "starts before the recording ({start} s)"),
        (start > end, "starts at {start} s after it ends at {end} s; were the times swapped?"),
        (
            end > MAX_DURATION_S,
            "ends at {end} s, which is over a year; expected seconds from the start of the recording",
        ),
        (
            (low < 0) & (high <= 0),
            "lies below 0 Hz, from {low} to {high} Hz; expected frequencies above 0",
        ),
        (low > high, "low frequency {low} Hz above the high frequency {high} Hz; were they swapped?"),
        (high > MAX_HZ, "reaches up to {high} Hz, which no recorder reaches; expected frequencies in Hz"),
        (
            ~(unknown | allowed),
            "score {score}, expected a probability from 0 to 1; divide percentages by 100, or rename the column "
            "if its scale is another",
        ),
    ):
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            values = {"start": start[row], "end": end[row], "low": low[row], "high": high[row]}
            text = what.format(**{k: f"{v:.10g}" for k, v in {**values, "score": score[row]}.items()})
            raise AnnotationError(f"{where(row)}: {text}")


def clip_at_zero(events: pd.DataFrame) -> pd.DataFrame:
    """Cut off what lies below 0 Hz of events that reach above it: in Raven, a box can be dragged a little below 0.

    >>> box = {"start_s": [0.0], "end_s": [1.0], "low_hz": [-20.0], "high_hz": [900.0]}
    >>> clip_at_zero(pd.DataFrame(box))["low_hz"].tolist()
    [0.0]
    """
    below = (events["low_hz"] < 0) & (events["high_hz"] > 0)
    return events.assign(low_hz=events["low_hz"].mask(below, 0.0)) if below.any() else events


def boxes_of(events: pd.DataFrame) -> FloatArray:
    """(N, 4) rows ``start_s, low_hz, end_s, high_hz`` of an event table; a copy, which may be written to."""
    return events[BOX_COLUMNS].to_numpy(dtype=np.float64, copy=True).reshape(-1, 4)


class Overlap(NamedTuple):
    """Pairwise areas of two sets of boxes."""

    intersection: FloatArray  # (N, M)
    area_a: FloatArray  # (N, 1)
    area_b: FloatArray  # (1, M)


def pairwise_overlap(a: ArrayLike, b: ArrayLike) -> Overlap:
    """Intersection and areas of every box of ``a`` with every box of ``b``; rows (t1, f1, t2, f2)."""
    box_a = np.asarray(a, dtype=np.float64).reshape(-1, 4)
    box_b = np.asarray(b, dtype=np.float64).reshape(-1, 4)
    low = np.maximum(box_a[:, None, :2], box_b[None, :, :2])
    high = np.minimum(box_a[:, None, 2:], box_b[None, :, 2:])
    intersection = np.clip(high - low, 0.0, None).prod(axis=2)
    area_a = np.clip(box_a[:, 2:] - box_a[:, :2], 0.0, None).prod(axis=1)
    area_b = np.clip(box_b[:, 2:] - box_b[:, :2], 0.0, None).prod(axis=1)
    return Overlap(intersection, area_a[:, None], area_b[None, :])


def pairwise_iou(a: ArrayLike, b: ArrayLike) -> FloatArray:
    """Intersection over union, (N, M); 0 where both boxes are empty.

    >>> pairwise_iou([[0, 0, 2, 2]], [[1, 0, 3, 2]]).round(3).tolist()
    [[0.333]]
    """
    inter, area_a, area_b = pairwise_overlap(a, b)
    union = area_a + area_b - inter
    return np.divide(inter, union, out=np.zeros_like(inter), where=union > 0)


def pairwise_iom(a: ArrayLike, b: ArrayLike) -> FloatArray:
    """Intersection over the smaller area, (N, M): 1 where one box holds the other."""
    inter, area_a, area_b = pairwise_overlap(a, b)
    smaller = np.minimum(area_a, area_b)
    return np.divide(inter, smaller, out=np.zeros_like(inter), where=smaller > 0)


def pairwise_band_iou(a: ArrayLike, b: ArrayLike) -> FloatArray:
    """Intersection over union of the bands alone, (N, M); 1 for equal bands, even those without height.

    >>> pairwise_band_iou([[0, 1000, 1, 2000]], [[5, 1500, 6, 2500], [5, 1000, 6, 2000]]).round(3).tolist()
    [[0.333, 1.0]]
    """
    band_a = np.asarray(a, dtype=np.float64).reshape(-1, 1, 4)[..., 1::2]
    band_b = np.asarray(b, dtype=np.float64).reshape(1, -1, 4)[..., 1::2]
    shared = (np.minimum(band_a[..., 1], band_b[..., 1]) - np.maximum(band_a[..., 0], band_b[..., 0])).clip(0)
    whole = np.maximum(band_a[..., 1], band_b[..., 1]) - np.minimum(band_a[..., 0], band_b[..., 0])
    share: FloatArray = np.divide(shared, whole, out=np.ones_like(whole), where=whole > 0)
    return share


class Pairs(NamedTuple):
    """Predictions and truths that overlap enough to be matched; each may appear many times."""

    prediction: IntArray  # (K,) rows among the predictions
    truth: IntArray  # (K,) rows among the truths
    overlap: FloatArray  # (K,)


def overlapping_pairs(
    truth: ArrayLike,
    predictions: ArrayLike,
    *,
    threshold: float = 0.5,
    overlap: OverlapMeasure = pairwise_iou,
    truth_group: ArrayLike | None = None,
    prediction_group: ArrayLike | None = None,
) -> Pairs:
    """Every pair with ``overlap ≥ threshold`` (and above 0), found without comparing all with all.

    Predictions are taken in blocks along time, and each block is compared only with the truths it can touch, so a
    day of dense detections needs little memory.

    Args:
        truth: (M, 4) boxes.
        predictions: (P, 4) boxes.
        threshold: minimum overlap of a pair.
        overlap: pairwise measure, (N, 4) × (M, 4) → (N, M); must be 0 for boxes apart in time.
        truth_group: (M,) whole numbers, such as the recording of each truth; only pairs within a group count.
        prediction_group: (P,) likewise.
    """
    box_t = np.asarray(truth, dtype=np.float64).reshape(-1, 4)
    box_p = np.asarray(predictions, dtype=np.float64).reshape(-1, 4)
    group_t = np.zeros(len(box_t), np.int64) if truth_group is None else np.asarray(truth_group, np.int64)
    group_p = (
        np.zeros(len(box_p), np.int64) if prediction_group is None else np.asarray(prediction_group, np.int64)
    )
    order_t = np.lexsort((box_t[:, 0], group_t))
    order_p = np.lexsort((box_p[:, 0], group_p))
    sorted_group = group_t[order_t]
    found: list[tuple[IntArray, IntArray, FloatArray]] = []
    for begin in range(0, len(order_p), _BLOCK):
        block = order_p[begin : begin + _BLOCK]
        first, last = group_p[block[0]], group_p[block[-1]]
        near = order_t[
            np.searchsorted(sorted_group, first) : np.searchsorted(sorted_group, last, side="right")
        ]
        if first == last:
            in_time = (box_t[near, 0] <= box_p[block, 2].max()) & (box_t[near, 2] >= box_p[block[0], 0])
            near = near[in_time]
        for at in range(0, near.size, 16 * _BLOCK):
            some = near[at : at + 16 * _BLOCK]
            values = overlap(box_p[block], box_t[some])
            hit = (values >= threshold) & (values > 0) & (group_p[block][:, None] == group_t[some][None, :])
            p, t = np.nonzero(hit)
            found.append((block[p], some[t], values[p, t]))
    if not found:
        return Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    return Pairs(*(np.concatenate(part) for part in zip(*found, strict=True)))


def suppress_overlapping(
    boxes: FloatArray, scores: FloatArray, *, threshold: float, overlap: OverlapMeasure
) -> IntArray:
    """Rows that stay, in their order, when of two that overlap more than ``threshold`` the lower-scored is dropped.

    Of two with equal scores the later is dropped; one that was dropped drops no others.
    """
    pairs = overlapping_pairs(boxes, boxes, threshold=threshold, overlap=overlap)
    rank = np.empty(len(scores), dtype=np.int64)
    rank[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    worse, better = pairs.prediction, pairs.truth
    beaten = np.flatnonzero((rank[better] < rank[worse]) & (pairs.overlap > threshold))
    stays = np.ones(len(scores), dtype=bool)
    for k in beaten[np.argsort(rank[better[beaten]], kind="stable")]:
        if stays[better[k]]:
            stays[worse[k]] = False
    return np.flatnonzero(stays)


class Matches(NamedTuple):
    """One-to-one pairs of predictions and truths, by descending score."""

    prediction: IntArray  # (K,) rows among the predictions
    truth: IntArray  # (K,) rows among the truths
    overlap: FloatArray  # (K,)


def match_pairs(pairs: Pairs, scores: ArrayLike) -> Matches:
    """Choose greedily: the best-scored prediction takes the free truth it overlaps most, and so on.

    Among predictions with equal scores, the pair that overlaps most is chosen first; among equal overlaps, the first
    truth, and then the first prediction.
    """
    score = np.asarray(scores, dtype=np.float64).reshape(-1)[pairs.prediction]
    order = np.lexsort((pairs.prediction, pairs.truth, -pairs.overlap, -score))
    chosen: list[int] = []
    busy: set[int] = set()
    taken: set[int] = set()
    for k, p, t in zip(
        order.tolist(), pairs.prediction[order].tolist(), pairs.truth[order].tolist(), strict=True
    ):
        if p not in busy and t not in taken:
            busy.add(p)
            taken.add(t)
            chosen.append(k)
    return Matches(pairs.prediction[chosen], pairs.truth[chosen], pairs.overlap[chosen])


def match_boxes(
    truth: ArrayLike,
    predictions: ArrayLike,
    scores: ArrayLike,
    *,
    threshold: float = 0.5,
    overlap: OverlapMeasure = pairwise_iou,
) -> Matches:
    """Match greedily: the best-scored prediction takes the free truth it overlaps most, and so on.

    A pair needs ``overlap ≥ threshold``. Ties are broken as in :func:`match_pairs`.

    >>> match_boxes([[0, 0, 2, 2]], [[0, 0, 2, 2], [0, 0, 2, 1.9]], [0.3, 0.9]).prediction.tolist()
    [1]
    """
    return match_pairs(overlapping_pairs(truth, predictions, threshold=threshold, overlap=overlap), scores)
