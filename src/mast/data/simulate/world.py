"""Where and when: a world of species, sites that differ, and days that differ.

Everything is drawn from the world's seed and its own number alone, so site 3 is the same place whether or
not site 2 was ever requested, in any process. Ranges are our choice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mast.arrays import Samples
from mast.data.simulate.confounders import CONFOUNDERS
from mast.data.simulate.material import Backgrounds, ClipSpecies, Material
from mast.data.simulate.noise import COMPONENTS, apply_curve, band_db, coloured, loop_length, wavy_db
from mast.data.simulate.space import Acoustics, draw_echo
from mast.data.simulate.species import CURVE_POINTS, Fauna, Species, draw_species, families_for
from mast.errors import ConfigError

Caller = Species | ClipSpecies

# first word of each kind's seed, so that streams never meet
_SPECIES, _SITE, _DAY, _LOOPS, _WEATHER = range(5)
_CONFOUNDER_VARIANTS = 5
_SITES_KEPT = 8
DAYS_APART = 3  # from one simulated day to the next: seasons progress, and weather does not carry over


@dataclass(frozen=True)
class Site:
    """A recorder at a place. Levels in dB on the scale of source levels (dB at one metre)."""

    name: str
    seed: tuple[int, ...]
    acoustics: Acoustics
    species: tuple[Caller, ...]  # of the whole world
    abundance: NDArray[np.float64]  # expected animals calling at once at a species' best hour, (n_species,)
    levels_db: dict[str, float]  # of each background component this place has
    self_noise_db: float
    full_scale_db: float  # the level that drives the recorder to ±1
    typical_distance_m: float
    disturbance: float  # people and machines, 0–1
    aircraft: float  # chance that one passes during a scene
    loop_s: float
    backgrounds: Backgrounds | None = None
    _loops: dict[str, Samples] = field(default_factory=dict, repr=False, compare=False)

    @property
    def sample_rate(self) -> int:
        """Hz."""
        return self.acoustics.sample_rate

    def loop(self, component: str) -> Samples:
        """This site's loop of a background component through its recorder, unit power at the microphone."""
        if component not in self._loops:
            which = [*COMPONENTS, "self"].index(component)
            rng = np.random.default_rng([_LOOPS, which, *self.seed])
            n = loop_length(self.sample_rate, self.loop_s)
            if component == "self":
                self._loops[component] = _make_self_noise(
                    rng, self.acoustics.response_db, n, self.sample_rate
                )
            else:
                raw = COMPONENTS[component](rng, n, self.sample_rate)
                self._loops[component] = apply_curve(raw, self.acoustics.response_db)
        return self._loops[component]

    def confounder(self, kind: str, variant: int) -> Samples:
        """One of this site's few versions of a confounder, peak 1 at the microphone."""
        key = f"{kind}/{variant % _CONFOUNDER_VARIANTS}"
        if key not in self._loops:
            which = list(CONFOUNDERS).index(kind)
            rng = np.random.default_rng([_LOOPS, 100 + which, variant % _CONFOUNDER_VARIANTS, *self.seed])
            raw = CONFOUNDERS[kind].make(rng, self.sample_rate)
            heard = apply_curve(raw, self.acoustics.response_db)
            self._loops[key] = heard / max(float(np.abs(heard).max()), 1e-9)
        return self._loops[key]


@dataclass(frozen=True)
class Day:
    """One day's weather and moods; the same at every site of a world."""

    index: int
    wind_db: float
    rain: float  # share of the day with rain
    rain_db: float
    warmth: float  # −1 … 1, for insects
    activity: NDArray[np.float64]  # of each species, about 1, (n_species,)

    @property
    def season_day(self) -> int:
        """Days since the first simulated day."""
        return self.index * DAYS_APART


@dataclass(frozen=True)
class World:
    """Species, sites and days under one seed.

    Args:
        seed: of everything.
        n_species: procedural species; 0 only with ``material`` that brings calls.
        sample_rate: Hz.
        material: real calls and backgrounds to use.
        loop_s: length of background loops; longer repeats less, shorter costs less to make.
        distance: factor on the animals' distance from the microphone.
        motifs: share of the procedural species that sing motifs; real calls have theirs in ``material``.
        fauna: a key of :data:`mast.data.simulate.species.FAUNAS`, for procedural species of that kind alone.
    """

    seed: int = 0
    n_species: int = 24
    sample_rate: int = 16_000
    material: Material | None = None
    loop_s: float = 30.0
    distance: float = 1.0
    motifs: float = 0.0
    fauna: Fauna | None = None
    _sites: dict[int, Site] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def species(self) -> tuple[Caller, ...]:
        """Procedural species, then those of the real calls."""
        families = families_for(self.sample_rate, self.fauna)
        start = int(np.random.default_rng([self.seed, _SPECIES]).integers(len(families)))
        callers: list[Caller] = []
        for index in range(self.n_species):
            rng = np.random.default_rng([self.seed, _SPECIES, index])
            family = families[(start + index) % len(families)]
            if np.random.default_rng([self.seed, _SPECIES, index, 1]).random() < self.motifs:
                family = "motif"
            callers.append(draw_species(rng, index, family, self.sample_rate))
        if self.material is not None:
            callers.extend(self.material.species)
        if not callers:
            raise ConfigError(
                "simulate: there are no species; ask for at least one, or give a folder of calls"
            )
        return tuple(callers)

    def site(self, index: int) -> Site:
        """Site number ``index`` (from 0)."""
        if index not in self._sites:
            while len(self._sites) >= _SITES_KEPT:  # each holds some 15 MB of loops; the oldest is dropped
                del self._sites[next(iter(self._sites))]
            self._sites[index] = self._draw_site(index)
        return self._sites[index]

    def day(self, index: int) -> Day:
        """Day number ``index`` (from 0)."""
        rng = np.random.default_rng([self.seed, _DAY, index])
        season_day = index * DAYS_APART
        mood = np.exp(rng.normal(0.0, 0.6, len(self.species)))
        peaks = np.array([caller.season for caller in self.species])
        season = np.exp(-0.5 * ((season_day - peaks[:, 0]) / peaks[:, 1]) ** 2)
        wet = rng.random() < 0.3
        return Day(
            index=index,
            wind_db=rng.uniform(12, 50),
            rain=rng.uniform(0.3, 0.9) if wet else 0.03,
            rain_db=rng.uniform(32, 54),
            warmth=rng.uniform(-1, 1),
            activity=mood * (0.15 + 1.2 * season),
        )

    def _draw_site(self, index: int) -> Site:
        rng = np.random.default_rng([self.seed, _SITE, index])
        n = len(self.species)
        # wind: exposure on top of the day's
        levels = {"ambient": rng.uniform(24, 42), "wind": rng.uniform(-12, 6)}
        for component, chance, low, high in (
            ("stream", 0.25, 28, 46),
            ("insects", 0.45, 12, 34),
            ("traffic", 0.4, 30, 50),
        ):
            if rng.random() < chance:
                levels[component] = rng.uniform(low, high)
        present = rng.random(n) < max(0.45, min(1.0, 3.0 / n))
        if not present.any():
            present[rng.integers(n)] = True
        crowd = np.exp(rng.normal(0.0, 0.8, n)) * present
        abundance = crowd / crowd.sum() * rng.uniform(1.5, 4.5)
        nyquist = self.sample_rate / 2
        response = (
            band_db(
                self.sample_rate,
                rng.uniform(40, 250),
                nyquist * rng.uniform(0.8, 1.0),
                below_db=9,
                above_db=80,
            )
            + wavy_db(rng, 3.0)
            + np.linspace(0.0, rng.normal(0.0, 7.0), CURVE_POINTS)
        )
        acoustics = Acoustics(
            sample_rate=self.sample_rate,
            absorption=float(np.exp(rng.uniform(np.log(0.003), np.log(0.03)))),
            echo=draw_echo(rng, self.sample_rate, decay_s=rng.uniform(0.25, 1.1)),
            echo_distance_m=float(np.exp(rng.uniform(np.log(40), np.log(250)))),
            response_db=response,
        )
        backgrounds = None
        if self.material is not None and self.material.backgrounds is not None:
            backgrounds = self.material.backgrounds.for_site(rng)
        return Site(
            name=f"S{index + 1:02d}",
            seed=(self.seed, index),
            acoustics=acoustics,
            species=self.species,
            abundance=abundance,
            levels_db=levels,
            self_noise_db=rng.uniform(12, 30),
            full_scale_db=rng.uniform(80, 102),
            typical_distance_m=self.distance * float(np.exp(rng.uniform(np.log(15), np.log(50)))),
            disturbance=rng.random() ** 2,
            aircraft=rng.uniform(0.0, 0.15),
            loop_s=self.loop_s,
            backgrounds=backgrounds,
        )


def _make_self_noise(
    rng: np.random.Generator, response_db: NDArray[np.float64], n: int, sample_rate: int
) -> Samples:
    """The recorder's hiss, cut where its band ends, with the interference some recorders have."""
    hiss = coloured(rng, np.minimum(response_db, 0.0) * 0.5 + wavy_db(rng, 1.0), n)
    if rng.random() < 0.3:
        at = np.arange(n, dtype=np.float64) / n
        for _ in range(int(rng.integers(1, 4))):
            turns = round(rng.uniform(0.02, 0.9) * 0.5 * n)  # whole turns, so that the loop closes
            hiss += np.float32(rng.uniform(0.03, 0.3)) * np.sin(2 * np.pi * ((turns * at) % 1.0)).astype(
                np.float32
            )
    return hiss
