"""Stitching: with a detector that makes no mistakes, the truth comes back, wherever the windows lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mast.events import pairwise_iou
from mast.inference.stitch import ScoredBoxes, Stitcher, without_nested
from mast.models.nested import drop_nested

Array = NDArray[np.float64]
WINDOW = 256.0
BINS = 64


def window_starts(length: float, hop: float, offset: float) -> list[float]:
    """Starts of windows over ``[0, length]``; the grid begins ``offset`` frames before the recording."""
    starts = [-offset]
    while starts[-1] + WINDOW < length:
        starts.append(starts[-1] + hop)
    return starts


def perfect(truth: Array, length: float, *, hop: float, offset: float = 0.0) -> ScoredBoxes:
    """Stitch what an oracle sees: the true boxes cut to each window, if a cell of them is in it."""
    stitcher, parts = Stitcher(), []
    for start in window_starts(length, hop, offset):
        a, b = max(start, 0.0), min(start + WINDOW, length)
        seen = truth.copy()
        seen[:, 0::2] = seen[:, 0::2].clip(a, b)
        seen = seen[seen[:, 2] - seen[:, 0] >= 1.0]
        parts.append(stitcher.add(a, b, seen, np.full(len(seen), 0.8)))
    parts.append(stitcher.finish())
    return ScoredBoxes(np.concatenate([p.boxes for p in parts]), np.concatenate([p.scores for p in parts]))


def assert_same_within_a_cell(found: Array, truth: Array) -> None:
    """One found box per true box, each side within a cell."""
    assert len(found) == len(truth)
    left = list(found)
    for box in truth:
        near = [k for k, row in enumerate(left) if np.abs(row - box).max() <= 1.0 + 1e-9]
        assert near, f"{box} is not among the found"
        left.pop(near[0])


def soundscape(seed: int, length: float = 4_000.0) -> Array:
    """Calls in eight bands that do not overlap; in each band calls a few cells apart, some longer than a window."""
    rng = np.random.default_rng(seed)
    rows = []
    for band in range(8):
        t = rng.uniform(0, 200)
        while True:
            long = rng.random() < 0.1
            end = t + (rng.uniform(200, 900) if long else rng.uniform(3, 120))
            if end > length:
                break
            low = band * 8 + rng.uniform(0, 2)
            rows.append([t, low, end, low + rng.uniform(3, 6)])
            t = end + rng.uniform(6, 150)
    return np.array(rows)


@pytest.mark.parametrize("hop", [0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("offset", [0.0, 17.3, 64.0, 128.0, 201.5])
def test_a_perfect_detector_gives_the_truth_wherever_the_grid_starts(hop: float, offset: float) -> None:
    truth = soundscape(seed=1)
    assert (truth[:, 2] - truth[:, 0] > WINDOW).sum() > 3  # some are longer than a window
    found = perfect(truth, 4_000.0, hop=hop * WINDOW, offset=offset)
    assert_same_within_a_cell(found.boxes, truth)
    assert np.allclose(found.scores, 0.8)


@st.composite
def separate_events(draw: st.DrawFn) -> Array:
    """Random boxes of which no two could be taken for one: apart in time by six cells, or in other bands."""
    rows: list[list[float]] = []
    for _ in range(draw(st.integers(0, 12))):
        start = draw(st.floats(0, 900))
        length = draw(st.one_of(st.floats(1.5, 100), st.floats(200, 1_000)))
        low = draw(st.floats(0, 50))
        height = draw(st.floats(1, 13))
        box = [start, low, min(start + length, 1_000.0), low + height]
        apart = all(box[0] > r[2] + 6 or r[0] > box[2] + 6 or _shared_band(box, r) < 0.3 for r in rows)
        if apart:
            rows.append(box)
    return np.array(rows, dtype=np.float64).reshape(-1, 4)


def _shared_band(a: list[float], b: list[float]) -> float:
    """Shared band over the lesser height."""
    return max(0.0, min(a[3], b[3]) - max(a[1], b[1])) / min(a[3] - a[1], b[3] - b[1])


@given(
    truth=separate_events(),
    hop=st.sampled_from([0.5, 0.75, 1.0]) | st.floats(0.3, 0.95),
    offset=st.floats(0, WINDOW - 1),
)
def test_any_events_any_hop_any_offset(truth: Array, hop: float, offset: float) -> None:
    found = perfect(truth, 1_000.0, hop=hop * WINDOW, offset=offset)
    assert_same_within_a_cell(found.boxes, truth)


@given(seed=st.integers(0, 10_000), hop=st.sampled_from([0.5, 0.75]))
def test_an_imprecise_detector_is_not_counted_twice(seed: int, hop: float) -> None:
    """Sides that jitter by a few cells from window to window: still one box per event, near the truth."""
    rng = np.random.default_rng(seed)
    truth = soundscape(seed, length=1_500.0)
    truth = truth[truth[:, 2] - truth[:, 0] >= 25]
    stitcher, parts = Stitcher(), []
    for start in window_starts(1_500.0, hop * WINDOW, 0.0):
        a, b = start, min(start + WINDOW, 1_500.0)
        seen = truth.copy()
        seen[:, 0::2] += rng.uniform(-2, 2, (len(seen), 2))
        seen[:, 1::2] += rng.uniform(-0.3, 0.3, (len(seen), 2))
        seen[:, 0::2] = seen[:, 0::2].clip(a, b)
        seen = seen[seen[:, 2] - seen[:, 0] >= 10]
        parts.append(stitcher.add(a, b, seen, rng.uniform(0.3, 1, len(seen))))
    parts.append(stitcher.finish())
    found = np.concatenate([p.boxes for p in parts])
    assert len(found) == len(truth)
    assert (pairwise_iou(truth, found).max(axis=1) > 0.5).all()


def test_seen_by_one_window_only_counts_where_that_window_owns_it() -> None:
    def once(box: list[float], window: int) -> int:
        stitcher = Stitcher()
        done = [
            stitcher.add(s, s + 100.0, [box] if s == window else [], [0.5] if s == window else [])
            for s in (0, 50)
        ]
        return sum(len(part.boxes) for part in [*done, stitcher.finish()])

    assert once([60, 0, 70, 5], window=0) == 1  # left of the middle of the overlap: the first window's
    assert once([60, 0, 70, 5], window=50) == 0
    assert once([80, 0, 90, 5], window=0) == 0
    assert once([80, 0, 90, 5], window=50) == 1
    assert once([2, 0, 9, 5], window=0) == 1  # the recording's ends have one window only
    assert once([130, 0, 150, 5], window=50) == 1


def test_parts_of_an_event_that_the_other_window_sees_whole_are_dropped() -> None:
    stitcher = Stitcher()
    stitcher.add(
        0, 100, [[60, 0, 100, 8], [72, 1, 100, 7]], [0.9, 0.4]
    )  # the second inside the first, both cut
    stitcher.add(50, 150, [[60, 0, 120, 8]], [0.8])
    found = stitcher.finish()
    assert found.boxes.tolist() == [[60, 0, 120, 8]]
    assert found.scores.tolist() == [0.8]


def test_joined_pieces_average_band_and_score_by_length() -> None:
    stitcher = Stitcher()
    stitcher.add(0, 100, [[70, 2, 100, 10]], [0.9])
    stitcher.add(100, 200, [[100, 6, 110, 14]], [0.5])
    found = stitcher.finish()
    assert found.boxes.tolist() == [[70, 3, 110, 11]]
    assert found.scores.tolist() == pytest.approx([0.8])


def test_neighbours_in_other_bands_are_not_joined_at_a_seam() -> None:
    stitcher = Stitcher()
    stitcher.add(0, 100, [[70, 2, 100, 10]], [0.9])
    stitcher.add(100, 200, [[100, 9, 130, 20]], [0.5])
    assert len(stitcher.finish().boxes) == 2


def test_only_what_reaches_the_latest_window_is_held() -> None:
    stitcher, given_back = Stitcher(), 0
    for k in range(200):
        start = k * 50.0
        boxes = np.array([[start + 30.0, 0, start + 40.0, 5]])
        given_back += len(stitcher.add(start, start + 100, boxes, [0.5]).boxes)
        assert len(stitcher._tracks) <= 3
    assert given_back + len(stitcher.finish().boxes) == 200


def test_nothing_in_nothing_out() -> None:
    stitcher = Stitcher()
    assert stitcher.add(0, 100, [], []).boxes.shape == (0, 4)
    assert stitcher.add(50, 150, np.zeros((0, 4)), np.zeros(0)).boxes.shape == (0, 4)
    assert stitcher.finish().scores.shape == (0,)


def test_a_cut_sweep_is_part_of_the_whole_one() -> None:
    """Of a rising call the first window sees only the low part, and owns its centre."""
    stitcher = Stitcher()
    stitcher.add(0, 100, [[55, 0, 100, 8]], [0.9])
    stitcher.add(50, 150, [[55, 0, 145, 20]], [0.7])
    assert stitcher.finish().boxes.tolist() == [[55, 0, 145, 20]]


def test_seen_whole_twice_is_taken_from_the_window_that_sees_it_farther_from_its_edges() -> None:
    for box, chosen in (([55.0, 0, 65, 8], 0), ([85.0, 0, 95, 8], 1)):
        stitcher = Stitcher()
        stitcher.add(0, 100, [box], [0.9])
        stitcher.add(50, 150, [box], [0.3])
        assert stitcher.finish().scores.tolist() == [(0.9, 0.3)[chosen]]


def embedding(*values: float) -> NDArray[np.float16]:
    return np.array(values, dtype=np.float16)[:, None]


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ([70.0, 2, 100, 10], [100.0, 2, 110, 10], 1.0),  # joined: the longer piece's
        ([90.0, 2, 100, 10], [100.0, 2, 140, 10], 2.0),
    ],
)
def test_a_joined_event_is_embedded_by_the_window_that_saw_most_of_it(
    first: list[float], second: list[float], chosen: float
) -> None:
    stitcher = Stitcher()
    stitcher.add(0, 100, [first], [0.9], embedding(1))
    stitcher.add(100, 200, [second], [0.9], embedding(2))
    found = stitcher.finish()
    assert len(found.boxes) == 1
    assert found.embeddings is not None
    assert found.embeddings.tolist() == [[chosen]]


def test_the_longest_piece_embeds_the_event_even_if_shorter_than_the_others_together() -> None:
    stitcher = Stitcher()
    pieces = ((0, 100, 60, 100), (100, 130, 100, 130), (130, 230, 130, 190))
    for k, (start, end, a, b) in enumerate(pieces):
        stitcher.add(start, end, [[a, 2, b, 9]], [0.5], embedding(k))
    found = stitcher.finish()
    assert found.boxes.tolist() == [[60, 2, 190, 9]]
    assert found.embeddings is not None
    assert found.embeddings.tolist() == [[2]]


def test_an_event_taken_from_a_window_takes_its_embedding() -> None:
    for box, chosen in (([55.0, 0, 65, 8], 1), ([85.0, 0, 95, 8], 2)):  # whole twice: farther from the edges
        stitcher = Stitcher()
        stitcher.add(0, 100, [box, [5, 20, 15, 30]], [0.9, 0.9], embedding(1, 7))
        done = stitcher.add(50, 150, [box], [0.3], embedding(2))
        assert done.embeddings is not None
        assert done.embeddings.tolist() == [[7]]
        found = stitcher.finish()
        assert found.embeddings is not None
        assert found.embeddings.tolist() == [[chosen]]
    stitcher = Stitcher()
    stitcher.add(0, 100, [[80, 3, 100, 9]], [0.5], embedding(1))  # cut
    stitcher.add(50, 150, [[80, 3, 130, 9]], [0.9], embedding(2))  # seen whole
    found = stitcher.finish()
    assert found.embeddings is not None
    assert found.embeddings.tolist() == [[2]]


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_no_event_of_a_recording_lies_in_a_better_one(share: float) -> None:
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, [2_000, 50], (600, 2))
    boxes = np.concatenate([corner, corner + np.exp(rng.uniform(0, [5, 4], (600, 2)))], axis=1)
    scores = rng.integers(1, 50, 600) / 50  # many as good as another
    best_first = np.argsort(-scores, kind="stable")
    expected = np.sort(best_first[drop_nested(boxes[best_first], share)])
    kept = without_nested(boxes, scores, share)
    assert 0 < len(kept) < 600
    assert kept.tolist() == expected.tolist()


def test_nothing_is_nested_in_nothing() -> None:
    assert without_nested(np.zeros((0, 4)), np.zeros(0), 0.8).tolist() == []
    assert without_nested(np.array([[0.0, 0, 5, 5]]), np.ones(1), 0.8).tolist() == [0]
