"""What grid strides do to boxes (App. "Theoretical Analysis of Adapter Design"), as a calculator.

A detector that can place edges only on a grid of strides (s_t, s_f) encloses a box of δ_t × δ_f cells with
one that is too large. Prop. 1 bounds the IoU this leaves in the worst placement; Prop. 2 says how to split a
budget of upsampling between the axes; Prop. 3 counts what separable filters save.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mast.arrays import FloatArray

PATCH = 16  # the encoder's strides


def enclosing_extent(start: ArrayLike, extent: ArrayLike, stride: ArrayLike) -> FloatArray:
    """Length of the tightest grid-aligned interval around [start, start + extent]."""
    start, extent, stride = (np.asarray(x, dtype=np.float64) for x in (start, extent, stride))
    return np.asarray((np.ceil((start + extent) / stride) - np.floor(start / stride)) * stride)


def iou_bound(
    time_extent: ArrayLike, frequency_extent: ArrayLike, strides: tuple[float, float]
) -> FloatArray:
    """Prop. 1: some placement leaves an IoU of at most δ_t δ_f / [(δ_t + s_t)(δ_f + s_f)].

    >>> float(iou_bound(160, 16, (16, 16)).round(3)), float(iou_bound(160, 16, (8, 4)).round(3))
    (0.455, 0.762)

    Args:
        time_extent: δ_t in frames; arrays broadcast.
        frequency_extent: δ_f in bins.
        strides: s_t, s_f in frames and bins.
    """
    t, f = np.asarray(time_extent, dtype=np.float64), np.asarray(frequency_extent, dtype=np.float64)
    return np.asarray(t * f / ((t + strides[0]) * (f + strides[1])))


def worst_case_iou(
    time_extent: ArrayLike, frequency_extent: ArrayLike, strides: tuple[float, float]
) -> FloatArray:
    """The IoU of the worst placement itself; from the proof of Prop. 1.

    The enclosing interval is at worst ⌈δ/s⌉ + 1 strides long. This equals :func:`iou_bound` where both
    extents are whole numbers of strides and is lower elsewhere. Placements are continuous: on whole cells, an
    extent one cell above a multiple of the stride comes out one stride better.
    """
    t, f = np.asarray(time_extent, dtype=np.float64), np.asarray(frequency_extent, dtype=np.float64)
    worst_t = (np.ceil(t / strides[0]) + 1) * strides[0]
    worst_f = (np.ceil(f / strides[1]) + 1) * strides[1]
    return np.asarray(t * f / (worst_t * worst_f))


def optimal_factors(time_extent: float, frequency_extent: float, budget: float) -> tuple[float, float]:
    """Prop. 2: u_t = √(U δ_f / δ_t), u_f = √(U δ_t / δ_f) maximise the bound among real factors of U.

    >>> optimal_factors(32.0, 16.0, 8.0)
    (2.0, 4.0)
    """
    return float(np.sqrt(budget * frequency_extent / time_extent)), float(
        np.sqrt(budget * time_extent / frequency_extent)
    )


def integer_splits(budget: int) -> list[tuple[int, int]]:
    """All (u_t, u_f) with u_t · u_f = budget."""
    return [(u, budget // u) for u in range(1, budget + 1) if budget % u == 0]


def best_split(extents: ArrayLike, budget: int, *, patch: int = PATCH) -> tuple[int, int]:
    """The integer split of an upsampling budget with the highest mean bound over boxes.

    Args:
        extents: (M, 2) frames and bins of each box; one pair for a single box.
        budget: U = u_t · u_f, 8 in the paper.
        patch: stride of the tokens along both axes.

    Returns:
        (u_t, u_f).
    """
    boxes = np.asarray(extents, dtype=np.float64).reshape(-1, 2)
    return max(
        integer_splits(budget),
        key=lambda u: float(iou_bound(boxes[:, 0], boxes[:, 1], (patch / u[0], patch / u[1])).mean()),
    )


def isotropic_parameters(channels: int, k: int) -> int:
    """Prop. 3: weights of a k × k convolution, C² k²."""
    return channels**2 * k**2


def separable_parameters(channels: int, k: int) -> int:
    """Prop. 3: weights of a k × 1 followed by a 1 × k convolution, 2 C² k."""
    return 2 * channels**2 * k
