"""Recordings as batches of windows, read in the background in the order they are given.

A run that was stopped and continued has to give the very same events, and rounding depends on the size of the batch. So
a piece never spans two recordings. If pieces are put together (:func:`full_batches`, for a GPU, which a recording of a
minute does not fill), all batches have one size, and then a window's numbers do not depend on the windows next to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mast.arrays import Samples
from mast.audio import AudioInfo, Metadata, as_audio_errors, describe, spread_hop, window_batches
from mast.errors import MastError
from mast.grid import FrontEnd
from mast.inference.prefetch import chain_prefetched


class Source(NamedTuple):
    """A recording to search: where it lies and what it is called in the results."""

    path: Path
    recording: str
    root: Path | None = None  # folders below it may name the site
    stated: Metadata = Metadata()  # in a table of recordings; takes precedence over the file


class Piece(NamedTuple):
    """Some consecutive windows of a recording: their sound, where each begins, and how much of it is not padding."""

    sound: Samples  # (B, samples)
    starts_s: tuple[float, ...]
    valid_s: tuple[float, ...]
    speed: int = 0  # number of the speed at which they are played

    @property
    def end_s(self) -> float:
        """Where the sound of the last window ends."""
        return self.starts_s[-1] + self.valid_s[-1]

    def part(self, first: int, stop: int | None = None) -> Piece:
        """Some of its windows."""
        rows = slice(first, stop)
        return self._replace(sound=self.sound[rows], starts_s=self.starts_s[rows], valid_s=self.valid_s[rows])


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
        hop_s: seconds from window to window.
        longest_s: the same in recordings where a longer step saves a window; as ``hop_s`` by default.
        batch_size: windows of a piece; the last of a recording may have fewer.
        n_parallel: recordings read at once; a GPU searches faster than one core reads.
        speeds: playing speeds at which a recording is read, one after the other, as shares of the band. A window holds
            the same number of samples at each, so at a lower one it holds more seconds.
    """

    front_end: FrontEnd
    hop_s: float
    batch_size: int
    n_parallel: int = 1
    longest_s: float = 0.0
    speeds: tuple[float, ...] = (1.0,)

    @property
    def front_ends(self) -> list[FrontEnd]:
        """The front end of the windows at each speed."""
        return [self.front_end.at_band(self.front_end.high_hz * speed) for speed in self.speeds]

    def __call__(self, sources: Iterable[Source]) -> Iterator[Piece | End]:
        """Each recording's pieces, and its :class:`End`."""
        parts = (self._read(source) for source in sources)
        if self.n_parallel > 1:
            yield from chain_prefetched(parts, n_parallel=self.n_parallel)
        else:
            for part in parts:
                yield from part

    def hop_in(self, duration_s: float, number: int = 0) -> float:
        """Seconds from window to window in a recording of this length, at the speed of this number."""
        front_end = self.front_ends[number]
        slower = front_end.hop_s / self.front_end.hop_s
        return spread_hop(duration_s, front_end, hop_s=self.hop_s * slower, longest_s=self.longest_s * slower)

    def _read(self, source: Source) -> Iterator[Piece | End]:
        about = Metadata()
        try:
            with as_audio_errors(source.path):
                info, about = describe(source.path, source.root)
                about = about.updated_with(source.stated)
                for number, front_end in enumerate(self.front_ends):
                    hop_s = self.hop_in(info.duration_s, number)
                    for some in window_batches(
                        source.path, front_end, self.batch_size, hop_s=hop_s, keep_short=True
                    ):
                        yield Piece(some.samples, some.starts_s, some.valid_s, number)
        except MastError as error:
            yield End(source, None, about, str(error))
        else:
            yield End(source, info, about)


def full_batches(pieces: Iterable[Piece | End], size: int) -> Iterator[tuple[Piece | End, ...]]:
    """Pieces put together until they hold ``size`` windows, across recordings; one that holds too many is cut.

    All but the last have exactly that many; the last may hold ends alone.
    """
    batch: list[Piece | End] = []
    room = size
    for piece in pieces:
        rest = piece
        while isinstance(rest, Piece) and len(rest.sound) >= room:
            yield (*batch, rest.part(0, room))
            batch, room, rest = [], size, rest.part(room)
        if isinstance(rest, End) or len(rest.sound):
            batch.append(rest)
            room -= len(rest.sound) if isinstance(rest, Piece) else 0
    if batch:
        yield tuple(batch)
