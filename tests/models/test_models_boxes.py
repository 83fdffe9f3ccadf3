import numpy as np
import torch

from mast.events import pairwise_iou
from mast.models.boxes import iou, pad_boxes, pool_boxes


def test_pad_boxes() -> None:
    images = [torch.ones(2, 4, dtype=torch.int64), torch.zeros(0, 4), torch.rand(9, 4)]
    padded = pad_boxes(images)
    assert padded.boxes.shape == (3, 16, 4)
    assert padded.valid.sum(1).tolist() == [2, 0, 9]
    for row, valid, boxes in zip(*padded, images, strict=True):
        assert torch.equal(row[valid], boxes.float())
    assert pad_boxes([torch.zeros(0, 4)]).boxes.shape == (1, 8, 4)


def test_iou_against_naive() -> None:
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 50, size=(12, 2))
    boxes = np.concatenate([low, low + rng.uniform(1, 40, size=(12, 2))], axis=1).astype(np.float32)
    ours = iou(torch.tensor(boxes)[:, None], torch.tensor(boxes)[None])
    np.testing.assert_allclose(ours, pairwise_iou(boxes, boxes), atol=1e-5)
    assert iou(torch.zeros(1, 4), torch.zeros(1, 4)).tolist() == [0]


def test_pooling_reads_time_as_time() -> None:
    """A map whose channels are its own coordinates: pooling a box gives the box's centre."""
    stride_t, stride_f = 8.0, 4.0
    time, frequency = torch.meshgrid(
        (torch.arange(128) + 0.5) * stride_t, (torch.arange(32) + 0.5) * stride_f, indexing="ij"
    )
    feature_map = torch.stack([time, frequency]).repeat(2, 1, 1, 1)  # (2, 2, 128, 32)
    feature_map[1] += 1000
    boxes = torch.tensor([[[100.0, 20.0, 300.0, 60.0], [700.0, 90.0, 708.0, 91.0]]]).repeat(2, 1, 1)
    pooled = pool_boxes(feature_map, boxes, (stride_t, stride_f))
    centres = torch.tensor([[200.0, 40.0], [704.0, 90.5]])
    torch.testing.assert_close(pooled, torch.stack([centres, centres + 1000]), atol=1e-2, rtol=0)
