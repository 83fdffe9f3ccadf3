"""NumPy's log-mel is torch's, which is Kaldi's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mast.errors import ConfigError
from mast.features.array_logmel import ArrayLogMel
from mast.features.logmel import LogMel
from mast.features.mel_bank import FLOOR
from mast.grid import FrontEnd

BANDS = [FrontEnd(), FrontEnd.for_band(2_000.0), FrontEnd.for_band(128_000.0), FrontEnd(n_bins=64)]


def sound_of(front_end: FrontEnd, *, seed: int = 0) -> np.ndarray:
    """A chunk of noise with tones, and a quarter of digital silence."""
    rng = np.random.default_rng(seed)
    time = np.arange(front_end.chunk_samples) / front_end.sample_rate
    sound = rng.normal(0.01, 0.02, len(time))
    for hz in rng.uniform(0.05, 0.4, 5) * front_end.sample_rate:
        sound += 0.1 * np.sin(2 * np.pi * hz * time) * (np.sin(20 * time) > 0.5)
    sound[len(sound) // 2 : 3 * len(sound) // 4] = 0.0
    return sound.astype(np.float32)


@pytest.mark.parametrize("front_end", BANDS, ids=lambda own: f"{own.high_hz:g}-{own.n_bins}")
def test_chunks_are_torchs_to_rounding(front_end: FrontEnd) -> None:
    sound = sound_of(front_end)
    ours = ArrayLogMel(front_end).chunk(sound)
    theirs = LogMel(front_end).chunk_features(torch.from_numpy(sound[None]))[0, 0].numpy()
    assert ours.shape == theirs.shape
    off = np.abs(ours - theirs)
    # quiet bins beside loud ones hold what single precision leaves of them, in torch as here
    assert np.quantile(off, 0.98) < 1e-4
    assert off.mean() < 1e-4
    assert off.max() < 0.1


@pytest.mark.parametrize("samples", [0, 399, 400, 559, 560, 16_000])
def test_every_whole_frame_of_any_sound(samples: int) -> None:
    sound = sound_of(FrontEnd())[:samples]
    ours = ArrayLogMel(FrontEnd())(sound)
    theirs = LogMel()(torch.from_numpy(sound[None]))[0].numpy()
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_silence_is_the_floor_and_no_smaller_number() -> None:
    """Also where the mean leaves a little of every sample: numbers so close to zero are slow."""
    sound = np.zeros(FrontEnd().chunk_samples, dtype=np.float32)
    sound[:1_000] = 0.3
    features = ArrayLogMel(FrontEnd()).chunk(sound)
    np.testing.assert_array_equal(features[20:-4], np.float32(math.log(FLOOR)))


def test_a_frame_that_is_silent_in_its_middle_is_heard() -> None:
    sound = np.zeros(16_000, dtype=np.float32)
    sound[100::160], sound[110::160] = 0.1, -0.1
    ours = ArrayLogMel(FrontEnd())(sound)
    assert (ours.max(axis=1) > math.log(FLOOR) + 5).all()
    np.testing.assert_allclose(ours, LogMel()(torch.from_numpy(sound[None]))[0].numpy(), atol=2e-3)


def test_too_many_empty_bins_are_refused() -> None:
    with pytest.raises(ConfigError, match="mel bins lie between two FFT bins"):
        ArrayLogMel(FrontEnd(n_bins=512))
