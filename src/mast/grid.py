"""Seconds and hertz ↔ frames and mel bins. The only place where coordinates change.

A *front end* fixes the grid: sample rate, frequency band, mel bins, frame hop. The default is the
paper's (App. "Data Processing"): 16 kHz, 20–8000 Hz, 128 bins, 10 ms. :meth:`FrontEnd.for_band` gives
the same picture for another band: everything scales as if the tape were played faster or slower, so a
fish at 0–2 kHz or a bat at 0–128 kHz fills the same 1024 × 128 cells as a bird does.

Boxes are rows ``(t1, f1, t2, f2)``: in grid cells here, in ``(start_s, low_hz, end_s, high_hz)`` outside.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, model_validator

from mast.arrays import BoolArray, FloatArray, IntArray
from mast.errors import ConfigError

MIN_EVENT_FRAMES = 10  # App. "Bounding box coordinate conversion": under 100 ms after clipping is dropped
# of a chunk; our choice: more than a computer can process at once, so that a mistake does not fill its memory
MAX_FRAMES, MAX_BINS = 16_384, 1_024
MAX_RATE = 10_000_000  # Hz, of any recorder
_CELL_DIGITS = 6  # decimals of fractional cells that survive conversion to seconds and hertz and back
_EDGE = 1e-6  # a boundary this close below a frame edge (in frames) lies on it: 0.29 / 0.01 = 28.999…
_MIN_BINS = 1.0  # how much of a box the band's edge must leave: less than a cell says nothing about the call

# where the band ends for the animals that mast is used for most; hardly any bat calls above 128 kHz
BANDS_HZ = {"fish": 2_000.0, "frogs": 8_000.0, "birds": 8_000.0, "bats": 128_000.0}


class FrontEnd(BaseModel):
    """What the detector looks at: a band of frequencies, and how finely time is divided.

    Defaults are the paper's. Times are given in samples so that frames are exact.

    >>> from mast.grid import FrontEnd
    >>> front_end = FrontEnd()
    >>> front_end.hop_s, front_end.chunk_s, front_end.chunk_samples
    (0.01, 10.24, 163840)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    sample_rate: int = Field(
        default=16_000, gt=0, le=MAX_RATE, description="Hz; recordings are resampled to this"
    )
    low_hz: float = Field(default=20.0, ge=0, description="lower edge of the mel bank")
    high_hz: float = Field(default=8_000.0, gt=0, description="upper edge of the bank; at most half the rate")
    n_bins: int = Field(default=128, gt=0, le=MAX_BINS, description="mel bins")
    hop_samples: int = Field(default=160, gt=0, le=16_384, description="frame shift (10 ms)")
    window_samples: int = Field(default=400, gt=1, le=65_536, description="frame length (25 ms)")
    chunk_frames: int = Field(default=1_024, gt=0, le=MAX_FRAMES, description="frames per chunk (10.24 s)")
    mel_corner_hz: float = Field(default=700.0, gt=0, description="where the mel scale turns logarithmic")

    @model_validator(mode="after")
    def _band_fits(self) -> FrontEnd:
        if not self.low_hz < self.high_hz <= self.sample_rate / 2:
            raise ConfigError(
                f"front end: band {self.low_hz:g}–{self.high_hz:g} Hz does not fit a sample rate of "
                f"{self.sample_rate} Hz; expected low < high ≤ {self.sample_rate / 2:g} Hz"
            )
        return self

    @classmethod
    def for_band(cls, high_hz: float) -> FrontEnd:
        """The paper's front end, scaled so that its band ends at ``high_hz``.

        >>> fish = FrontEnd.for_band(2_000)
        >>> fish.sample_rate, fish.hop_s, fish.chunk_s
        (4000, 0.04, 40.96)
        """
        return cls().at_band(high_hz)

    def at_band(self, high_hz: float) -> FrontEnd:
        """The same front end played faster or slower, so that its band ends at ``high_hz``.

        Samples per frame, frames and bins stay the same: a model sees the same picture of sounds that are that much
        lower and slower, or higher and faster.

        >>> FrontEnd().at_band(2_000) == FrontEnd.for_band(2_000)
        True
        """
        if high_hz == self.high_hz:
            return self
        rate = _rate(self, high_hz)
        scale = rate / self.sample_rate  # a whole number, so the band may end a fraction of a hertz off
        edges = {name: getattr(self, name) * scale for name in ("low_hz", "mel_corner_hz")}
        # computed in this order, half the rate stays exactly half the rate
        edges["high_hz"] = self.high_hz * rate / self.sample_rate
        return FrontEnd.model_validate(self.model_dump() | {"sample_rate": rate, **edges})

    @property
    def hop_s(self) -> float:
        """Seconds between frames."""
        return self.hop_samples / self.sample_rate

    @property
    def chunk_samples(self) -> int:
        """Samples in a chunk (163,840 at the paper's values)."""
        return self.chunk_frames * self.hop_samples

    @property
    def chunk_s(self) -> float:
        """Seconds in a chunk (10.24 s at the paper's values)."""
        return self.chunk_samples / self.sample_rate

    def mel(self, hz: ArrayLike) -> FloatArray:
        """HTK mel, ``2595 log10(1 + hz / 700)``, with the corner scaled to the band.

        >>> FrontEnd().mel([20, 1_000, 8_000]).round(1).tolist()
        [31.7, 1000.0, 2840.0]
        """
        return np.asarray(2595.0 * np.log10(1.0 + np.asarray(hz, dtype=np.float64) / self.mel_corner_hz))

    def hz(self, mel: ArrayLike) -> FloatArray:
        """Inverse of :meth:`mel`.

        >>> FrontEnd().hz([31.7, 1_000, 2_840]).round().tolist()
        [20.0, 1000.0, 8000.0]
        """
        return np.asarray(self.mel_corner_hz * (10.0 ** (np.asarray(mel, dtype=np.float64) / 2595.0) - 1.0))

    @property
    def mel_step(self) -> float:
        """Mel between neighbouring bin centres."""
        return float((self.mel(self.high_hz) - self.mel(self.low_hz)) / (self.n_bins + 1))

    def hz_to_bins(self, hz: ArrayLike) -> FloatArray:
        """Hertz → fractional bin index; whole numbers are bin centres. Not clipped.

        >>> FrontEnd().hz_to_bins([500, 2_000, 8_000]).round(1).tolist()
        [25.4, 67.4, 128.0]
        """
        return (self.mel(hz) - self.mel(self.low_hz)) / self.mel_step - 1.0

    def bins_to_hz(self, bins: ArrayLike) -> FloatArray:
        """Fractional bin index → hertz; inverse of :meth:`hz_to_bins`.

        >>> FrontEnd().bins_to_hz([0, 64, 127]).round().tolist()
        [34.0, 1827.0, 7834.0]
        """
        return self.hz(self.mel(self.low_hz) + (np.asarray(bins, dtype=np.float64) + 1.0) * self.mel_step)


def upper_edge_hz(band: str | float) -> float:
    """The upper edge of a band, Hz, given as a number or by the name of animals (:data:`BANDS_HZ`).

    >>> upper_edge_hz("bats"), upper_edge_hz("2000")
    (128000.0, 2000.0)
    """
    try:
        high_hz = float(BANDS_HZ.get(str(band), band))
    except (TypeError, ValueError):
        high_hz = math.nan
    if not 0 < high_hz <= MAX_RATE / 2:
        names = ", ".join(f"{name} ({edge:g} Hz)" for name, edge in BANDS_HZ.items())
        raise ConfigError(
            f"'{str(band)[:40]}' is not a band; expected {names}, or a number of hertz up to {MAX_RATE / 2:,.0f}"
        )
    return high_hz


def _rate(front_end: FrontEnd, high_hz: float) -> int:
    """The sample rate at which a front end's band ends at ``high_hz``."""
    if not 0 < high_hz <= MAX_RATE / 2:
        raise ConfigError(
            f"front end: a band that ends at {high_hz:g} Hz; expected above 0 and at most {MAX_RATE / 2:,.0f} Hz"
        )
    rate = round(front_end.sample_rate * high_hz / front_end.high_hz)
    if not 1 <= rate <= MAX_RATE:
        raise ConfigError(f"front end: a band that ends at {high_hz:g} Hz cannot be searched; choose another")
    return rate


class GridBoxes(NamedTuple):
    """Boxes on a chunk's grid and which of the given events each came from."""

    boxes: IntArray  # (M, 4) t1, f1, t2, f2 in cells; upper edges exclusive
    index: IntArray  # type: ignore[assignment]  # (M,) row of the event among those given


def in_band(boxes: ArrayLike, front_end: FrontEnd) -> BoolArray:
    """Which events a front end can see: (N,).

    An event lies outside if the band does not reach it, or if the band's edge leaves less than a bin of it. One that
    is itself narrower stays.

    Args:
        boxes: (N, 4) rows ``start_s, low_hz, end_s, high_hz``.
        front_end: the band.

    >>> in_band([[1, 2000, 2, 9000], [1, 7990, 2, 9000], [1, 8500, 2, 9000]], FrontEnd()).tolist()
    [True, False, False]
    """
    low, high = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)[:, 1::2].T
    touching = (low <= front_end.high_hz) & (high >= front_end.low_hz)
    uncut = (low >= front_end.low_hz) & (high <= front_end.high_hz)
    bottom, top = front_end.hz_to_bins(np.clip([low, high], front_end.low_hz, front_end.high_hz))
    return np.asarray(touching & (uncut | (top - bottom >= _MIN_BINS - _EDGE)))


def events_to_grid(
    boxes: ArrayLike,
    front_end: FrontEnd,
    *,
    chunk_start_s: float = 0.0,
    n_frames: int | None = None,
    min_event_s: float | None = None,
) -> GridBoxes:
    """Convert events in seconds and hertz to cells of one chunk, as the paper's appendix does.

    Times: floor of seconds over the hop. Frequencies: nearest mel-bin centre. Clipped to the chunk; at
    least one cell each way. An event is left out when it does not touch the chunk, lies outside the band
    (:func:`in_band`), or was cut by the chunk's edge to less than ``min_event_s``. A call that is itself shorter
    stays: left out, it would be taught as background.

    Args:
        boxes: (N, 4) rows ``start_s, low_hz, end_s, high_hz``.
        front_end: the grid.
        chunk_start_s: where the chunk begins in the recording.
        n_frames: frames in the chunk; the front end's by default.
        min_event_s: shortest remnant kept, in seconds; ten frames (the paper's 100 ms) by default, 0 keeps all.

    Returns:
        Cells and the row each came from, in the order given.

    >>> events_to_grid([[1.0, 2000, 2.0, 3000]], FrontEnd()).boxes.tolist()
    [[100, 67, 200, 84]]
    """
    events = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    frames = front_end.chunk_frames if n_frames is None else n_frames
    shortest_s = MIN_EVENT_FRAMES * front_end.hop_s if min_event_s is None else min_event_s
    chunk_s = frames * front_end.hop_s
    start = np.clip(events[:, 0] - chunk_start_s, 0.0, chunk_s)
    end = np.clip(events[:, 2] - chunk_start_s, 0.0, chunk_s)
    # nanoseconds of tolerance: an event of exactly 0.1 s must not be lost to 0.09999999
    uncut = end - start >= events[:, 2] - events[:, 0] - 1e-9
    keep = in_band(events, front_end) & (end > start) & (uncut | (end - start >= shortest_s - 1e-9))
    index = np.flatnonzero(keep)

    t1 = np.floor(start[index] / front_end.hop_s + _EDGE).astype(np.int64)
    t2 = np.floor(end[index] / front_end.hop_s + _EDGE).astype(np.int64)
    top = front_end.n_bins - 1
    f1 = np.rint(np.clip(front_end.hz_to_bins(np.maximum(events[index, 1], 0.0)), 0, top)).astype(np.int64)
    f2 = np.rint(np.clip(front_end.hz_to_bins(np.maximum(events[index, 3], 0.0)), 0, top)).astype(np.int64)
    t1 = np.minimum(t1, frames - 1)
    t2 = np.clip(t2, t1 + 1, frames)
    f2 = np.clip(f2, f1 + 1, front_end.n_bins)
    return GridBoxes(np.stack([t1, f1, t2, f2], axis=1), index)


def grid_to_events(
    boxes: ArrayLike, front_end: FrontEnd, *, chunk_start_s: float | FloatArray = 0.0
) -> FloatArray:
    """Inverse of :func:`events_to_grid`: cells (whole or fractional) → seconds and hertz.

    Frequencies are kept inside the front end's band.

    Args:
        boxes: (M, 4) rows ``t1, f1, t2, f2`` in cells.
        front_end: the grid.
        chunk_start_s: where the chunk begins in the recording; (M,) where boxes are of several chunks.

    Returns:
        (M, 4) rows ``start_s, low_hz, end_s, high_hz``.

    >>> grid_to_events([[100, 67, 200, 84]], FrontEnd()).round(1).tolist()
    [[1.0, 1977.9, 2.0, 3018.8]]
    """
    cells = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    band = (front_end.low_hz, front_end.high_hz)
    return np.stack(
        [
            cells[:, 0] * front_end.hop_s + chunk_start_s,
            np.clip(front_end.bins_to_hz(cells[:, 1]), *band),
            cells[:, 2] * front_end.hop_s + chunk_start_s,
            np.clip(front_end.bins_to_hz(cells[:, 3]), *band),
        ],
        axis=1,
    )


def events_to_cells(boxes: ArrayLike, front_end: FrontEnd) -> FloatArray:
    """Seconds and hertz → fractional cells counted from the recording's start; nothing is clipped or left out.

    Undoes :func:`grid_to_events` to a millionth of a cell. Cells are rounded to that, so that an overlap of exactly one
    half on the grid stays exactly one half.

    Args:
        boxes: (N, 4) rows ``start_s, low_hz, end_s, high_hz``.
        front_end: the grid.

    Returns:
        (N, 4) rows ``t1, f1, t2, f2``.
    """
    events = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    frames, bins = events[:, ::2] / front_end.hop_s, front_end.hz_to_bins(events[:, 1::2])
    return np.stack([frames[:, 0], bins[:, 0], frames[:, 1], bins[:, 1]], axis=1).round(_CELL_DIGITS)
