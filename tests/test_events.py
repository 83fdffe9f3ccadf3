"""The event schema, box geometry and matching."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mast.errors import AnnotationError
from mast.events import (
    BOX_COLUMNS,
    EVENT_COLUMNS,
    as_events,
    boxes_of,
    empty_events,
    match_boxes,
    match_pairs,
    overlapping_pairs,
    pairwise_iom,
    pairwise_iou,
)


def iou_of_two(a, b) -> float:
    """The slow, obvious twin."""
    wide = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    high = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    area = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    union = sum(area) - wide * high
    return wide * high / union if union > 0 else 0.0


def match_slowly(truth, predictions, scores, threshold=0.5, measure=iou_of_two):
    """Score by score, best first: again and again the pair that overlaps most of those that are free."""
    free_truths, pairs = set(range(len(truth))), []
    for score in sorted(set(scores), reverse=True):
        free = {p for p in range(len(predictions)) if scores[p] == score}
        while possible := [
            (-value, t, p)
            for p in free
            for t in free_truths
            if (value := measure(predictions[p], truth[t])) >= threshold and value > 0
        ]:
            value, t, p = min(possible)
            free.remove(p)
            free_truths.remove(t)
            pairs.append((p, t, -value))
    return pairs


@st.composite
def box_sets(draw, largest: int = 12):
    """Boxes on a coarse lattice, so that ties, touching edges, empty and equal boxes all occur."""
    n = draw(st.integers(0, largest))
    corner = draw(arrays(np.int64, (n, 2), elements=st.integers(0, 12)))
    size = draw(arrays(np.int64, (n, 2), elements=st.integers(0, 6)))
    return np.concatenate([corner, corner + size], axis=1).astype(float)


def test_iou_by_hand():
    a = [[0, 0, 2, 2], [0, 0, 1, 1], [5, 5, 5, 9]]
    b = [[1, 0, 3, 2], [0, 0, 1, 1]]
    assert pairwise_iou(a, b) == pytest.approx(np.array([[2 / 6, 1 / 4], [0, 1], [0, 0]]))
    assert pairwise_iom(a, b) == pytest.approx(np.array([[2 / 4, 1], [0, 1], [0, 0]]))


@pytest.mark.parametrize("measure", [pairwise_iou, pairwise_iom])
def test_overlap_of_nothing(measure):
    assert measure([], [[0, 0, 1, 1]]).shape == (0, 1)
    assert measure([[0, 0, 1, 1]], []).shape == (1, 0)
    assert measure([], []).shape == (0, 0)


@settings(max_examples=50)
@given(box_sets(), box_sets())
def test_iou_is_its_naive_twin_and_symmetric(a, b):
    iou = pairwise_iou(a, b)
    naive = np.array([[iou_of_two(x, y) for y in b] for x in a]).reshape(len(a), len(b))
    assert iou == pytest.approx(naive)
    assert (iou == pairwise_iou(b, a).T).all()
    assert ((iou >= 0) & (iou <= 1)).all()
    assert (pairwise_iom(a, b) >= iou - 1e-12).all()


def test_matching_by_hand():
    truth = [[0, 0, 10, 10], [20, 0, 30, 10]]
    predictions = [
        [0, 0, 10, 9],  # good, but outscored by the next
        [0, 0, 10, 6],
        [20, 0, 30, 10],
        [20, 0, 30, 4],  # IoU 0.4: never
    ]
    matches = match_boxes(truth, predictions, [0.5, 0.9, 0.7, 1.0])
    assert matches.prediction.tolist() == [1, 2]
    assert matches.truth.tolist() == [0, 1]
    assert matches.overlap.tolist() == pytest.approx([0.6, 1.0])


def test_a_pair_exactly_at_the_threshold_matches():
    assert match_boxes([[0, 0, 10, 10]], [[0, 0, 10, 5]], [1.0]).overlap.tolist() == [0.5]


def test_of_equal_scores_the_best_overlap_goes_first():
    truth = [[0, 0, 10, 1]]
    predictions = [[0, 0, 6, 1], [0, 0, 9, 1], [0, 0, 10, 1]]
    assert match_boxes(truth, predictions, [0.5, 0.5, 0.4]).prediction.tolist() == [1]


def test_equals_in_all_keep_the_order_given_and_take_the_first_truth():
    box = [0, 0, 1, 1]
    matches = match_boxes([box, box], [box, box, box], [0.5, 0.5, 0.5])
    assert matches.prediction.tolist() == [0, 1]
    assert matches.truth.tolist() == [0, 1]


@pytest.mark.parametrize(("n_truth", "n_predictions"), [(0, 0), (0, 2), (2, 0)])
def test_matching_with_an_empty_side(n_truth, n_predictions):
    box = [[0.0, 0, 1, 1]]
    matches = match_boxes(box * n_truth, box * n_predictions, np.ones(n_predictions))
    assert [part.shape for part in matches] == [(0,)] * 3


@settings(max_examples=50)
@given(box_sets(), box_sets(), st.data())
def test_matching_is_its_naive_twin_and_one_to_one(truth, predictions, data):
    scores = data.draw(arrays(np.float64, len(predictions), elements=st.sampled_from([0.1, 0.4, 0.7])))
    threshold = data.draw(st.sampled_from([0.1, 0.25, 0.5, 1.0]))
    matches = match_boxes(truth, predictions, scores, threshold=threshold)
    # every prediction and every truth at most once
    assert len(set(matches.prediction)) == len(matches.prediction)
    assert len(set(matches.truth)) == len(matches.truth)
    assert (matches.overlap >= threshold).all()
    assert (np.diff(scores[matches.prediction]) <= 0).all()
    naive = match_slowly(truth, predictions, scores, threshold)
    assert list(zip(matches.prediction, matches.truth, strict=True)) == [(p, t) for p, t, _ in naive]
    assert matches.overlap.tolist() == pytest.approx([value for _, _, value in naive])
    # nobody left alone could still be paired
    left = np.setdiff1d(np.arange(len(predictions)), matches.prediction)
    alone = np.setdiff1d(np.arange(len(truth)), matches.truth)
    assert not (pairwise_iou(predictions[left], truth[alone]) >= threshold).any()


@settings(max_examples=50)
@given(box_sets(), box_sets(), st.data())
def test_lower_scored_predictions_never_change_what_the_better_ones_got(truth, predictions, data):
    scores = data.draw(arrays(np.float64, len(predictions), elements=st.sampled_from([0.1, 0.4, 0.7])))
    kept = np.flatnonzero(scores >= 0.4)
    everything = match_boxes(truth, predictions, scores)
    good = everything.prediction[scores[everything.prediction] >= 0.4]
    alone = match_boxes(truth, predictions[kept], scores[kept])
    assert good.tolist() == kept[alone.prediction].tolist()


def crowd(rng: np.random.Generator, n: int, span_s: float) -> np.ndarray:
    start, low = rng.uniform(0, span_s, n), rng.uniform(0, 4_000, n)
    longest = np.where(rng.random(n) < 0.02, span_s / 2, 3.0)  # a few very long ones
    return np.stack([start, low, start + rng.uniform(0.1, longest), low + rng.uniform(100, 4_000, n)], axis=1)


@pytest.mark.parametrize("measure", [pairwise_iou, pairwise_iom])
def test_pairs_found_block_by_block_are_all_pairs(measure):
    rng = np.random.default_rng(3)
    truth, predictions = crowd(rng, 5_000, 2_000.0), crowd(rng, 700, 2_000.0)
    pairs = overlapping_pairs(truth, predictions, threshold=0.3, overlap=measure)
    dense = measure(predictions, truth)
    expected = set(zip(*np.nonzero(dense >= 0.3), strict=True))
    assert len(expected) > 100
    assert set(zip(pairs.prediction, pairs.truth, strict=True)) == expected
    assert len(pairs.truth) == len(expected)
    assert (pairs.overlap == dense[pairs.prediction, pairs.truth]).all()


def test_groups_never_meet():
    rng = np.random.default_rng(4)
    truth = crowd(rng, 800, 60.0)
    predictions = truth + rng.normal(0, 0.05, truth.shape)
    group_t = rng.integers(0, 40, 800)
    group_p = np.where(rng.random(800) < 0.5, group_t, rng.integers(0, 40, 800))
    scores = rng.choice([0.2, 0.5, 0.8], 800)
    pairs = overlapping_pairs(truth, predictions, truth_group=group_t, prediction_group=group_p)
    together = match_pairs(pairs, scores)
    apart = set()
    for group in range(40):
        t, p = np.flatnonzero(group_t == group), np.flatnonzero(group_p == group)
        matches = match_boxes(truth[t], predictions[p], scores[p])
        apart |= set(zip(p[matches.prediction], t[matches.truth], strict=True))
    assert len(apart) > 20
    assert set(zip(together.prediction, together.truth, strict=True)) == apart


def test_schema_is_completed_typed_and_ordered():
    table = pd.DataFrame(
        {
            "extra": [1],
            "file": ["a.wav"],
            "high_hz": ["900"],
            "low_hz": [0],
            "end_s": [2],
            "start_s": [1],
            "label": [None],
        }
    )
    events = as_events(table)
    assert list(events.columns) == [*EVENT_COLUMNS, "extra"]
    assert events["score"].tolist() == [1.0]
    assert events["label"].tolist() == [""]
    assert boxes_of(events).tolist() == [[1.0, 0.0, 2.0, 900.0]]
    assert next(iter(table.columns)) == "extra"  # the table given is left alone


def test_empty_events_have_the_schema():
    events = empty_events()
    assert list(events.columns) == list(EVENT_COLUMNS)
    assert boxes_of(events).shape == (0, 4)
    assert events[BOX_COLUMNS].dtypes.tolist() == [np.dtype("float64")] * 4


def test_missing_columns_and_words_for_numbers_are_named():
    with pytest.raises(
        AnnotationError, match="columns low_hz, high_hz missing; found recording, start_s, end_s"
    ):
        as_events(pd.DataFrame({"recording": ["a"], "start_s": [0], "end_s": [1]}))
    table = pd.DataFrame(
        {"recording": ["a"], "start_s": ["soon"], "end_s": [1], "low_hz": [0], "high_hz": [1]}
    )
    with pytest.raises(AnnotationError, match="start_s"):
        as_events(table)
