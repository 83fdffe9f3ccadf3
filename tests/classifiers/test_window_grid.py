"""The windows that boxes are heard in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given
from hypothesis import strategies as st

from mast.classifiers.window_grid import WindowGrid, isolate_band, read_windows


def test_by_hand() -> None:
    grid = WindowGrid(duration_s=10.0, window_s=3.0, hops=3)  # windows begin every second, the last at 7 s
    assert grid.last_window == 7
    assert grid.windows_for(4.2, 4.6) == [2, 3, 4]  # all that hold it whole
    assert grid.windows_for(0.1, 0.2) == [0]
    assert grid.windows_for(9.8, 9.9) == [7]
    assert grid.windows_for(4.1, 6.9) == [3, 4, 5]  # none holds it whole: those whose middle it covers
    assert grid.windows_for(1.0, 9.0) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert grid.windows_for(10.0, 11.0) == []
    assert WindowGrid(1.0, 3.0).windows_for(0.5, 0.6) == [0]  # a recording shorter than a window
    assert WindowGrid(3.5, 3.0, hops=3).start_s(1) == 0.5  # the last ends where the recording does


@given(st.floats(0.1, 40), st.floats(0.1, 6), st.floats(0, 0.999), st.floats(0, 15))
def test_every_box_is_heard(duration_s: float, window_s: float, where: float, length_s: float) -> None:
    grid = WindowGrid(duration_s, window_s)
    start_s = where * duration_s
    end_s = min(start_s + length_s, duration_s)
    found = grid.windows_for(start_s, end_s)
    assert found
    assert set(found) <= set(range(grid.last_window + 1))
    naive = []
    for window in range(grid.last_window + 1):
        begin, end = grid.start_s(window), grid.start_s(window) + window_s
        if (begin <= start_s and end_s <= end) or start_s <= (begin + begin + window_s) / 2 <= end_s:
            naive.append(window)
    assert not naive or found == pytest.approx(naive)
    assert grid.start_s(grid.last_window) == pytest.approx(max(0.0, duration_s - window_s))


def test_windows_hold_the_sound_of_their_place(tmp_path: Path) -> None:
    rate = 1_000
    sound = np.arange(95_500, dtype=np.float32) / 100_000
    sf.write(tmp_path / "a.wav", sound, rate, subtype="FLOAT")
    grid = WindowGrid(95.5, 3.0)
    wanted = [0, 1, 40, 60, 61, grid.last_window]
    found = dict(read_windows(tmp_path / "a.wav", grid, wanted[::-1], rate, 3 * rate))
    assert list(found) == wanted
    for window in wanted:
        first = round(grid.start_s(window) * rate)
        assert np.array_equal(found[window], sound[first : first + 3_000])


def test_a_short_recording_is_filled_up_with_silence(tmp_path: Path) -> None:
    sf.write(tmp_path / "a.wav", np.full(500, 0.5), 1_000, subtype="FLOAT")
    ((window, sound),) = read_windows(tmp_path / "a.wav", WindowGrid(0.5, 3.0), [0], 1_000, 3_000)
    assert (window, len(sound)) == (0, 3_000)
    assert (sound[:500] == 0.5).all()
    assert (sound[500:] == 0).all()


def test_only_the_band_is_left() -> None:
    rate, time = 16_000, np.arange(48_000) / 16_000
    inside, outside = (np.sin(2 * np.pi * hz * time).astype(np.float32) for hz in (3_000, 5_000))
    left = isolate_band(inside + outside, rate, 2_500, 3_500)
    assert left.dtype == np.float32
    assert left == pytest.approx(inside, abs=1e-3)
