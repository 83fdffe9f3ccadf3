"""The chunks of a WAV file, found by seeking from one to the next: the sound itself is never read.

libsndfile decodes the sound; this file looks at what it does not report: whether the sound promised in the
header is all there, and the small chunks in which recorders keep their notes.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

_RIFF_KINDS = (b"RIFF", b"RF64", b"BW64")
_NOTES = (b"LIST", b"guan", b"wamd", b"ds64")
_MAX_NOTE_BYTES = 1 << 20  # our choice: recorders write at most a few kB; a broken size must not eat memory
_MAX_CHUNKS = 10_000  # our choice: a file full of empty chunks is not a recording, and takes hours to walk
_SIZE_UNKNOWN = 0xFFFFFFFF  # written by streaming encoders, and by RF64 where ds64 holds the true size


@dataclass(frozen=True)
class RiffChunks:
    """What a WAV header promises, and the recorder's notes."""

    declared_bytes: int | None = None  # of sound, as the header says; None where it says "unknown"
    available_bytes: int | None = None  # of sound, up to the end of the file; None without a data chunk
    unclosed: bool = False  # the header says 0 bytes of sound, yet sound follows
    notes: dict[bytes, bytes] = field(default_factory=dict)  # chunk id → content: guan, wamd, ICMT, IART, …

    @property
    def truncated(self) -> bool:
        """Whether the file ends before the sound its header promises."""
        return (
            self.declared_bytes is not None
            and self.available_bytes is not None
            and self.available_bytes < self.declared_bytes
        )

    def text(self, chunk: bytes) -> str | None:
        """A note as text, without padding; ``None`` where there is none."""
        content = self.notes.get(chunk)
        if content is None:
            return None
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            text = content.decode("latin-1")
        return text.split("\0", 1)[0].strip() or None


def read_chunks(path: str | Path) -> RiffChunks | None:
    """Walk the chunks of a WAV, RF64 or BW64 file.

    Returns:
        ``None`` where the file is not of this family. A file that ends early gives what was found so far.

    Raises:
        OSError: where the file cannot be opened or read.
    """
    with open(path, "rb") as file:
        head = file.read(12)
        if len(head) < 12 or head[:4] not in _RIFF_KINDS or head[8:] != b"WAVE":
            return None
        return _read_all(file, os.fstat(file.fileno()).st_size)


def _read_all(file: BinaryIO, end: int) -> RiffChunks:
    notes: dict[bytes, bytes] = {}
    declared: int | None = None
    available: int | None = None
    unclosed = False
    position = 12
    for _ in range(_MAX_CHUNKS):
        if position + 8 > end:
            break
        file.seek(position)
        name, size = struct.unpack("<4sI", file.read(8))
        position += 8
        if not all(32 <= letter < 127 for letter in name):
            # sound where a chunk should begin: the data chunk's size was never filled in
            unclosed = declared == 0
            break
        if name == b"data":
            if size == _SIZE_UNKNOWN:
                declared = struct.unpack_from("<Q", notes[b"ds64"], 8)[0] if _has_sizes(notes) else None
            else:
                declared = size
            available = min(declared, end - position) if declared is not None else end - position
            size = available
        elif name in _NOTES and size <= _MAX_NOTE_BYTES:
            content = file.read(size)
            if name == b"LIST":
                notes.update(_list_entries(content))
            else:
                notes[name] = content
        position += size + size % 2
    return RiffChunks(declared, available, unclosed, notes)


def _has_sizes(notes: dict[bytes, bytes]) -> bool:
    return len(notes.get(b"ds64", b"")) >= 16


def _list_entries(content: bytes) -> dict[bytes, bytes]:
    """The entries of a LIST/INFO chunk, such as ICMT (comment) and IART (artist)."""
    entries: dict[bytes, bytes] = {}
    if content[:4] != b"INFO":
        return entries
    position = 4
    while position + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, position)
        entries[name] = content[position + 8 : position + 8 + size]
        position += 8 + size + size % 2
    return entries
