"""What is always there: wind, rain, streams, insects, traffic, aircraft, the air itself.

Each maker gives a loop of noise (its end meets its beginning) of unit power, so that a scene costs one
multiply-add per component: any offset of the loop, any gain. Loops belong to a site and are made once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft

from mast.arrays import Samples
from mast.data.simulate.species import CURVE_POINTS

Floats = NDArray[np.float64]


def loop_length(sample_rate: int, seconds: float) -> int:
    """Samples in a loop: a power of two holding at least ``seconds``."""
    return 1 << int(np.ceil(np.log2(sample_rate * seconds)))


def band_db(
    sample_rate: int, low_hz: float, high_hz: float, *, below_db: float = 12.0, above_db: float = 12.0
) -> Floats:
    """A curve that is flat from low to high and falls by these dB per octave outside, (CURVE_POINTS,)."""
    hz = np.linspace(0.0, sample_rate / 2, CURVE_POINTS)
    octave = np.log2(np.maximum(hz, 5.0))
    under = np.maximum(np.log2(low_hz) - octave, 0.0)
    over = np.maximum(octave - np.log2(high_hz), 0.0)
    return np.asarray(-below_db * under - above_db * over)


def wavy_db(rng: np.random.Generator, spread_db: float, *, bends: int = 8) -> Floats:
    """A smooth random curve around 0 dB, (CURVE_POINTS,)."""
    knots = rng.normal(0.0, spread_db, bends)
    return np.asarray(np.interp(np.linspace(0, bends - 1.0, CURVE_POINTS), np.arange(bends), knots))


def apply_curve(samples: Samples, curve_db: ArrayLike) -> Samples:
    """Filter a loop by a response in dB (zero phase, circular)."""
    spectrum = fft.rfft(samples)
    return np.asarray(fft.irfft(spectrum * _gains(curve_db, len(spectrum)), n=len(samples)), dtype=np.float32)


def coloured(rng: np.random.Generator, curve_db: ArrayLike, n: int) -> Samples:
    """A loop of ``n`` samples of Gaussian noise with this spectrum, unit power."""
    half = n // 2 + 1
    spectrum = rng.standard_normal(2 * half, dtype=np.float32).view(np.complex64)
    spectrum *= _gains(curve_db, half)
    spectrum[0] = 0.0
    return _unit(np.asarray(fft.irfft(spectrum, n=n), dtype=np.float32))


def slow(rng: np.random.Generator, n: int, sample_rate: int, *, period_s: float, spread_db: float) -> Samples:
    """A looping gain that wanders by ``spread_db`` over about ``period_s``."""
    knots = max(3, round(n / sample_rate / period_s * 2))
    level = rng.normal(0.0, spread_db, knots)
    level[1:-1] = 0.5 * level[1:-1] + 0.25 * (level[:-2] + level[2:])
    fine = np.interp(np.arange(0, n, 64) * (knots / n), np.arange(knots + 1), np.append(level, level[0]))
    return np.repeat(10 ** (fine / 20), 64)[:n].astype(np.float32)


def _gains(curve_db: ArrayLike, points: int) -> Samples:
    gains = 10 ** (np.asarray(curve_db, dtype=np.float64) / 20)
    return np.interp(np.linspace(0, len(gains) - 1.0, points), np.arange(len(gains)), gains).astype(
        np.float32
    )


def _unit(samples: Samples) -> Samples:
    return samples / np.float32(np.sqrt(np.mean(np.square(samples))) + 1e-12)


def ambient(rng: np.random.Generator, n: int, sample_rate: int) -> Samples:
    """The place itself: falling spectrum with a colour of its own."""
    curve = band_db(sample_rate, 60, rng.uniform(100, 400), above_db=rng.uniform(3.0, 7.0)) + wavy_db(
        rng, 2.5
    )
    return coloured(rng, curve, n)


def wind(rng: np.random.Generator, n: int, sample_rate: int) -> Samples:
    """Rumble on the microphone and rustle in the leaves, both in gusts."""
    rumble = coloured(rng, band_db(sample_rate, 15, 80, above_db=rng.uniform(7, 11)), n)
    leaves = coloured(
        rng, band_db(sample_rate, rng.uniform(800, 2500), rng.uniform(3000, 6000), below_db=6, above_db=5), n
    )
    gusts = slow(rng, n, sample_rate, period_s=rng.uniform(1.5, 4), spread_db=rng.uniform(3, 6))
    leafiness = np.float32(10 ** (rng.uniform(-26, -12) / 20))
    return _unit(rumble * gusts + leafiness * leaves * gusts * np.sqrt(gusts))


def rain(rng: np.random.Generator, n: int, sample_rate: int) -> Samples:
    """Hiss, and drops too many to count."""
    hiss = coloured(
        rng, band_db(sample_rate, rng.uniform(500, 2000), 5000, below_db=4, above_db=4) + wavy_db(rng, 1.5), n
    )
    drops = np.zeros(n, dtype=np.float32)
    many = int(rng.uniform(5, 60) * n / sample_rate)
    drops[rng.integers(0, n, many)] = rng.standard_normal(many) * rng.pareto(2.5, many)
    patter = _unit(apply_curve(drops, band_db(sample_rate, rng.uniform(300, 1500), rng.uniform(2000, 5000))))
    return _unit(hiss + np.float32(rng.uniform(0.1, 0.7)) * patter)


def stream(rng: np.random.Generator, n: int, sample_rate: int) -> Samples:
    """Running water: a steady hump."""
    curve = band_db(
        sample_rate, rng.uniform(200, 700), rng.uniform(1000, 3500), below_db=8, above_db=rng.uniform(5, 10)
    )
    water = coloured(rng, curve + wavy_db(rng, 2.0, bends=20), n)
    return _unit(water * slow(rng, n, sample_rate, period_s=0.7, spread_db=0.8))


def insects(rng: np.random.Generator, n: int, sample_rate: int) -> Samples:
    """A steady choir of one to four narrow bands; too many animals to box."""
    total = np.zeros(n, dtype=np.float32)
    hz = np.linspace(0.0, sample_rate / 2, CURVE_POINTS)
    for _ in range(int(rng.integers(1, 5))):
        carrier = rng.uniform(0.28, 0.95) * min(sample_rate / 2, 9_000)
        width = rng.uniform(30, 130)
        curve = np.maximum(-4.3 * ((hz - carrier) / width) ** 2, -60) + rng.uniform(-10, 0)
        level = np.float32(10 ** (rng.uniform(-12, 0) / 20))
        turns = round(rng.uniform(15, 60) * n / sample_rate)  # wing strokes, whole in the loop
        strokes = 1.0 + rng.uniform(0.0, 1.0) * np.cos((2 * np.pi * turns / n) * np.arange(n))
        hum = coloured(rng, curve, n) * strokes.astype(np.float32)
        total += level * hum * slow(rng, n, sample_rate, period_s=2.0, spread_db=1.5)
    return _unit(total)


def traffic(rng: np.random.Generator, n: int, sample_rate: int) -> Samples:
    """A distant road: low, swelling slowly."""
    curve = band_db(sample_rate, 40, rng.uniform(80, 250), above_db=rng.uniform(7, 12))
    return _unit(coloured(rng, curve, n) * slow(rng, n, sample_rate, period_s=6.0, spread_db=3.0))


def aircraft(rng: np.random.Generator, n: int, sample_rate: int) -> Samples:
    """A plane: low roar with slowly falling tones, coming and going once per loop."""
    roar = coloured(rng, band_db(sample_rate, 50, rng.uniform(150, 500), above_db=rng.uniform(5, 8)), n)
    at = np.arange(n, dtype=np.float32) / np.float32(n)
    for _ in range(int(rng.integers(0, 4))):
        hz = rng.uniform(80, 900)
        cycles = np.cumsum(hz * (1.06 - 0.12 * at) / sample_rate, dtype=np.float64)
        roar += np.float32(rng.uniform(0.1, 0.6)) * np.sin(
            np.float32(2 * np.pi) * (cycles % 1.0).astype(np.float32)
        )
    return _unit(roar * (np.float32(0.1) + np.sin(np.float32(np.pi) * at) ** 2))


NoiseMaker = Callable[[np.random.Generator, int, int], Samples]
COMPONENTS: dict[str, NoiseMaker] = {
    "ambient": ambient,
    "wind": wind,
    "rain": rain,
    "stream": stream,
    "insects": insects,
    "traffic": traffic,
    "aircraft": aircraft,
}
