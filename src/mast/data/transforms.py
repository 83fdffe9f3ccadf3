"""Transformations of log-mel spectrograms that carry their boxes along (App. "Augmentations").

Each takes a batch of raw log-mel spectrograms, its boxes and one parameter per example, and returns both
transformed. "Raw" means natural logarithms of power, before normalisation: on this scale sounds add as
``logaddexp``, a change of gain is an added constant, and what a shift or a mask leaves blank can be filled
with the chunk's own quiet floor.

Boxes and parameters stay on the CPU while spectrograms may be on a GPU: nothing here waits for the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mast.device import to_device

NATS_PER_DB = math.log(10.0) / 10.0  # spectrograms hold ln(power)
_FLOOR_STRIDE = 8  # only every eighth frame is read for the quiet floor: they show it just as well
_FLOOR_QUANTILE = 0.1  # our choice: the level a bin stays above nine tenths of the time


class Limits(NamedTuple):
    """When a box is no longer worth learning from."""

    # hidden share above which a box is dropped; our choice, the paper says "heavy"
    max_occlusion: float = 0.5
    min_frames: int = 10  # a box *cut* to less than this is dropped: the paper's 100 ms
    min_bins: int = 2  # the same for frequency; our choice


class BoxTable(NamedTuple):
    """The boxes of a batch as one table, on the CPU.

    ``kept`` tells boxes from padding and from what was dropped; ``visible`` is the share of each box that
    no mask or pasted patch hides; ``sure`` tells calls from doubtful boxes.
    """

    cells: Tensor  # (B, M, 4) t1, f1, t2, f2
    kept: Tensor  # (B, M) bool
    visible: Tensor  # (B, M)
    sure: Tensor  # (B, M) bool

    def rows(self, index: Tensor) -> BoxTable:
        """The boxes of some examples."""
        return BoxTable(*(column[index] for column in self))

    def replace_rows(self, index: Tensor, boxes: BoxTable) -> BoxTable:
        """These boxes with those of some examples replaced; widens the table where needed."""
        width = max(self.kept.shape[1], boxes.kept.shape[1])
        whole, part = self.widen(width), boxes.widen(width)
        for target, source in zip(whole, part, strict=True):
            target[index] = source
        return whole

    def widen(self, width: int) -> BoxTable:
        """A copy with room for ``width`` boxes per example."""
        extra = width - self.kept.shape[1]
        return BoxTable(
            torch.nn.functional.pad(self.cells, (0, 0, 0, extra)).clone(),
            torch.nn.functional.pad(self.kept, (0, extra), value=False).clone(),
            torch.nn.functional.pad(self.visible, (0, extra), value=1.0).clone(),
            torch.nn.functional.pad(self.sure, (0, extra), value=True).clone(),
        )


def box_table(boxes: Sequence[Tensor], sure: Sequence[Tensor] | None = None) -> BoxTable:
    """A list of (M, 4) tensors, and (M,) which are calls (all by default) → one table; M may differ and may be 0."""
    counts = [len(b) for b in boxes]
    cells = torch.zeros(len(boxes), max(counts, default=0), 4)
    for row, own in zip(cells, boxes, strict=True):
        row[: len(own)] = own.reshape(-1, 4)
    kept = torch.arange(cells.shape[1])[None] < torch.tensor(counts, dtype=torch.long)[:, None]
    all_sure = torch.ones(kept.shape, dtype=torch.bool)
    if sure is not None:
        for row, own in zip(all_sure, sure, strict=True):
            row[: len(own)] = own
    return BoxTable(cells, kept, torch.ones(kept.shape), all_sure)


def listed_boxes(boxes: BoxTable, *, sure: bool = True) -> list[Tensor]:
    """Inverse of :func:`box_table`: float (M, 4) tensors of the boxes still kept, of calls or of the others."""
    chosen = boxes.kept & (boxes.sure == sure)
    return [cells[own] for cells, own in zip(boxes.cells, chosen, strict=True)]


def quiet_floor(spectrograms: Tensor) -> Tensor:
    """What each bin falls to when nothing calls: (B, 1, T, F) → (B, 1, 1, F).

    A low percentile over time. The paper pads with the minimum instead, but in a noisy spectrogram that is
    an outlier far below anything a recorder writes.
    """
    some = spectrograms[:, :, ::_FLOOR_STRIDE]
    rank = max(1, math.ceil(_FLOOR_QUANTILE * some.shape[2]))
    return some.kthvalue(rank, dim=2, keepdim=True).values


def time_shift(
    spectrograms: Tensor, boxes: BoxTable, frames: Tensor, limits: Limits
) -> tuple[Tensor, BoxTable]:
    """Move everything later by ``frames`` (B,) whole frames; negative is earlier."""
    n_frames = spectrograms.shape[2]
    source = torch.arange(n_frames)[None] - frames[:, None]  # (B, T)
    moved = take_frames(spectrograms, source.clamp(0, n_frames - 1))
    inside = to_device_of(spectrograms, (source >= 0) & (source < n_frames))[:, None, :, None]
    offset = torch.stack([frames, torch.zeros_like(frames)] * 2, dim=1)[:, None]  # (B, 1, 4)
    shifted = _clip(boxes, boxes.cells + offset, spectrograms, limits)
    return torch.where(inside, moved, quiet_floor(spectrograms)), shifted


def frequency_shift(
    spectrograms: Tensor, boxes: BoxTable, bins: Tensor, limits: Limits
) -> tuple[Tensor, BoxTable]:
    """Move everything up by ``bins`` (B,) whole mel bins; negative is down."""
    _, _, n_frames, n_bins = spectrograms.shape
    source = torch.arange(n_bins)[None] - bins[:, None]  # (B, F)
    index = to_device_of(spectrograms, source.clamp(0, n_bins - 1))[:, None, None, :]
    moved = spectrograms.gather(3, index.expand(-1, 1, n_frames, -1))
    inside = to_device_of(spectrograms, (source >= 0) & (source < n_bins))[:, None, None, :]
    offset = torch.stack([torch.zeros_like(bins), bins] * 2, dim=1)[:, None]  # (B, 1, 4)
    shifted = _clip(boxes, boxes.cells + offset, spectrograms, limits)
    return torch.where(inside, moved, quiet_floor(spectrograms)), shifted


def time_warp(
    spectrograms: Tensor, boxes: BoxTable, stretch: Tensor, limits: Limits
) -> tuple[Tensor, BoxTable]:
    """Stretch time by ``stretch`` (B,) about the chunk's start: 1.1 makes every call 10 % longer.

    Frames are interpolated linearly; a stretch below 1 leaves the end to the quiet floor.
    """
    n_frames = spectrograms.shape[2]
    # frame i covers [i, i + 1): its centre i + ½ comes from (i + ½) / stretch of the original
    source = (torch.arange(n_frames)[None] + 0.5) / stretch[:, None] - 0.5  # (B, T)
    before = source.floor().long()
    share = to_device_of(spectrograms, source - before)[:, None, :, None]
    earlier = take_frames(spectrograms, before.clamp(0, n_frames - 1))
    later = take_frames(spectrograms, (before + 1).clamp(0, n_frames - 1))
    inside = to_device_of(spectrograms, source < n_frames - 0.5)[:, None, :, None]
    factor = torch.stack([stretch, torch.ones_like(stretch)] * 2, dim=1)[:, None]  # (B, 1, 4)
    stretched = _clip(boxes, boxes.cells * factor, spectrograms, limits)
    return torch.where(inside, torch.lerp(earlier, later, share), quiet_floor(spectrograms)), stretched


def time_mask(
    spectrograms: Tensor, boxes: BoxTable, start: Tensor, end: Tensor, limits: Limits
) -> tuple[Tensor, BoxTable]:
    """Hide the frames from ``start`` (B,) up to ``end`` (B,); boxes hidden by it are dropped."""
    frames = torch.arange(spectrograms.shape[2])[None]
    hidden = to_device_of(spectrograms, (frames >= start[:, None]) & (frames < end[:, None]))[
        :, None, :, None
    ]
    return torch.where(hidden, quiet_floor(spectrograms), spectrograms), _hide(boxes, 0, start, end, limits)


def frequency_mask(
    spectrograms: Tensor, boxes: BoxTable, start: Tensor, end: Tensor, limits: Limits
) -> tuple[Tensor, BoxTable]:
    """Hide the mel bins from ``start`` (B,) up to ``end`` (B,); boxes hidden by it are dropped."""
    bins = torch.arange(spectrograms.shape[3])[None]
    hidden = to_device_of(spectrograms, (bins >= start[:, None]) & (bins < end[:, None]))[:, None, None, :]
    return torch.where(hidden, quiet_floor(spectrograms), spectrograms), _hide(boxes, 1, start, end, limits)


def noise_and_gain(spectrograms: Tensor, std: Tensor, gain_db: Tensor, generator: torch.Generator) -> Tensor:
    """Add Gaussian noise of ``std`` (B,) nats and a gain of ``gain_db`` (B,); boxes stay.

    ``generator`` lives on the spectrograms' device.
    """
    noise = torch.randn(spectrograms.shape, generator=generator, device=spectrograms.device)
    spread = to_device_of(spectrograms, std)[:, None, None, None]
    gain = to_device_of(spectrograms, gain_db * NATS_PER_DB)[:, None, None, None]
    return spectrograms + noise.to(spectrograms.dtype) * spread + gain


def mix_background(spectrograms: Tensor, background: Tensor, relative_db: Tensor) -> Tensor:
    """Add the power of ``background`` (B, 1, T, F), ``relative_db`` (B,) louder than the chunk; boxes stay.

    Levels are mean log-powers, which a few loud calls hardly move: 0 dB puts the background as high as the
    chunk's own.
    """
    gain = to_device_of(spectrograms, relative_db * NATS_PER_DB)[:, None, None, None]
    return torch.logaddexp(spectrograms, background + _level(spectrograms) - _level(background) + gain)


def mixup(
    spectrograms: Tensor, boxes: BoxTable, partner: Tensor, partner_boxes: BoxTable, share: Tensor
) -> tuple[Tensor, BoxTable]:
    """Two soundscapes at once: power ``1 − share`` of the one, ``share`` (B,) of its partner, all boxes.

    The partner is brought to the same level first (mean log-power): recorders differ in gain, and the calls
    of the quieter one would drown while their boxes stay.
    """
    weight = to_device_of(spectrograms, share)[:, None, None, None]
    levelled = partner + _level(spectrograms) - _level(partner)
    mixed = torch.logaddexp(spectrograms + torch.log1p(-weight), levelled + torch.log(weight))
    return mixed, join_tables(boxes, partner_boxes)


def cutmix(
    spectrograms: Tensor,
    boxes: BoxTable,
    partner: Tensor,
    partner_boxes: BoxTable,
    patch: Tensor,
    limits: Limits,
) -> tuple[Tensor, BoxTable]:
    """Paste the partner's ``patch`` (B, 4; t1, f1, t2, f2 in whole cells) over the same place.

    The partner's boxes keep what lies inside the patch, unless too little of their band does. The other
    boxes keep what the patch leaves free (two boxes where it cuts through one); one that it hides
    without cutting through counts as occluded.
    """
    _, _, n_frames, n_bins = spectrograms.shape
    frames, bins = torch.arange(n_frames)[None], torch.arange(n_bins)[None]
    in_time = to_device_of(spectrograms, (frames >= patch[:, :1]) & (frames < patch[:, 2:3]))
    in_band = to_device_of(spectrograms, (bins >= patch[:, 1:2]) & (bins < patch[:, 3:]))
    pasted = torch.where((in_time[:, :, None] & in_band[:, None, :])[:, None], partner, spectrograms)
    inside = _clip_boxes(partner_boxes, partner_boxes.cells, patch[:, None].float(), limits)
    height = (partner_boxes.cells[..., 3] - partner_boxes.cells[..., 1]).clamp(min=1e-6)
    band_left = (inside.cells[..., 3] - inside.cells[..., 1]) / height
    inside = inside._replace(kept=inside.kept & (band_left >= 1 - limits.max_occlusion))
    return pasted, join_tables(_cut_away(boxes, patch, limits), inside)


def _level(spectrograms: Tensor) -> Tensor:
    """Mean log-power of each example, (B, 1, 1, 1)."""
    return spectrograms.mean(dim=(2, 3), keepdim=True)


def to_device_of(spectrograms: Tensor, values: Tensor) -> Tensor:
    """Small CPU values on the spectrograms' device; does not wait for it."""
    wanted = spectrograms.dtype if values.is_floating_point() else values.dtype
    return to_device(values.to(wanted), spectrograms.device)


def take_frames(spectrograms: Tensor, index: Tensor) -> Tensor:
    """Frames ``index`` (B, T) of each example of (B, 1, T, F)."""
    own = torch.arange(len(spectrograms), device=spectrograms.device)[:, None]
    return spectrograms[:, 0][own, to_device_of(spectrograms, index)][:, None]


def _clip(boxes: BoxTable, moved: Tensor, spectrograms: Tensor, limits: Limits) -> BoxTable:
    """Boxes at ``moved`` (B, M, 4), cut at the spectrogram's edges."""
    n_frames, n_bins = spectrograms.shape[2:]
    return _clip_boxes(boxes, moved, torch.tensor([0.0, 0.0, n_frames, n_bins]), limits)


def _clip_boxes(boxes: BoxTable, moved: Tensor, frame: Tensor, limits: Limits) -> BoxTable:
    """Cut boxes at ``frame`` (… 4); those that *became* too small are dropped, naturally small ones stay."""
    low = torch.maximum(moved[..., :2], frame[..., :2])
    high = torch.minimum(moved[..., 2:], frame[..., 2:])
    left, before = high - low, moved[..., 2:] - moved[..., :2]
    minimum = torch.tensor([limits.min_frames, limits.min_bins], dtype=left.dtype)
    fine = (left > 0) & ((left >= minimum) | (left >= before - 1e-4))  # rounding of a moved edge is not a cut
    return boxes._replace(cells=torch.cat([low, high], dim=-1), kept=boxes.kept & fine.all(dim=-1))


def _hide(boxes: BoxTable, axis: int, start: Tensor, end: Tensor, limits: Limits) -> BoxTable:
    """Account for a mask over the whole other axis; ``axis`` 0 is time, 1 frequency.

    A time mask and a frequency mask are independent, so what stays visible multiplies.
    """
    low, high = boxes.cells[..., axis], boxes.cells[..., axis + 2]
    covered = (torch.minimum(high, end[:, None]) - torch.maximum(low, start[:, None])).clamp(min=0)
    visible = boxes.visible * (1 - covered / (high - low).clamp(min=1e-6))
    return boxes._replace(kept=boxes.kept & _is_large_enough(visible, limits), visible=visible)


def _cut_away(boxes: BoxTable, patch: Tensor, limits: Limits) -> BoxTable:
    """What is left of boxes under a pasted ``patch`` (B, 4).

    A patch across all of a box's band leaves what comes before it and what comes after; one along all of
    its time leaves what is below and what is above; any other hides part of the box.
    """
    cells, over = boxes.cells, patch[:, None].to(boxes.cells.dtype)  # (B, M, 4), (B, 1, 4)
    touched = ((cells[..., 2:] > over[..., :2]) & (cells[..., :2] < over[..., 2:])).all(dim=-1)  # (B, M)
    whole = (over[..., :2] <= cells[..., :2]) & (over[..., 2:] >= cells[..., 2:])  # (B, M, 2) time, band
    in_time = touched & whole[..., 1]
    in_band = touched & whole[..., 0] & ~in_time
    cut = torch.stack([in_time, in_band], dim=-1)  # (B, M, 2)
    first = torch.cat([cells[..., :2], torch.where(cut, over[..., :2], cells[..., 2:])], dim=-1)
    second = torch.cat([torch.where(cut, over[..., 2:], cells[..., :2]), cells[..., 2:]], dim=-1)
    before = _hide_under(_clip_boxes(boxes, cells, first, limits), over, limits)
    after = _clip_boxes(boxes, cells, second, limits)
    return join_tables(before, after._replace(kept=after.kept & cut.any(dim=-1)))


def _hide_under(boxes: BoxTable, over: Tensor, limits: Limits) -> BoxTable:
    """Account for a patch ``over`` (B, 1, 4) that lies over part of some boxes."""
    low = torch.maximum(boxes.cells[..., :2], over[..., :2])
    high = torch.minimum(boxes.cells[..., 2:], over[..., 2:])
    size = (boxes.cells[..., 2:] - boxes.cells[..., :2]).clamp(min=1e-6)
    visible = boxes.visible * (1 - ((high - low).clamp(min=0) / size).prod(dim=-1))
    return boxes._replace(kept=boxes.kept & _is_large_enough(visible, limits), visible=visible)


def _is_large_enough(visible: Tensor, limits: Limits) -> Tensor:
    return (visible > 0) & (visible >= 1 - limits.max_occlusion)


def join_tables(boxes: BoxTable, others: BoxTable) -> BoxTable:
    """Both sets of boxes of each example; without gaps, so that the table stays as narrow as it can be."""
    cells, *columns = (torch.cat(pair, dim=1) for pair in zip(boxes, others, strict=True))
    kept = columns[0]
    width = int(kept.sum(dim=1).max()) if kept.numel() else 0
    order = (~kept).int().argsort(dim=1, stable=True)[:, :width]
    return BoxTable(
        cells.gather(1, order[:, :, None].expand(-1, -1, 4)), *(column.gather(1, order) for column in columns)
    )
