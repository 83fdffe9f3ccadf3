"""What a recording is, from its header alone: length, rate, channels, format, and whether it is all there."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import soundfile as sf

from mast.audio.libsndfile import UNKNOWN_FRAMES, count_frames, open_sound, skip
from mast.audio.riff import RiffChunks, read_chunks
from mast.errors import AudioError, not_a_folder

AUDIO_SUFFIXES = frozenset(
    {".wav", ".wave", ".rf64", ".bwf", ".w64", ".flac", ".mp3", ".ogg", ".oga", ".opus", ".aif", ".aiff"}
)
"""Lower-case suffixes of the formats that can be read."""

_COMMON_SUFFIXES = ".wav, .flac, .mp3, .ogg or .opus"  # as sentences name them

_COMPRESSED = ("FLAC", "MP3", "OGG")  # formats whose length is what their header says
_OGG_PAGE_BYTES = 65_307  # the longest an ogg page can be
_LOOK_BACK_FRAMES = 8_192  # more than a usual block of FLAC
# our choice: below the first no animal can be heard, above the second no audio converter works
MIN_RATE, MAX_RATE = 20, 10_000_000


@dataclass(frozen=True)
class AudioInfo:
    """What a recording is.

    ``frames`` counts samples per channel. It is exact for WAV and FLAC; compressed formats may decode to
    slightly more or less. ``truncated`` means that the file ends before the sound its header promises
    (a full card, an interrupted copy): the sound that exists can be read. ``frames`` and ``duration_s`` count only
    what is there, whatever the header says; ``declared_frames`` are those that it promises, where that is more.
    """

    path: Path
    duration_s: float
    sample_rate: int
    channels: int
    frames: int
    format: str
    subtype: str
    truncated: bool = False
    declared_frames: int = 0


def probe(path: str | Path) -> AudioInfo:
    """Read the header of a recording.

    Raises:
        AudioError: the file is missing, empty, a folder, not permitted, or not sound we can read.
    """
    path = Path(path)
    chunks = check_readable(path)
    with open_sound(path) as file:
        rate = _checked_rate(path, file.samplerate)
        if file.format in _COMPRESSED:
            frames, declared, truncated = _measure_frames(path, file)
        else:  # libsndfile has compared the header with the size of the file
            frames = declared = file.frames
            truncated = chunks is not None and chunks.truncated
        return AudioInfo(
            path=path,
            duration_s=frames / rate,
            sample_rate=rate,
            channels=file.channels,
            frames=frames,
            declared_frames=declared,
            format=file.format,
            subtype=file.subtype,
            truncated=truncated,
        )


def check_readable(path: Path) -> RiffChunks | None:
    """Report the mistakes that libsndfile reports badly ("System error"), and return a WAV's chunks.

    Raises:
        AudioError: the file is missing, empty, a folder, not permitted, or a WAV that was never closed.
    """
    try:
        if path.is_dir():
            raise AudioError(f"{path}: is a folder, expected a recording (a {_COMMON_SUFFIXES} file)")
        if not path.is_file() and path.exists():
            raise AudioError(f"{path}: is not a file but a pipe, socket or device, expected a recording")
        if path.stat().st_size == 0:
            raise AudioError(
                f"{path}: the file is empty (0 bytes); copy it again from the recorder or remove it"
            )
        chunks = read_chunks(path)
    except FileNotFoundError as error:
        raise AudioError(f"{path}: no such file; check the name and the folder") from error
    except PermissionError as error:
        raise AudioError(f"{path}: no permission to read this file; change its permissions") from error
    except OSError as error:
        raise AudioError(
            f"{path}: cannot be read ({error.strerror or error}); check the disk or card"
        ) from error
    if chunks is not None and chunks.unclosed:
        raise AudioError(
            f"{path}: the header says 0 bytes of sound although sound follows, so the recorder stopped "
            "before it closed the file; repair it, for example with `sox --ignore-length in.wav out.wav`"
        )
    return chunks


def _checked_rate(path: Path, rate: int) -> int:
    if not MIN_RATE <= rate <= MAX_RATE:
        raise AudioError(
            f"{path}: its header gives a sample rate of {rate:,} Hz, which no sound recorder uses ({MIN_RATE} to "
            f"{MAX_RATE:,} Hz), so its length is not known either; save it again with the correct rate"
        )
    return rate


def _measure_frames(path: Path, file: sf.SoundFile) -> tuple[int, int, bool]:
    """Frames of a compressed recording, how many its header declares, and whether it ends before those.

    A header may declare anything, or no length at all: one look near the end shows whether sound is there. Where there
    is none, what can be decoded is counted.
    """
    declared = file.frames
    closed = file.format != "OGG" or _ogg_is_closed(path)
    if declared < UNKNOWN_FRAMES and _end_is_decodable(file, declared):
        return declared, declared, not closed
    frames = count_frames(path)
    # an unknown length cannot fall short; lengths of mp3 may be estimates: a little short is not truncated
    slack = file.samplerate if file.format == "MP3" else 0
    unknown = declared >= UNKNOWN_FRAMES
    return frames, frames if unknown else declared, not closed or (not unknown and frames < declared - slack)


def _end_is_decodable(file: sf.SoundFile, declared: int) -> bool:
    """Whether the last sound that the header declares can be decoded."""
    # not the very last frames: libFLAC reads a file from its start to find them
    back = min(declared, file.samplerate if file.format == "MP3" else _LOOK_BACK_FRAMES)
    try:
        found = skip(file, declared - back, back)
    except sf.LibsndfileError:
        return False
    return found == back or (file.format == "MP3" and found > 0)


def _ogg_is_closed(path: Path) -> bool:
    """Whether the last page of an ogg file says that it is the last."""
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(-min(file.tell(), _OGG_PAGE_BYTES), os.SEEK_END)
        tail = file.read()
    page = tail.rfind(b"OggS")
    return 0 <= page < len(tail) - 5 and bool(tail[page + 5] & 0x04)


class Unlisted(NamedTuple):
    """A folder whose recordings are not known."""

    folder: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.folder}: {self.reason}"


def find_recordings(folder: str | Path, *, unlisted: list[Unlisted] | None = None) -> list[Path]:
    """Every recording below a folder, sorted; suffixes in any case.

    Hidden files and folders and the ``._`` shadow files of macOS are left out. Linked folders are
    followed, each real folder once, so that links in a circle come to an end.

    Args:
        folder: searched with all its subfolders.
        unlisted: gets the folders below it that cannot be listed.

    Raises:
        AudioError: there is no such folder, or it cannot be listed.

    Warns:
        UserWarning: a folder below cannot be listed, and ``unlisted`` is not given.
    """
    root = Path(folder)
    if not root.is_dir():
        raise AudioError(f"{root}: {not_a_folder(root)}; expected a folder of recordings")

    def note(error: OSError) -> None:
        where = Path(error.filename or root)
        reason = f"cannot be listed ({error.strerror or error}), so what it holds is not known; check its permissions"
        if where == root:
            raise AudioError(f"{root}: {reason}") from error
        if unlisted is None:
            warnings.warn(f"{where}: {reason}", stacklevel=3)
        else:
            unlisted.append(Unlisted(where, reason))

    found: list[Path] = []
    seen: set[tuple[int, int]] = set()
    for where, folders, files in os.walk(root, followlinks=True, onerror=note):
        try:
            status = os.stat(where)
        except OSError as error:
            note(error)
            continue
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found.extend(
            Path(where, name)
            for name in files
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in AUDIO_SUFFIXES
        )
    return sorted(found)


def no_recordings_error(where: str | Path, unlisted: Iterable[str] = ()) -> AudioError:
    """The error where no recordings are found.

    Args:
        where: what was searched.
        unlisted: which folders below cannot be listed, and why; the first is named.
    """
    return AudioError(
        f"{where}: no recordings found; expected files ending in {_COMMON_SUFFIXES}, here or in subfolders"
        + "".join(f"; {some}" for some in islice(unlisted, 1))
    )
