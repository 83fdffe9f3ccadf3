"""Windows equal those of a naive cutter that has the whole recording in memory."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.audio import read, window_batches, windows
from mast.errors import AudioError
from mast.grid import FrontEnd

SMALL = FrontEnd(
    sample_rate=1_000, high_hz=500, hop_samples=10, window_samples=25, chunk_frames=10
)  # 100 samples


def naive(
    sound: np.ndarray, front_end: FrontEnd, hop: int, keep_short: bool
) -> list[tuple[int, np.ndarray, int]]:
    """(start, samples, valid) of each window, by the rules in words."""
    size = front_end.chunk_samples
    found: list[tuple[int, np.ndarray, int]] = []
    heard = 0  # samples up to here are in a window
    for start in range(0, len(sound), hop):
        piece = sound[start : start + size].astype(np.float64)
        adds_sound = start + len(piece) > heard
        long_enough = len(piece) >= size / 2 or keep_short
        if adds_sound and long_enough:
            centred = (piece - piece.mean()).astype(np.float32)
            found.append((start, np.pad(centred, (0, size - len(piece))), len(piece)))
            heard = start + len(piece)
    return found


@settings(max_examples=50)
@given(
    length=st.integers(0, 1_000),
    hop=st.integers(1, 250),
    keep_short=st.booleans(),
    rate=st.sampled_from([1_000, 3_000, 441]),
)
def test_windows_equal_naive(tmp_path: Path, length: int, hop: int, keep_short: bool, rate: int) -> None:
    path = tmp_path / "sound.wav"
    sf.write(path, np.random.default_rng(length).uniform(-0.5, 0.7, length), rate, subtype="FLOAT")
    expected = naive(read(path, sample_rate=1_000), SMALL, hop, keep_short)
    got = list(windows(path, SMALL, hop_s=hop / 1_000, keep_short=keep_short))
    assert [window.start_s for window in got] == [start / 1_000 for start, _, _ in expected]
    assert [window.valid_s for window in got] == [valid / 1_000 for _, _, valid in expected]
    for window, (_, samples, valid) in zip(got, expected, strict=True):
        assert window.samples.dtype == np.float32
        np.testing.assert_allclose(window.samples, samples, rtol=0, atol=1e-7)  # far below a 24-bit step
        assert not window.samples[valid:].any()
    for size in (2, 3, 100):
        some = list(window_batches(path, SMALL, size, hop_s=hop / 1_000, keep_short=keep_short))
        assert [len(batch.samples) for batch in some[:-1]] == [size] * (len(some) - 1)
        assert [start for batch in some for start in batch.starts_s] == [window.start_s for window in got]
        assert [valid for batch in some for valid in batch.valid_s] == [window.valid_s for window in got]
        rows = [row for batch in some for row in batch.samples]
        np.testing.assert_allclose(rows, [window.samples for window in got], rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("length", "starts", "last_valid"),
    [
        (0, [], 0),
        (49, [], 0),  # under half a window: the paper drops it
        (50, [0], 50),
        (99, [0], 99),
        (100, [0], 100),
        (101, [0, 50], 51),
        (149, [0, 50], 99),
        (150, [0, 50], 100),
        (151, [0, 50, 100], 51),
    ],
)
def test_remainder_rule(tmp_path: Path, length: int, starts: list[int], last_valid: int) -> None:
    path = tmp_path / "sound.wav"
    sf.write(path, np.ones(length) * 0.25, 1_000)
    got = list(windows(path, SMALL))
    assert [window.start_s for window in got] == [start / 1_000 for start in starts]
    if got:
        assert got[-1].valid_s == last_valid / 1_000


def test_one_minute_gives_the_papers_eleven_windows(tmp_path: Path) -> None:
    """641 one-minute recordings are 7,051 chunks in the paper (App. "Dataset statistics"): 11 each."""
    path = tmp_path / "minute.wav"
    sf.write(path, np.random.default_rng(0).uniform(-0.5, 0.5, 60 * 48_000), 48_000)
    got = list(windows(path, FrontEnd()))
    assert len(got) == 11
    assert [window.start_s for window in got] == [k * 81_920 / 16_000 for k in range(11)]
    assert got[-1].valid_s == 8.8
    assert all(window.samples.shape == (163_840,) for window in got)


def test_ten_milliseconds_and_keep_short(tmp_path: Path) -> None:
    path = tmp_path / "blip.wav"
    sf.write(path, np.full(160, 0.5), 16_000, subtype="FLOAT")
    assert list(windows(path, FrontEnd())) == []
    (window,) = windows(path, FrontEnd(), keep_short=True)
    assert (window.start_s, window.valid_s) == (0.0, 0.01)
    assert not window.samples.any()  # constant sound, mean-centred


def test_mean_is_that_of_the_sound_before_padding(tmp_path: Path) -> None:
    path = tmp_path / "offset.wav"
    sound = np.tile([0.25, 0.75], 30)  # 60 of 100 samples, mean 0.5
    sf.write(path, sound, 1_000, subtype="FLOAT")
    (window,) = windows(path, SMALL)
    np.testing.assert_array_equal(window.samples[:60], sound - 0.5)
    np.testing.assert_array_equal(window.samples[60:], 0)


@pytest.mark.parametrize("block_values", [64, 1_000, 1 << 22])
def test_grid_does_not_depend_on_blocks(
    tmp_path: Path, block_values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sound.wav"
    sf.write(path, np.random.default_rng(0).uniform(-0.5, 0.5, (5_000, 2)), 3_000, subtype="FLOAT")
    expected = naive(read(path, sample_rate=1_000), SMALL, 50, False)
    monkeypatch.setattr(import_module("mast.audio.stream"), "_MAX_BLOCK_VALUES", block_values)
    got = list(windows(path, SMALL))
    assert len(got) == len(expected)
    for window, (_, samples, _) in zip(got, expected, strict=True):
        np.testing.assert_allclose(window.samples, samples, rtol=0, atol=1e-7)  # far below a 24-bit step


def test_hop_must_be_at_least_one_sample(tmp_path: Path) -> None:
    sf.write(tmp_path / "sound.wav", np.zeros(1_000), 1_000)
    for hop_s in (0.0, -1.0, 1e-9):
        with pytest.raises(AudioError, match="less than one sample"):
            windows(tmp_path / "sound.wav", SMALL, hop_s=hop_s)


def test_bands_other_than_the_papers(tmp_path: Path) -> None:
    sf.write(tmp_path / "bat.wav", np.random.default_rng(0).uniform(-0.5, 0.5, 384_000), 384_000)
    bats = FrontEnd.for_band(192_000)
    got = list(windows(tmp_path / "bat.wav", bats))
    assert [window.start_s for window in got] == [k * bats.chunk_s / 2 for k in range(len(got))]
    assert got[-1].start_s + got[-1].valid_s == 1.0
