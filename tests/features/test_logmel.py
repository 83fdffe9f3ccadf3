"""Log-mel against torchaudio's Kaldi, against a slow float64 twin, and at the edges."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchaudio.compliance import kaldi

from mast.audio import windows
from mast.errors import ConfigError
from mast.features import logmel
from mast.features.logmel import LogMel
from mast.features.mel_bank import mel_bank
from mast.grid import FrontEnd

FLOOR_LOG = math.log(torch.finfo(torch.float32).eps)


def kaldi_fbank(waveform: torch.Tensor) -> torch.Tensor:
    """The paper's features (App. "Data Processing") by the paper's library: (samples,) → (T, 128)."""
    return kaldi.fbank(
        waveform[None],
        htk_compat=True,
        sample_frequency=16_000,
        use_energy=False,
        window_type="hanning",
        num_mel_bins=128,
        dither=0.0,
        frame_shift=10,
        low_freq=20,
        high_freq=8_000,
    )


def slow_log_mel(waveform: np.ndarray, front_end: FrontEnd) -> np.ndarray:
    """One frame at a time, in float64, with a DFT written out: (samples,) → (T, F)."""
    width, hop = front_end.window_samples, front_end.hop_samples
    size = 2 ** math.ceil(math.log2(width))
    n, k = np.arange(width), np.arange(size // 2 + 1)
    dft = np.exp(-2j * np.pi * np.outer(n, k) / size)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * n / (width - 1))
    places = front_end.hz_to_bins(np.arange(size // 2) * front_end.sample_rate / size)
    rows = []
    for start in range(0, len(waveform) - width + 1, hop):
        frame = waveform[start : start + width].astype(np.float64)
        frame = frame - frame.mean()
        frame = frame - 0.97 * np.concatenate([frame[:1], frame[:-1]])
        power = np.abs((frame * hann) @ dft) ** 2
        mel = np.zeros(front_end.n_bins)
        for i in range(front_end.n_bins):
            for j in np.flatnonzero(np.abs(places - i) < 1):
                mel[i] += power[j] * (1.0 - abs(places[j] - i))
        rows.append(np.log(np.maximum(mel, np.finfo(np.float32).eps)))
    return np.array(rows)


@pytest.fixture(scope="module")
def log_mel() -> LogMel:
    return LogMel()


def tone(hz: float, amplitude: float = 0.9, seconds: float = 2.0) -> torch.Tensor:
    return amplitude * torch.sin(2 * math.pi * hz * torch.arange(int(16_000 * seconds)) / 16_000)


SOUNDS = {
    "noise": lambda r: torch.randn(40_000, generator=r) * 0.1,
    "tiny noise": lambda r: torch.randn(40_000, generator=r) * 1e-5,
    "below the floor": lambda r: torch.randn(40_000, generator=r) * 1e-8,
    "16-bit scale": lambda r: torch.randn(40_000, generator=r) * 10_000,
    "one bit": lambda r: torch.randint(-1, 2, (40_000,), generator=r) / 32_768,
    "offset": lambda r: torch.randn(40_000, generator=r) * 0.01 + 0.5,
    "loud tone": lambda r: tone(1_234.5),
    "low tone, silent above": lambda r: tone(80),
    "tone in noise": lambda r: tone(6_000) + torch.randn(32_000, generator=r) * 1e-4,
    "sweep": lambda r: 0.5 * torch.sin(2 * math.pi * 2_000 * torch.linspace(0, 1.5, 24_000) ** 2),
    "click": lambda r: torch.nn.functional.one_hot(torch.tensor(8_000), 16_000).float(),
    "silence": lambda r: torch.zeros(16_000),
    "clipped": lambda r: torch.randn(40_000, generator=r).clamp(-1, 1),
    "one frame": lambda r: torch.randn(400, generator=r),
    "one frame and a bit": lambda r: torch.randn(559, generator=r),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_equals_kaldi(log_mel: LogMel, name: str) -> None:
    sound = SOUNDS[name](torch.Generator().manual_seed(1))
    torch.testing.assert_close(log_mel(sound[None])[0], kaldi_fbank(sound), rtol=0, atol=1e-4)


@given(
    seed=st.integers(0, 2**31),
    decibels=st.floats(-140, 90),
    n=st.integers(400, 6_000),
    slope=st.floats(-1, 0.99),
)
def test_equals_kaldi_on_any_coloured_noise(seed: int, decibels: float, n: int, slope: float) -> None:
    white = torch.randn(n, generator=torch.Generator().manual_seed(seed))
    sound = 10 ** (decibels / 20) * (white[1:] + slope * white[:-1])
    if len(sound) < 400:
        return
    torch.testing.assert_close(LogMel()(sound[None])[0], kaldi_fbank(sound), rtol=0, atol=1e-4)


@pytest.mark.real
@pytest.mark.parametrize("dataset", ["birdeep_am1", "nbm_xc", "pool/esc50", "pool/behaviouR"])
def test_equals_kaldi_on_real_sound(log_mel: LogMel, shared_data, dataset: str) -> None:
    paths = sorted(
        path for path in (shared_data / dataset).rglob("*.*") if path.suffix in {".flac", ".opus", ".wav"}
    )
    assert paths
    for path in paths[:: max(1, len(paths) // 4)][:4]:
        samples, _ = soundfile.read(path, dtype="float32", always_2d=True, frames=163_840)
        sound = torch.from_numpy(samples[:, 0].copy())
        torch.testing.assert_close(log_mel(sound[None])[0], kaldi_fbank(sound), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "front_end",
    [
        FrontEnd(),
        FrontEnd(sample_rate=8_000, low_hz=100, high_hz=3_000, n_bins=20, hop_samples=50, window_samples=128),
        FrontEnd(
            sample_rate=22_050, low_hz=0, high_hz=11_025, n_bins=64, hop_samples=200, window_samples=511
        ),
        FrontEnd.for_band(96_000),
    ],
    ids=["paper", "narrow", "odd window", "bats"],
)
def test_equals_the_slow_twin(front_end: FrontEnd) -> None:
    sound = np.random.default_rng(3).normal(0, 0.1, 1_100).astype(np.float32)
    fast = LogMel(front_end)(torch.from_numpy(sound)[None])[0].numpy()
    np.testing.assert_allclose(fast, slow_log_mel(sound, front_end), rtol=0, atol=2e-3)


def test_bank_is_kaldis() -> None:
    theirs, _ = kaldi.get_mel_banks(128, 512, 16_000.0, 20.0, 8_000.0, 100.0, -500.0, 1.0)
    ours = torch.from_numpy(mel_bank(FrontEnd()))
    assert torch.equal(ours[:256].T, theirs)
    assert not ours[256].any()


def test_a_batch_is_its_rows(log_mel: LogMel, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = torch.randn(5, 20_000, generator=torch.Generator().manual_seed(4))
    rows = torch.cat([log_mel(row[None]) for row in sound])
    for limit in (8, 64, 120, 1_024):
        monkeypatch.setattr(logmel, "_CPU_FRAMES", limit)
        torch.testing.assert_close(log_mel(sound), rows, rtol=0, atol=1e-6)


def test_memory_beyond_the_result_does_not_grow_with_the_batch(log_mel: LogMel) -> None:
    def extra_bytes(n_batch: int) -> int:
        sound = torch.zeros(n_batch, 163_840)
        with torch.profiler.profile(profile_memory=True, acc_events=True) as profile:
            log_mel(sound)
        live = peak = 0
        for event in sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
            if event.name() == "[memory]":
                live += event.nbytes()
                peak = max(peak, live)
        return peak - n_batch * 1_022 * 128 * 4

    small, large = extra_bytes(2), extra_bytes(16)
    assert small > 0
    assert large < 1.2 * small


def test_one_column_view_and_other_float_types(log_mel: LogMel) -> None:
    sound = torch.randn(2, 32_000, generator=torch.Generator().manual_seed(5)) * 0.1
    every_second = torch.stack([sound, sound], dim=-1).view(2, -1)[:, ::2]
    assert not every_second.is_contiguous()
    torch.testing.assert_close(log_mel(every_second), log_mel(sound))
    torch.testing.assert_close(log_mel(sound.double()), log_mel(sound))


def test_autocast_does_not_touch_it(log_mel: LogMel) -> None:
    sound = torch.randn(1, 16_000, generator=torch.Generator().manual_seed(6))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = log_mel(sound)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, log_mel(sound))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_gpu_equals_cpu_even_where_tf32_is_allowed(log_mel: LogMel) -> None:
    sound = torch.randn(3, 163_840, generator=torch.Generator().manual_seed(7)) * 0.1
    torch.set_float32_matmul_precision("high")
    try:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            gpu = LogMel().cuda()(sound.cuda()).cpu()
    finally:
        torch.set_float32_matmul_precision("highest")
    torch.testing.assert_close(gpu, log_mel(sound), rtol=0, atol=5e-3)  # the FFT's rounding, in quiet bins


def test_the_gpus_way_of_summing_triangles_is_the_cpus(log_mel: LogMel) -> None:
    power = torch.rand(9, 257, generator=torch.Generator().manual_seed(8))
    gathered = (power[:, log_mel.band_index] * log_mel.band_weight).sum(-1)
    torch.testing.assert_close(gathered, power @ torch.from_numpy(mel_bank(FrontEnd())))
    torch.testing.assert_close(
        log_mel._mel(power, torch.empty(9, 128)), power @ torch.from_numpy(mel_bank(FrontEnd()))
    )


@pytest.mark.parametrize(
    ("n_samples", "n_frames"), [(0, 0), (399, 0), (400, 1), (559, 1), (560, 2), (163_840, 1_022)]
)
def test_snip_edges(log_mel: LogMel, n_samples: int, n_frames: int) -> None:
    assert log_mel(torch.zeros(2, n_samples)).shape == (2, n_frames, 128)
    assert log_mel.n_frames(n_samples) == n_frames


def test_no_waveforms(log_mel: LogMel) -> None:
    assert log_mel(torch.zeros(0, 16_000)).shape == (0, 98, 128)
    assert log_mel.chunk_features(torch.zeros(0, 163_840)).shape == (0, 1, 1_024, 128)


def test_nan_stays_in_its_frames(log_mel: LogMel) -> None:
    sound = torch.randn(1, 16_000, generator=torch.Generator().manual_seed(9))
    sound[0, 8_000] = math.nan
    bad = log_mel(sound)[0].isnan().any(dim=1)
    assert bad.nonzero().flatten().tolist() == [48, 49, 50]


def test_chunk_is_kaldi_of_the_centred_chunk_plus_two_frames_into_silence(log_mel: LogMel) -> None:
    chunks = torch.randn(2, 163_840, generator=torch.Generator().manual_seed(10)) * 0.1 + 0.3
    features = log_mel.chunk_features(chunks)
    assert features.shape == (2, 1, 1_024, 128)
    for chunk, found in zip(chunks, features, strict=True):
        centred = chunk - chunk.mean()
        torch.testing.assert_close(found[0, :1_022], kaldi_fbank(centred), rtol=0, atol=1e-4)
        longer = torch.cat([centred, torch.zeros(240)])
        torch.testing.assert_close(found[0], kaldi_fbank(longer), rtol=0, atol=1e-4)


def test_window_longer_and_shorter_than_the_hop_give_whole_chunks() -> None:
    for window in (100, 160, 161, 1_000):
        front_end = FrontEnd(n_bins=8, window_samples=window, chunk_frames=20)
        assert LogMel(front_end).chunk_features(torch.ones(1, 3_200)).shape == (1, 1, 20, 8)


def test_centring_a_padded_window_again_changes_nothing(tmp_path, log_mel: LogMel) -> None:
    sound = np.random.default_rng(11).normal(0.2, 0.1, 16_000 * 8)
    soundfile.write(tmp_path / "short.wav", sound, 16_000)
    (window,) = windows(tmp_path / "short.wav", FrontEnd())
    samples = torch.from_numpy(window.samples)
    features = log_mel.chunk_features(samples[None])[0, 0]
    untouched = log_mel(torch.cat([samples, torch.zeros(240)])[None])[0]
    torch.testing.assert_close(features, untouched, rtol=0, atol=1e-3)
    first_silent = math.ceil(window.valid_s / 0.01)
    torch.testing.assert_close(features[first_silent:], torch.full_like(features[first_silent:], FLOOR_LOG))
    assert (features[: first_silent - 3] > FLOOR_LOG).any(dim=1).all()


@pytest.mark.parametrize("shape", [(163_840,), (1, 163_839), (1, 1, 163_840)])
def test_wrong_shapes_are_named(log_mel: LogMel, shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        log_mel.chunk_features(torch.zeros(shape))
    if len(shape) != 2:
        with pytest.raises(ConfigError, match="batch"):
            log_mel(torch.zeros(shape))


@pytest.mark.parametrize("high_hz", [2_000, 5_512.5, 96_000, 192_000])
def test_another_band_sees_the_same_samples_the_same(log_mel: LogMel, high_hz: float) -> None:
    sound = torch.randn(1, 40_000, generator=torch.Generator().manual_seed(12)) * 0.1
    torch.testing.assert_close(LogMel(FrontEnd.for_band(high_hz))(sound), log_mel(sound), rtol=0, atol=1e-4)


def test_a_tone_peaks_in_the_bin_of_its_frequency(log_mel: LogMel) -> None:
    for hz in (500.0, 1_000.0, 3_000.0, 7_000.0):
        peak = int(log_mel(tone(hz)[None])[0].mean(dim=0).argmax())
        assert abs(peak - float(FrontEnd().hz_to_bins(hz))) <= 1.0


def test_the_papers_own_empty_bin_is_accepted_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LogMel().empty_bins == [3]
        assert LogMel(FrontEnd.for_band(192_000)).empty_bins == [3]


def test_some_empty_bins_warn_and_many_are_refused() -> None:
    with pytest.warns(UserWarning, match=r"3 of 160 mel bins .* longer window_samples"):
        LogMel(FrontEnd(n_bins=160))
    with pytest.raises(ConfigError, match=r"mel bins lie between two FFT bins .* FrontEnd.for_band\(2000\)"):
        LogMel(FrontEnd(high_hz=2_000))


def test_nothing_of_it_is_in_a_checkpoint(log_mel: LogMel) -> None:
    assert log_mel.state_dict() == {}
