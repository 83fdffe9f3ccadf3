"""Which of many boxes stay: in NumPy what :mod:`mast.models.decode` does with tensors."""

from __future__ import annotations

import numpy as np

from mast.arrays import BoolArray, FloatArray

CANDIDATES = 1_000  # boxes of a chunk, before NMS (our choice, as FCOS)
MAX_BOXES = 300  # after it


def drop_overlapping(boxes: FloatArray, iou: float) -> BoolArray:
    """Which boxes stay when none may overlap a better one by more than ``iou``: (K, 4), best first → (K,)."""
    size, shared = _sizes(boxes)
    return _survivors(shared > iou * (size[:, None] + size[None, :] - shared))


def drop_nested(boxes: FloatArray, share: float) -> BoolArray:
    """Which boxes stay when none may lie in a better one: (K, 4), best first → (K,).

    Of two boxes that share more than ``share`` of the smaller one the later is dropped, be it the smaller or the
    larger: a phrase round its notes, or a note inside its phrase.
    """
    size, shared = _sizes(boxes)
    return _survivors(shared > share * np.minimum(size[:, None], size[None, :]))


def _sizes(boxes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The size of each box, and what every two boxes share."""
    low = np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    return (boxes[:, 2:] - boxes[:, :2]).prod(axis=1), (high - low).clip(0).prod(axis=2)


def _survivors(exclude: BoolArray) -> BoolArray:
    """Which rows stay when each drops the later ones that it excludes; one that was dropped drops none."""
    stays = np.ones(len(exclude), dtype=bool)
    for k in range(len(exclude)):
        if stays[k]:
            stays[k + 1 :] &= ~exclude[k, k + 1 :]
    return stays
