"""Speech that the page does not play: the stretches that the folder's ``voices.csv`` lists.

The list is read again when it changes. If it cannot be read, no sound is played at all.
"""

from __future__ import annotations

import threading
from pathlib import Path

from mast.annotations.recording_names import RecordingNames
from mast.classifiers.voice_lists import VOICES, read_voices
from mast.errors import ConfigError
from mast.review.store import Store
from mast.spans import TimeSpan


class Silence:
    """Which stretches of each recording stay silent.

    Args:
        folder: the folder under review.
        store: holds its recordings.
    """

    def __init__(self, folder: Path, store: Store) -> None:
        self._path = folder / VOICES
        self._store = store
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._voices: dict[str, tuple[TimeSpan, ...]] = {}

    def spans(self, name: str) -> tuple[TimeSpan, ...]:
        """Stretches of speech in a recording, in order.

        Raises:
            ConfigError: the list cannot be understood, or names a recording that is not there.
        """
        return self.all_spans().get(name, ())

    def all_spans(self) -> dict[str, tuple[TimeSpan, ...]]:
        """The stretches of every recording with speech; raises as :meth:`spans` does."""
        with self._lock:
            try:
                status = self._path.stat()
            except FileNotFoundError:
                return {}
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp != self._stamp:
                self._voices = self._read()
                self._stamp = stamp
            return self._voices

    def _read(self) -> dict[str, tuple[TimeSpan, ...]]:
        with self._store.reading() as db:
            known = [row["name"] for row in db.execute("SELECT name FROM recordings")]
        names, exact = RecordingNames(known), set(known)
        found: dict[str, tuple[TimeSpan, ...]] = {}
        for listed, spans in read_voices(self._path).items():
            name = names.of_path(listed)
            if name not in exact:
                raise ConfigError(
                    f"{self._path}: {listed} is not a recording of this folder, so its speech would be played; correct "
                    "the name or remove its rows"
                )
            found[name] = tuple(sorted((*found.get(name, ()), *spans)))
        return found
