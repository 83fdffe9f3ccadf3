"""Which part of an event can be seen, and the box a person would draw around it.

An event's own clean spectrogram is compared, cell by cell, with the local level of its background and with
louder events on top of it. What remains is cut into boxes wherever nothing is seen for longer than the
gap, and each box hugs its visible cells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy import fft

from mast.arrays import Samples

Power = NDArray[np.float32]

_FLOOR = np.float32(1e-14)
_BLOCK_FRAMES = 64
_BAND_GAP = 4  # bins between two bands of one call
_EDGE_SHARE = 0.005  # of the call's clarity, left outside at the top and at the bottom
_BAND_SHARE = 0.07  # of the call's clarity, for a band to be noticed


class BoxStyle(BaseModel):
    """How an annotator draws. Defaults are our choice, by comparison with real recordings boxed by hand.

    People differ most in the gap. One set of xeno-canto recordings separates calls of one species 0.07 s apart
    (the tenth percentile of gaps between neighbouring boxes is 0.04 s), one from Doñana none closer than 0.8 s.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    gap_s: float = Field(0.25, ge=0, description="calls of one animal closer than this share a box")
    song_gap_s: float | None = Field(
        None, ge=0, description="the same for songs, whose notes differ; the gap of calls by default"
    )
    trains_are_songs: bool = Field(
        False, description="trills and trains of pulses have the gap of songs, too"
    )
    above_background_db: float = Field(
        7.0, description="a cell is seen when the event is this far above its background"
    )
    edge_db: float | None = Field(
        None,
        description="the box of a visible event also takes in fainter cells, down to this far above its background; "
        "above_background_db by default",
    )
    below_peak_db: float = Field(
        45.0, gt=0, description="a cell further than this below the event's own loudest cell is not seen"
    )
    tail_db: float = Field(
        26.0,
        gt=0,
        description="frames whose loudest cell is further below the event's loudest are fading echo",
    )
    masked_db: float = Field(
        6.0, ge=0, description="a cell further than this below all events together is not seen"
    )
    same_call_overlap: float = Field(
        0.5, gt=0, le=1, description="boxes of one label that share this much of the smaller are one box"
    )
    min_cells: int = Field(
        8, ge=1, description="fewer visible cells (10 ms × 1/512 of the sample rate) are not noticed"
    )
    min_duration_s: float = Field(0.02, ge=0, description="shorter boxes are not drawn")

    def gap_of(self, *, song: bool) -> float:
        """The gap that separates two boxes of one animal."""
        return self.song_gap_s if song and self.song_gap_s is not None else self.gap_s

    @property
    def lowest_db(self) -> float:
        """How far above its background the faintest part of a box is."""
        return self.above_background_db if self.edge_db is None else self.edge_db

    @property
    def longest_gap_s(self) -> float:
        """Boxes further apart than this are never joined."""
        return max(self.gap_s, self.song_gap_s or 0.0)


@dataclass(frozen=True)
class Event:
    """One box: what is seen of a call or of calls too close to separate."""

    start_s: float
    end_s: float
    low_hz: float
    high_hz: float
    label: str
    distance_m: float
    signal: float  # mean power of the event's cells inside the box
    noise: float  # mean power of the background's cells inside the box
    caller: int = 0  # which animal of the scene
    song: bool = False  # notes that differ, in a row

    @property
    def snr_db(self) -> float:
        """Mean event power over mean background power, both inside the box."""
        return float(10 * np.log10(max(self.signal, 1e-20) / max(self.noise, 1e-20)))

    @property
    def row(self) -> tuple[float, float, float, float]:
        """start_s, low_hz, end_s, high_hz."""
        return (self.start_s, self.low_hz, self.end_s, self.high_hz)


class PowerGrid:
    """Power on a grid of 25 ms frames every 10 ms, as in the paper's front end, linear in frequency."""

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self.hop = max(1, round(0.01 * sample_rate))
        self.window = max(2, round(0.025 * sample_rate))
        self.size = 1 << int(np.ceil(np.log2(self.window)))
        hann = np.hanning(self.window)
        self._taper = (hann / np.sqrt(np.sum(hann * hann))).astype(np.float32)
        self.bin_hz = sample_rate / self.size

    def frames(self, n: int) -> int:
        """Whole frames in ``n`` samples."""
        return max(0, (n - self.window) // self.hop + 1)

    def power(self, samples: Samples, *, every: int = 1) -> Power:
        """(frames, bins) power of one in ``every`` frames; at least one frame (short sound is padded)."""
        if len(samples) < self.window:
            samples = np.pad(samples, (0, self.window - len(samples)))
        cut = np.lib.stride_tricks.sliding_window_view(samples, self.window)[:: self.hop * every]
        spectrum = fft.rfft(cut * self._taper, n=self.size, axis=1)
        return np.asarray(spectrum.real**2 + spectrum.imag**2, dtype=np.float32)

    def start_s(self, frame: int) -> float:
        """Where a frame's own hop begins: its centre less half a hop."""
        return (frame * self.hop + 0.5 * (self.window - self.hop)) / self.sample_rate


class Level(NamedTuple):
    """The background's local level: geometric mean power per block of frames and bin."""

    blocks: Power  # (blocks, bins)
    block_frames: int

    def at(self, first: int, count: int) -> Power:
        """(count, bins) level of consecutive frames; beyond the end, the last block is repeated."""
        index = np.clip(np.arange(first, first + count) // self.block_frames, 0, len(self.blocks) - 1)
        return self.blocks[index]


def background_level(background: Samples, grid: PowerGrid) -> Level:
    """Local level of a background.

    The geometric mean over 0.64 s barely notices clicks and drops, follows gusts and engines, and is what
    the eye takes for the background's brightness. Every second frame will do; neighbouring bins are averaged
    to reduce the estimate's own scatter.
    """
    power = grid.power(background, every=2)
    half = min(_BLOCK_FRAMES // 2, len(power))
    whole = len(power) // half
    logs = np.log(np.maximum(power[: whole * half], _FLOOR))
    level = logs.reshape(whole, half, -1).mean(axis=1)
    padded = np.pad(level, ((0, 0), (2, 2)), mode="edge")
    smooth = sum(padded[:, k : k + level.shape[1]] for k in range(5)) / 5
    return Level(np.exp(smooth).astype(np.float32), 2 * half)


def visible_boxes(
    power: Power,
    level: Power,
    everything: Power,
    first_frame: int,
    spectrogram: PowerGrid,
    style: BoxStyle,
    *,
    song: bool = False,
) -> list[Event]:
    """Boxes around what is seen of one event.

    Args:
        power: (frames, bins) of the event alone.
        level: (frames, bins) of its background.
        everything: (frames, bins) of all events together.
        first_frame: the event's first frame in the scene.
        spectrogram: the grid.
        style: how boxes are drawn.
        song: whether the event is a song.

    Returns:
        Events in seconds from the scene's start, without label or distance.
    """
    peak = float(power.max(initial=0.0))
    floor = peak * np.float32(10 ** (-style.below_peak_db / 10))
    threshold = np.maximum(level * np.float32(10 ** (style.lowest_db / 10)), floor)
    seen = (power >= threshold) & (power >= everything * np.float32(10 ** (-style.masked_db / 10)))
    plain = np.float32(10 ** (style.above_background_db / 10))
    seen[power.max(axis=1) < peak * 10 ** (-style.tail_db / 10)] = False
    frames, bins = np.nonzero(seen)
    if not frames.size:
        return []
    clarity = np.log(power[frames, bins] / threshold[frames, bins])  # how plainly each cell is seen
    gap = max(1, round(style.gap_of(song=song) * spectrogram.sample_rate / spectrogram.hop))
    parts = np.flatnonzero(np.diff(frames) > gap) + 1
    events: list[Event] = []
    for cells in np.split(np.arange(frames.size), parts):
        at = frames[cells], bins[cells]
        if np.count_nonzero(power[at] >= plain * level[at]) < style.min_cells:
            continue
        f1, f2 = _plain_extent(bins[cells], clarity[cells])
        inside = cells[(bins[cells] >= f1) & (bins[cells] < f2)]
        t1, t2 = int(frames[inside[0]]), int(frames[inside[-1]]) + 1
        start_s, end_s = spectrogram.start_s(first_frame + t1), spectrogram.start_s(first_frame + t2)
        if end_s - start_s < style.min_duration_s - 1e-9:
            continue
        events.append(
            Event(
                start_s=start_s,
                end_s=end_s,
                low_hz=max(0.0, (f1 - 0.5) * spectrogram.bin_hz),
                high_hz=min((f2 - 0.5) * spectrogram.bin_hz, spectrogram.sample_rate / 2),
                label="",
                distance_m=0.0,
                signal=float(power[t1:t2, f1:f2].mean()),
                noise=float(level[t1:t2, f1:f2].mean()),
                song=song,
            )
        )
    return events


def _plain_extent(bins: NDArray[np.int64], clarity: Power) -> tuple[int, int]:
    """First and past-the-last bin of what is plainly seen.

    Bins are taken in bands (a fundamental, a harmonic); a band that holds hardly any of the event's clarity
    would be overlooked, and does not stretch the box. Nor does the last half per cent at either edge.
    """
    weight = np.bincount(bins, weights=clarity)
    used = np.unique(bins)
    bands = np.split(used, np.flatnonzero(np.diff(used) > _BAND_GAP) + 1)
    clear = np.concatenate([band for band in bands if weight[band].sum() >= _BAND_SHARE * weight.sum()])
    share = np.cumsum(weight[clear]) / max(float(weight[clear].sum()), 1e-12)
    low, high = np.searchsorted(share, (_EDGE_SHARE, 1.0 - _EDGE_SHARE))
    return int(clear[low]), int(clear[min(high, len(clear) - 1)]) + 1


def union(a: Event, b: Event) -> Event:
    """The box around two events; powers are averaged by area, and the nearer distance is kept."""
    area_a, area_b = ((e.end_s - e.start_s) * (e.high_hz - e.low_hz) for e in (a, b))
    share = area_a / max(area_a + area_b, 1e-12)
    return replace(
        a,
        start_s=min(a.start_s, b.start_s),
        end_s=max(a.end_s, b.end_s),
        low_hz=min(a.low_hz, b.low_hz),
        high_hz=max(a.high_hz, b.high_hz),
        distance_m=min(a.distance_m, b.distance_m),
        signal=share * a.signal + (1 - share) * b.signal,
        noise=share * a.noise + (1 - share) * b.noise,
    )


def merge_events(events: list[Event], style: BoxStyle) -> list[Event]:
    """Join boxes of one animal that are closer than the gap, and boxes of one label that mostly coincide.

    Returns them in order of start. Joining is repeated until nothing changes, so its result does not depend
    on the order given.
    """
    joined = sorted(events, key=_order)
    while True:
        before = len(joined)
        joined = _join_once(joined, style)
        if len(joined) == before:
            return joined


def _order(event: Event) -> tuple[float, float, float, float, int]:
    return (event.start_s, event.low_hz, event.end_s, event.high_hz, event.caller)


def _join_once(events: list[Event], style: BoxStyle) -> list[Event]:
    """One pass in order of start; boxes that ended too long ago to join anything later are set aside."""
    done: list[Event] = []
    open_: list[Event] = []
    for event in events:
        done += [e for e in open_ if e.end_s < event.start_s - style.longest_gap_s]
        open_ = [e for e in open_ if e.end_s >= event.start_s - style.longest_gap_s]
        for k, other in enumerate(open_):
            if _should_join(other, event, style):
                open_[k] = union(other, event)
                break
        else:
            open_.append(event)
    return sorted(done + open_, key=_order)


def _should_join(a: Event, b: Event, style: BoxStyle) -> bool:
    if a.label != b.label:
        return False
    apart_s = max(a.start_s, b.start_s) - min(a.end_s, b.end_s)
    if a.caller == b.caller and apart_s <= style.gap_of(song=a.song):
        return True
    if apart_s >= 0:
        return False
    height = min(a.high_hz, b.high_hz) - max(a.low_hz, b.low_hz)
    smaller = min((e.end_s - e.start_s) * (e.high_hz - e.low_hz) for e in (a, b))
    return height > 0 and -apart_s * height >= style.same_call_overlap * smaller
