"""Boxes that lie in better ones."""

from __future__ import annotations

import numpy as np

from mast.arrays import BoolArray, FloatArray


def drop_nested(boxes: FloatArray, share: float) -> BoolArray:
    """Which boxes stay when none may lie in a better one: (K, 4), best first → (K,).

    Of two boxes that share more than ``share`` of the smaller one the later is dropped, be it the smaller or the
    larger: a phrase round its notes, or a note inside its phrase. A box that was dropped drops none.
    """
    size = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    least = share * np.minimum(size[:, None], size[None, :])
    low, high = (
        np.maximum(boxes[:, None, :2], boxes[None, :, :2]),
        np.minimum(boxes[:, None, 2:], boxes[None, :, 2:]),
    )
    nested = (high - low).clip(0).prod(axis=2) > least  # (K, K)
    stays = np.ones(len(boxes), dtype=bool)
    for k in range(len(boxes)):
        if stays[k]:
            stays[k + 1 :] &= ~nested[k, k + 1 :]
    return stays
