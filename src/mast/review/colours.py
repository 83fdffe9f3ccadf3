"""Colour tables, and grey levels as a PNG with such a table: no picture library needed."""

from __future__ import annotations

import struct
import zlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_INDEXED = 3  # PNG's colour type: a byte a pixel, looked up in a table
_LEVEL = 3  # of compression, our choice: a third faster than zlib's own, a twentieth larger


@cache
def colour_table(name: str) -> bytes:
    """256 colours, dark to bright, as 768 bytes red, green, blue."""
    if name == "grey":  # loud is dark, as sonograms are printed
        levels = np.arange(255, -1, -1, dtype=np.uint8)
        return np.repeat(levels[:, None], 3, axis=1).tobytes()
    from matplotlib import colormaps

    table: NDArray[np.float64] = colormaps[name](np.arange(256))[:, :3]
    return (table * 255 + 0.5).astype(np.uint8).tobytes()


def encode_png(levels: NDArray[np.uint8], colours: str) -> bytes:
    """(height, width) levels 0–255, top row first, as a PNG file."""
    height, width = levels.shape
    rows = np.empty((height, width + 1), np.uint8)  # each row begins with the number of its filter: 0, none
    rows[:, 0] = 0
    rows[:, 1:] = levels
    header = struct.pack(">IIBBBBB", width, height, 8, _INDEXED, 0, 0, 0)
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"PLTE", colour_table(colours)),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), _LEVEL)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
