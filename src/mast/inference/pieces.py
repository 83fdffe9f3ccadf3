"""Recordings as batches of windows, read in the background in the order they are given.

A batch never spans two recordings: products round by the size of the batch, and a run that was stopped and continued
has to give the very same events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mast.audio import AudioInfo, Metadata, Window, metadata, probe, windows
from mast.audio.stream import Samples
from mast.errors import AudioError
from mast.grid import FrontEnd
from mast.inference.prefetch import in_turn


class Source(NamedTuple):
    """A recording to search: where it lies and what it is called in the results."""

    path: Path
    recording: str
    root: Path | None = None  # folders below it may name the site


class Piece(NamedTuple):
    """Some consecutive windows of a recording: their sound, where each begins, and how much of it is no padding."""

    sound: Samples  # (B, samples)
    starts_s: tuple[float, ...]
    valid_s: tuple[float, ...]

    @property
    def end_s(self) -> float:
        """Where the sound of the last window ends."""
        return self.starts_s[-1] + self.valid_s[-1]


class End(NamedTuple):
    """The end of a recording, as found or with the reason why it could not be read."""

    source: Source
    info: AudioInfo | None
    about: Metadata
    error: str = ""


@dataclass(frozen=True)
class Reader:
    """How recordings are read.

    Attributes:
        front_end: of the windows.
        hop_s: from window to window.
        batch_size: windows of a piece; the last of a recording may have fewer.
        several: recordings read at once; a GPU searches faster than one core reads.
    """

    front_end: FrontEnd
    hop_s: float
    batch_size: int
    several: int = 1

    def __call__(self, sources: Iterable[Source]) -> Iterator[Piece | End]:
        """Each recording's pieces, and its :class:`End`."""
        parts = (self._read(source) for source in sources)
        if self.several > 1:
            yield from in_turn(parts, several=self.several)
        else:
            for part in parts:
                yield from part

    def _read(self, source: Source) -> Iterator[Piece | End]:
        about = Metadata()
        try:
            info = probe(source.path)
            about = metadata(source.path, source.root)
            batch: list[Window] = []
            for window in windows(source.path, self.front_end, hop_s=self.hop_s, keep_short=True):
                batch.append(window)
                if len(batch) == self.batch_size:
                    yield _piece(batch)
                    batch = []
            if batch:
                yield _piece(batch)
        except AudioError as error:
            yield End(source, None, about, str(error))
        except OSError as error:
            reason = f"{source.path}: cannot be read ({error.strerror or error}); check the disk or card"
            yield End(source, None, about, reason)
        else:
            yield End(source, info, about)


def _piece(batch: list[Window]) -> Piece:
    return Piece(
        np.stack([window.samples for window in batch]),
        tuple(window.start_s for window in batch),
        tuple(window.valid_s for window in batch),
    )
