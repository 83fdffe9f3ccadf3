"""Sound in memory, searched as a recording: its samples are written to a file, which is searched like any other."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import soundfile as sf
from numpy.typing import ArrayLike

from mast.arrays import Samples
from mast.audio.probe import MAX_RATE, MIN_RATE
from mast.audio.stream import not_finite_error
from mast.errors import AudioError, ConfigError
from mast.inference.pieces import Source

NAME = "samples"  # of the recording in results
_PCM = ("uint8", "int8", "int16", "int32")


@contextmanager
def as_recording(samples: ArrayLike, sample_rate: float | None) -> Iterator[Source]:
    """The samples as a recording, as long as the block lasts.

    Args:
        samples: as :func:`one_channel` takes them.
        sample_rate: Hz.

    Raises:
        AudioError: the samples are not sound.
        ConfigError: the sample rate is missing or impossible.
    """
    sound = one_channel(samples)
    if sample_rate is None:
        raise ConfigError(
            "an array does not say its sample rate; give it, for example detect(samples, sample_rate=48000)"
        )
    if not MIN_RATE <= sample_rate <= MAX_RATE or sample_rate != int(sample_rate):
        raise ConfigError(
            f"sample_rate is {sample_rate:g}; expected a whole number of hertz from {MIN_RATE} to {MAX_RATE:,}"
        )
    wrong = np.flatnonzero(~np.isfinite(sound))
    if len(wrong):
        raise not_finite_error(NAME, len(wrong), float(wrong[0]) / sample_rate)
    with tempfile.TemporaryDirectory(prefix="mast-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, f"{NAME}.wav")
        sf.write(path, sound, int(sample_rate), subtype="FLOAT", format="RF64")  # a WAV of any length
        yield Source(path, NAME)


def one_channel(samples: ArrayLike) -> Samples:
    """Samples as they would be read from a file: (n,) float32, the mean of all channels.

    Args:
        samples: (n,) or (n, channels); floats, where full scale is −1 to 1, or integers as PCM has them.

    Raises:
        AudioError: not of this shape or type, or empty.

    >>> one_channel(np.array([0, 16384, -32768], dtype=np.int16)).tolist()
    [0.0, 0.5, -1.0]
    """
    given = np.asarray(samples)
    kind = given.dtype
    if kind.kind in "OSU":
        raise AudioError(
            f"found {type(samples).__name__}; expected the path of a recording, or an array of samples (for several "
            "recordings use stream)"
        )
    if kind.kind != "f" and kind.name not in _PCM:
        raise AudioError(
            f"{NAME} are of type {kind.name}; expected floats from -1 to 1, or integers of PCM ({', '.join(_PCM)})"
        )
    if given.ndim not in (1, 2) or (given.ndim == 2 and given.shape[1] > given.shape[0]):
        shape = ", ".join(map(str, given.shape))
        raise AudioError(
            f"{NAME} have the shape ({shape}); expected (n,), or (n, channels) as soundfile gives them; samples.T "
            "turns (channels, n) round"
        )
    if given.size == 0:
        raise AudioError(f"{NAME} hold no sound: their shape is {given.shape}")
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite, and refused
        sound = given.astype(np.float32)
    if kind.kind == "u":
        sound -= 128
    if kind.kind != "f":
        sound /= 2.0 ** (8 * kind.itemsize - 1)
    return sound if sound.ndim == 1 else sound.mean(axis=1, dtype=np.float32)
