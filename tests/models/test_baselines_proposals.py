from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torchvision.models.detection.rpn import RPNHead

from mast.models.baselines.proposals import ProposalNetwork, nms_mask
from mast.models.boxes import iou

SHAPE = (64, 256)  # height and width in pixels
COUNTS = [700, 300, 40, 1]


def network(*, max_proposals: int, training: bool = True) -> ProposalNetwork:
    made = ProposalNetwork(
        nn.Identity(),
        RPNHead(4, 1),
        fg_iou_thresh=0.7,
        bg_iou_thresh=0.3,
        batch_size_per_image=8,
        positive_fraction=0.5,
        pre_nms_top_n={"training": 400, "testing": 200},
        post_nms_top_n={"training": max_proposals, "testing": max_proposals},
        nms_thresh=0.7,
    )
    made.min_size = 1.0
    return made.train(training)


def crowd(pictures: int, count: int, seed: int = 0) -> Tensor:
    """About four boxes around each place, in quarters of a pixel; some lie outside the picture or are thin."""
    draw = torch.Generator().manual_seed(seed)
    places = torch.rand(pictures, count // 4 + 1, 4, generator=draw).repeat(1, 4, 1)[:, :count]
    moved = places + torch.randn(pictures, count, 4, generator=draw) * 0.01
    centres, sizes = moved[..., :2] * torch.tensor([256.0, 64.0]), moved[..., 2:].abs() * 40
    return (torch.cat([centres - sizes / 2, centres + sizes / 2], dim=2) * 4).round() / 4


def one_by_one(boxes: Tensor, candidates: Tensor, max_overlap: float) -> list[bool]:
    stay: list[int] = []
    for k in range(len(boxes)):
        if candidates[k] and all(iou(boxes[k : k + 1], boxes[s : s + 1]).item() <= max_overlap for s in stay):
            stay.append(k)
    return [k in stay for k in range(len(boxes))]


@pytest.mark.parametrize("max_overlap", [0.1, 0.5, 0.7])
def test_boxes_stay_as_when_taken_one_by_one(max_overlap: float) -> None:
    boxes = crowd(3, 150)
    candidates = torch.rand(3, 150, generator=torch.Generator().manual_seed(1)) < 0.8
    found = nms_mask(boxes, candidates, max_overlap)
    for picture in range(3):
        assert found[picture].tolist() == one_by_one(boxes[picture], candidates[picture], max_overlap)
    assert found.sum() < candidates.sum(), "nothing was suppressed, so nothing was tested"


def test_a_long_chain_where_each_box_overlaps_its_neighbours_alone() -> None:
    start = torch.arange(100.0)
    boxes = torch.stack([start, start * 0, start + 2, start * 0 + 1], dim=1)[None]
    found = nms_mask(boxes, torch.ones(1, 100, dtype=torch.bool), 0.3)
    assert found[0].tolist() == [k % 2 == 0 for k in range(100)]


def test_no_boxes_and_no_candidates() -> None:
    assert nms_mask(torch.zeros(2, 0, 4), torch.zeros(2, 0, dtype=torch.bool), 0.5).shape == (2, 0)
    assert not nms_mask(crowd(1, 5), torch.zeros(1, 5, dtype=torch.bool), 0.5).any()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("max_proposals", [60, 5_000], ids=["more than wanted", "fewer than wanted"])
def test_a_batch_gets_torchvisions_proposals(max_proposals: int, training: bool) -> None:
    rpn, boxes = network(max_proposals=max_proposals, training=training), crowd(4, sum(COUNTS))
    objectness = torch.randn(4, sum(COUNTS), generator=torch.Generator().manual_seed(2)) * 3
    expected = rpn.filter_proposals(boxes, objectness, [SHAPE] * 4, COUNTS)  # on a CPU: torchvision's own way
    found = rpn.filter_batch(boxes, objectness, SHAPE, COUNTS)
    for which in (0, 1):
        for own, theirs in zip(found[which], expected[which], strict=True):
            assert own.shape == theirs.shape
            torch.testing.assert_close(own, theirs, rtol=1e-6, atol=1e-12)


def test_many_pictures_are_compared_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes, candidates = crowd(7, 60), torch.ones(7, 60, dtype=torch.bool)
    together = nms_mask(boxes, candidates, 0.4)
    monkeypatch.setattr("mast.models.baselines.proposals._PAIRS", 2 * 60**2)
    assert torch.equal(nms_mask(boxes, candidates, 0.4), together)
