"""Recordings as batches of windows."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_detector import FRONT_END, write_sound

from mast.audio import spread_hop, windows
from mast.inference.pieces import End, Piece, Reader, Source, full_batches

READER = Reader(FRONT_END, hop_s=0.75 * FRONT_END.chunk_s, batch_size=3)


def test_pieces_are_the_windows_of_one_recording_after_the_other(tmp_path: Path) -> None:
    paths = [write_sound(tmp_path / f"{i}.wav", length, seed=i) for i, length in enumerate((7, 1, 4))]
    sources = [Source(path, path.name) for path in paths]
    pieces = list(READER(sources))
    ends = [k for k, piece in enumerate(pieces) if isinstance(piece, End)]
    assert [pieces[k].source for k in ends] == sources  # type: ignore[union-attr]
    for source, first, last in zip(sources, [0, *(k + 1 for k in ends)], ends, strict=False):
        own = [piece for piece in pieces[first:last] if isinstance(piece, Piece)]
        expected = list(windows(source.path, FRONT_END, hop_s=READER.hop_s, keep_short=True))
        assert [len(piece.sound) for piece in own[:-1]] == [3] * (len(own) - 1)
        np.testing.assert_array_equal(
            np.concatenate([piece.sound for piece in own]), [w.samples for w in expected]
        )
        assert [s for piece in own for s in piece.starts_s] == [w.start_s for w in expected]
        assert [s for piece in own for s in piece.valid_s] == [w.valid_s for w in expected]
        assert own[-1].end_s == expected[-1].start_s + expected[-1].valid_s


def test_several_at_once_give_the_same_in_the_same_order(tmp_path: Path) -> None:
    sources = [Source(write_sound(tmp_path / f"{i}.wav", 1 + i % 4, seed=i), f"{i}.wav") for i in range(7)]
    (tmp_path / "broken.wav").write_text("no sound")
    sources.insert(2, Source(tmp_path / "broken.wav", "broken.wav"))
    sources.insert(5, Source(tmp_path / "gone.wav", "gone.wav"))
    alone, together = list(READER(sources)), list(replace(READER, n_parallel=4)(iter(sources)))
    assert [type(piece) for piece in alone] == [type(piece) for piece in together]
    for one, other in zip(alone, together, strict=True):
        if isinstance(one, Piece) and isinstance(other, Piece):
            np.testing.assert_array_equal(one.sound, other.sound)
            assert (one.starts_s, one.valid_s) == (other.starts_s, other.valid_s)
        else:
            assert one == other
    errors = {end.source.recording: end.error for end in together if isinstance(end, End) and end.error}
    assert errors.keys() == {"broken.wav", "gone.wav"}


def test_full_batches_hold_every_window_and_end_in_order(tmp_path: Path) -> None:
    lengths = (7, 1, 4, 0.4, 12, 2)
    sources = [
        Source(write_sound(tmp_path / f"{i}.wav", length, seed=i), f"{i}.wav")
        for i, length in enumerate(lengths)
    ]
    pieces = list(READER(sources))
    for size in (1, 2, 3, 5, 8, 1_000):
        batches = list(full_batches(iter(pieces), size))
        held = [sum(len(some.sound) for some in batch if isinstance(some, Piece)) for batch in batches]
        assert set(held[:-1]) <= {size}
        assert held[-1] <= size
        assert all(len(some.sound) for batch in batches for some in batch if isinstance(some, Piece))
        flat = [some for batch in batches for some in batch]
        assert _rows(flat) == _rows(pieces)
        sound = [some.sound for some in flat if isinstance(some, Piece)]
        np.testing.assert_array_equal(
            np.concatenate(sound),
            np.concatenate([piece.sound for piece in pieces if isinstance(piece, Piece)]),
        )
    assert list(full_batches(iter([]), 4)) == []


def _rows(pieces: list[Piece | End]) -> list[tuple[float, float] | str]:
    """Window by window, and the name of each recording where it ends."""
    found: list[tuple[float, float] | str] = []
    for some in pieces:
        if isinstance(some, Piece):
            found += zip(some.starts_s, some.valid_s, strict=True)
        else:
            found.append(some.source.recording)
    return found


def test_windows_of_a_recording_are_spread_where_that_saves_one(tmp_path: Path) -> None:
    chunk_s = FRONT_END.chunk_s
    spread = replace(READER, longest_s=0.8125 * chunk_s)
    # as a minute in windows of 10.24 s: the last of eight adds little
    path = write_sound(tmp_path / "minute.wav", 60 / 10.24 * chunk_s, seed=0)

    def starts(reader: Reader) -> list[float]:
        pieces = [piece for piece in reader([Source(path, path.name)]) if isinstance(piece, Piece)]
        assert pieces[-1].end_s == pytest.approx(60 / 10.24 * chunk_s, abs=0.001)
        return [start for piece in pieces for start in piece.starts_s]

    assert len(starts(READER)) == 8
    assert len(starts(spread)) == 7
    assert starts(spread)[1] == pytest.approx(0.81 * chunk_s, abs=2 * FRONT_END.hop_s)


@given(st.floats(0.1, 400), st.floats(0.3, 0.9), st.floats(1.0, 1.2))
def test_a_spread_step_reaches_the_end_with_fewer_windows(
    duration_s: float, share: float, stretch: float
) -> None:
    hop_s = share * FRONT_END.chunk_s
    found = spread_hop(duration_s, FRONT_END, hop_s=hop_s, longest_s=stretch * hop_s)
    assert hop_s <= found <= max(hop_s, stretch * hop_s)
    if found > hop_s:

        def needed(step_s: float) -> int:
            return 1 + math.ceil((duration_s - FRONT_END.chunk_s - 1e-9) / step_s)

        assert needed(found) <= needed(hop_s)
        # a recording that is a few samples longer than its header says needs no further window
        assert (needed(found) - 1) * found + FRONT_END.chunk_s >= duration_s + 0.5 * FRONT_END.hop_s
