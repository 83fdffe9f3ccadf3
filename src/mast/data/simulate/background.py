"""What lies under the calls: the site's noise on this day at this hour, and confounders."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from mast.arrays import Samples
from mast.data.simulate.confounders import CONFOUNDERS
from mast.data.simulate.world import Day, Site


class Tracks(NamedTuple):
    """What a recording's background is made of."""

    loops: list[tuple[Samples, np.float32, int]]  # loop, gain, offset
    confounders: list[tuple[int, Samples, np.float32]]  # first sample, sound, gain; in order of first sample


def draw_tracks(rng: np.random.Generator, site: Site, day: Day, hour: float, total: int) -> Tracks:
    """What lies under ``total`` samples at this place and time."""
    levels = background_levels(rng, site, day, hour)
    loops: list[tuple[Samples, np.float32, int]] = []
    if site.backgrounds is not None:  # a real background brings its own wind and rain; only hiss is added
        loop = site.backgrounds.loop(rng)
        levels = {"self": site.self_noise_db - 6.0}
        gain = 10 ** ((site.levels_db["ambient"] + rng.uniform(0.0, 10.0) - site.full_scale_db) / 20)
        loops.append((loop, np.float32(gain), int(rng.integers(len(loop)))))
    loudest = max(levels.values())
    for component, level_db in levels.items():
        if level_db > loudest - 45.0:  # quieter ones cannot be told from nothing
            loop = site.loop(component)
            gain = 10 ** ((level_db - site.full_scale_db) / 20) * float(rng.choice([-1.0, 1.0]))
            loops.append((loop, np.float32(gain), int(rng.integers(len(loop)))))
    confounders: list[tuple[int, Samples, np.float32]] = []
    for kind, per_second in confounder_rates(rng, site, day, levels).items():
        for _ in range(int(rng.poisson(per_second * total / site.sample_rate))):
            sound = site.confounder(kind, int(rng.integers(1 << 30)))
            low, high = CONFOUNDERS[kind].levels_db
            gain = 10 ** ((rng.uniform(low, high) - site.full_scale_db) / 20)
            confounders.append((int(rng.integers(-len(sound) // 2, total)), sound, np.float32(gain)))
    confounders.sort(key=lambda item: item[0])
    return Tracks(loops, confounders)


def read_tracks(tracks: Tracks, begin: int, n: int) -> Samples:
    """Samples ``begin … begin + n`` of the background."""
    out = np.zeros(n, dtype=np.float32)
    for loop, gain, offset in tracks.loops:
        filled = 0
        while filled < n:
            at = (offset + begin + filled) % len(loop)
            take = min(len(loop) - at, n - filled)
            out[filled : filled + take] += gain * loop[at : at + take]
            filled += take
    longest = max((len(sound) for _, sound, _ in tracks.confounders), default=0)
    nearby = slice(
        bisect_left(tracks.confounders, begin - longest, key=lambda item: item[0]),
        bisect_left(tracks.confounders, begin + n, key=lambda item: item[0]),
    )
    for first, sound, gain in tracks.confounders[nearby]:
        low, high = max(first, begin), min(first + len(sound), begin + n)
        if low < high:
            out[low - begin : high - begin] += gain * sound[low - first : high - first]
    return out


def background_levels(rng: np.random.Generator, site: Site, day: Day, hour: float) -> dict[str, float]:
    """Level in dB of each background component in one scene; absent components are left out.

    Wind rises in the afternoon, insects after dark and when it is warm, traffic at both rush hours; there is rain
    or there is none.
    """
    afternoon = float(np.exp(-0.5 * ((hour - 14.5) / 3.5) ** 2))
    dark = 1.0 - float(np.exp(-0.5 * ((hour - 13.0) / 5.0) ** 2))
    rush = max(float(np.exp(-0.5 * ((hour - peak) / 1.5) ** 2)) for peak in (8.0, 17.5))
    levels: dict[str, float] = {"self": site.self_noise_db}
    for component, level in site.levels_db.items():
        wobble = float(rng.normal(0.0, 1.5))
        if component == "wind":
            level += day.wind_db + 8.0 * afternoon - 6.0 + 1.5 * wobble
        elif component == "insects":
            level += 10.0 * dark + 6.0 * day.warmth - 6.0
        elif component == "traffic":
            level += 8.0 * rush - 4.0
        levels[component] = level + wobble
    raining = rng.random() < day.rain
    if raining:
        levels["rain"] = day.rain_db + float(rng.normal(0.0, 4.0))
    if rng.random() < site.aircraft:
        levels["aircraft"] = rng.uniform(34, 58)
    return levels


def confounder_rates(
    rng: np.random.Generator, site: Site, day: Day, levels: dict[str, float]
) -> dict[str, float]:
    """Expected confounders per second of each kind in one scene."""
    wet = "rain" in levels
    windy = max(0.0, (levels.get("wind", 0.0) - 40.0) / 15.0)
    people = site.disturbance * float(rng.random() < 0.3)
    return {
        "drop": rng.uniform(0.2, 3.0)
        if wet
        else rng.uniform(0.0, 0.5) * float(rng.random() < 0.05 + day.rain * 0.3),
        "click": rng.uniform(0.1, 1.5) * float(rng.random() < 0.12),
        "thunder": 0.03 * float(wet and rng.random() < 0.3),
        "engine": 0.03 * people,
        "voice": 0.1 * people,
        "steps": 0.02 + 0.04 * people,
        "rustle": 0.02 + 0.1 * windy,
        "thump": 0.15 * windy,
    }
