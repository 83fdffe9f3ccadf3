"""What a box is recognised by: the encoder's features inside it, and next to them its visible look.

The paper's box embedding is the encoder's map averaged inside the box (App. "Box-Level Embeddings"). A token is 0.16 s
by 16 mel bins, so that average says more about the kind of sound than about its place and shape. The second half says
just that: how loud and how uneven each of 32 bands is inside the box, how long it is, where it begins and ends in
frequency. Each half has length one. Together they name sounds better than either (results/retrieval.json).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from mast.models.architecture import LOOK_BANDS
from mast.models.boxes import pool_boxes

# mean and deviation over the boxes of simulated sound, rounded; similar values do just as well
_LEVEL = (0.36, 0.88)  # of a band inside a box, in deviations of the normalised spectrogram; 0 outside
_UNEVENNESS = (0.23, 0.41)
_LOG_FRAMES = (3.5, 0.92)
_LOW = (0.58, 0.28)  # shares of the bins
_HIGH = (0.83, 0.17)


def box_vectors(tokens: Tensor, spectrograms: Tensor, boxes: Tensor, patch: int) -> Tensor:
    """(B, M, D + LOOK_WIDTH) float32: features and look of boxes, each of length one.

    Args:
        tokens: (B, D, T/16, F/16) the encoder's map.
        spectrograms: (B, 1, T, F) normalised.
        boxes: (B, M, 4) in cells; padding gives numbers that mean nothing.
        patch: cells of a token's side.
    """
    size = (float(patch), float(patch))
    features = pool_boxes(tokens.float(), boxes, size, samples=2)  # (B, M, D)
    return torch.cat(
        [F.normalize(features, dim=-1), F.normalize(box_looks(spectrograms, boxes), dim=-1)], dim=-1
    )


def box_looks(spectrograms: Tensor, boxes: Tensor) -> Tensor:
    """(B, M, LOOK_WIDTH) float32: levels and unevenness of 32 bands, length, band, each about 0 ± 1.

    Args:
        spectrograms: (B, 1, T, F) normalised.
        boxes: (B, M, 4) in cells.
    """
    sound = spectrograms[:, 0].float()  # (B, T, F)
    n_frames, n_bins = sound.shape[1:]
    first = boxes[..., 0].floor().clamp(0, n_frames - 1).long()  # (B, M)
    last = torch.maximum(boxes[..., 2].ceil().clamp(max=n_frames).long(), first + 1)
    low = boxes[..., 1].floor().clamp(0, n_bins - 1)
    high = torch.maximum(boxes[..., 3].ceil().clamp(max=n_bins), low + 1)
    frames = (last - first)[..., None]  # (B, M, 1)

    def mean(values: Tensor) -> Tensor:
        """(B, T, F) → (B, M, F) over each box's frames, by differences of running sums."""
        sums = F.pad(values.double().cumsum(dim=1), (0, 0, 1, 0))  # (B, T + 1, F)
        ends = [sums.gather(1, at[..., None].expand(-1, -1, n_bins)) for at in (last, first)]
        return (ends[0] - ends[1]) / frames

    level = mean(sound)
    unevenness = (mean(sound.double() ** 2) - level**2).clamp(min=0).sqrt()
    bins = torch.arange(n_bins, device=sound.device)
    inside = (bins >= low[..., None]) & (bins < high[..., None])  # (B, M, F)
    bands = [F.adaptive_avg_pool1d((values * inside).float(), LOOK_BANDS) for values in (level, unevenness)]
    length = (boxes[..., 2] - boxes[..., 0]).clamp(min=1).float().log()
    described = [
        _standard(bands[0], _LEVEL),
        _standard(bands[1], _UNEVENNESS),
        _standard(length, _LOG_FRAMES)[..., None],
        _standard(boxes[..., 1].float() / n_bins, _LOW)[..., None],
        _standard(boxes[..., 3].float() / n_bins, _HIGH)[..., None],
    ]
    return torch.cat(described, dim=-1)


def _standard(values: Tensor, scale: tuple[float, float]) -> Tensor:
    return (values - scale[0]) / scale[1]
