import math

import numpy as np
import pytest
import torch

from mast.events import pairwise_iom, pairwise_iou
from mast.models.decode import box_scores, decode_boxes, select_boxes
from mast.models.points import make_points

CHUNK = (256, 64)


def random_candidates(b: int, n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    centre, extent = rng.uniform([0, 0], CHUNK, size=(b, n, 2)), rng.uniform(2, 60, size=(b, n, 2))
    boxes = np.concatenate([centre - extent / 2, centre + extent / 2], axis=2)
    return torch.tensor(boxes, dtype=torch.float32), torch.tensor(
        rng.uniform(size=(b, n)), dtype=torch.float32
    )


def naive_select(
    boxes: np.ndarray, scores: np.ndarray, threshold: float, overlap: float, max_boxes: int
) -> list[int]:
    clipped = np.clip(boxes, 0, [*CHUNK, *CHUNK])
    kept: list[int] = []
    for r in np.argsort(-scores):
        empty = (clipped[r, 2:] <= clipped[r, :2]).any()
        if scores[r] < threshold or empty or len(kept) == max_boxes:
            continue
        if all(pairwise_iou(clipped[r], clipped[k])[0, 0] <= overlap for k in kept):
            kept.append(int(r))
    return kept


def test_decode_by_hand() -> None:
    points = make_points((2, 2), (8, 4), 1)
    regression = torch.zeros(1, 4, 4)
    regression[0, 3] = torch.tensor([0.5, -1.0, math.log(0.25), math.log(2.0)])
    boxes = decode_boxes(regression, points)
    assert boxes[0, 0].tolist() == [4 - 32, 2 - 16, 4 + 32, 2 + 16]
    # point (12, 6): centre (16, 2), extents 16 × 64
    torch.testing.assert_close(boxes[0, 3], torch.tensor([8.0, -30.0, 24.0, 34.0]))


def test_every_box_can_be_expressed_from_a_point_outside_it() -> None:
    points = make_points((1, 1), (8, 4), 1)  # point (4, 2), starting box 64 × 32
    true = torch.tensor([9.0, 5.0, 10.0, 6.0])
    offset = [(9.5 - 4) / 8, (5.5 - 2) / 4]
    size = [math.log(1 / 64), math.log(1 / 32)]
    torch.testing.assert_close(decode_boxes(torch.tensor([[offset + size]]), points)[0, 0], true)


def test_select_against_naive() -> None:
    boxes, scores = random_candidates(3, 150)
    for nms_iou, max_boxes in ((0.5, 300), (0.2, 300), (0.5, 7)):
        found = select_boxes(
            boxes, scores, chunk=CHUNK, score_threshold=0.3, nms_iou=nms_iou, max_boxes=max_boxes
        )
        for image, detections in enumerate(found):
            kept = naive_select(boxes[image].numpy(), scores[image].numpy(), 0.3, nms_iou, max_boxes)
            assert torch.equal(detections.scores, scores[image, kept])
            expected = boxes[image, kept].clamp(min=0).minimum(torch.tensor([*CHUNK, *CHUNK]))
            assert torch.equal(detections.boxes, expected)


@pytest.mark.parametrize("nested", [0.6, 0.9])
def test_no_box_lies_in_a_better_one(nested: float) -> None:
    boxes, scores = random_candidates(3, 150, seed=2)
    plain = select_boxes(boxes, scores, chunk=CHUNK)
    for every, found in zip(plain, select_boxes(boxes, scores, chunk=CHUNK, nested=nested), strict=True):
        kept: list[int] = []
        for k, box in enumerate(every.boxes.numpy()):  # best first
            if all(pairwise_iom(box, every.boxes[j].numpy())[0, 0] <= nested for j in kept):
                kept.append(k)
        assert 0 < len(kept) < len(every.boxes)
        assert torch.equal(found.boxes, every.boxes[kept])
        assert torch.equal(found.scores, every.scores[kept])


def test_a_phrase_or_its_notes() -> None:
    phrase, first, second = [10.0, 10, 90, 30], [12.0, 12, 40, 28], [50.0, 12, 88, 28]
    boxes = torch.tensor([[phrase, first, second]])
    for scores, expected in (([0.9, 0.5, 0.8], [phrase]), ([0.5, 0.9, 0.8], [first, second])):
        (found,) = select_boxes(boxes, torch.tensor([scores]), chunk=CHUNK, nested=0.8)
        assert found.boxes.tolist() == expected
        (both,) = select_boxes(boxes, torch.tensor([scores]), chunk=CHUNK)
        assert len(both.boxes) == 3


@pytest.mark.parametrize("nested", [1.0, 0.8])
def test_selection_does_not_depend_on_the_batch(nested: float) -> None:
    boxes, scores = random_candidates(40, 60, seed=1)
    together = select_boxes(boxes, scores, chunk=CHUNK, nested=nested)
    for image in (0, 17, 39):
        alone = select_boxes(boxes[image : image + 1], scores[image : image + 1], chunk=CHUNK, nested=nested)[
            0
        ]
        assert torch.equal(alone.boxes, together[image].boxes)
        assert torch.equal(alone.scores, together[image].scores)


def test_nothing_above_the_threshold() -> None:
    boxes, scores = random_candidates(2, 10)
    found = select_boxes(boxes, scores * 0.01, chunk=CHUNK)
    assert [tuple(d.boxes.shape) for d in found] == [(0, 4), (0, 4)]
    assert [tuple(d.scores.shape) for d in found] == [(0,), (0,)]


def test_a_box_outside_the_chunk_is_dropped() -> None:
    boxes = torch.tensor([[[300.0, 5.0, 310.0, 9.0], [-5.0, -5.0, 500.0, 500.0], [7.0, 7.0, 8.0, 8.0]]])
    (found,) = select_boxes(boxes, torch.tensor([[0.9, 0.8, 0.7]]), chunk=CHUNK)
    assert found.boxes.tolist() == [[0, 0, 256, 64], [7, 7, 8, 8]]


def test_score_is_the_product() -> None:
    score = box_scores(torch.tensor([0.0, 2.0]), torch.tensor([0.0, -1.0]))
    expected = [0.25, 1 / (1 + math.exp(-2)) / (1 + math.exp(1))]
    torch.testing.assert_close(score, torch.tensor(expected))
