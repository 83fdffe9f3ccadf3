"""Assigners against loops over images, boxes and points."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mast.events import pairwise_iou
from mast.models.assign import assign_atss, assign_centre_sampling
from mast.models.boxes import PaddedBoxes, pad_boxes
from mast.models.points import Points, anchor_boxes, make_points

POINTS = make_points((32, 16), (8, 4), 3)  # a chunk of 256 × 64
CHUNK = (256.0, 64.0)
ASSIGNERS = [assign_atss, assign_centre_sampling]


def random_boxes(n: int, rng: np.random.Generator, smallest: float = 9.0) -> torch.Tensor:
    """Boxes wide enough to hold a point, at places where no two distances tie."""
    extent = rng.uniform(smallest, [120, 40], size=(n, 2))
    low = rng.uniform(0, 1, size=(n, 2)) * (np.array(CHUNK) - extent)
    return torch.tensor(np.concatenate([low, low + extent], axis=1), dtype=torch.float32)


def naive_atss(points: Points, boxes: torch.Tensor, top_k: int = 9) -> list[int]:
    """For one image; without the promise of a point for everyone."""
    anchors, truths = anchor_boxes(points).numpy(), boxes.numpy()
    owner, best = [-1] * len(anchors), [-1.0] * len(anchors)
    for m, truth in enumerate(truths):
        centre = (truth[:2] + truth[2:]) / 2
        candidates = []
        for level in range(len(points.counts)):
            rows = [r for r in range(len(anchors)) if points.level[r] == level]
            rows.sort(
                key=lambda r: math.dist(
                    centre / points.strides[r].numpy(), (points.centres[r] / points.strides[r]).numpy()
                )
            )
            candidates += rows[:top_k]
        overlaps = pairwise_iou(anchors[candidates], truth)[:, 0]
        threshold = overlaps.mean() + overlaps.std(ddof=1)
        for r, overlap in zip(candidates, overlaps, strict=True):
            t, f = points.centres[r].tolist()
            inside = truth[0] < t < truth[2] and truth[1] < f < truth[3]
            if overlap >= threshold and inside and overlap > best[r]:
                owner[r], best[r] = m, overlap
    return owner


def naive_centre_sampling(points: Points, boxes: torch.Tensor, radius: float = 1.5) -> list[int]:
    owner, smallest = [-1] * len(points.centres), [math.inf] * len(points.centres)
    for m, (t1, f1, t2, f2) in enumerate(boxes.tolist()):
        reach = max((t2 - t1) / 2 / 8, (f2 - f1) / 2 / 4)
        level = 0 if reach <= 8 else 1 if reach <= 16 else 2
        for r in range(len(owner)):
            (t, f), (s_t, s_f) = points.centres[r].tolist(), points.strides[r].tolist()
            near = abs(t - (t1 + t2) / 2) < radius * s_t and abs(f - (f1 + f2) / 2) < radius * s_f
            inside = t1 < t < t2 and f1 < f < f2
            area = (t2 - t1) * (f2 - f1)
            if points.level[r] == level and near and inside and area < smallest[r]:
                owner[r], smallest[r] = m, area
    return owner


@pytest.mark.parametrize(
    ("assign", "naive"), [(assign_atss, naive_atss), (assign_centre_sampling, naive_centre_sampling)]
)
def test_against_naive(assign, naive) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    images = [random_boxes(n, rng) for n in (0, 1, 3, 6)]
    owner = assign(POINTS, pad_boxes(images))
    for ours, boxes in zip(owner, images, strict=True):
        expected = naive(POINTS, boxes)
        left_over = set(range(len(boxes))) - set(expected)
        rule = [o if o not in left_over else -1 for o in ours.tolist()]
        assert rule == expected
        for m in left_over:  # by the promise, exactly one point that nobody else had
            assert (ours == m).sum() == 1


def test_no_boxes_no_positives() -> None:
    for assign in ASSIGNERS:
        assert (assign(POINTS, pad_boxes([torch.zeros(0, 4)] * 2)) == -1).all()


def test_a_box_that_covers_everything() -> None:
    for assign in ASSIGNERS:
        owner = assign(POINTS, pad_boxes([torch.tensor([[0.0, 0.0, *CHUNK]])]))[0]
        assert set(POINTS.level[owner == 0].tolist()) == {1}  # half of its anchor, twice its reach
        centre = POINTS.centres[owner == 0].mean(0)
        torch.testing.assert_close(centre, torch.tensor(CHUNK) / 2, atol=32.0, rtol=0)


def test_a_box_of_one_cell_takes_the_nearest_finest_point() -> None:
    for assign in ASSIGNERS:
        owner = assign(POINTS, pad_boxes([torch.tensor([[101.0, 33.0, 102.0, 34.0]])]))[0]
        taken = (owner == 0).nonzero().flatten()
        assert POINTS.level[taken].tolist() == [0]
        assert POINTS.centres[taken].tolist() == [[100.0, 34.0]]


def test_two_tiny_boxes_in_one_cell_take_two_points() -> None:
    boxes = torch.tensor([[101.0, 33.0, 102.0, 34.0], [98.0, 32.2, 99.0, 32.8]])
    for assign in ASSIGNERS:
        owner = assign(POINTS, pad_boxes([boxes]))[0]
        assert (owner == 0).sum() == 1
        assert (owner == 1).sum() == 1


def test_the_same_box_twice_is_owned_twice() -> None:
    box = torch.tensor([[60.0, 10.0, 140.0, 40.0]])
    for assign in ASSIGNERS:
        owner = assign(POINTS, pad_boxes([box.repeat(2, 1)]))[0]
        assert (owner == 0).any()
        assert (owner == 1).any()


integer_boxes = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 63), st.integers(1, 256), st.integers(1, 64)).map(
        lambda b: (b[0], b[1], min(b[0] + b[2], 256), min(b[1] + b[3], 64))
    ),
    max_size=12,
    unique=True,
)


@given(integer_boxes)
def test_everyone_gets_a_point(boxes: list[tuple[int, int, int, int]]) -> None:
    truths = pad_boxes([torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)])
    for assign in ASSIGNERS:
        owner = assign(POINTS, truths)
        assert set(range(len(boxes))) | {-1} == set(owner.flatten().tolist())


def test_batch_mates_and_padding_do_not_matter() -> None:
    rng = np.random.default_rng(1)
    images = [random_boxes(n, rng, smallest=1.0) for n in (2, 11, 5)]
    for assign in ASSIGNERS:
        together = assign(POINTS, pad_boxes(images))
        for row, boxes in zip(together, images, strict=True):
            alone = assign(POINTS, PaddedBoxes(boxes[None], torch.ones(1, len(boxes), dtype=torch.bool)))
            assert torch.equal(row, alone[0])


@pytest.mark.parametrize("assign", ASSIGNERS)
def test_rows_that_are_not_valid_own_nothing(assign) -> None:  # type: ignore[no-untyped-def]
    """Whatever stands in the padding."""
    boxes = random_boxes(6, np.random.default_rng(4))
    padded = PaddedBoxes(boxes[None], torch.tensor([[True, True, False, False, True, False]]))
    owner = assign(POINTS, padded)[0]
    assert set(owner.tolist()) == {-1, 0, 1, 4}
    alone = assign(POINTS, pad_boxes([boxes[[0, 1, 4]]]))[0]
    assert torch.equal(owner, torch.tensor([-1, 0, 1, 4])[alone + 1])
