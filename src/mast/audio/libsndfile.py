"""Blocks of samples from libsndfile: the only file that reads sound.

Its mp3 decoder writes to the process's stderr whatever it finds strange about a file. What is wrong with a recording
is reported in our own words, so C's stderr is discarded while libsndfile works. Python's is separate and not touched.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import soundfile as sf
from numpy.typing import NDArray

from mast.arrays import Samples
from mast.errors import AudioError

UNKNOWN_FRAMES = 1 << 62  # this many or more: the header does not say; libsndfile gives 2⁶³ − 1
_BAD_SEEK = 39  # libsndfile's number for it
_COUNTED_FRAMES = 1 << 14  # decoded at a time to count them; up to this much of a damaged end may be lost


def open_sound(path: Path) -> sf.SoundFile:
    """Open a recording for decoding; use as a context manager.

    Raises:
        AudioError: libsndfile refuses it.
    """
    try:
        with silence_stderr():
            # as bytes: soundfile refuses names that are not valid text, which old cards are full of
            return sf.SoundFile(os.fsencode(path) if os.name == "posix" else path)
    except sf.LibsndfileError as error:
        reason = str(error.error_string).strip().rstrip(".")
        if "not recognised" in reason or "does not exist" in reason:  # its words for an mp3 without sound
            reason = "unknown sound format"
        elif reason.startswith("Internal error"):  # its words for a sample rate of 0, say
            reason = "its header is damaged"
        raise AudioError(
            f"{path}: not readable as sound ({reason}); expected a complete wav, flac, mp3, ogg or opus "
            "file, so copy it again or convert it"
        ) from error


def decode_blocks(
    path: Path, first: int, stop: int | None, block: int, *, preroll: int = 0
) -> Generator[Samples, None, str]:
    """Yield (n, channels) float32 from frame ``first`` on, until ``stop`` or until no more sound comes.

    Args:
        path: the recording.
        first: frame to begin with.
        stop: frame to end before.
        block: frames at a time.
        preroll: frames before ``first`` that are decoded and dropped.

    Returns:
        Why it ended early; empty where it did not.
    """
    position = first
    with open_sound(path) as file:
        try:
            if first:
                skip(file, min(first - preroll, file.frames), preroll)
            while stop is None or position < stop:
                piece = _read_frames(file, block if stop is None else min(block, stop - position))
                if len(piece) == 0:
                    return ""
                position += len(piece)
                yield piece
            return ""
        except sf.LibsndfileError as error:
            problem = str(error.error_string).strip().rstrip(".") or f"decoder error {error.code}"
            # soundfile seeks to where it stopped reading; at the end of a file of unknown length libFLAC refuses that
            if file.frames >= UNKNOWN_FRAMES and error.code == _BAD_SEEK:
                problem = ""
    yield from _salvage(path, position, block if stop is None else min(block, stop - position))
    return problem


def skip(file: sf.SoundFile, frame: int, frames: int) -> int:
    """Go to a frame, then decode and drop some frames from there; returns how many there were."""
    with silence_stderr():
        file.seek(frame)
        return len(file.read(frames, dtype="float32")) if 0 < frames <= file.frames - file.tell() else 0


def _read_frames(file: sf.SoundFile, frames: int) -> Samples:
    """The next (n, channels) float32 of a file.

    Sixteen-bit sound is scaled here: the same numbers as libsndfile's, in a third of the time.
    """
    # past the end of a damaged mp3, soundfile would request a negative number of frames
    if file.tell() >= file.frames:
        return np.empty((0, file.channels), np.float32)
    with silence_stderr():
        if file.subtype != "PCM_16":
            found: Samples = file.read(frames, dtype="float32", always_2d=True)
            return found
        steps: NDArray[np.int16] = file.read(frames, dtype="int16", always_2d=True)
    return np.multiply(steps, np.float32(2**-15), dtype=np.float32)


def _salvage(path: Path, position: int, frames: int) -> Iterator[Samples]:
    """Save what can be decoded of a block that failed as a whole: halves of halves, up to the damaged place."""
    while frames > 1:  # the damaged place is among these
        with open_sound(path) as file:
            try:
                skip(file, position, 0)
                while frames > 1 and len(piece := _read_frames(file, frames // 2)):
                    position += len(piece)
                    frames -= len(piece)
                    yield piece
                return
            except sf.LibsndfileError:
                frames //= 2


def count_frames(path: Path) -> int:
    """How many frames can be decoded: the length of a recording whose header does not state it.

    All of it is decoded, but only once as long as the file stays the same.

    Raises:
        AudioError: libsndfile refuses it.
        OSError: it is not there.
    """
    status = path.stat()
    return _count_decodable(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _count_decodable(path: Path, size: int, changed: int) -> int:
    return sum(len(piece) for piece in decode_blocks(path, 0, None, _COUNTED_FRAMES))


_lock = threading.Lock()
_working = 0  # threads inside libsndfile


@contextmanager
def silence_stderr() -> Iterator[None]:
    """Discard C's stderr; where the C library is not glibc, nothing happens."""
    global _working
    place = _c_stderr()
    if place is None:
        yield
        return
    stderr, own, nowhere = place
    with _lock:
        _working += 1
        stderr.value = nowhere
    try:
        yield
    finally:
        with _lock:
            _working -= 1
            if not _working:
                stderr.value = own


@cache
def _c_stderr() -> tuple[ctypes.c_void_p, int | None, int] | None:
    """C's variable ``stderr``, its value, and a stream that discards what it gets."""
    try:
        if not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
            return None
        library = ctypes.CDLL(None)
        library.fopen.restype = ctypes.c_void_p
        nowhere = library.fopen(os.devnull.encode(), b"w")
        stderr = ctypes.c_void_p.in_dll(library, "stderr")
    except (AttributeError, OSError, ValueError):  # Windows, macOS, musl
        return None
    return (stderr, stderr.value, nowhere) if nowhere else None
