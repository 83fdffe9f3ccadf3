"""Coordinates: by hand, against a plain-Python twin, and as properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchaudio.compliance import kaldi

from mast.errors import ConfigError
from mast.features.logmel import LogMel
from mast.grid import FrontEnd, events_to_cells, events_to_grid, grid_to_events, in_band

PAPER = FrontEnd()
BANDS = st.sampled_from([2_000.0, 8_000.0, 24_000.0, 96_000.0, 192_000.0])


@st.composite
def events(draw: st.DrawFn, front_end: FrontEnd = PAPER, *, inside: bool = False) -> tuple[float, ...]:
    """One event: start_s, low_hz, end_s, high_hz; ``inside`` keeps it within the first chunk and the band."""
    chunk_s, low, high = front_end.chunk_s, front_end.low_hz, front_end.high_hz
    times = st.floats(0, chunk_s) if inside else st.floats(-0.5 * chunk_s, 2 * chunk_s)
    pitches = st.floats(low, high) if inside else st.floats(0, 2 * high)
    t1, t2 = sorted((draw(times), draw(times)))
    f1, f2 = sorted((draw(pitches), draw(pitches)))
    return t1, f1, t2, f2


def slow_to_grid(event: tuple[float, ...], chunk_start_s: float = 0.0) -> tuple[int, ...] | None:
    """The appendix, sentence by sentence, for the paper's front end."""
    t1, f1, t2, f2 = event
    whole = t2 - t1
    t1, t2 = max(t1 - chunk_start_s, 0.0), min(t2 - chunk_start_s, 10.24)
    is_remnant = t2 - t1 < min(0.1, whole) - 1e-9
    if t2 <= t1 or is_remnant or f1 > 8_000 or f2 < 20:
        return None

    def mel(hz: float) -> float:
        return 2595 * math.log10(1 + hz / 700)

    step = (mel(8_000) - mel(20)) / 129
    if (f1 < 20 or f2 > 8_000) and mel(min(f2, 8_000)) - mel(max(f1, 20)) < step * (1 - 1e-6):
        return None  # ours: a sliver at the edge of the band
    centres = [mel(20) + (i + 1) * step for i in range(128)]

    def nearest(hz: float) -> int:
        return min(range(128), key=lambda i: abs(centres[i] - mel(hz)))

    frame1, frame2 = math.floor(t1 / 0.01 + 1e-6), math.floor(t2 / 0.01 + 1e-6)
    frame1 = min(frame1, 1_023)
    bin1, bin2 = nearest(f1), nearest(f2)
    return frame1, bin1, min(max(frame2, frame1 + 1), 1_024), max(bin2, bin1 + 1)


def test_mel_by_hand() -> None:
    # 2595 log10(1 + 6300/700) = 2595, and 2595 log10(1 + 0) = 0
    np.testing.assert_allclose(PAPER.mel([0.0, 6_300.0, 69_300.0]), [0.0, 2_595.0, 5_190.0])
    np.testing.assert_allclose(PAPER.hz([0.0, 2_595.0]), [0.0, 6_300.0])
    # (2840.0230 − 31.7485) / 129
    assert PAPER.mel_step == pytest.approx(21.76957, abs=1e-4)


def test_the_papers_numbers() -> None:
    assert (PAPER.hop_s, PAPER.chunk_s, PAPER.chunk_samples) == (0.01, 10.24, 163_840)
    assert PAPER.window_samples / PAPER.sample_rate == 0.025


def test_bin_centres_are_kaldis() -> None:
    _, centres = kaldi.get_mel_banks(128, 512, 16_000.0, 20.0, 8_000.0, 100.0, -500.0, 1.0)
    np.testing.assert_allclose(
        PAPER.bins_to_hz(np.arange(PAPER.n_bins)), centres.flatten().numpy(), rtol=1e-5
    )


def test_triangles_of_kaldi_peak_at_the_bin_centres() -> None:
    bank, _ = kaldi.get_mel_banks(128, 1 << 16, 16_000.0, 20.0, 8_000.0, 100.0, -500.0, 1.0)
    peaks_hz = bank.argmax(dim=1).numpy() * 16_000 / (1 << 16)
    np.testing.assert_allclose(PAPER.bins_to_hz(np.arange(PAPER.n_bins)), peaks_hz, atol=0.5)


@pytest.mark.parametrize(
    ("event", "cells"),
    [
        ((0.295, 20.0, 1.504, 8_000.0), (29, 0, 150, 127)),
        ((0.29, 20.0, 0.57, 8_000.0), (29, 0, 57, 127)),  # 0.29 / 0.01 = 28.999…
        ((1.0, 6_300.0, 2.0, 6_300.0), (100, 117, 200, 118)),  # (2595 − 31.75) / 21.77 − 1 = 116.74; one cell
        ((1.0, 1_000.0, 2.0, 2_000.0), (100, 43, 200, 67)),  # mel 999.99 → 43.48, mel 1521.36 → 67.43
        ((-3.0, 0.0, 50.0, 30_000.0), (0, 0, 1_024, 127)),
        ((10.13, 500.0, 10.24, 600.0), (1_013, 25, 1_024, 30)),  # mel 607.45 → 25.45, mel 697.64 → 29.59
        (
            (0.0, 7_830.0, 1.0, 9_000.0),
            (0, 127, 100, 128),
        ),  # bin 127 is at 7834 Hz, and 8000 Hz a bin above it
        ((0.0, 7_990.0, 1.0, 8_000.0), (0, 127, 100, 128)),  # narrow by nature
        ((0.0, 0.0, 0.1, 34.5), (0, 0, 10, 1)),  # bin 0 is at 34.04 Hz, and 20 Hz a bin below it
    ],
)
def test_events_by_hand(event: tuple[float, ...], cells: tuple[int, ...]) -> None:
    found = events_to_grid([event], PAPER)
    assert found.boxes.tolist() == [list(cells)]
    assert found.index.tolist() == [0]


@pytest.mark.parametrize(
    "event",
    [
        (10.15, 500.0, 12.0, 900.0),  # 90 ms after clipping
        (-5.0, 500.0, 0.05, 900.0),
        (10.24, 500.0, 12.0, 900.0),  # touches the end only
        (-2.0, 500.0, 0.0, 900.0),
        (1.0, 8_001.0, 2.0, 9_000.0),  # above the band
        (1.0, 1.0, 2.0, 19.0),  # below it
        (1.0, 8_000.0, 2.0, 9_000.0),  # touches its upper edge only
        (1.0, 0.0, 2.0, 20.0),  # its lower edge
        (1.0, 7_840.0, 2.0, 9_000.0),  # a sliver of the last bin
        (1.0, 0.0, 2.0, 33.0),  # of the first
    ],
)
def test_events_that_are_left_out(event: tuple[float, ...]) -> None:
    found = events_to_grid([event], PAPER)
    assert found.boxes.shape == (0, 4)
    assert found.index.shape == (0,)


def test_short_remnants_can_be_kept() -> None:
    found = events_to_grid([(10.236, 500.0, 12.0, 900.0)], PAPER, min_event_s=0.0)
    assert found.boxes[0, [0, 2]].tolist() == [1023, 1024]


def test_an_event_that_is_short_by_nature_stays() -> None:
    found = events_to_grid([(1.0, 500.0, 1.004, 900.0)], PAPER)
    assert found.boxes[0, [0, 2]].tolist() == [100, 101]


def test_no_events() -> None:
    found = events_to_grid([], PAPER)
    assert found.boxes.shape == (0, 4)
    assert found.index.shape == (0,)
    assert grid_to_events([], PAPER).shape == (0, 4)
    assert events_to_cells([], PAPER).shape == (0, 4)
    assert in_band([], PAPER).shape == (0,)


def test_index_names_the_event_each_box_came_from() -> None:
    given_events = [(-1, 500, 0.01, 900), (1, 500, 2, 900), (1, 9_000, 2, 9_500), (3, 500, 4, 900)]
    assert events_to_grid(given_events, PAPER).index.tolist() == [1, 3]


@given(
    st.lists(st.tuples(*[st.integers(0, 1_000_000)] * 2, *[st.integers(0, 128_000)] * 2), max_size=5),
    BANDS,
    st.integers(0, 10_000),
)
def test_events_and_cells_there_and_back(
    thousandths: list[tuple[int, ...]], band: float, number: int
) -> None:
    front_end = FrontEnd.for_band(band)
    boxes = np.array([(t1, f1, t2, f2) for t1, t2, f1, f2 in thousandths], dtype=float).reshape(-1, 4) / 1_000
    starts = np.full(len(boxes), number * front_end.chunk_s)
    there = grid_to_events(boxes, front_end, chunk_start_s=starts)
    expected = boxes + number * front_end.chunk_frames * np.array([1, 0, 1, 0])
    np.testing.assert_array_equal(events_to_cells(there, front_end), expected.round(6))


def test_cells_back_by_hand() -> None:
    centre = PAPER.bins_to_hz(np.arange(PAPER.n_bins))
    found = grid_to_events([(0, 0, 100, 127), (50.5, 10, 51.5, 11)], PAPER, chunk_start_s=5.12)
    np.testing.assert_allclose(found[0], [5.12, centre[0], 6.12, centre[127]])
    np.testing.assert_allclose(found[1], [5.625, centre[10], 5.635, centre[11]])
    outside = grid_to_events([(0, -9, 1, 400)], PAPER)[0]
    np.testing.assert_allclose(outside[[1, 3]], [20.0, 8_000.0])


@given(event=events(), chunk_start_s=st.sampled_from([0.0, 5.12, 10.24]))
def test_equals_the_slow_twin(event: tuple[float, ...], chunk_start_s: float) -> None:
    found = events_to_grid([event], PAPER, chunk_start_s=chunk_start_s).boxes.tolist()
    expected = slow_to_grid(event, chunk_start_s)
    assert found == ([] if expected is None else [list(expected)])


@given(data=st.data(), high_hz=BANDS)
def test_round_trip_is_within_one_cell(data: st.DataObject, high_hz: float) -> None:
    front_end = FrontEnd.for_band(high_hz)
    event = data.draw(events(front_end, inside=True))
    boxes = events_to_grid([event], front_end, min_event_s=0.0).boxes
    if event[2] <= event[0]:
        assert len(boxes) == 0
        return
    back = grid_to_events(boxes, front_end)[0]
    slack = 1e-5
    assert abs(back[0] - event[0]) <= front_end.hop_s * (1 + slack)
    assert abs(back[2] - event[2]) <= front_end.hop_s * (1 + slack)
    given_bins = np.clip(front_end.hz_to_bins([event[1], event[3]]), 0, 127)  # clipped to the grid
    off = np.abs(front_end.hz_to_bins(back[[1, 3]]) - given_bins)
    assert off[0] <= 0.5 + slack
    assert off[1] <= (0.5 if boxes[0, 3] - boxes[0, 1] > 1 else 1.5) + slack  # widened to one cell


@given(data=st.data(), high_hz=BANDS)
def test_cells_survive_the_way_out_and_back(data: st.DataObject, high_hz: float) -> None:
    front_end = FrontEnd.for_band(high_hz)
    t1 = data.draw(st.integers(0, 1_014))
    f1 = data.draw(st.integers(0, 126))
    cells = [t1, f1, data.draw(st.integers(t1 + 10, 1_024)), data.draw(st.integers(f1 + 1, 127))]
    start_s = data.draw(st.sampled_from([0.0, 0.5, 7.5])) * front_end.chunk_s
    out = grid_to_events([cells], front_end, chunk_start_s=start_s)
    assert events_to_grid(out, front_end, chunk_start_s=start_s).boxes.tolist() == [cells]


@given(event=events(), chunk_start_s=st.floats(-20, 20))
def test_boxes_lie_on_the_grid_and_have_area(event: tuple[float, ...], chunk_start_s: float) -> None:
    for t1, f1, t2, f2 in events_to_grid([event], PAPER, chunk_start_s=chunk_start_s).boxes.tolist():
        assert 0 <= t1 < t2 <= 1_024
        assert 0 <= f1 < f2 <= 128


@given(data=st.data(), high_hz=BANDS)
def test_what_the_band_leaves_of_a_box_is_a_bin_or_more(data: st.DataObject, high_hz: float) -> None:
    front_end = FrontEnd.for_band(high_hz)
    event = data.draw(events(front_end))
    low, high = np.clip([event[1], event[3]], front_end.low_hz, front_end.high_hz)
    if (low, high) == (event[1], event[3]):
        assert in_band([event], front_end).all()
    elif in_band([event], front_end).all():
        assert np.diff(front_end.hz_to_bins([low, high])) > 0.99
    else:
        assert np.diff(front_end.hz_to_bins([low, high])) < 1


@given(first=events(), second=events())
def test_order_is_kept(first: tuple[float, ...], second: tuple[float, ...]) -> None:
    found = events_to_grid([first, second], PAPER, min_event_s=0.0)
    if len(found.boxes) < 2:
        return
    one, two = found.boxes
    for k in (0, 1):
        low, high = (one, two) if (first, second)[0][k] <= second[k] else (two, one)
        assert low[k] <= high[k]


@given(hz=st.lists(st.floats(0, 200_000), min_size=2, max_size=20), high_hz=BANDS)
def test_bins_and_hertz_are_inverse_and_monotone(hz: list[float], high_hz: float) -> None:
    front_end = FrontEnd.for_band(high_hz)
    ordered = np.sort(hz)
    bins = front_end.hz_to_bins(ordered)
    assert (np.diff(bins) >= 0).all()
    np.testing.assert_allclose(front_end.bins_to_hz(bins), ordered, rtol=1e-9, atol=1e-6)


def test_centres_are_whole_bins() -> None:
    np.testing.assert_allclose(
        PAPER.hz_to_bins(PAPER.bins_to_hz(np.arange(PAPER.n_bins))), np.arange(128), atol=1e-9
    )
    np.testing.assert_allclose(PAPER.hz_to_bins([20.0, 8_000.0]), [-1.0, 128.0], atol=1e-9)


def test_a_box_that_spans_chunks_appears_in_each() -> None:
    event = (3.0, 1_000.0, 12.0, 2_000.0)
    times = {
        start: events_to_grid([event], PAPER, chunk_start_s=start).boxes[:, [0, 2]].tolist()
        for start in (0.0, 5.12, 10.24, 15.36)
    }
    assert times == {0.0: [[300, 1_024]], 5.12: [[0, 688]], 10.24: [[0, 176]], 15.36: []}


@given(start_s=st.floats(0, 60), length_s=st.floats(0.3, 40))
def test_every_part_of_an_event_is_in_some_chunk(start_s: float, length_s: float) -> None:
    event = (start_s, 500.0, start_s + length_s, 900.0)
    covered_s = 0.0
    for k in range(12):
        for t1, _, t2, _ in events_to_grid([event], PAPER, chunk_start_s=10.24 * k).boxes.tolist():
            covered_s += (t2 - t1) * 0.01
    # what is lost: pieces under 100 ms at either end, and a frame of flooring in each chunk
    assert length_s - 0.2 - 0.12 <= covered_s <= length_s + 0.12


@given(event=events(), high_hz=BANDS)
def test_another_band_is_the_same_tape_at_another_speed(event: tuple[float, ...], high_hz: float) -> None:
    factor = high_hz / PAPER.high_hz
    # a boundary within a millionth of a cell edge may fall to either side
    edges = np.array([event[0] / 0.01, event[2] / 0.01, *(PAPER.hz_to_bins([event[1], event[3]]) - 0.5)])
    if (np.abs(edges - np.rint(edges)) < 1e-5).any():
        return
    faster = (event[0] / factor, event[1] * factor, event[2] / factor, event[3] * factor)
    expected = events_to_grid([event], PAPER).boxes
    np.testing.assert_array_equal(events_to_grid([faster], FrontEnd.for_band(high_hz)).boxes, expected)


@pytest.mark.parametrize("high_hz", [2_000.0, 12_000.0, 192_000.0])
def test_features_of_the_same_samples_are_the_same_in_another_band(high_hz: float) -> None:
    sound = torch.randn(1, 16_000, generator=torch.Generator().manual_seed(0))
    scaled = FrontEnd.for_band(high_hz)
    torch.testing.assert_close(LogMel(scaled)(sound), LogMel(PAPER)(sound), rtol=0, atol=1e-4)
    np.testing.assert_allclose(
        scaled.bins_to_hz(np.arange(scaled.n_bins)) / high_hz,
        PAPER.bins_to_hz(np.arange(PAPER.n_bins)) / 8_000,
        rtol=1e-9,
    )


def test_bands_for_fish_and_bats() -> None:
    fish, bats = FrontEnd.for_band(2_000), FrontEnd.for_band(192_000)
    assert (fish.sample_rate, fish.low_hz, fish.hop_s, fish.chunk_s) == (4_000, 5.0, 0.04, 40.96)
    assert (bats.sample_rate, bats.low_hz) == (384_000, 480.0)
    assert bats.chunk_s == pytest.approx(10.24 / 24)
    assert FrontEnd.for_band(8_000) == PAPER


@pytest.mark.parametrize("band", [(500.0, 400.0), (20.0, 8_001.0), (20.0, 20.0)])
def test_bands_that_do_not_fit(band: tuple[float, float]) -> None:
    with pytest.raises(
        ConfigError, match=r"does not fit a sample rate of 16000 Hz; expected low < high ≤ 8000"
    ):
        FrontEnd(low_hz=band[0], high_hz=band[1])


@pytest.mark.parametrize("high_hz", [0.0, -5.0, math.nan])
def test_for_band_needs_a_band(high_hz: float) -> None:
    with pytest.raises(ConfigError, match="expected above 0"):
        FrontEnd.for_band(high_hz)


def test_a_front_end_at_another_band_is_the_tape_at_another_speed() -> None:
    assert FrontEnd().at_band(2_000) == FrontEnd.for_band(2_000)
    assert FrontEnd().at_band(8_000) == FrontEnd()
    own = FrontEnd(hop_samples=80, chunk_frames=64, mel_corner_hz=500.0)
    assert own.at_band(96_000).at_band(8_000) == own
    assert own.at_band(96_000).hop_samples == 80
    for band_hz in range(2_000, 2_100):  # half the rate stays just that, whatever the rounding
        assert FrontEnd().at_band(band_hz).high_hz == band_hz
    for wrong in (0.0, -1.0, float("nan"), 1e-9):
        with pytest.raises(ConfigError):
            own.at_band(wrong)
