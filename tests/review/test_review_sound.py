"""Sound by byte ranges and clips."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given
from hypothesis import strategies as st
from review_folders import write_tones

from mast.audio import AudioInfo, read
from mast.errors import AudioError
from mast.review.sound import (
    Clip,
    RangeError,
    apply_gain,
    filter_band,
    open_wav,
    parse_range,
    playing_rate,
    render_clip,
    wav_header,
)


@pytest.fixture(scope="module", params=["a.wav", "b.flac", "c.ogg", "d.mp3", "bat.wav", "fish.wav"])
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rate = {"bat.wav": 192_000, "fish.wav": 4_000, "a.wav": 44_100}.get(request.param, 48_000)
    return write_tones(tmp_path_factory.mktemp("sound") / request.param, 7.3, rate=rate)


def test_the_wav_is_the_recording(recording: Path) -> None:
    wav = open_wav(recording)
    whole = b"".join(wav.bytes_between(0, wav.size))
    assert len(whole) == wav.size
    sound, rate = sf.read(io.BytesIO(whole), dtype="float32")
    assert rate == wav.sample_rate == min(sf.info(recording).samplerate, 48_000)
    expected = read(recording, sample_rate=rate)
    n = min(len(sound), len(expected))
    assert abs(len(sound) - len(expected)) <= 1 or recording.suffix in (".mp3", ".ogg")
    np.testing.assert_allclose(sound[:n], np.clip(expected[:n], -1, 1), atol=1.1 / 32_767)


def test_ranges_are_slices_of_the_whole(recording: Path) -> None:
    wav = open_wav(recording)
    whole = b"".join(wav.bytes_between(0, wav.size))
    rng = np.random.default_rng(0)
    ranges = [(0, 1), (0, 44), (43, 47), (44, 45), (45, 46), (wav.size - 1, wav.size), (0, wav.size)]
    for _ in range(12):
        a, b = sorted(rng.integers(0, wav.size, 2).tolist())
        ranges.append((a, b + 1))
    for first, stop in ranges:
        got = np.frombuffer(b"".join(wav.bytes_between(first, stop)), np.uint8)
        assert len(got) == stop - first
        if recording.suffix in (".wav", ".flac"):
            same = got.tobytes() == whole[first:stop]
            # resampled sound may round differently in the last bit, depending on where the resampler began
            assert same or _close(got.tobytes(), whole[first:stop], first)
        else:
            assert _close(got.tobytes(), whole[first:stop], first, steps=40)


def _close(some: bytes, other: bytes, first: int, steps: int = 1) -> bool:
    begin = max(44 - first, 0)
    if some[:begin] != other[:begin]:
        return False
    skip = begin + (first + begin) % 2
    n = (len(some) - skip) // 2 * 2
    a, b = (np.frombuffer(x[skip : skip + n], "<i2").astype(int) for x in (some, other))
    return bool(np.abs(a - b).max(initial=0) <= steps)


def test_wav_ranges_at_the_files_own_rate_are_exact(tmp_path: Path) -> None:
    wav = open_wav(write_tones(tmp_path / "a.wav", 12.0))
    whole = b"".join(wav.bytes_between(0, wav.size))
    for first in range(0, wav.size, 9_999):
        assert (
            b"".join(wav.bytes_between(first, min(first + 12_345, wav.size))) == whole[first : first + 12_345]
        )


def test_a_day_at_96_khz_fits_a_wav_header() -> None:
    def info(seconds: float, rate: int) -> AudioInfo:
        return AudioInfo(Path("x"), seconds, rate, 1, round(seconds * rate), "WAV", "PCM_16")

    assert playing_rate(info(12 * 3600, 48_000)) == 48_000
    assert playing_rate(info(24 * 3600, 96_000)) == 24_000
    assert playing_rate(info(60, 8_000)) == 8_000
    assert playing_rate(info(60, 384_000)) == 48_000
    assert len(wav_header(48_000, 10**10)) == 44


@given(st.integers(1, 500), st.integers(0, 600), st.integers(0, 600))
def test_ranges_as_http_means_them(size: int, a: int, b: int) -> None:
    data = list(range(size))
    for header, meant in (
        (f"bytes={a}-{b}", data[a : b + 1]),
        (f"bytes={a}-", data[a:]),
        (f"bytes=-{b}", data[max(size - b, 0) :] if b else []),
    ):
        if header == f"bytes={a}-{b}" and b < a:
            assert parse_range(header, size) is None
        elif meant:
            found = parse_range(header, size)
            assert found is not None
            assert data[found[0] : found[1]] == meant
        else:
            with pytest.raises(RangeError):
                parse_range(header, size)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "lines=0-5",
        "bytes=0-5,7-9",
        "bytes=a-b",
        "bytes=٣-٤",
        "bytes=--5",
    ],
)
def test_other_range_headers_ask_for_everything(header: str | None) -> None:
    assert parse_range(header, 100) is None


def heard(data: bytes) -> tuple[np.ndarray[tuple[int], np.dtype[np.float32]], int]:
    sound, rate = sf.read(io.BytesIO(data), dtype="float32")
    return sound, rate


def test_a_plain_clip_is_the_sound(tmp_path: Path) -> None:
    path = write_tones(tmp_path / "a.wav")
    sound, rate = heard(render_clip(path, Clip(1.0, 2.5)))
    assert rate == 16_000
    expected = read(path, start_s=1.0, end_s=2.5)
    assert len(sound) == len(expected)
    np.testing.assert_allclose(sound[200:-200], expected[200:-200], atol=2 / 32_767)
    assert abs(sound[0]) < 1e-3
    assert abs(sound[-1]) < 0.02  # faded


def strongest(sound: np.ndarray[tuple[int], np.dtype[np.float32]], rate: int) -> float:
    spectrum = np.abs(np.fft.rfft(sound * np.hanning(len(sound))))
    return float(np.fft.rfftfreq(len(sound), 1 / rate)[spectrum.argmax()])


@pytest.mark.parametrize("rate", [4_000, 16_000, 48_000, 384_000])
@pytest.mark.parametrize("speed", [0.05, 0.1, 1.0, 4.0])
def test_slower_is_longer_and_lower(tmp_path: Path, rate: int, speed: float) -> None:
    hz = rate / 20
    sound = 0.3 * np.sin(2 * np.pi * hz * np.arange(rate) / rate)
    sf.write(tmp_path / "a.wav", sound, rate)
    clip, out_rate = heard(render_clip(tmp_path / "a.wav", Clip(0.25, 0.75, speed=speed)))
    assert 8_000 <= out_rate <= 48_000
    assert len(clip) / out_rate == pytest.approx(0.5 / speed, rel=0.01)
    if hz * speed < out_rate / 2.2:
        assert strongest(clip, out_rate) == pytest.approx(hz * speed, rel=0.02)


def test_only_the_band_is_heard(tmp_path: Path) -> None:
    time = np.arange(16_000 * 2) / 16_000
    tones = {hz: 0.1 * np.sin(2 * np.pi * hz * time) for hz in (300, 2_000, 6_000)}
    sf.write(tmp_path / "a.wav", sum(tones.values()), 16_000)

    def levels(low: float | None, high: float | None) -> list[float]:
        sound, rate = heard(render_clip(tmp_path / "a.wav", Clip(0.5, 1.5, low, high)))
        return [
            float(2 * abs(np.mean(sound * np.exp(-2j * np.pi * hz * np.arange(len(sound)) / rate))))
            for hz in tones
        ]

    assert levels(None, None) == pytest.approx([0.1] * 3, abs=0.005)
    low, middle, high = levels(1_200, 3_500)
    assert middle == pytest.approx(0.1, abs=0.01)
    assert max(low, high) < 0.004
    assert levels(None, 1_000)[0] == pytest.approx(0.1, abs=0.01)
    assert max(levels(None, 1_000)[1:]) < 0.004
    assert max(levels(4_000, None)[:2]) < 0.004
    assert levels(0.0, 8_000.0) == pytest.approx([0.1] * 3, abs=0.005)
    assert levels(0.0, 9e9) == pytest.approx([0.1] * 3, abs=0.005)
    assert max(levels(7_999.0, 9_000.0)) < 0.001


def test_the_filter_in_blocks_is_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.signal import butter, sosfilt

    from mast.review import sound as module

    monkeypatch.setattr(module, "_FILTER_BLOCK", 777)
    noise = np.random.default_rng(0).normal(size=5_000).astype(np.float32)
    expected = sosfilt(
        butter(6, (1_000, 2_000), "bandpass", fs=16_000, output="sos"), noise.astype(np.float64)
    )
    np.testing.assert_allclose(filter_band(noise, 16_000, 1_000, 2_000), expected, atol=1e-4)
    narrow = filter_band(noise, 16_000, 1_500.0, 1_500.001)
    assert np.isfinite(narrow).all()
    assert np.abs(narrow).max() < 1.0
    assert len(filter_band(np.empty(0, np.float32), 16_000, 1, 2)) == 0


def test_gain_never_distorts() -> None:
    sound = np.array([0.1, -0.5, 0.25], np.float32)
    np.testing.assert_allclose(apply_gain(sound, 0), sound)
    np.testing.assert_allclose(apply_gain(sound, -20), sound / 10, rtol=1e-6)
    loud = apply_gain(sound, 60)
    assert np.abs(loud).max() == pytest.approx(0.99)
    np.testing.assert_allclose(loud / sound, loud[0] / sound[0], rtol=1e-5)
    assert len(apply_gain(np.empty(0, np.float32), 20)) == 0
    assert not apply_gain(np.zeros(4, np.float32), 60).any()


def test_clips_at_and_past_the_edges(tmp_path: Path) -> None:
    path = write_tones(tmp_path / "a.wav")
    assert len(heard(render_clip(path, Clip(-1.0, 0.5)))[0]) == 8_000
    assert len(heard(render_clip(path, Clip(5.5, 9.0)))[0]) == 8_000
    assert len(heard(render_clip(path, Clip(50.0, 51.0)))[0]) == 0
    assert len(heard(render_clip(path, Clip(50.0, 51.0, 100, 200, 0.1)))[0]) == 0


def test_broken_recordings(tmp_path: Path) -> None:
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "text.flac").write_bytes(b"hello" * 50)
    for name in ("empty.wav", "text.flac"):
        with pytest.raises(AudioError):
            open_wav(tmp_path / name)
        with pytest.raises(AudioError):
            render_clip(tmp_path / name, Clip(0, 1))
    whole = write_tones(tmp_path / "a.wav")
    (tmp_path / "cut.wav").write_bytes(whole.read_bytes()[:50_001])
    wav = open_wav(tmp_path / "cut.wav")
    assert len(b"".join(wav.bytes_between(0, wav.size))) == wav.size
