"""Boxes as tensors: padding a batch of lists, overlap, pooling features from them.

No tensor is made from Python numbers on the way: copying one to a GPU would wait for all work queued there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mast.device import to_device
from mast.models.kernels import roi_align

_MULTIPLE = 8  # M is rounded up to this, so that shapes (and compiled code) rarely change between batches
_POOLED = (4, 4)  # RoIAlign bins of a box, in time and frequency


class PaddedBoxes(NamedTuple):
    """The boxes of a batch as one tensor. M is at least 8 even where nobody has a box: no special cases."""

    boxes: Tensor  # (B, M, 4) float32 cells; zeros where padded
    valid: Tensor  # (B, M) bool


def pad_boxes(boxes: Sequence[Tensor], device: torch.device | str = "cpu") -> PaddedBoxes:
    """Stack lists of boxes of different lengths. Nothing waits for the GPU: lengths are known on the host.

    Args:
        boxes: for each image (M_i, 4); an empty tensor where there is none.
        device: where the result goes.
    """
    longest = max([0, *(len(b) for b in boxes)])
    m = max(_MULTIPLE, -(-longest // _MULTIPLE) * _MULTIPLE)
    padded = torch.zeros(len(boxes), m, 4, device=boxes[0].device if boxes else "cpu")
    for row, image_boxes in zip(padded, boxes, strict=True):
        row[: len(image_boxes)] = image_boxes.reshape(-1, 4)
    lengths = torch.tensor([len(b) for b in boxes])
    valid = torch.arange(m) < lengths[:, None]  # (B, M)
    return PaddedBoxes(to_device(padded, device), to_device(valid, device))


class Truths(NamedTuple):
    """The boxes that a batch is learnt from: calls, followed by doubtful boxes."""

    padded: PaddedBoxes
    sure: Tensor  # (B, M) bool: which are calls; neither the doubtful ones nor padding

    @property
    def boxes(self) -> Tensor:
        """(B, M, 4)."""
        return self.padded.boxes

    @property
    def valid(self) -> Tensor:
        """(B, M) bool: which are boxes, sure or doubtful."""
        return self.padded.valid


def pad_truths(
    boxes: Sequence[Tensor], doubtful: Sequence[Tensor] | None = None, device: torch.device | str = "cpu"
) -> Truths:
    """Stack lists of calls, (M_i, 4) each, followed by those of doubtful boxes, (D_i, 4) each."""
    both = boxes if doubtful is None else [torch.cat(pair) for pair in zip(boxes, doubtful, strict=True)]
    padded = pad_boxes(both, device)
    lengths = torch.tensor([len(own) for own in boxes])
    sure = torch.arange(padded.valid.shape[1]) < lengths[:, None]
    return Truths(padded, to_device(sure, device))


def centres_and_extents(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """(…, 4) → (…, 2) centres and (…, 2) extents, each time then frequency."""
    low, high = boxes[..., :2], boxes[..., 2:]
    return (low + high) / 2, high - low


def iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of boxes that broadcast against each other: (…, 4), (…, 4) → (…)."""
    size = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    intersection = size[..., 0] * size[..., 1]
    union = _area(a) + _area(b) - intersection
    return intersection / union.clamp(min=1e-9)


def clip_boxes(boxes: Tensor, chunk: tuple[int, int]) -> Tensor:
    """(…, 4) → the same, cut to a chunk of this many frames and bins."""
    time, frequency = boxes[..., 0::2].clamp(0, chunk[0]), boxes[..., 1::2].clamp(0, chunk[1])
    return torch.stack([time, frequency], dim=-1).flatten(-2)  # t1, f1, t2, f2


def pool_boxes(
    feature_map: Tensor, boxes: Tensor, strides: tuple[float, float], *, samples: int = 1
) -> Tensor:
    """Average of a feature map inside each box, by RoIAlign.

    Args:
        feature_map: (B, C, T', F').
        boxes: (B, K, 4) in spectrogram cells, the same number for every image.
        strides: spectrogram cells per cell of the map, in time and frequency.
        samples: RoIAlign samples per bin and axis; of 4 × 4 bins, which are averaged.

    Returns:
        (B, K, C), float32.
    """
    return align_boxes(feature_map, boxes, strides, cells=_POOLED, samples=samples).mean(dim=(3, 4))


def align_boxes(
    feature_map: Tensor,
    boxes: Tensor,
    strides: tuple[float, float],
    *,
    cells: tuple[int, int],
    samples: int = 1,
) -> Tensor:
    """What :func:`pool_boxes` averages: (B, K, C, *cells), float32, ``cells`` bins in time and frequency."""
    b, k, _ = boxes.shape
    stride_t, stride_f = strides
    t1, f1, t2, f2 = boxes.unbind(dim=-1)
    # roi_align calls the last axis x: for a map (…, T', F') that is frequency
    scaled = torch.stack([f1 / stride_f, t1 / stride_t, f2 / stride_f, t2 / stride_t], dim=-1)
    image = torch.arange(b, device=boxes.device, dtype=scaled.dtype).repeat_interleave(k)
    regions = torch.cat([image[:, None], scaled.reshape(-1, 4)], dim=1)  # (B·K, 5)
    pooled = roi_align(feature_map.float(), regions, cells, samples=samples)  # (B·K, C, *cells)
    return pooled.reshape(b, k, *pooled.shape[1:])


def _area(boxes: Tensor) -> Tensor:
    extent = boxes[..., 2:] - boxes[..., :2]
    return extent[..., 0] * extent[..., 1]
