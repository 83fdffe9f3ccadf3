"""Sound from a recording, all of it or piece by piece, at any sample rate, as one channel.

Everything here reads through :func:`stream`'s blocks, so that a day-long file costs the memory of a block.
Streaming and one-shot resampling give the same samples.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import soxr

from mast.arrays import Samples
from mast.audio.libsndfile import decode_blocks
from mast.audio.probe import AudioInfo, probe
from mast.errors import AudioError
from mast.wording import counted

Channel = int | Literal["mix"]

# decoded at once, all channels together (16 MB): 8 channels at 384 kHz stay small
_MAX_BLOCK_VALUES = 1 << 22
_CONTEXT_SAMPLES = 4_096  # of the slower rate, around a span: more than the resampler's filter reaches
_MP3_PREROLL_S = 1.0  # an mp3 frame needs the frames before it, which a seek does not decode
_LENGTH_SLACK_S = 1.0  # lengths in mp3 headers may be estimates: less missing than this is not damage


class DamagedAudioWarning(UserWarning):
    """A recording whose sound ends before its header says, or cannot be decoded to its end."""


def stream(
    path: str | Path,
    *,
    sample_rate: int | None = None,
    channel: Channel = "mix",
    block_s: float = 10.0,
) -> Iterator[Samples]:
    """Yield a recording in consecutive blocks, in constant memory.

    The blocks joined are the same samples whatever ``block_s`` is; their lengths vary.

    Args:
        path: the recording.
        sample_rate: Hz to resample to (soxr, high quality); ``None`` keeps the recording's own.
        channel: ``"mix"`` for the mean of all channels, or the number of one, from 0.
        block_s: maximum number of seconds decoded at a time.

    Yields:
        (n,) float32, never empty.

    Raises:
        AudioError: not readable, no such channel, or NaN or infinite samples (where and how many).

    Warns:
        DamagedAudioWarning: the sound ends before the header says; what exists was yielded.
    """
    if not block_s > 0:
        raise AudioError(f"{path}: blocks of {block_s:g} s make no sense; expected a length above 0")
    info = probe(path)
    target = _checked_rate(info, sample_rate)
    blocks = _decode(info, channel, 0, None, block_s)
    return blocks if target == info.sample_rate else _resampled(blocks, info.sample_rate, target)


def read(
    path: str | Path,
    *,
    start_s: float = 0.0,
    end_s: float | None = None,
    sample_rate: int | None = None,
    channel: Channel = "mix",
) -> Samples:
    """Read a recording, or a span of it, into memory.

    A span is cut on the sample grid of the result: samples ``round(start_s × rate)`` up to but not including
    ``round(end_s × rate)`` of the whole recording, with the sound around the span taken into account in
    resampling. A span that runs past the end gives what exists.

    Args:
        path: the recording.
        start_s: seconds from the start of the recording.
        end_s: seconds from the start of the recording; ``None`` reads to the end.
        sample_rate: Hz to resample to; ``None`` keeps the recording's own.
        channel: ``"mix"`` for the mean of all channels, or the number of one, from 0.

    Returns:
        (n,) float32.

    Raises:
        AudioError: as :func:`stream`, or a span that does not lie in the recording.
    """
    info = probe(path)
    target = _checked_rate(info, sample_rate)
    if not 0 <= start_s <= info.duration_s + _LENGTH_SLACK_S or (end_s is not None and not end_s >= start_s):
        raise AudioError(
            f"{info.path}: asked for {start_s:g} s to {'the end' if end_s is None else f'{end_s:g} s'}, but "
            f"the recording lasts {info.duration_s:g} s; expected 0 ≤ start ≤ end, inside the recording"
        )
    first = round(start_s * target)
    stop = None if end_s is None else round(end_s * target)

    # The span in the recording's own samples, widened by the resampler's reach. Starting where an input
    # sample and an output sample fall together keeps the output on the grid of the whole recording.
    step = math.gcd(info.sample_rate, target)
    per_period, out_per_period = info.sample_rate // step, target // step
    context = 0
    if target != info.sample_rate:
        context = math.ceil(_CONTEXT_SAMPLES * max(info.sample_rate / target, 1.0))
    periods = max(first * per_period // out_per_period - context, 0) // per_period
    in_first = periods * per_period
    in_stop = None if stop is None else math.ceil(stop * per_period / out_per_period) + context

    blocks = _decode(info, channel, in_first, in_stop, 10.0)
    if target != info.sample_rate:
        blocks = _resampled(blocks, info.sample_rate, target)
    pieces = list(blocks)
    samples = np.concatenate(pieces) if pieces else np.empty(0, np.float32)
    offset = periods * out_per_period
    return np.ascontiguousarray(samples[first - offset : None if stop is None else stop - offset])


def _checked_rate(info: AudioInfo, sample_rate: int | None) -> int:
    if sample_rate is None:
        return info.sample_rate
    if sample_rate < 1:
        raise AudioError(f"{info.path}: cannot be resampled to {sample_rate} Hz; expected a rate above 0")
    return sample_rate


def _resampled(blocks: Iterator[Samples], rate: int, target: int) -> Iterator[Samples]:
    """Resample consecutive blocks, as if they had been one."""
    resampler = soxr.ResampleStream(rate, target, 1, dtype="float32", quality="HQ")
    for block in blocks:
        out = resampler.resample_chunk(block)
        if len(out):
            yield out
    tail = resampler.resample_chunk(np.empty(0, np.float32), last=True)
    if len(tail):
        yield tail


def _decode(
    info: AudioInfo, channel: Channel, first: int, stop: int | None, block_s: float
) -> Iterator[Samples]:
    """Yield one channel of frames ``first`` up to ``stop`` at the recording's own rate.

    The length in the header is not trusted: decoding continues until there is no more sound.
    """
    if channel != "mix" and not 0 <= channel < info.channels:
        raise AudioError(
            f"{info.path}: has no channel {channel}; it has {info.channels}, numbered from 0; 'mix' takes them all"
        )
    block = max(1, min(round(block_s * info.sample_rate), _MAX_BLOCK_VALUES // info.channels))
    return _checked_blocks(info, channel, first, stop, block)


def _checked_blocks(
    info: AudioInfo, channel: Channel, first: int, stop: int | None, block: int
) -> Iterator[Samples]:
    position = first
    frames = _frames(info, first, stop, block)
    for piece in frames:
        # only float formats can hold NaN; the check is cheap, but a day of 16-bit sound can do without it
        if info.subtype in ("FLOAT", "DOUBLE") and not np.isfinite(piece).all():
            raise _not_finite_in_file(info, piece, position, frames)
        position += len(piece)
        yield _one_channel(piece, channel)


def _one_channel(piece: Samples, channel: Channel) -> Samples:
    """(n, channels) → (n,)."""
    if channel != "mix":
        return np.ascontiguousarray(piece[:, channel])
    return piece[:, 0] if piece.shape[1] == 1 else piece.mean(axis=1, dtype=np.float32)


def _not_finite_in_file(
    info: AudioInfo, piece: Samples, position: int, rest: Iterator[Samples]
) -> AudioError:
    """The error for a recording with NaN or infinite samples: the rest is read to count them all."""
    bad = ~np.isfinite(piece).all(axis=1)
    count = int(bad.sum()) + sum(int((~np.isfinite(later).all(axis=1)).sum()) for later in rest)
    where_s = (position + int(bad.argmax())) / info.sample_rate
    return not_finite_error(
        info.path, count, where_s, "write the file again from its source or cut that part out"
    )


def not_finite_error(name: str | Path, count: int, first_s: float, remedy: str = "") -> AudioError:
    """The error for sound with ``count`` NaN or infinite samples, the first of them at ``first_s``."""
    return AudioError(
        f"{name}: {counted(count, 'NaN or infinite sample')}, the first at {first_s:.3f} s; expected finite numbers"
        + (f", so {remedy}" if remedy else "")
    )


def _frames(info: AudioInfo, first: int, stop: int | None, block: int) -> Iterator[Samples]:
    """Yield (n, channels) float32 from frame ``first`` on, until ``stop`` or until no more sound comes."""
    position = first
    preroll = min(first, round(_MP3_PREROLL_S * info.sample_rate)) if info.format == "MP3" else 0
    pieces = decode_blocks(info.path, first, stop, block, preroll=preroll)
    problem = ""
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            problem = f" ({end.value})" if end.value else ""
            break
        position += len(piece)
        yield piece
    promised = max(info.frames, info.declared_frames)
    expected = promised if stop is None else min(promised, stop)
    slack = round(_LENGTH_SLACK_S * info.sample_rate) if info.format == "MP3" else 0
    if problem or position < expected - slack:
        warnings.warn(
            f"{info.path}: damaged, the sound ends at {position / info.sample_rate:.2f} s of "
            f"{promised / info.sample_rate:.2f} s{problem}; everything before that was read",
            DamagedAudioWarning,
            stacklevel=2,
        )
