"""Features on disk: computed once, memory-mapped ever after.

Layout, below the folder the user names::

    digests/                      path, size and time of change → digest of the bytes
    <front end>/about.json        what these features are, for people
    <front end>/<name>.data       many recordings' features, end to end (:mod:`mast.features.shards`)

Features are kept as float16. Log-mel of sound within ±1 lies within ±16, where float16 is off by at most
0.004 (0.017 dB, a thousandth of the usual deviation); ``benchmarks/bench_features.py`` measures it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mast.audio import Window, windows
from mast.errors import AudioError, MastError
from mast.features.journal import Journal, new_name
from mast.features.logmel import FEATURE_VERSION, LogMel
from mast.features.shards import ShardStore
from mast.grid import FloatArray, FrontEnd, IntArray

_BATCH_CHUNKS = 8  # windows turned into features at a time: 5 MB of sound, 4 MB of features
_SETTLED_NS = 2_000_000_000  # a file changed more recently may change again within its clock's resolution


def content_digest(path: str | Path) -> str:
    """128 bits of SHA-256 over a file's bytes, in hex (1.3 GB/s on a processor with SHA instructions).

    Raises:
        AudioError: if the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except OSError as error:
        raise AudioError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error


@dataclass(frozen=True, eq=False)
class RecordingFeatures:
    """All chunks of one recording.

    Attributes:
        features: (N, T, F) raw log-mel, memory-mapped; N is 0 for a recording shorter than half a chunk.
        start_s: (N,) where each chunk begins.
        valid_frames: (N,) frames of real sound in each; the rest is padding.
    """

    features: NDArray[Any]
    start_s: FloatArray
    valid_frames: IntArray

    def tensor(self) -> Tensor:
        """(N, 1, T, F) without copying. Writing to it does not reach the disk."""
        return torch.from_numpy(self.features).unsqueeze(1)


class FeatureCache:
    """Features of recordings, keyed by content and front end.

    Use it as a context manager, or call :meth:`close`. A process that ends without either commits what it
    has; one that is killed loses what was not committed, which is computed again next time. Processes and
    threads may share a folder; an object may be handed to workers; a folder that cannot be written to can
    still be read from.

    Args:
        folder: where to keep the features; made when needed.
        front_end: what to compute. Another front end lives beside it in the same folder.
        dtype: how numbers are stored.
        shard_bytes: a file this large is followed by a new one; our choice, 1 GB (some 6 h of sound).
        commit_bytes: at most about this much, or ten seconds' work, is lost when the process is killed; our
            choice, 64 MB.
    """

    def __init__(
        self,
        folder: str | Path,
        front_end: FrontEnd | None = None,
        *,
        dtype: Literal["float16", "float32"] = "float16",
        shard_bytes: int = 1 << 30,
        commit_bytes: int = 64 << 20,
    ) -> None:
        self.front_end = FrontEnd() if front_end is None else front_end
        self._about = {
            "front_end": self.front_end.model_dump(),
            "feature_version": FEATURE_VERSION,
            "dtype": dtype,
        }
        name = hashlib.sha256(json.dumps(self._about, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = Path(folder) / name
        self._store = ShardStore(self.folder, dtype, shard_bytes=shard_bytes, commit_bytes=commit_bytes)
        self._digests = DigestMemo(Path(folder) / "digests")
        self._log_mel = LogMel(self.front_end)

    def __enter__(self) -> FeatureCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Commit everything to disk. The cache may be used on."""
        self._store.close()

    def get(self, key: str) -> NDArray[Any] | None:
        """The array stored under ``key``, memory-mapped, or ``None``.

        The map is copy-on-write: changing the array, or a tensor made of it, leaves the cache as it is.
        """
        stored = self._store.find(key)
        return None if stored is None else self._store.view(stored)

    def put(self, key: str, array: NDArray[Any] | Tensor) -> None:
        """Store an array of at least one axis under ``key``; nothing happens if the key is there already."""
        if self._store.find(key) is not None:
            return
        rows = np.asarray(array.cpu() if isinstance(array, Tensor) else array)
        self._describe()
        with self._store.adding(key, rows.shape[1:]) as pending:
            pending.write(rows)

    def features(
        self,
        path: str | Path,
        *,
        hop_s: float | None = None,
        channel: Literal["mix"] | int = "mix",
        keep_short: bool = False,
    ) -> RecordingFeatures:
        """Features of every window of a recording, computed in constant memory if they are not there yet.

        Args:
            path: the recording.
            hop_s, channel, keep_short: as :func:`mast.audio.windows` takes them.

        Raises:
            AudioError: if the recording cannot be read. Nothing of it is kept then.
        """
        hop = self.front_end.chunk_s / 2 if hop_s is None else hop_s
        key = f"{self._digests.of(path)} hop={hop!r} channel={channel} keep_short={keep_short}"
        stored = self._store.find(key)
        if stored is None:
            self._describe()
            found = windows(path, self.front_end, hop_s=hop_s, channel=channel, keep_short=keep_short)
            self._build(key, found)
            stored = self._store.find(key)
            assert stored is not None
        return RecordingFeatures(
            features=self._store.view(stored),
            start_s=np.array(stored.facts["start_s"], np.float64),
            valid_frames=np.array(stored.facts["valid_frames"], np.int64),
        )

    def _build(self, key: str, found: Iterator[Window]) -> None:
        grid = self.front_end
        start_s: list[float] = []
        valid_frames: list[int] = []
        with self._store.adding(key, (grid.chunk_frames, grid.n_bins)) as pending:
            while batch := list(islice(found, _BATCH_CHUNKS)):
                sound = torch.from_numpy(np.stack([window.samples for window in batch]))
                pending.write(self._log_mel.chunk_features(sound)[:, 0].numpy())
                start_s += [window.start_s for window in batch]
                valid_frames += [self._frames_of_sound(window.valid_s) for window in batch]
            pending.facts.update(start_s=start_s, valid_frames=valid_frames)

    def _frames_of_sound(self, valid_s: float) -> int:
        """Frames that begin within the sound; the last of them look past its end, as in a whole chunk."""
        samples = round(valid_s * self.front_end.sample_rate)
        return min(self.front_end.chunk_frames, math.ceil(samples / self.front_end.hop_samples))

    def _describe(self) -> None:
        about = self.folder / "about.json"
        if about.exists():
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            draft = about.with_suffix(f".{new_name()}")
            draft.write_text(json.dumps(self._about, indent=2) + "\n", encoding="utf-8")
            draft.replace(about)
        except OSError as error:
            raise MastError(
                f"cache: cannot write to {self.folder}: {error.strerror or error}; choose another folder"
            ) from error


class DigestMemo:
    """Digests of files already read, so that a second run need not read 100 GB of sound to find its cache.

    A file is taken to be unchanged while its path, size and time of change are (as ``git status`` does),
    and only if it had been left alone for two seconds when it was read.
    """

    def __init__(self, folder: Path) -> None:
        self._journal = Journal(folder, ".jsonl")
        self._known: dict[str, str] = {}
        self._journal_name = ""
        self._pid = 0

    def of(self, path: str | Path) -> str:
        """The digest of a file's bytes."""
        try:
            status = os.stat(path)
        except OSError as error:
            raise AudioError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
        identity = f"{os.path.abspath(path)} {status.st_size} {status.st_mtime_ns}"
        if self._pid != os.getpid():  # first use, or forked: a journal of our own
            self._pid, self._journal_name = os.getpid(), new_name()
        if identity not in self._known:
            self._known.update((record["file"], record["digest"]) for _, record in self._journal.news())
        if identity not in self._known:
            digest = content_digest(path)
            if time.time_ns() - status.st_mtime_ns < _SETTLED_NS:
                return digest
            self._known[identity] = digest
            with suppress(OSError):  # the memo only saves time: a cache on a read-only disk still works
                self._journal.append(
                    self._journal_name, [{"file": identity, "digest": digest}], durable=False
                )
        return self._known[identity]
