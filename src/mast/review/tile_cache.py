"""A cache of recent tiles, so that scrolling back costs nothing."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

_MAX_BYTES = 48 << 20  # our choice: several hundred tiles, a few screens of a zoomed view


class TileCache:
    """Pictures by what they show; the least recently used make room. Safe to use from many threads."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held = 0
        self._tiles: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> bytes | None:
        """A tile, if it is still held."""
        with self._lock:
            tile = self._tiles.get(key)
            if tile is not None:
                self._tiles.move_to_end(key)
            return tile

    def put(self, key: Hashable, tile: bytes) -> None:
        """Hold a tile."""
        with self._lock:
            old = self._tiles.pop(key, None)
            self._held += len(tile) - (len(old) if old is not None else 0)
            self._tiles[key] = tile
            while self._held > self._max_bytes:
                _, dropped = self._tiles.popitem(last=False)
                self._held -= len(dropped)
