"""What catches the eye and is not an animal: drops, thunder, engines, voices, clicks, steps, rustling.

These are never boxed. For visibility they count as background: a call under a passing engine is hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mast.arrays import Samples
from mast.data.simulate.noise import band_db, coloured


def _even(sample_rate: int, seconds: float) -> int:
    return 2 * max(64, int(seconds * sample_rate / 2))


def _hump(n: int, attack: float) -> Samples:
    """Up over the first ``attack`` of the span, then down."""
    at = np.linspace(0.0, 1.0, n, dtype=np.float32)
    rise = np.minimum(at / attack, (1.0 - at) / (1.0 - attack))
    return np.asarray(rise * rise, dtype=np.float32)


def drop(rng: np.random.Generator, sample_rate: int) -> Samples:
    """A rain drop on the housing: a thud and its ringing."""
    n = _even(sample_rate, 0.06)
    t = np.arange(n) / sample_rate
    ring = sum(
        rng.uniform(0.3, 1.0)
        * np.exp(-t / rng.uniform(0.001, 0.008))
        * np.sin(2 * np.pi * rng.uniform(250, 3500) * t)
        for _ in range(3)
    )
    hit = np.exp(-t / 0.0007) * rng.standard_normal(n)
    return np.asarray(ring + rng.uniform(0.1, 0.8) * hit, dtype=np.float32)


def click(rng: np.random.Generator, sample_rate: int) -> Samples:
    """An electric or mechanical click: all frequencies at once."""
    n = _even(sample_rate, 0.01)
    return np.asarray(
        rng.standard_normal(n) * np.exp(-np.arange(n) / (rng.uniform(2e-4, 1.5e-3) * sample_rate)), np.float32
    )


def thunder(rng: np.random.Generator, sample_rate: int) -> Samples:
    """A rolling rumble of several seconds."""
    n = _even(sample_rate, rng.uniform(3.0, 7.0))
    rumble = coloured(rng, band_db(sample_rate, 20, rng.uniform(50, 200), above_db=rng.uniform(7, 12)), n)
    rolls = np.interp(np.arange(n), np.linspace(0, n, 12), rng.uniform(0.1, 1.0, 12))
    return np.asarray(rumble * _hump(n, rng.uniform(0.05, 0.3)) * rolls, dtype=np.float32)


def engine(rng: np.random.Generator, sample_rate: int) -> Samples:
    """A vehicle, boat or saw passing: a dense comb of harmonics with a swell."""
    n = _even(sample_rate, rng.uniform(5.0, 10.0))
    at = np.linspace(0.0, 1.0, n)
    wander = np.interp(at, np.linspace(0, 1, 9), rng.normal(0.0, 0.03, 9)) - 0.05 * np.tanh(6 * (at - 0.5))
    cycles = np.cumsum(rng.uniform(25, 140) * (1 + wander) / sample_rate)
    comb = np.zeros(n, dtype=np.float32)
    tilt = rng.uniform(0.6, 1.4)
    for k in range(1, int(rng.integers(8, 28))):
        comb += np.float32(rng.uniform(0.3, 1.0) / k**tilt) * np.sin(
            2 * np.pi * ((k * cycles) % 1.0).astype(np.float32)
        )
    rush = coloured(rng, band_db(sample_rate, 60, rng.uniform(200, 900), above_db=rng.uniform(5, 9)), n)
    return np.asarray(
        (comb + rng.uniform(0.2, 1.0) * rush) * _hump(n, rng.uniform(0.3, 0.6)), dtype=np.float32
    )


def voice(rng: np.random.Generator, sample_rate: int) -> Samples:
    """Speech-like sound: glottal pulses through moving formants, four or five syllables a second."""
    n = _even(sample_rate, rng.uniform(0.8, 3.0))
    seconds = n / sample_rate
    knots = max(4, int(seconds * 5))
    at = np.linspace(0.0, knots - 1.0, n)
    pitch = np.interp(at, np.arange(knots), rng.uniform(90, 230) * np.exp2(rng.normal(0, 0.15, knots)))
    cycles = np.cumsum(pitch / sample_rate)
    formants = [
        np.interp(at, np.arange(knots), base * np.exp2(rng.normal(0.0, spread, knots)))
        for base, spread in ((500, 0.35), (1500, 0.25), (2500, 0.1))
    ]
    sound = np.zeros(n)
    for k in range(1, 24):
        weight = sum(np.exp(-0.5 * ((k * pitch - f) / (0.2 * f)) ** 2) for f in formants) + 0.03
        sound += weight / k * np.sin(2 * np.pi * ((k * cycles) % 1.0))
    beats = np.abs(np.sin(np.pi * at)) ** 0.7 * np.interp(at, np.arange(knots), rng.uniform(0.2, 1.0, knots))
    return np.asarray(sound * beats, dtype=np.float32)


def steps(rng: np.random.Generator, sample_rate: int) -> Samples:
    """Footsteps or an animal in the litter: a few short broadband crunches."""
    n = _even(sample_rate, rng.uniform(1.0, 3.0))
    noise = coloured(
        rng, band_db(sample_rate, rng.uniform(200, 1500), rng.uniform(2000, 6000), below_db=6, above_db=6), n
    )
    envelope = np.zeros(n, dtype=np.float32)
    step = int(sample_rate * rng.uniform(0.25, 0.7))
    length = int(sample_rate * rng.uniform(0.03, 0.15))
    for start in range(0, n - length, step):
        envelope[start : start + length] += np.float32(rng.uniform(0.3, 1.0)) * _hump(length, 0.2)
    return noise * envelope


def rustle(rng: np.random.Generator, sample_rate: int) -> Samples:
    """A swell of leaves: broadband with soft edges."""
    n = _even(sample_rate, rng.uniform(0.6, 2.5))
    curve = band_db(sample_rate, rng.uniform(800, 2500), rng.uniform(3000, 7000), below_db=6, above_db=6)
    return coloured(rng, curve, n) * _hump(n, rng.uniform(0.3, 0.7))


def thump(rng: np.random.Generator, sample_rate: int) -> Samples:
    """Wind buffeting the microphone."""
    n = _even(sample_rate, rng.uniform(0.1, 0.5))
    return coloured(rng, band_db(sample_rate, 10, rng.uniform(40, 120), above_db=14), n) * _hump(n, 0.25)


ConfounderMaker = Callable[[np.random.Generator, int], Samples]


class Confounder(NamedTuple):
    """A sound that is not an animal's call."""

    make: ConfounderMaker
    levels_db: tuple[float, float]  # its peak at the recorder, on the scale of source levels


CONFOUNDERS: dict[str, Confounder] = {
    "drop": Confounder(drop, (45, 80)),
    "click": Confounder(click, (45, 80)),
    "thunder": Confounder(thunder, (50, 80)),
    "engine": Confounder(engine, (42, 72)),
    "voice": Confounder(voice, (38, 65)),
    "steps": Confounder(steps, (38, 62)),
    "rustle": Confounder(rustle, (36, 58)),
    "thump": Confounder(thump, (55, 90)),
}
