"""torchvision's compiled kernels without torchvision.

NMS and RoIAlign are in a library that torch can load by itself in milliseconds. ``import torchvision`` brings all its
models, data sets and torch's compiler along, and takes over a second: more than loading the embedded model and
searching a minute of sound.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec

import torch
from torch import Tensor


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Greedy non-maximum suppression.

    Args:
        boxes: (N, 4).
        scores: (N,); of equal ones, the earlier box counts as the better.
        iou_threshold: of two boxes that overlap more, the lower-scored is dropped.

    Returns:
        Indices of the boxes that are kept, by descending score.
    """
    _load()
    kept: Tensor = torch.ops.torchvision.nms(boxes, scores, iou_threshold)
    return kept


def roi_align(feature_map: Tensor, regions: Tensor, cells: tuple[int, int], *, samples: int) -> Tensor:
    """RoIAlign, with each region placed to a fraction of a cell ("aligned").

    Args:
        feature_map: (B, C, H, W).
        regions: (N, 5) image, x1, y1, x2, y2 in cells of the map; y runs along H.
        cells: bins per region along H and W.
        samples: per bin and axis.

    Returns:
        (N, C, *cells).
    """
    _load()
    pooled: Tensor = torch.ops.torchvision.roi_align(feature_map, regions, 1.0, *cells, samples, True)
    return pooled


def _load() -> None:
    """Make the kernels known to torch, once."""
    if hasattr(torch.ops.torchvision, "nms"):
        return
    package = find_spec("torchvision")  # looks for it without importing it
    places = (package and package.submodule_search_locations) or []
    library = PathFinder.find_spec("_C", list(places))
    try:
        if library is None or library.origin is None:
            raise OSError
        torch.ops.load_library(library.origin)  # type: ignore[no-untyped-call]
    except OSError:
        # it is elsewhere, or needs other libraries: torchvision knows where, and says what is wrong
        import torchvision  # noqa: F401
