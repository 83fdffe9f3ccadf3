"""Many arrays in few files, memory-mapped; safe against being killed and against other writers.

A folder holds pairs of files: ``<name>.data``, arrays end to end, and ``<name>.index.jsonl``, one line per
array (key, offset, shape, a few facts). Every writer has pairs of its own and only ever appends, so writers
cannot harm each other. An array counts once its line is complete, and the line is written after the array
has reached the disk. A killed writer leaves bytes that nobody refers to; nothing has to be repaired.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mast.errors import MastError
from mast.features.journal import Journal, new_name

_COMMIT_S = 10.0  # our choice: work older than this is committed with the next array


@dataclass(frozen=True)
class StoredArray:
    """Where an array lies, and the facts kept with it."""

    shard: str
    offset: int
    shape: tuple[int, ...]
    facts: dict[str, Any]


@dataclass
class PendingArray:
    """An array being written, one batch of rows after the other."""

    file: FileIO
    dtype: np.dtype[Any]
    n_rows: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    def write(self, rows: NDArray[Any]) -> None:
        """Append rows, (n, …)."""
        rest: NDArray[np.uint8] = np.ascontiguousarray(rows, self.dtype).reshape(-1).view(np.uint8)
        while rest.size:
            rest = rest[self.file.write(rest.data) :]
        self.n_rows += len(rows)


class ShardStore:
    """Arrays by key. Any number of processes and threads may share the folder.

    May be handed to forked or spawned workers: each then writes files of its own.

    Args:
        folder: made when first written to.
        dtype: how numbers are stored.
        shard_bytes: a file this large is followed by a new one.
        commit_bytes: how much may wait for its index line, and is lost if the process is killed; nor does
            anything wait much longer than ten seconds.
    """

    def __init__(self, folder: Path, dtype: DTypeLike, *, shard_bytes: int, commit_bytes: int) -> None:
        self.folder = folder
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.shard_bytes = shard_bytes
        self.commit_bytes = commit_bytes
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._journal = Journal(self.folder, ".index.jsonl")
        self._arrays: dict[str, StoredArray] = {}
        self._maps: dict[str, NDArray[Any]] = {}
        self._file: FileIO | None = None
        self._name = ""
        self._waiting: list[dict[str, Any]] = []
        self._waiting_from = 0
        self._commit_by = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("folder", "dtype", "shard_bytes", "commit_bytes")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_afresh()

    def find(self, key: str) -> StoredArray | None:
        """Where the array of ``key`` lies, or ``None``."""
        if self._pid != os.getpid():
            self._start_afresh()  # forked: the open file is our parent's
        with self._lock:
            if key not in self._arrays:
                self._read_news()
            return self._arrays.get(key)

    def _read_news(self) -> None:
        sizes: dict[str, int] = {}
        for name, record in self._journal.news():
            if name not in sizes:
                path = self._path(name)
                sizes[name] = path.stat().st_size if path.exists() else -1
            array = StoredArray(name, record["offset"], tuple(record["shape"]), record["facts"])
            if array.offset + self._n_bytes(array.shape) <= sizes[name]:
                self._arrays.setdefault(record["key"], array)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.data"

    def _n_bytes(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape) * self.dtype.itemsize

    def view(self, array: StoredArray) -> NDArray[Any]:
        """The array itself, memory-mapped. Copy-on-write: changes to it do not reach the disk."""
        n_bytes = self._n_bytes(array.shape)
        if n_bytes == 0:
            return np.empty(array.shape, self.dtype)
        start, end = array.offset // self.dtype.itemsize, (array.offset + n_bytes) // self.dtype.itemsize
        with self._lock:
            whole = self._maps.get(array.shard)
            if (
                whole is None or whole.size < end
            ):  # one map, one open file, per shard; renewed when it has grown
                path = self._path(array.shard)
                n_items = path.stat().st_size // self.dtype.itemsize
                whole = np.memmap(path, dtype=self.dtype, mode="c", shape=(n_items,))
                self._maps[array.shard] = whole
        return whole[start:end].reshape(array.shape)

    @contextmanager
    def adding(self, key: str, row_shape: tuple[int, ...]) -> Iterator[PendingArray]:
        """Write an array of rows of ``row_shape`` under ``key``; if the block fails, nothing was written."""
        with self._lock, self._disk_errors():
            file = self._open()
            start = file.tell()
            pending = PendingArray(file, self.dtype)
            try:
                yield pending
            except BaseException:
                file.seek(start)
                file.truncate()
                raise
            shape = (pending.n_rows, *row_shape)
            self._arrays[key] = StoredArray(self._name, start, shape, pending.facts)
            self._waiting.append({"key": key, "offset": start, "shape": shape, "facts": pending.facts})
            size = file.tell()
            if size >= self.shard_bytes:
                self.close()
            elif size - self._waiting_from >= self.commit_bytes or time.monotonic() > self._commit_by:
                self.commit()

    def _open(self) -> FileIO:
        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._name = new_name()
            # unbuffered: a forked process must not inherit, and later write, a copy of our buffer
            self._file = FileIO(self._path(self._name), "x")
            self._waiting_from = 0
            self._commit_by = time.monotonic() + _COMMIT_S
            # Workers of a data loader are told to stop, not to close: commit when the process ends.
            Finalize(self, _close, args=(weakref.ref(self),), exitpriority=10)
        return self._file

    def commit(self) -> None:
        """Make sure that everything so far outlives this process."""
        if self._pid != os.getpid():
            return
        with self._lock, self._disk_errors():
            if self._file is None or not self._waiting:
                return
            os.fsync(self._file.fileno())
            self._journal.append(self._name, self._waiting, durable=True)
            self._waiting = []
            self._waiting_from = self._file.tell()
            self._commit_by = time.monotonic() + _COMMIT_S

    def close(self) -> None:
        """Commit, and let the next array begin a new file."""
        self.commit()
        with self._lock:
            if self._file is not None and self._pid == os.getpid():
                self._file.close()
                self._file = None

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise MastError(
                f"cache: cannot write to {self.folder}: {error.strerror or error}; free some space, make the "
                "folder writable, or choose another"
            ) from error


def _close(reference: weakref.ref[ShardStore]) -> None:
    store = reference()
    if store is not None:
        store.close()
