"""Measurements of boxes against tones whose answers are known, and against a slow twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
from hypothesis import given
from hypothesis import strategies as st

from mast.features import measurements
from mast.features.measurements import (
    HOP,
    MEASUREMENTS,
    WINDOW,
    measure_box,
    measure_events,
    power_spectrogram,
)

RATE = 16_000


def tone(
    hz: float, start_s: float, end_s: float, length_s: float = 6.0, loud: float = 0.3, noise: float = 0.001
):
    """A tone in noise."""
    t = np.arange(round(length_s * RATE)) / RATE
    sound = np.random.default_rng(0).normal(0, noise, len(t))
    inside = (t >= start_s) & (t < end_s)
    sound[inside] += loud * np.sin(2 * np.pi * hz * t[inside])
    return sound


def written(folder: Path, sound: np.ndarray, rate: int = RATE) -> Path:
    path = folder / "a.wav"
    sf.write(path, sound, rate, subtype="FLOAT")
    return path


def events(*boxes: tuple[float, float, float, float]) -> pd.DataFrame:
    return pd.DataFrame(boxes, columns=["start_s", "end_s", "low_hz", "high_hz"])


def test_a_tone(tmp_path: Path) -> None:
    path = written(tmp_path, tone(3_000, 2.0, 3.0))
    found = measure_events(path, events((1.8, 3.2, 2_000, 5_000))).iloc[0]
    assert found["peak_hz"] == 3_000
    assert found["center_hz"] == pytest.approx(3_000, abs=RATE / WINDOW)
    assert found["bandwidth_90_hz"] < 3 * RATE / WINDOW
    assert found["start_5_s"] == pytest.approx(2.05, abs=0.02)  # 5 % of one second
    assert found["end_95_s"] == pytest.approx(2.95, abs=0.02)
    assert found["duration_90_s"] == pytest.approx(0.9, abs=0.03)


def test_two_tones_share_the_energy(tmp_path: Path) -> None:
    sound = tone(2_000, 1.0, 2.0) + tone(4_000, 1.0, 2.0, loud=0.1)
    found = measure_events(written(tmp_path, sound), events((1.0, 2.0, 1_000, 5_000))).iloc[0]
    assert (found["peak_hz"], round(found["center_hz"], -2)) == (2_000, 2_000)
    assert found["high_95_hz"] == pytest.approx(4_000, abs=RATE / WINDOW)  # the faint one has 10 %
    only = measure_events(written(tmp_path, sound), events((1.0, 2.0, 3_000, 5_000))).iloc[0]
    assert only["peak_hz"] == 4_000


@pytest.mark.parametrize("louder_db", [6.0, 20.0])
def test_signal_to_noise(tmp_path: Path, louder_db: float) -> None:
    rng = np.random.default_rng(1)
    sound = rng.normal(0, 0.01, 8 * RATE)
    sound[3 * RATE : 5 * RATE] *= 10 ** (louder_db / 20)
    found = measure_events(
        written(tmp_path, sound), events((3.0, 5.0, 1_000, 6_000), (6.0, 7.0, 1_000, 6_000))
    )
    assert found["snr_db"].tolist() == pytest.approx([louder_db, 0.0], abs=0.6)


@pytest.mark.parametrize("rate", [4_000, 250_000])
def test_fish_and_bats_are_measured_at_their_own_rate(tmp_path: Path, rate: int) -> None:
    t = np.arange(rate) / rate
    sound = 0.3 * np.sin(2 * np.pi * rate / 8 * t) * (t > 0.4) * (t < 0.6) + 1e-4 * np.random.default_rng(
        0
    ).normal(size=rate)
    found = measure_events(written(tmp_path, sound, rate), events((0.35, 0.65, rate / 16, rate / 4))).iloc[0]
    assert found["peak_hz"] == rate / 8
    assert found["duration_90_s"] == pytest.approx(0.18, abs=3 * WINDOW / rate)


def slow(sound: np.ndarray, rate: int, box: tuple[float, float, float, float]) -> dict[str, float]:
    """The definitions, cell by cell."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    energy: dict[tuple[int, int], float] = {}
    for k in range(len(sound) // HOP + 1):
        piece = np.zeros(WINDOW)
        for n in range(WINDOW):
            at = k * HOP - WINDOW // 2 + n
            piece[n] = sound[at] if 0 <= at < len(sound) else 0.0
        for f, value in enumerate(np.fft.rfft(piece * window)):
            energy[k, f] = abs(value) ** 2
    inside = [
        (k, f)
        for k, f in energy
        if box[0] <= k * HOP / rate <= box[1] and box[2] <= f * rate / WINDOW <= box[3]
    ]
    by_bin = {f: sum(energy[c] for c in inside if c[1] == f) for f in {f for _, f in inside}}
    total, run, center = sum(by_bin.values()), 0.0, 0.0
    for f in sorted(by_bin):
        if run + by_bin[f] >= total / 2:
            center = (f - 0.5 + (total / 2 - run) / by_bin[f]) * rate / WINDOW
            break
        run += by_bin[f]
    return {"peak_hz": max(by_bin, key=lambda f: by_bin[f]) * rate / WINDOW, "center_hz": center}


@given(st.tuples(st.floats(0.0, 0.2), st.floats(0.05, 0.2), st.floats(0, 5_000), st.floats(300, 3_000)))
def test_like_the_slow_twin(drawn: tuple[float, float, float, float]) -> None:
    box = (drawn[0], drawn[0] + drawn[1], drawn[2], drawn[2] + drawn[3])
    sound = np.random.default_rng(5).normal(size=RATE // 2).astype(np.float32)
    found = dict(zip(MEASUREMENTS, measure_box(power_spectrogram(sound), RATE, box), strict=True))
    for name, value in slow(sound, RATE, box).items():
        assert found[name] == pytest.approx(value, rel=1e-6), name


def test_pieces_give_what_one_piece_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, np.random.default_rng(2).normal(0, 0.1, 20 * RATE))
    some = events(*((s, s + 0.4, 1_000, 4_000) for s in (15.0, 0.0, 3.3, 3.5, 19.8, 7.7)))
    whole = measure_events(path, some)
    monkeypatch.setattr(measurements, "_AT_ONCE_S", 1.0)
    in_pieces = measure_events(path, some)
    assert in_pieces.to_numpy() == pytest.approx(whole.to_numpy(), rel=1e-6)


def test_odd_boxes(tmp_path: Path) -> None:
    path = written(tmp_path, tone(3_000, 2.0, 3.0))
    odd = events((2.5, 2.5001, 2_990, 2_991), (9.0, 9.5, 1_000, 2_000), (5.9, 7.0, 1_000, 99_000))
    found = measure_events(path, odd.set_index(pd.Index([7, 8, 9])))
    assert found.index.tolist() == [7, 8, 9]
    assert found.loc[7, "peak_hz"] == 3_000
    assert found.loc[8].isna().all()  # begins after the end
    assert np.isfinite(found.loc[9, "peak_hz"])
    silent = measure_events(written(tmp_path, np.zeros(RATE)), events((0.2, 0.4, 1_000, 2_000)))
    assert silent.isna().to_numpy().all()
    assert measure_events(path, events()).empty
