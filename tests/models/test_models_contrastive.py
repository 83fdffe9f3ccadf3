import math

import numpy as np
import pytest
import torch

from mast.models.boxes import iou, pad_boxes
from mast.models.contrastive import Projection, contrastive_loss, jitter_boxes, sample_negatives


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return x / x.norm(dim=-1, keepdim=True)


def test_loss_against_the_papers_formula() -> None:
    anchors, positives, negatives = unit(3, 8), unit(3, 2, 8, seed=1), unit(5, 8, seed=2)
    negative_valid = torch.tensor([True, True, False, True, True])
    loss = contrastive_loss(
        anchors,
        positives,
        negatives,
        anchor_valid=torch.tensor([True, False, True]),
        negative_valid=negative_valid,
    )
    for i in range(3):
        pull = sum(math.exp(float(anchors[i] @ p) / 0.1) for p in positives[i])
        push = sum(math.exp(float(anchors[i] @ n) / 0.1) for n in negatives[negative_valid])
        expected = 0.0 if i == 1 else -math.log(pull / (pull + push))
        assert float(loss[i]) == pytest.approx(expected, rel=1e-4)


def test_loss_falls_as_events_leave_the_background() -> None:
    anchors = unit(4, 8)
    valid = torch.ones(4, dtype=torch.bool)
    near = contrastive_loss(anchors, anchors[:, None], anchors, anchor_valid=valid, negative_valid=valid)
    far = contrastive_loss(
        anchors, anchors[:, None], -anchors[:1].repeat(4, 1), anchor_valid=valid, negative_valid=valid
    )
    assert far.sum() < near.sum()


@pytest.mark.parametrize("what", ["anchors", "negatives"])
def test_loss_of_nothing_is_zero_with_a_graph(what: str) -> None:
    raw = torch.randn(4, 8, requires_grad=True)
    features = torch.nn.functional.normalize(raw, dim=1)
    loss = contrastive_loss(
        features,
        features[:, None],
        features,
        anchor_valid=torch.full((4,), what != "anchors"),
        negative_valid=torch.full((4,), what != "negatives"),
    ).sum()
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0, abs=1e-6)
    assert raw.grad is not None
    assert raw.grad.isfinite().all()


def test_jitter_moves_a_little_and_stays_inside() -> None:
    boxes = torch.tensor(
        [[[100.0, 20.0, 300.0, 60.0], [0.0, 0.0, 1024.0, 128.0], [500.0, 64.0, 501.0, 65.0]]]
    )
    noise = torch.rand(1, 3, 50, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    jittered = jitter_boxes(boxes, noise, amount=0.1, chunk=(1024, 128))
    assert jittered.shape == (1, 3, 50, 4)
    assert (jittered >= 0).all()
    assert (jittered <= torch.tensor([1024.0, 128.0, 1024.0, 128.0])).all()
    overlap = iou(jittered, boxes[:, :, None])
    assert overlap.min() > 0.6
    assert overlap[0, 0].max() < 1
    moved = (jittered[0, 0] - boxes[0, 0]).std(0)
    assert (moved > torch.tensor([5.0, 1.0, 5.0, 1.0])).all()  # in time and in frequency
    assert torch.equal(jitter_boxes(boxes, noise * 0, amount=0.1, chunk=(1024, 128))[:, :, 0], boxes)


def test_negatives_overlap_no_truth() -> None:
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 80, size=(2, 200, 2))
    proposals = torch.tensor(np.concatenate([low, low + 20], axis=2), dtype=torch.float32)
    truths = pad_boxes([torch.tensor([[10.0, 10.0, 40.0, 40.0]]), torch.zeros(0, 4)])
    negatives = sample_negatives(
        proposals, torch.zeros(2, 200), truths, torch.rand(2, 200), count=16, below_iou=0.3
    )
    assert negatives.boxes.shape == (2, 16, 4)
    assert negatives.valid.all()
    assert (iou(negatives.boxes[0], truths.boxes[0, :1]) < 0.3).all()
    assert len(negatives.boxes[0].unique(dim=0)) == 16


def test_negatives_of_a_chunk_that_is_all_event() -> None:
    proposals = torch.tensor([[[0.0, 0.0, 64.0, 64.0]]]).repeat(1, 50, 1)
    truths = pad_boxes([torch.tensor([[0.0, 0.0, 64.0, 64.0]])])
    assert not sample_negatives(
        proposals, torch.zeros(1, 50), truths, torch.rand(1, 50), below_iou=0.3
    ).valid.any()


def test_negatives_prefer_what_the_detector_takes_for_an_event() -> None:
    proposals = torch.arange(200.0)[None, :, None].repeat(1, 1, 4) + torch.tensor([0.0, 0.0, 1.0, 1.0])
    logits = torch.full((1, 200), -6.0)
    logits[0, :20] = 4.0
    noise = torch.rand(1, 200, generator=torch.Generator().manual_seed(0))
    negatives = sample_negatives(
        proposals, logits, pad_boxes([torch.zeros(0, 4)]), noise, count=20, below_iou=0.3
    )
    assert (negatives.boxes[0, :, 0] < 20).float().mean() > 0.8


def test_projection_is_256_to_128_of_length_one() -> None:
    out = Projection()(torch.randn(5, 7, 256))
    assert out.shape == (5, 7, 128)
    torch.testing.assert_close(out.norm(dim=2), torch.ones(5, 7))
