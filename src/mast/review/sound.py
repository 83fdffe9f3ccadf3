"""Sound for the browser: a whole recording as a WAV of which only requested parts are made, and short clips.

Browsers play 16-bit WAV of up to 48 kHz everywhere; recordings come in any format, rate and length. Only the
requested range of the WAV is made: the bytes are the same whether requested alone or with all others.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from mast.audio import AudioInfo, probe, read
from mast.errors import AudioError, MastError
from mast.spans import TimeSpan

MAX_CLIP_S = 60.0
MIN_SPEED, MAX_SPEED = 0.05, 4.0

_HEADER_BYTES = 44
_MIN_RATE, _MAX_RATE = 8_000, 48_000
_MAX_DATA_BYTES = (1 << 32) - 1 - _HEADER_BYTES  # the most that a WAV header can state
_BLOCK_S = 5.0  # of sound made at a time
_FADE_S = 0.004  # clips begin and end without a click
_LEAD_S = 0.05  # sound before a clip that lets the filter settle
_ORDER = 6  # of the band-pass (our choice): 36 dB per octave on each side
_FILTER_BLOCK = 1 << 18


class RangeError(MastError):
    """A byte range that the sound does not have."""

    def __init__(self, sentence: str, size: int) -> None:
        super().__init__(sentence)
        self.size = size


@dataclass(frozen=True)
class Wav:
    """A recording as a WAV that is made on demand.

    Attributes:
        path: the recording.
        sample_rate: of the WAV.
        frames: samples in it.
        silent: stretches that are not played, as start and end in seconds.
    """

    path: Path
    sample_rate: int
    frames: int
    silent: tuple[TimeSpan, ...] = ()

    @property
    def size(self) -> int:
        """Total number of bytes."""
        return _HEADER_BYTES + 2 * self.frames

    def bytes_between(self, first: int, stop: int) -> Iterator[bytes]:
        """Bytes ``first`` up to ``stop``, a few seconds of sound at a time."""
        if first < _HEADER_BYTES:
            yield wav_header(self.sample_rate, self.frames)[first : min(stop, _HEADER_BYTES)]
            first = _HEADER_BYTES
        block = 2 * round(_BLOCK_S * self.sample_rate)
        while first < stop:
            end = min(stop, first + block)
            begin_frame, end_frame = (first - _HEADER_BYTES) // 2, (end - _HEADER_BYTES + 1) // 2
            data = self._frames(begin_frame, end_frame)
            skip = (first - _HEADER_BYTES) - 2 * begin_frame
            yield data[skip : skip + end - first]
            first = end

    def _frames(self, first: int, stop: int) -> bytes:
        rate = self.sample_rate
        try:
            found = read(self.path, start_s=first / rate, end_s=stop / rate, sample_rate=rate)
        except AudioError:  # moved or deleted while it plays: the length has been sent already
            found = np.zeros(0, np.float32)
        sound = np.zeros(stop - first, np.float32)  # a damaged recording ends early
        sound[: len(found)] = found[: len(sound)]
        return to_int16(silence_spans(sound, rate, first, self.silent))


def open_wav(path: Path, silent: tuple[TimeSpan, ...] = ()) -> Wav:
    """The WAV of a recording, without sound in some stretches; nothing is decoded yet.

    Raises:
        AudioError: the recording cannot be read.
    """
    info = probe(path)
    rate = playing_rate(info)
    return Wav(path, rate, math.floor(info.frames * rate / info.sample_rate), silent)


def playing_rate(info: AudioInfo) -> int:
    """At most 48 kHz, and less for a recording of more than 12 hours, whose WAV would be too large for its header."""
    rate = min(info.sample_rate, _MAX_RATE)
    while 2 * info.duration_s * rate > _MAX_DATA_BYTES and rate > _MIN_RATE:
        rate //= 2
    return rate


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last of a ``Range`` header; ``None`` where all bytes are requested.

    Several ranges at once are answered with all bytes, as HTTP allows.

    Raises:
        RangeError: there are no such bytes.

    >>> parse_range("bytes=0-9", 100), parse_range("bytes=90-", 100), parse_range("bytes=-5", 100)
    ((0, 10), (90, 100), (95, 100))
    """
    match = re.fullmatch(r"\s*bytes\s*=\s*(\d{0,19})\s*-\s*(\d{0,19})\s*", header or "", re.ASCII)
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        length = min(int(match[2]), size)
        first, stop = size - length, size
    else:
        first, stop = int(match[1]), min(int(match[2]) + 1, size) if match[2] else size
    if match[1] and match[2] and int(match[2]) < int(match[1]):
        return None  # not a range at all, to be ignored
    if first >= stop:
        raise RangeError(f"the sound has {size} bytes, none of them in {header!r}", size)
    return first, stop


def wav_header(sample_rate: int, frames: int) -> bytes:
    """The 44 bytes before 16-bit mono sound."""
    data = min(2 * frames, _MAX_DATA_BYTES)
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF", data + 36, b"WAVE", b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16, b"data", data,
    )  # fmt: skip


def to_int16(sound: NDArray[np.float32]) -> bytes:
    """Samples of −1…1 as little-endian 16-bit bytes; louder ones are clipped."""
    levels: NDArray[np.int16] = np.clip(np.rint(sound * 32_767.0), -32_768, 32_767).astype("<i2")
    return levels.tobytes()


@dataclass(frozen=True)
class Clip:
    """A piece to listen to.

    Attributes:
        start_s: where it begins.
        end_s: where it ends, at most a minute later.
        low_hz: below this it is silent; ``None`` keeps all.
        high_hz: above this it is silent; ``None`` keeps all.
        speed: 0.1 plays ten times slower and lower, so that bats can be heard; 2 plays twice as fast.
        gain_db: louder or softer, but never so loud that it distorts.
    """

    start_s: float
    end_s: float
    low_hz: float | None = None
    high_hz: float | None = None
    speed: float = 1.0
    gain_db: float = 0.0


def render_clip(path: Path, clip: Clip, silent: tuple[TimeSpan, ...] = ()) -> bytes:
    """A WAV file of a clip, without sound in some stretches of the recording.

    Raises:
        AudioError: the recording cannot be read.
    """
    info = probe(path)
    rate = info.sample_rate
    start = min(max(clip.start_s, 0.0), info.duration_s)
    end = min(max(clip.end_s, start), info.duration_s)
    lead_s = min(_LEAD_S, start)
    sound = read(path, start_s=start - lead_s, end_s=end)
    # before the filter, which would ring after the speech
    sound = silence_spans(sound, rate, round((start - lead_s) * rate), silent)
    sound = filter_band(sound, rate, clip.low_hz, clip.high_hz)
    sound = sound[round(start * rate) - round((start - lead_s) * rate) :]
    sound = _fade_ends(sound, rate)
    # played at a rate other than its own, it is slower and lower, or faster and higher
    played_rate = rate * clip.speed
    out_rate = round(min(max(played_rate, _MIN_RATE), _MAX_RATE))
    if len(sound) and out_rate != played_rate:
        sound = soxr.resample(sound, played_rate, out_rate, quality="HQ").astype(np.float32, copy=False)
    sound = apply_gain(sound, clip.gain_db)
    return wav_header(out_rate, len(sound)) + to_int16(sound)


def silence_spans(
    sound: NDArray[np.float32], rate: int, first: int, spans: tuple[TimeSpan, ...]
) -> NDArray[np.float32]:
    """The same without sound in some stretches, faded around them.

    Args:
        sound: samples of a recording.
        rate: of the sound.
        first: number of its first sample in the recording.
        spans: the stretches to silence, in seconds of the recording.
    """
    fade = max(1, round(_FADE_S * rate))
    quiet = sound.copy() if spans else sound
    for start_s, end_s in spans:
        begin, end = math.floor(start_s * rate) - first, math.ceil(end_s * rate) - first
        at = np.arange(max(0, begin - fade), min(len(sound), end + fade))
        distance = np.maximum(begin - at, at - (end - 1))  # in samples, to the stretch
        quiet[at] *= np.clip(distance / fade, 0, 1).astype(np.float32)
    return quiet


def filter_band(
    sound: NDArray[np.float32], rate: int, low_hz: float | None, high_hz: float | None
) -> NDArray[np.float32]:
    """Only the band between two frequencies; an edge at 0 Hz or half the sample rate cuts nothing."""
    from scipy.signal import butter, sosfilt

    nyquist = rate / 2
    low = low_hz if low_hz is not None and low_hz > 0.001 * nyquist else None
    high = high_hz if high_hz is not None and high_hz < 0.999 * nyquist else None
    if len(sound) == 0 or (low is None and high is None):
        return sound
    if low is not None and low >= 0.999 * nyquist:
        return np.zeros_like(sound)
    if low is not None and high is not None:
        # a band of no width passes nothing and rings: widen it to a hundredth of its middle
        min_width = 0.01 * (low + high) / 2
        if high - low < min_width:
            middle = (low + high) / 2
            low, high = max(middle - min_width / 2, 1e-6), min(middle + min_width / 2, 0.9999 * nyquist)
        sections = butter(_ORDER, (low, high), "bandpass", fs=rate, output="sos")
    elif low is not None:
        sections = butter(_ORDER, low, "highpass", fs=rate, output="sos")
    else:
        sections = butter(_ORDER, high, "lowpass", fs=rate, output="sos")
    state = np.zeros((len(sections), 2))
    result = np.empty_like(sound)
    for at in range(0, len(sound), _FILTER_BLOCK):
        piece, state = sosfilt(sections, sound[at : at + _FILTER_BLOCK], zi=state)
        result[at : at + _FILTER_BLOCK] = piece
    return result


def apply_gain(sound: NDArray[np.float32], gain_db: float) -> NDArray[np.float32]:
    """Amplify by this gain, or by as much as fits below full scale."""
    peak = float(np.abs(sound).max(initial=0.0))
    factor = 10.0 ** (gain_db / 20)
    if peak * factor > 0.99:
        factor = 0.99 / peak
    return sound * np.float32(factor)


def _fade_ends(sound: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    n = min(round(_FADE_S * rate), len(sound) // 2)
    if n == 0:
        return sound
    ramp = np.linspace(0, 1, n, endpoint=False, dtype=np.float32)
    faded = sound.copy()
    faded[:n] *= ramp
    faded[-n:] *= ramp[::-1]
    return faded
