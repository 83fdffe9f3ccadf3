"""The strongest harmonic without echo, where the right answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from mast.arrays import FloatArray
from mast.features.measurements import power_spectrogram
from mast.features.strongest import HOP, WINDOW, strongest_part, strongest_parts
from mast.grid import FrontEnd

LEVELS_DB = (0.0, 5.0, -12.0)  # of three harmonics: the second is the strongest
FUNDAMENTAL = 0.14  # of half the rate
START, LENGTH, ECHO = 0.30, 0.04, 0.06  # of a chunk: where the call begins, how long it is, how long its echo


def naive_part(
    power: FloatArray, rate: int, box: FloatArray, *, first_frame: int, band_db: float, time_db: float
) -> list[float]:
    """As the text has it, cell by cell."""
    frame_s, bin_hz = HOP / rate, rate / WINDOW
    frames = [k for k in range(len(power)) if box[0] <= (k + first_frame) * frame_s <= box[2]]
    bins = [k for k in range(power.shape[1]) if box[1] <= k * bin_hz <= box[3]]
    floor = {f: float(np.median(power[:, f])) for f in bins}
    above = {(t, f): max(0.0, power[t, f] - floor[f]) for t in frames for f in bins}
    spectrum = {f: max(above[t, f] for t in frames) for f in bins}
    low = high = max(bins, key=lambda f: spectrum[f])
    threshold = spectrum[low] / 10 ** (band_db / 10)
    while low - 1 in spectrum and spectrum[low - 1] >= threshold:
        low -= 1
    while high + 1 in spectrum and spectrum[high + 1] >= threshold:
        high += 1
    envelope = {t: max(above[t, f] for f in range(low, high + 1)) for t in frames}
    begin = end = max(frames, key=lambda t: envelope[t])
    threshold = envelope[begin] / 10 ** (time_db / 10)
    while begin - 1 in envelope and envelope[begin - 1] >= threshold:
        begin -= 1
    while end + 1 in envelope and envelope[end + 1] >= threshold:
        end += 1
    return [
        max(box[0], (first_frame + begin - 0.5) * frame_s),
        max(box[1], (low - 0.5) * bin_hz),
        min(box[2], (first_frame + end + 0.5) * frame_s),
        min(box[3], (high + 0.5) * bin_hz),
    ]


def harmonic_call(front_end: FrontEnd) -> FloatArray:
    """A chunk of quiet noise with one call: three harmonics, and an echo 20 dB down that fades."""
    rate, n = front_end.sample_rate, front_end.chunk_samples
    seconds = np.arange(n) / rate
    start, end = START * front_end.chunk_s, (START + LENGTH) * front_end.chunk_s
    dry = np.where((seconds >= start) & (seconds < end), 1.0, 0.0)
    fading = np.where(seconds >= end, 0.1 * np.exp(-4 * (seconds - end) / (ECHO * front_end.chunk_s)), 0.0)
    envelope = np.convolve(dry + fading, np.hanning(512) / 256, mode="same")  # no clicks
    sound = np.random.default_rng(0).normal(0, 1e-4, n)
    for number, db in enumerate(LEVELS_DB, start=1):
        tone = np.sin(2 * np.pi * number * FUNDAMENTAL * rate / 2 * seconds)
        sound += 0.1 * 10 ** (db / 20) * envelope * tone
    return sound


@pytest.mark.parametrize("band_hz", [2_000.0, 8_000.0, 128_000.0])
def test_the_second_harmonic_without_its_echo_at_every_speed(tmp_path: Path, band_hz: float) -> None:
    front_end = FrontEnd.for_band(band_hz)
    path = tmp_path / "call.wav"
    sf.write(path, harmonic_call(front_end), front_end.sample_rate, subtype="FLOAT")
    chunk_s, high_hz = front_end.chunk_s, front_end.high_hz
    whole = [START * chunk_s * 0.98, 0.05 * high_hz, (START + LENGTH + ECHO) * chunk_s, 0.6 * high_hz]
    boxes = np.array([whole])
    start_s, low_hz, end_s, high = strongest_parts(path, boxes, front_end, band_db=25, time_db=15)[0]
    frame_s, bin_hz = HOP / front_end.sample_rate, front_end.sample_rate / WINDOW
    # it swells and fades within 512 samples, and a window blurs a tone by two bins each way
    assert start_s == pytest.approx(START * chunk_s, abs=8 * frame_s)
    assert end_s == pytest.approx((START + LENGTH) * chunk_s, abs=8 * frame_s)
    assert low_hz < 2 * FUNDAMENTAL * high_hz < high
    assert high - low_hz <= 6 * bin_hz
    # 30 dB of time take the echo in
    assert strongest_parts(path, boxes, front_end, band_db=25, time_db=30)[0][2] > end_s + 20 * frame_s


def test_as_the_naive_reference() -> None:
    rng = np.random.default_rng(1)
    rate = 16_000
    for _ in range(30):
        power = rng.gamma(0.3, size=(60, WINDOW // 2 + 1)) ** 2
        first_frame = int(rng.integers(0, 500))
        t = np.sort(rng.uniform(first_frame, first_frame + 59, 2)) * HOP / rate
        f = np.sort(rng.uniform(0, 8_000, 2))
        box = np.array([t[0], f[0], t[1] + 3 * HOP / rate, f[1] + 200])
        how = {
            "first_frame": first_frame,
            "band_db": float(rng.uniform(3, 30)),
            "time_db": float(rng.uniform(3, 30)),
        }
        found = strongest_part(power, rate, box, **how)  # type: ignore[arg-type]
        assert found.tolist() == pytest.approx(naive_part(power, rate, box, **how))  # type: ignore[arg-type]


def test_what_is_not_a_call_stays(tmp_path: Path) -> None:
    front_end = FrontEnd()
    path = tmp_path / "silence.wav"
    sf.write(path, np.zeros(30 * 16_000), 16_000)
    boxes = np.array(
        [[1.0, 1_000.0, 1.5, 2_000.0], [2.0, 100.0, 25.0, 4_000.0]]
    )  # silent; longer than a chunk
    found = strongest_parts(path, boxes, front_end, band_db=25, time_db=15)
    assert found.tolist() == boxes.tolist()
    assert strongest_parts(path, np.zeros((0, 4)), front_end, band_db=25, time_db=15).shape == (0, 4)


def test_a_box_does_not_depend_on_those_read_with_it(tmp_path: Path) -> None:
    front_end = FrontEnd(chunk_frames=64)
    rng = np.random.default_rng(2)
    sound = rng.normal(0, 1e-3, 16_000 * 12)
    path = tmp_path / "noisy.wav"
    sf.write(path, sound, 16_000)
    starts = rng.uniform(0, 11.5, 40)
    boxes = np.stack(
        [starts, np.full(40, 500.0), starts + rng.uniform(0.02, 0.4, 40), np.full(40, 6_000.0)], 1
    )
    together = strongest_parts(path, boxes, front_end, band_db=10, time_db=10)
    alone = [strongest_parts(path, box[None], front_end, band_db=10, time_db=10)[0] for box in boxes]
    assert together == pytest.approx(np.array(alone))
    assert (together[:, :2] >= boxes[:, :2]).all()
    assert (together[:, 2:] <= boxes[:, 2:]).all()
    assert (together[:, 2:] > together[:, :2]).all()


def test_the_spectrogram_has_the_window_asked_for() -> None:
    assert power_spectrogram(np.zeros(640, np.float32), window=WINDOW, hop=HOP).shape == (11, WINDOW // 2 + 1)
