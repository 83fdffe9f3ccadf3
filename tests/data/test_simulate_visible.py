"""Boxes are what can be seen: hand-made events over hand-made backgrounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.data.simulate.visible import (
    BoxStyle,
    Event,
    PowerGrid,
    background_level,
    merge_events,
    union,
    visible_boxes,
)

RATE = 16_000
GRID = PowerGrid(RATE)


def tone(hz: float, start_s: float, end_s: float, total_s: float = 2.0, amplitude: float = 0.1) -> np.ndarray:
    t = np.arange(int(total_s * RATE)) / RATE
    edge = np.clip(
        np.minimum(t - start_s, end_s - t) / 0.02, 0.0, 1.0
    )  # soft: a hard one is heard as a click
    return (amplitude * np.sin(2 * np.pi * hz * t) * np.sin(np.pi / 2 * edge) ** 2).astype(np.float32)


def hiss(total_s: float = 2.0, rms: float = 1e-3, seed: int = 0) -> np.ndarray:
    return (rms * np.random.default_rng(seed).standard_normal(int(total_s * RATE))).astype(np.float32)


def boxes_of(
    sound: np.ndarray, background: np.ndarray, style: BoxStyle | None = None, others: np.ndarray | None = None
) -> list[Event]:
    power = GRID.power(sound)
    level = background_level(background, GRID).at(0, len(power))
    everything = power if others is None else GRID.power(sound + others)
    return visible_boxes(power, level, everything, 0, GRID, style or BoxStyle())


def test_spectrogram_equals_a_slow_twin() -> None:
    sound = np.random.default_rng(1).standard_normal(2_000).astype(np.float32)
    taper = np.hanning(GRID.window) / np.sqrt(np.sum(np.hanning(GRID.window) ** 2))
    for frame in range(GRID.frames(len(sound))):
        piece = sound[frame * GRID.hop : frame * GRID.hop + GRID.window] * taper
        expected = np.abs(np.fft.rfft(piece, GRID.size)) ** 2
        np.testing.assert_allclose(GRID.power(sound)[frame], expected, rtol=1e-3, atol=1e-6)


def test_white_noise_has_its_own_level_in_every_bin() -> None:
    """Geometric mean of an exponential variable: exp(−0.577) of the mean power, 2.5 dB below it."""
    level = background_level(hiss(20.0, rms=0.1), GRID)
    inner = 10 * np.log10(level.blocks[:, 5:-5].mean() / 0.01)
    assert inner == pytest.approx(-2.5, abs=0.3)


def test_a_tone_gets_a_box_of_its_own_size() -> None:
    (event,) = boxes_of(tone(3_000, 0.5, 1.2), hiss())
    assert event.start_s == pytest.approx(0.5, abs=0.02)
    assert event.end_s == pytest.approx(1.2, abs=0.02)
    assert event.low_hz < 3_000 < event.high_hz
    assert event.high_hz - event.low_hz < 400
    assert event.snr_db > 20


def test_what_the_background_hides_has_no_box() -> None:
    faint = tone(3_000, 0.5, 1.2, amplitude=1e-4)
    assert boxes_of(faint, hiss(rms=1e-2)) == []
    assert len(boxes_of(faint, hiss(rms=1e-6))) == 1


def test_a_louder_background_never_widens_a_box() -> None:
    sweep_t = np.arange(2 * RATE) / RATE
    sweep = 0.05 * np.hanning(2 * RATE) * np.sin(2 * np.pi * (1_000 * sweep_t + 800 * sweep_t**2))
    extents = []
    for rms in (1e-5, 1e-3, 1e-2, 3e-2):
        (event,) = boxes_of(sweep.astype(np.float32), hiss(rms=rms))
        extents.append((event.end_s - event.start_s) * (event.high_hz - event.low_hz))
    assert extents == sorted(extents, reverse=True)
    assert extents[-1] < 0.95 * extents[0]


def test_tighter_styles_draw_smaller_boxes() -> None:
    t = np.arange(2 * RATE) / RATE
    wobble = np.sin(2 * np.pi * 3_000 * t + 300 * np.sin(2 * np.pi * 2 * t))  # ±600 Hz
    sound = (0.05 * wobble * np.hanning(2 * RATE)).astype(np.float32)
    loose = boxes_of(sound, hiss(rms=1e-2), BoxStyle(above_background_db=0.0))[0]
    tight = boxes_of(sound, hiss(rms=1e-2), BoxStyle(above_background_db=12.0))[0]
    assert tight.end_s - tight.start_s < loose.end_s - loose.start_s
    assert tight.high_hz - tight.low_hz <= loose.high_hz - loose.low_hz


@pytest.mark.parametrize(("gap_s", "expected"), [(0.05, 3), (0.25, 1)])
def test_the_gap_decides_between_syllables_and_phrases(gap_s: float, expected: int) -> None:
    phrase = tone(3_000, 0.2, 0.4) + tone(3_000, 0.55, 0.75) + tone(3_000, 0.9, 1.1)
    assert len(boxes_of(phrase, hiss(), BoxStyle(gap_s=gap_s))) == expected


def test_songs_have_a_gap_of_their_own() -> None:
    style = BoxStyle(gap_s=0.05, song_gap_s=0.3)
    phrase = tone(3_000, 0.2, 0.4) + tone(3_500, 0.55, 0.75) + tone(2_500, 0.9, 1.1)
    power = GRID.power(phrase)
    level = background_level(hiss(), GRID).at(0, len(power))
    calls = visible_boxes(power, level, power, 0, GRID, style)
    (song,) = visible_boxes(power, level, power, 0, GRID, style, song=True)
    assert [one.song for one in calls] == [False] * 3
    assert song.song
    apart = [event(0, 1, 1_000, 2_000), event(1.2, 2, 1_000, 2_000)]
    assert len(merge_events(apart, style)) == 2
    assert len(merge_events([replace(one, song=True) for one in apart], style)) == 1


def test_what_is_seen_is_followed_into_the_background() -> None:
    fading = tone(3_000, 0.2, 1.8) * np.geomspace(1.0, 1e-5, 2 * RATE).astype(np.float32)
    plain, followed = (
        BoxStyle(tail_db=90, below_peak_db=90),
        BoxStyle(tail_db=90, below_peak_db=90, edge_db=1.0),
    )
    (short,), (long,) = boxes_of(fading, hiss(), plain), boxes_of(fading, hiss(), followed)
    assert short.start_s == pytest.approx(long.start_s, abs=0.03)
    assert long.end_s > short.end_s + 0.05
    unseen = tone(3_000, 0.5, 1.2, amplitude=2.5e-4)  # above the edge everywhere, plain nowhere
    assert len(boxes_of(unseen, hiss(), BoxStyle(above_background_db=3.0))) == 1
    assert boxes_of(unseen, hiss(), BoxStyle(above_background_db=30.0, edge_db=3.0)) == []


def test_a_call_under_a_much_louder_one_is_not_boxed() -> None:
    quiet, loud = tone(3_000, 0.5, 1.0, amplitude=0.01), tone(3_010, 0.2, 1.5, amplitude=0.5)
    assert len(boxes_of(quiet, hiss())) == 1
    assert boxes_of(quiet, hiss(), others=loud) == []


def test_a_barely_seen_harmonic_does_not_stretch_the_box() -> None:
    background = hiss(rms=1e-3)
    alone = boxes_of(tone(2_000, 0.5, 1.2), background)[0]
    with_speck = boxes_of(tone(2_000, 0.5, 1.2) + tone(6_000, 0.8, 0.83, amplitude=0.0012), background)[0]
    with_harmonic = boxes_of(tone(2_000, 0.5, 1.2) + tone(6_000, 0.5, 1.2, amplitude=0.03), background)[0]
    assert with_speck.high_hz == pytest.approx(alone.high_hz, abs=100)
    assert with_harmonic.high_hz > 5_900


def test_silence_has_no_box() -> None:
    silence = np.zeros(RATE, dtype=np.float32)
    assert boxes_of(silence, hiss(1.0)) == []


def event(
    start_s: float, end_s: float, low_hz: float, high_hz: float, *, label: str = "a", caller: int = 1
) -> Event:
    return Event(start_s, end_s, low_hz, high_hz, label, 10.0, 1.0, 0.1, caller)


def test_joining_by_animal_and_by_overlap() -> None:
    style = BoxStyle(gap_s=0.2, same_call_overlap=0.5)
    near = [event(0, 1, 1_000, 2_000), event(1.1, 2, 1_500, 2_500)]
    assert [e.row for e in merge_events(near, style)] == [(0, 1_000, 2, 2_500)]
    assert len(merge_events([near[0], replace(near[1], caller=2)], style)) == 2  # another animal, no overlap
    assert len(merge_events([near[0], replace(near[1], label="b")], style)) == 2
    over = [event(0, 1, 1_000, 2_000), event(0.2, 1.1, 1_000, 2_000, caller=2)]
    assert len(merge_events(over, style)) == 1
    assert merge_events([], style) == []


boxes = st.builds(
    lambda start, length, low, height, label, caller: event(
        start, start + length, low, low + height, label=label, caller=caller
    ),
    st.floats(0, 20),
    st.floats(0.05, 3),
    st.floats(0, 5_000),
    st.floats(50, 3_000),
    st.sampled_from("ab"),
    st.integers(1, 3),
)


@given(st.lists(boxes, max_size=12))
def test_joining_covers_everything_and_is_finished(events: list[Event]) -> None:
    style = BoxStyle()
    joined = merge_events(events, style)
    assert merge_events(joined, style) == joined
    assert [e.start_s for e in joined] == sorted(e.start_s for e in joined)
    for e in events:
        assert any(
            j.label == e.label
            and j.start_s <= e.start_s
            and j.end_s >= e.end_s
            and j.low_hz <= e.low_hz
            and j.high_hz >= e.high_hz
            for j in joined
        )


def test_union_averages_power_by_area() -> None:
    a, b = event(0, 1, 0, 1_000), replace(event(0, 3, 0, 1_000), signal=5.0)
    assert union(a, b).signal == pytest.approx(0.25 * 1.0 + 0.75 * 5.0)
