"""What grid strides do to boxes (App. "Theoretical Analysis of Adapter Design"), as a calculator.

A detector that can place edges only on a grid of strides (s_t, s_f) encloses a box of δ_t × δ_f cells with
one that is too large. Prop. 1 bounds the IoU this leaves in the worst placement; Prop. 2 says how to split a
budget of upsampling between the axes; Prop. 3 counts what separable filters save. Pure numpy: ``mast scan``
prints :func:`recommend` for annotated data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mast.errors import ConfigError

FloatArray = NDArray[np.float64]

PATCH = 16  # the encoder's strides
# adapter → upsampling in time and frequency (App. "Adapter Designs")
ADAPTER_FACTORS = {"conv": (1, 1), "anisotropic": (1, 4), "upsampling": (2, 4)}


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


@dataclass(frozen=True)
class AdapterOutlook:
    """What one adapter's strides mean for a set of boxes."""

    adapter: str
    strides: tuple[float, float]  # frames, bins
    mean_bound: float  # of Prop. 1 over the boxes
    share_reachable: float  # of the boxes whose bound reaches IoU 0.5


@dataclass(frozen=True)
class Recommendation:
    """What the boxes of a dataset ask of the adapter."""

    n_boxes: int
    median_frames: float
    median_bins: float
    outlooks: tuple[AdapterOutlook, ...]  # coarsest adapter first
    budget: int
    split: tuple[int, int]  # best integer (u_t, u_f) of that budget
    split_mean_bound: float


def recommend(extents: ArrayLike, *, budget: int = 8, patch: int = PATCH) -> Recommendation:
    """The bound of each adapter, and the best split of its upsampling, for a dataset's boxes.

    Args:
        extents: (M, 2) duration in frames and bandwidth in bins of each box, all positive.
        budget: upsampling to split, 8 in the paper (2 × 4).
        patch: stride of the tokens along both axes.
    """
    boxes = np.asarray(extents, dtype=np.float64).reshape(-1, 2)
    if not len(boxes) or not (boxes > 0).all():
        raise ConfigError(
            f"adapter recommendation: needs boxes of positive extent, got {len(boxes)} of which "
            f"{int((boxes <= 0).any(axis=1).sum())} are empty"
        )
    outlooks = []
    for adapter, (u_t, u_f) in ADAPTER_FACTORS.items():
        strides = (patch / u_t, patch / u_f)
        bound = iou_bound(boxes[:, 0], boxes[:, 1], strides)
        outlooks.append(AdapterOutlook(adapter, strides, float(bound.mean()), float((bound >= 0.5).mean())))
    split = best_split(boxes, budget, patch=patch)
    split_bound = iou_bound(boxes[:, 0], boxes[:, 1], (patch / split[0], patch / split[1]))
    frames, bins = np.median(boxes, axis=0)
    return Recommendation(
        len(boxes), float(frames), float(bins), tuple(outlooks), budget, split, float(split_bound.mean())
    )
