"""What a recording is, from its header alone: length, rate, channels, format, and whether it is all there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import soundfile as sf

from mast.audio.riff import RiffChunks, read_chunks
from mast.errors import AudioError

AUDIO_SUFFIXES = frozenset(
    {".wav", ".wave", ".rf64", ".bwf", ".w64", ".flac", ".mp3", ".ogg", ".oga", ".opus", ".aif", ".aiff"}
)
"""Lower-case suffixes of the formats that can be read."""

_OGG_PAGE_BYTES = 65_307  # the longest an ogg page can be


@dataclass(frozen=True)
class AudioInfo:
    """What the header of a recording says.

    ``frames`` counts samples per channel. It is exact for WAV and FLAC; compressed formats may decode to
    slightly more or less. ``truncated`` means that the file ends before the sound its header promises
    (a full card, an interrupted copy): the sound that exists can be read. For a truncated WAV ``frames``
    and ``duration_s`` already count only what is there.
    """

    path: Path
    duration_s: float
    sample_rate: int
    channels: int
    frames: int
    format: str
    subtype: str
    truncated: bool = False


def probe(path: str | Path) -> AudioInfo:
    """Read the header of a recording.

    Raises:
        AudioError: the file is missing, empty, a folder, not permitted, or not sound we can read.
    """
    path = Path(path)
    chunks = check_readable(path)
    with open_sound(path) as file:
        return AudioInfo(
            path=path,
            duration_s=file.frames / file.samplerate,
            sample_rate=file.samplerate,
            channels=file.channels,
            frames=file.frames,
            format=file.format,
            subtype=file.subtype,
            truncated=chunks.truncated if chunks is not None else _ends_early(path, file),
        )


def check_readable(path: Path) -> RiffChunks | None:
    """Answer the mistakes that libsndfile answers badly ("System error"), and give a WAV's chunks.

    Raises:
        AudioError: the file is missing, empty, a folder, not permitted, or a WAV that was never closed.
    """
    try:
        if path.is_dir():
            raise AudioError(
                f"{path}: is a folder, expected a recording (a .wav, .flac, .mp3, .ogg or .opus file)"
            )
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


def open_sound(path: Path) -> sf.SoundFile:
    """Open a recording for decoding; use as a context manager.

    Raises:
        AudioError: libsndfile refuses it.
    """
    try:
        # as bytes: soundfile refuses names that are not valid text, which old cards are full of
        return sf.SoundFile(os.fsencode(path) if os.name == "posix" else path)
    except sf.LibsndfileError as error:
        reason = str(error.error_string).strip().rstrip(".")
        if "not recognised" in reason:
            reason = "no sound format we know"
        raise AudioError(
            f"{path}: not readable as sound ({reason}); expected a complete wav, flac, mp3, ogg or opus "
            "file, so copy it again or convert it"
        ) from error


def _ends_early(path: Path, file: sf.SoundFile) -> bool:
    """Whether sound is missing at the end: one look at the end, no reading through."""
    if file.format == "OGG":
        return not _ogg_is_closed(path)
    if file.format not in ("FLAC", "MP3") or file.frames == 0:
        return False
    # mp3 lengths without a table of contents are estimates: a little short is not truncated
    slack = 1 if file.format == "FLAC" else file.samplerate
    try:
        file.seek(max(file.frames - slack, 0))
        return len(file.read(1)) == 0
    except sf.LibsndfileError:
        return True


def _ogg_is_closed(path: Path) -> bool:
    """Whether the last page of an ogg file says that it is the last."""
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(-min(file.tell(), _OGG_PAGE_BYTES), os.SEEK_END)
        tail = file.read()
    page = tail.rfind(b"OggS")
    return 0 <= page < len(tail) - 5 and bool(tail[page + 5] & 0x04)


def find_recordings(folder: str | Path) -> list[Path]:
    """Every recording below a folder, sorted; suffixes in any case.

    Hidden files and folders and the ``._`` shadow files of macOS are left out. Linked folders are
    followed, each real folder once, so that links in a circle come to an end.

    Raises:
        AudioError: there is no such folder.
    """
    root = Path(folder)
    if not root.is_dir():
        kind = "is a file, expected a folder" if root.exists() else "no such folder"
        raise AudioError(f"{root}: {kind} of recordings; check the name")
    found: list[Path] = []
    seen: set[tuple[int, int]] = set()
    for where, folders, files in os.walk(root, followlinks=True):
        status = os.stat(where)
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
