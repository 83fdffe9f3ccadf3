"""A recording as the windows that the detector looks at.

The paper (App. "Data Processing"): chunks of 10.24 s every 5.12 s; a chunk holding less than half a
window of sound is discarded, one holding between half and all of it is zero-padded; each chunk is
mean-centred.

Two things the paper leaves open, and our reading:

- The mean is that of the sound alone, taken before padding, so that the padding is exactly silent.
- Windows stop once one of them reaches the end of the recording. A later window would hold only sound
  that is already in the one before (a 10.24 s clip is one window, not one and a half-empty second). For
  the one-minute recordings of the paper's bird domain both readings give the same 11 windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mast.arrays import Samples
from mast.audio.stream import stream
from mast.errors import AudioError
from mast.grid import FrontEnd

_BLOCK_S = 10.0  # minimum decoded at a time


@dataclass(frozen=True, eq=False)
class Window:
    """A piece of a recording, ready for the features.

    Attributes:
        start_s: where it begins in the recording; always a whole number of hops.
        samples: (front_end.chunk_samples,) float32, mean-centred, then zero-padded at the end.
        valid_s: seconds of real sound; the rest is padding.
    """

    start_s: float
    samples: Samples
    valid_s: float


@dataclass(frozen=True, eq=False)
class Windows:
    """Some consecutive windows of a recording: as :class:`Window`, one row each."""

    starts_s: tuple[float, ...]
    samples: Samples  # (B, front_end.chunk_samples)
    valid_s: tuple[float, ...]


def windows(
    path: str | Path,
    front_end: FrontEnd,
    *,
    hop_s: float | None = None,
    keep_short: bool = False,
) -> Iterator[Window]:
    """Yield the windows of a recording in order, in constant memory.

    Window *k* begins at sample ``k × hop`` of the resampled recording, exactly.

    Args:
        path: the recording; resampled to the front end's rate.
        front_end: window length and sample rate.
        hop_s: seconds from window to window, rounded to samples; half a window by default (the paper's).
        keep_short: also yield a last window with less than half a window of sound, where that sound is in
            no other window. For inference: a two-second clip is then one padded window instead of none.

    Raises:
        AudioError: as :func:`mast.audio.stream`, or a hop of less than a sample.
    """
    found = window_batches(path, front_end, 1, hop_s=hop_s, keep_short=keep_short)
    return (
        Window(*one) for some in found for one in zip(some.starts_s, some.samples, some.valid_s, strict=True)
    )


def window_batches(
    path: str | Path,
    front_end: FrontEnd,
    size: int,
    *,
    hop_s: float | None = None,
    keep_short: bool = False,
) -> Iterator[Windows]:
    """What :func:`windows` yields, ``size`` windows at once; the last batch has as many as are left.

    A few operations on all of them instead of on each: reading threads then get less in each other's way, and in the
    way of the one that drives a GPU.

    Raises:
        AudioError: as :func:`windows`.
    """
    length = front_end.chunk_samples
    hop = length // 2 if hop_s is None else round(hop_s * front_end.sample_rate)
    if hop < 1:
        raise AudioError(
            f"{path}: a hop of {hop_s} s between windows is less than one sample; expected more than 0, for "
            f"example {front_end.chunk_s / 2:g} s"
        )
    block_s = max(_BLOCK_S, size * hop / front_end.sample_rate)
    blocks = stream(path, sample_rate=front_end.sample_rate, block_s=block_s)
    return _cut_windows(blocks, front_end, hop, keep_short, size)


def spread_hop(duration_s: float, front_end: FrontEnd, *, hop_s: float, longest_s: float) -> float:
    """The step between windows of a recording: a little longer than requested where that saves its last window.

    Recorders write files of a minute. With windows of 10.24 s a step of 7.68 s needs eight of them, the last for 4 s of
    sound that no other reaches; seven that are 8.3 s apart reach the end as well.

    Args:
        duration_s: of the recording.
        front_end: of the windows.
        hop_s: the requested step.
        longest_s: the longest step allowed.

    >>> round(spread_hop(60.0, FrontEnd(), hop_s=7.68, longest_s=8.32), 2)
    8.3
    """
    frame_s = front_end.hop_s
    # after the first window; one frame more, because a resampled recording may have a few more samples
    behind = math.ceil((duration_s - front_end.chunk_s) / frame_s) + 1
    fewer = math.ceil(behind * frame_s / hop_s) - 1
    longer = math.ceil(behind / fewer) * frame_s if fewer > 0 else math.inf
    return longer if hop_s < longer <= longest_s else hop_s


def _cut_windows(
    blocks: Iterator[Samples], front_end: FrontEnd, hop: int, keep_short: bool, size: int
) -> Iterator[Windows]:
    length = front_end.chunk_samples
    start = 0  # of the next window
    buffer_start = 0  # position of buffer[0]
    buffer = np.empty(0, np.float32)
    for block in blocks:
        buffer = np.concatenate([buffer, block]) if len(buffer) else block
        while buffer_start + len(buffer) >= start + (size - 1) * hop + length:
            yield _make_windows(buffer[start - buffer_start :], start, hop, size, 0, front_end)
            start += size * hop
        used = min(start - buffer_start, len(buffer))
        buffer, buffer_start = buffer[used:], buffer_start + used

    end = buffer_start + len(buffer)
    whole = (end - start - length) // hop + 1 if end - start >= length else 0
    last = start + whole * hop
    reached = last - hop + length if last else 0  # where the last whole window ends
    valid = end - last
    rest = valid if reached < end and valid > 0 and (2 * valid >= length or keep_short) else 0
    if whole or rest:
        yield _make_windows(buffer[start - buffer_start :], start, hop, whole, rest, front_end)


def _make_windows(
    sound: Samples, start: int, hop: int, whole: int, rest: int, front_end: FrontEnd
) -> Windows:
    """``whole`` windows of ``sound``, which begins at the first of them, and one with ``rest`` samples of sound."""
    n, length, rate = whole + (rest > 0), front_end.chunk_samples, front_end.sample_rate
    samples = np.empty((n, length), np.float32)
    if whole:
        cut = sliding_window_view(sound, length)[::hop][:whole]  # (B, samples), no copy
        # summed in float64: the float32 mean of 160,000 samples can be off by more than a 16-bit step
        np.subtract(
            cut, cut.mean(axis=1, dtype=np.float64, keepdims=True).astype(np.float32), out=samples[:whole]
        )
    if rest:
        samples[whole] = centre_and_pad(sound[whole * hop :][:rest], length)
    starts = tuple((start + k * hop) / rate for k in range(n))
    return Windows(starts, samples, (length / rate,) * whole + (rest / rate,) * (n - whole))


def centre_and_pad(sound: Samples, size: int) -> Samples:
    """Subtract the mean and append silence up to ``size`` samples; an empty sound becomes silence."""
    samples = np.empty(size, np.float32)
    if len(sound):
        # summed in float64: the float32 mean of 160,000 samples can be off by more than a 16-bit step
        np.subtract(sound, np.float32(sound.mean(dtype=np.float64)), out=samples[: len(sound)])
    samples[len(sound) :] = 0.0
    return samples
