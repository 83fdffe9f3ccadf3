"""Augmentation of training batches: a few mild, box-consistent changes per example.

Where it belongs: **after** the log-mel features and **before** normalisation. The paper's App.
"Augmentations" lists the operations and calls them mild, "a small random subset" each time; the strengths
below are our choice where no table is named, and all sit in one place, :class:`AugmentConfig`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from mast.data import transforms
from mast.data.noise_bank import NoiseBank
from mast.data.repeats import USUAL_GAP, repeat_calls
from mast.data.transforms import BoxTable, Limits, box_table, listed_boxes
from mast.device import to_device
from mast.errors import ConfigError

Operation = Literal[
    "time_warp",
    "time_shift",
    "frequency_shift",
    "repeats",
    "mixup",
    "cutmix",
    "background",
    "noise_and_gain",
    "time_mask",
    "frequency_mask",
]
# in the order in which they are applied: first those that move sound, then those that add or hide it
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
BY_DEFAULT = tuple(name for name in OPERATIONS if name != "repeats")  # the paper's

Range = tuple[float, float]


class AugmentConfig(BaseModel):
    """Which augmentations, how often and how strong. Shares are of the chunk's frames or mel bins."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    probability: float = Field(
        default=0.9, ge=0, le=1, description="share of the examples changed; Table 'Detector fine-tuning'"
    )
    most: int = Field(
        default=3,
        ge=1,
        description="maximum number of operations per changed example; 1 to this many are equally likely",
    )
    operations: tuple[Operation, ...] = Field(
        default=BY_DEFAULT,
        description="operations to choose from; repeats, which makes songs and rows of one call, is not the paper's",
    )
    song_gap: float | None = Field(
        default=None,
        gt=0,
        description="repeats with gaps of fewer frames are one song with one box; by default, taken from the expert's "
        "boxes",
    )
    time_shift: float = Field(
        default=0.25, ge=0, le=1, description="largest shift either way, share of the frames"
    )
    frequency_shift: float = Field(
        default=0.05, ge=0, le=1, description="largest shift either way, share of the bins"
    )
    time_warp: float = Field(
        default=0.1, ge=0, lt=1, description="largest stretch either way; 0.1 is 0.9 to 1.1"
    )
    time_mask: float = Field(default=0.1, ge=0, le=1, description="widest mask, share of the frames")
    frequency_mask: float = Field(default=0.1, ge=0, le=1, description="widest mask, share of the bins")
    noise_std: float = Field(
        default=0.3, ge=0, description="largest deviation of the noise, nats of log power"
    )
    gain_db: float = Field(default=6.0, ge=0, description="largest gain either way")
    background_db: Range = Field(
        default=(-15.0, 0.0), description="level of mixed-in background against the chunk's own"
    )
    mixup_share: Range = Field(default=(0.3, 0.5), description="the partner's share of the power")
    cutmix_time: Range = Field(
        default=(0.2, 0.5), description="length of the pasted patch, share of the frames"
    )
    cutmix_band: Range = Field(
        default=(1.0, 1.0),
        description="its height, share of the bins; a whole band is like a splice of tape, without unnatural edges",
    )
    max_occlusion: float = Field(
        default=0.5, ge=0, le=1, description="hidden share above which a box is dropped"
    )
    min_frames: int = Field(
        default=10, ge=1, description="boxes cut shorter are dropped: 100 ms, App. 'Data Processing'"
    )
    min_bins: int = Field(default=2, ge=1, description="boxes cut lower are dropped")

    @model_validator(mode="after")
    def _ranges_are_in_order(self) -> AugmentConfig:
        for name, lowest, highest in (
            ("background_db", -200.0, 200.0),
            ("mixup_share", 0.01, 0.99),
            ("cutmix_time", 0.01, 1.0),
            ("cutmix_band", 0.01, 1.0),
        ):
            low, high = getattr(self, name)
            if not lowest <= low <= high <= highest:
                raise ConfigError(
                    f"augmentation: {name} is {low:g} to {high:g}; expected low ≤ high, both within "
                    f"{lowest:g} to {highest:g}"
                )
        return self

    @property
    def limits(self) -> Limits:
        """When a box is dropped."""
        return Limits(self.max_occlusion, self.min_frames, self.min_bins)


class Augmented(NamedTuple):
    """An augmented batch."""

    spectrograms: Tensor  # (B, 1, T, F) raw log-mel
    boxes: list[Tensor]  # B × (M, 4) float cells, on the CPU
    doubtful: list[Tensor]  # B × (D, 4) boxes that are perhaps calls
    weights: Tensor  # (B,); for a mixture, the mean of its parts, weighted by their shares


def augment_batch(
    spectrograms: Tensor,
    boxes: Sequence[Tensor],
    config: AugmentConfig,
    *,
    generator: torch.Generator,
    sure: Sequence[Tensor] | None = None,
    weights: Tensor | None = None,
    noise: NoiseBank | None = None,
) -> Augmented:
    """Augment a batch; the inputs are left as they were.

    All choices are drawn on the CPU and boxes are moved there, so that nothing waits for a GPU and the same
    seed makes the same choices on every device.

    Args:
        spectrograms: (B, 1, T, F) *raw* log-mel (natural log of power), any device.
        boxes: B tensors (M, 4), rows ``t1, f1, t2, f2`` in cells; M may be 0.
        config: which, how often, how strong.
        generator: a CPU generator; decides everything random.
        sure: B tensors (M,) bool, which boxes are calls; the others are doubtful. All are calls by default.
        weights: (B,) weight of each example in the loss; 1 by default.
        noise: background to mix in; without one ``"background"`` is not drawn.
    """
    assert generator.device.type == "cpu", "choices are drawn on the CPU, so that nothing waits for a GPU"
    batch = len(spectrograms)
    loss_weights = torch.ones(batch) if weights is None else weights.clone()
    table = box_table([b.detach().cpu() for b in boxes], sure)
    out = spectrograms.clone()
    available = _available_operations(config, noise, batch)
    chosen = _choose_operations(batch, len(available), config, generator)
    for column, operation in enumerate(available):
        rows = chosen[:, column].nonzero().flatten()
        if not len(rows):
            continue
        draw = _Draw(len(rows), generator)
        index = to_device(rows, out.device)
        own = _Examples(out[index], table.rows(rows))
        if operation in ("mixup", "cutmix"):
            partners = _partners(batch, generator)[rows]
            other = _Examples(out[to_device(partners, out.device)], table.rows(partners))
            changed, share = _apply_mixing(operation, own, other, draw, config)
            loss_weights[rows] += share.to(loss_weights) * (loss_weights[partners] - loss_weights[rows])
        else:
            changed = _apply_to_each(operation, own, draw, config, noise)
        out[index] = changed.spectrograms
        table = table.replace_rows(rows, changed.boxes)
    return Augmented(out, listed_boxes(table), listed_boxes(table, sure=False), loss_weights)


class _Examples(NamedTuple):
    """Some examples of the batch."""

    spectrograms: Tensor  # (n, 1, T, F)
    boxes: BoxTable


def _available_operations(config: AugmentConfig, noise: NoiseBank | None, batch: int) -> list[Operation]:
    """The configured operations that are possible here, in the order in which they are applied."""
    impossible: set[Operation] = set()
    if noise is None:
        impossible.add("background")
    if batch < 2:
        impossible |= {"mixup", "cutmix"}
    return [name for name in OPERATIONS if name in config.operations and name not in impossible]


def _choose_operations(
    batch: int, n_operations: int, config: AugmentConfig, generator: torch.Generator
) -> Tensor:
    """(B, K) which operations each example gets: none, or 1 to ``config.most`` different ones."""
    changed = torch.rand(batch, generator=generator) < config.probability
    max_operations = max(1, min(config.most, n_operations))
    count = torch.randint(1, max_operations + 1, (batch,), generator=generator) * changed
    rank = torch.rand(batch, n_operations, generator=generator).argsort(dim=1).argsort(dim=1)
    return rank < count[:, None]


class _Draw:
    """Random parameters, one per example concerned."""

    def __init__(self, n: int, generator: torch.Generator) -> None:
        self.n = n
        self.generator = generator

    def uniform(self, low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(self.n, generator=self.generator)

    def shift(self, largest: int) -> Tensor:
        """Whole cells from −largest to largest."""
        return torch.randint(-largest, largest + 1, (self.n,), generator=self.generator)

    def random_stretch(self, size: int, shares: Range) -> tuple[Tensor, Tensor]:
        """Start and end of a stretch of whole cells, ``shares`` of ``size`` long, anywhere."""
        length = (self.uniform(*shares) * size).ceil().long().clamp(max=size)
        start = (torch.rand(self.n, generator=self.generator) * (size - length + 1)).long()
        return start, start + length

    def device_generator(self, device: torch.device) -> torch.Generator:
        """A generator on the device, seeded from ours."""
        seed = int(torch.randint(2**62, (), generator=self.generator))
        return torch.Generator(device=device).manual_seed(seed)


def _apply_to_each(
    operation: Operation, own: _Examples, draw: _Draw, config: AugmentConfig, noise: NoiseBank | None
) -> _Examples:
    """Apply an operation that changes each example on its own."""
    spectrograms, boxes = own
    n_frames, n_bins = spectrograms.shape[2:]
    limits = config.limits
    match operation:
        case "time_shift":
            frames = draw.shift(round(config.time_shift * n_frames))
            return _Examples(*transforms.time_shift(spectrograms, boxes, frames, limits))
        case "frequency_shift":
            bins = draw.shift(round(config.frequency_shift * n_bins))
            return _Examples(*transforms.frequency_shift(spectrograms, boxes, bins, limits))
        case "time_warp":
            stretch = draw.uniform(1 - config.time_warp, 1 + config.time_warp)
            return _Examples(*transforms.time_warp(spectrograms, boxes, stretch, limits))
        case "repeats":
            gap = config.song_gap or USUAL_GAP
            return _Examples(*repeat_calls(spectrograms, boxes, gap=gap, generator=draw.generator))
        case "time_mask":
            start, end = draw.random_stretch(n_frames, (0.0, config.time_mask))
            return _Examples(*transforms.time_mask(spectrograms, boxes, start, end, limits))
        case "frequency_mask":
            start, end = draw.random_stretch(n_bins, (0.0, config.frequency_mask))
            return _Examples(*transforms.frequency_mask(spectrograms, boxes, start, end, limits))
        case "noise_and_gain":
            std = draw.uniform(0.0, config.noise_std)
            gain_db = draw.uniform(-config.gain_db, config.gain_db)
            on_device = draw.device_generator(spectrograms.device)
            return _Examples(transforms.noise_and_gain(spectrograms, std, gain_db, on_device), boxes)
        case "background":
            assert noise is not None
            background = noise.draw(draw.n, generator=draw.generator).to(spectrograms)
            relative_db = draw.uniform(*config.background_db)
            return _Examples(transforms.mix_background(spectrograms, background, relative_db), boxes)
    raise AssertionError(f"no such operation: {operation}")


def _apply_mixing(
    operation: Operation, own: _Examples, other: _Examples, draw: _Draw, config: AugmentConfig
) -> tuple[_Examples, Tensor]:
    """Apply an operation that mixes in another example; also returns that example's share (n,) of the result."""
    n_frames, n_bins = own.spectrograms.shape[2:]
    if operation == "mixup":
        share = draw.uniform(*config.mixup_share)
        return _Examples(*transforms.mixup(*own, *other, share)), share
    t1, t2 = draw.random_stretch(n_frames, config.cutmix_time)
    f1, f2 = draw.random_stretch(n_bins, config.cutmix_band)
    patch = torch.stack([t1, f1, t2, f2], dim=1)
    share = (t2 - t1) * (f2 - f1) / (n_frames * n_bins)
    return _Examples(*transforms.cutmix(*own, *other, patch, config.limits)), share


def _partners(batch: int, generator: torch.Generator) -> Tensor:
    """(B,) another example for each: neighbours on a random ring, so no example is its own partner."""
    ring = torch.randperm(batch, generator=generator)
    partners = torch.empty_like(ring)
    partners[ring] = ring.roll(1)
    return partners
