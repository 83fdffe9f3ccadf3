"""From the animal to the microphone: spreading, absorption, echoes, and the recorder's own response."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from mast.arrays import Samples
from mast.data.simulate.species import CURVE_POINTS

Spectrum = NDArray[np.complex64]

_GRID = np.arange(CURVE_POINTS, dtype=np.float64)


@dataclass(frozen=True)
class Acoustics:
    """How a site carries sound."""

    sample_rate: int
    absorption: float  # dB per metre at 1 kHz, rising with frequency to the power 1.3 (our choice)
    echo: Samples  # diffuse impulse response of unit energy, without the direct sound
    echo_distance_m: float  # where echoes carry as much energy as the direct sound
    response_db: NDArray[np.float64]  # the recorder's, (CURVE_POINTS,)
    _cache: dict[int, tuple[Spectrum, NDArray[np.float64]]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @cached_property
    def hz(self) -> NDArray[np.float64]:
        """The frequencies of all response curves, (CURVE_POINTS,)."""
        return np.linspace(0.0, self.sample_rate / 2, CURVE_POINTS)

    @cached_property
    def _absorption_db(self) -> NDArray[np.float64]:
        return np.asarray(self.absorption * (self.hz / 1_000) ** 1.3)

    def received_db(
        self, distance_m: float, level_db: float, response_db: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Level at each of CURVE_POINTS frequencies of a sound that has ``level_db`` at one metre."""
        loss_db = distance_m * self._absorption_db + 20 * np.log10(max(distance_m, 1.0))
        return np.asarray(level_db - loss_db + response_db + self.response_db)

    def transmit(
        self, phrase: Samples, distance_m: float, level_db: float, response_db: NDArray[np.float32]
    ) -> Samples:
        """What arrives of a phrase.

        Args:
            phrase: dry samples, peak 1.
            distance_m: to the animal.
            level_db: gain in dB at one metre.
            response_db: the animal's own response at CURVE_POINTS frequencies.

        Returns:
            Samples, longer than the phrase by the echo.
        """
        gains = 10 ** (self.received_db(distance_m, level_db, response_db) / 20)
        wanted = len(phrase) + len(self.echo)
        size = _fast_length(wanted)
        echo, positions = self._prepared(size)
        filter_ = np.interp(positions, _GRID, gains).astype(np.float32)
        wet = np.float32(min(distance_m / self.echo_distance_m, 1.5))
        spectrum = fft.rfft(phrase, n=size)
        spectrum *= filter_
        spectrum += wet * (spectrum * echo)
        return np.asarray(fft.irfft(spectrum, n=size)[:wanted], dtype=np.float32)

    def _prepared(self, size: int) -> tuple[Spectrum, NDArray[np.float64]]:
        if size not in self._cache:
            positions = np.linspace(0.0, CURVE_POINTS - 1.0, size // 2 + 1)
            self._cache[size] = (np.asarray(fft.rfft(self.echo, n=size), dtype=np.complex64), positions)
        return self._cache[size]


def _fast_length(n: int) -> int:
    """The next 2^k or 3·2^k: few sizes, so that echoes' spectra are reused."""
    power = 1 << int(np.ceil(np.log2(n)))
    return power * 3 // 4 if power * 3 // 4 >= n else power


def draw_echo(rng: np.random.Generator, sample_rate: int, *, decay_s: float) -> Samples:
    """A diffuse tail: noise that decays by 60 dB over ``decay_s``, high frequencies first, unit energy."""
    n = int(sample_rate * min(0.5 * decay_s, 0.45))
    t = np.arange(n) / sample_rate
    noise = rng.standard_normal(n)
    dull = np.convolve(noise, np.ones(4) / 2.0, mode="same")
    mix = np.clip(t / decay_s * 2.0, 0.0, 1.0)
    tail = (noise * (1 - mix) + dull * mix) * np.exp(-6.9 * t / decay_s)
    tail[: int(sample_rate * rng.uniform(0.004, 0.02))] = 0.0
    fade = max(1, n // 8)
    tail[-fade:] *= np.linspace(1.0, 0.0, fade)
    return np.asarray(tail / np.sqrt(np.sum(tail * tail)), dtype=np.float32)
