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

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mast.audio.stream import Channel, Samples, stream
from mast.errors import AudioError
from mast.grid import FrontEnd


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


def windows(
    path: str | Path,
    front_end: FrontEnd,
    *,
    hop_s: float | None = None,
    channel: Channel = "mix",
    keep_short: bool = False,
) -> Iterator[Window]:
    """Yield the windows of a recording in order, in constant memory.

    Window *k* begins at sample ``k × hop`` of the resampled recording, exactly.

    Args:
        path: the recording; resampled to the front end's rate.
        front_end: window length and sample rate.
        hop_s: seconds from window to window, rounded to samples; half a window by default (the paper's).
        channel: ``"mix"`` or a channel's number.
        keep_short: also yield a last window with less than half a window of sound, where that sound is in
            no other window. For inference: a two-second clip is then one padded window instead of none.

    Raises:
        AudioError: as :func:`mast.audio.stream`, or a hop of less than a sample.
    """
    size = front_end.chunk_samples
    hop = size // 2 if hop_s is None else round(hop_s * front_end.sample_rate)
    if hop < 1:
        raise AudioError(
            f"{path}: a hop of {hop_s} s between windows is less than one sample; expected more than 0, for "
            f"example {front_end.chunk_s / 2:g} s"
        )
    blocks = stream(path, sample_rate=front_end.sample_rate, channel=channel)
    return _cut(blocks, front_end, hop, keep_short)


def _cut(blocks: Iterator[Samples], front_end: FrontEnd, hop: int, keep_short: bool) -> Iterator[Window]:
    size = front_end.chunk_samples
    start = 0  # of the next window
    held_from = 0  # position of held[0]
    held = np.empty(0, np.float32)
    for block in blocks:
        held = np.concatenate([held, block]) if len(held) else block
        while held_from + len(held) >= start + size:
            yield _window(held[start - held_from : start - held_from + size], start, front_end)
            start += hop
        gone = min(start - held_from, len(held))
        held, held_from = held[gone:], held_from + gone

    end = held_from + len(held)
    reached = start - hop + size if start else 0  # where the last window ends
    valid = end - start
    if reached < end and valid > 0 and (2 * valid >= size or keep_short):
        yield _window(held[start - held_from :], start, front_end)


def _window(sound: Samples, start: int, front_end: FrontEnd) -> Window:
    samples = centre_and_pad(sound, front_end.chunk_samples)
    return Window(start / front_end.sample_rate, samples, len(sound) / front_end.sample_rate)


def centre_and_pad(sound: Samples, size: int) -> Samples:
    """Take the mean off and append silence up to ``size`` samples; an empty sound becomes silence."""
    samples = np.empty(size, np.float32)
    if len(sound):
        # summed in float64: the float32 mean of 160,000 samples can be off by more than a 16-bit step
        np.subtract(sound, np.float32(sound.mean(dtype=np.float64)), out=samples[: len(sound)])
    samples[len(sound) :] = 0.0
    return samples
