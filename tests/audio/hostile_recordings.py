"""Recordings whose headers lie, and folders that refuse."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

RATE = 16_000


def noise(frames: int, rate: int = RATE) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.1, frames)


def flac_declaring(path: Path, total: int, frames: int = 3 * RATE + 777) -> Path:
    """A FLAC whose header declares ``total`` samples; 0 means that it does not know."""
    sf.write(path, noise(frames), RATE)
    content = bytearray(path.read_bytes())
    content[21] = (content[21] & 0xF0) | (total >> 32)
    content[22:26] = struct.pack(">I", total & 0xFFFFFFFF)
    path.write_bytes(content)
    return path


def mp3_declaring(path: Path, mpeg_frames: int, frames: int = 3 * RATE) -> Path:
    """An MP3 whose Xing header declares this many MPEG frames."""
    sf.write(path, noise(frames), RATE)
    content = bytearray(path.read_bytes())
    at = max(content.find(b"Xing"), content.find(b"Info"))
    content[at + 8 : at + 12] = struct.pack(">I", mpeg_frames)
    path.write_bytes(content)
    return path


def ogg_declaring(path: Path, position: int, frames: int = 3 * RATE) -> Path:
    """An OGG whose last page says that this many samples came before its end."""
    sf.write(path, noise(frames), RATE, format="OGG", subtype="OPUS" if path.suffix == ".opus" else "VORBIS")
    content = bytearray(path.read_bytes())
    at = content.rfind(b"OggS")
    content[at + 6 : at + 14] = struct.pack("<Q", position)
    content[at + 22 : at + 26] = bytes(4)
    content[at + 22 : at + 26] = struct.pack("<I", _ogg_sum(content[at:]))
    path.write_bytes(content)
    return path


def _ogg_sum(page: bytes) -> int:
    """The checksum of a page, bit by bit."""
    register = 0
    for byte in page:
        register ^= byte << 24
        for _ in range(8):
            register = ((register << 1) ^ (0x04C11DB7 if register & 0x80000000 else 0)) & 0xFFFFFFFF
    return register


def with_guano(path: Path, text: str, frames: int = RATE) -> Path:
    """A WAV with GUANO notes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sf.write(path, noise(frames), RATE)
    notes = f"GUANO|Version:1.0\n{text}\n".encode()
    notes += b" " * (len(notes) % 2)
    content = path.read_bytes() + b"guan" + struct.pack("<I", len(notes)) + notes
    path.write_bytes(content[:4] + struct.pack("<I", len(content) - 8) + content[8:])
    return path


def deny_listing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let nobody list this folder; taking the right away would not stop root."""
    scandir = os.scandir

    def refuse(path: Any = ".") -> Iterator[os.DirEntry[str]]:
        if isinstance(path, str | os.PathLike) and Path(path) == folder:
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
