"""Who calls: families of callers, and species drawn from them.

A *family* is a way of making sound (a row of ranges). A *species* is one draw from those ranges: its pitch,
its repertoire of syllable shapes, its rhythm, its hours. Each call is again a draw, around the species.
Every range here is our choice, set by looking at spectrograms of temperate and tropical birds, frogs,
insects and mammals; none comes from the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mast.errors import ConfigError

Bounds = tuple[float, float]
Fauna = Literal["bats", "fish"]

CURVE_POINTS = 257  # frequency responses are dB at this many points from 0 Hz to half the sample rate
WAVETABLE_POINTS = 4096  # one period; nearest look-up stays about 60 dB below the tone
CONTOUR_POINTS = 5
_PHRASE_S = (0.8, 5.0)  # no phrase of a species lasts longer than a limit drawn from this range
_TRAINS = ("trill", "pulses", "stridulation", "bat_buzz")
_TOP_OF_BAND = 0.46  # of the sample rate: callers stay below the anti-alias slope


@dataclass(frozen=True)
class Family:
    """Ranges from which a species of this family is drawn (log-uniform where both ends are positive)."""

    centre_hz: Bounds  # fundamental or carrier
    span_octaves: Bounds  # how far the pitch moves within a syllable
    duration_s: Bounds  # of a syllable
    count: tuple[int, int]  # syllables in a phrase
    duty: Bounds  # syllable duration over onset interval
    interval_s: Bounds  # silence between phrases of one animal
    n_types: tuple[int, int] = (1, 2)  # syllable shapes in the repertoire
    harmonics: tuple[int, int] = (1, 2)
    tilt_db: Bounds = (-24.0, -12.0)  # per octave of harmonic number
    pulse_hz: Bounds = (0.0, 0.0)  # amplitude modulation
    pulse_depth: Bounds = (0.0, 0.0)
    vibrato_octaves: Bounds = (0.0, 0.04)
    roughness: Bounds = (0.0, 0.004)  # random frequency modulation: tone → noise
    formants: tuple[int, int] = (0, 0)
    attack: Bounds = (0.05, 0.4)  # of the syllable
    source_db: Bounds = (74.0, 96.0)  # at one metre
    chorus: float = 0.05  # how often it calls in company
    nocturnal: float = 0.15  # chance that a species of the family calls at night
    type_octaves: float = 0.0  # spread of the syllable shapes' own pitches
    type_spread: float = 0.2  # of their durations (log)
    strongest: tuple[int, int] = (1, 1)  # number of the strongest harmonic
    falling: bool = False  # the pitch only falls, first or last the faster


FAMILIES: dict[str, Family] = {
    "whistle": Family((900, 6000), (0.02, 0.5), (0.12, 1.0), (1, 5), (0.5, 0.9), (2, 12), (1, 3)),
    "sweep": Family((1200, 6000), (0.5, 1.5), (0.08, 0.5), (1, 4), (0.3, 0.7), (1.5, 10), (1, 2), (1, 3)),
    "chip": Family((2500, 7000), (0.3, 1.1), (0.025, 0.09), (1, 3), (0.1, 0.35), (0.7, 6), attack=(0.1, 0.3)),
    "trill": Family((1800, 6500), (0.1, 0.8), (0.025, 0.11), (8, 40), (0.5, 0.85), (3, 14), (1, 2)),
    "warble": Family((2200, 5000), (0.3, 0.9), (0.04, 0.2), (5, 28), (0.55, 0.95), (2, 12), (4, 9), (1, 2)),
    "song": Family(
        (1700, 5500), (0.15, 1.3), (0.04, 0.22), (5, 30), (0.4, 0.95), (2, 10), (4, 12), (1, 4), (-18, -6),
        type_octaves=0.35, type_spread=0.6,
    ),
    "stack": Family(
        (350, 1500), (0.05, 0.5), (0.12, 0.9), (1, 5), (0.4, 0.8), (2, 14), (1, 2), (4, 12), (-9, -2),
        formants=(0, 2),
    ),
    "rasp": Family(
        (150, 650), (0.05, 0.5), (0.1, 0.45), (1, 10), (0.25, 0.6), (2, 14), (1, 2), (12, 30), (-5, 0),
        roughness=(0.05, 0.35), formants=(1, 3), attack=(0.02, 0.15), source_db=(82, 102),
    ),
    "harsh": Family(
        (200, 1200), (0.05, 0.4), (0.06, 0.5), (1, 14), (0.2, 0.6), (1.5, 10), (1, 2), (10, 40), (-4, 1),
        roughness=(0.2, 0.9), formants=(0, 3), attack=(0.02, 0.2), source_db=(86, 106),
    ),
    "pulses": Family(
        (700, 5000), (0.02, 0.3), (0.01, 0.035), (6, 60), (0.15, 0.4), (2, 12), (1, 1), (1, 4),
        roughness=(0.0, 0.03), attack=(0.05, 0.2), chorus=0.15, nocturnal=0.5,
    ),
    "stridulation": Family(
        (3500, 7400), (0.01, 0.1), (0.06, 0.6), (1, 12), (0.3, 0.7), (1.5, 8), (1, 1), (1, 1),
        pulse_hz=(25, 90), pulse_depth=(0.7, 1.0), roughness=(0.01, 0.08), source_db=(66, 84),
        chorus=0.3, nocturnal=0.7,
    ),
    "frog": Family(
        (300, 2200), (0.02, 0.4), (0.06, 0.6), (1, 8), (0.3, 0.7), (1.2, 8), (1, 2), (2, 8), (-10, -3),
        pulse_hz=(20, 130), pulse_depth=(0.4, 1.0), formants=(0, 2), chorus=0.5, nocturnal=0.85,
    ),
    "boom": Family(
        (80, 380), (0.02, 0.3), (0.25, 1.3), (1, 4), (0.4, 0.8), (3, 15), (1, 1), (1, 3), source_db=(84, 102)
    ),
    "motif": Family(
        (1500, 5500), (0.03, 0.8), (0.05, 0.3), (4, 28), (0.45, 0.95), (2, 10), (2, 4), (1, 4), (-20, -6),
        type_octaves=0.4, type_spread=0.5,
    ),
    # bats, sixteen times slower
    "bat_sweep": Family(
        (1500, 5500), (0.4, 1.4), (0.03, 0.16), (1, 1), (0.3, 0.6), (0.5, 2.2), (1, 1), (1, 3), (-20, -6),
        type_spread=0.1, falling=True, nocturnal=1.0,
    ),
    "bat_shallow": Family(
        (1100, 3500), (0.05, 0.4), (0.1, 0.35), (1, 1), (0.3, 0.6), (1.2, 4), (1, 2), (1, 4), (-24, -8),
        strongest=(1, 2), falling=True, nocturnal=1.0,
    ),
    "bat_constant": Family(
        (900, 2500), (0.1, 0.5), (0.25, 1.0), (1, 1), (0.4, 0.8), (0.6, 3), (1, 1), (2, 4), (-24, -10),
        strongest=(2, 2), falling=True, nocturnal=1.0,
    ),
    "bat_buzz": Family(
        (1500, 4000), (0.2, 0.7), (0.012, 0.04), (10, 50), (0.3, 0.6), (6, 20), (1, 1), (1, 2),
        falling=True, nocturnal=1.0,
    ),
    # fish, four times faster
    "grunt": Family(
        (120, 420), (0.02, 0.3), (0.03, 0.2), (1, 5), (0.3, 0.7), (1, 8), (1, 1), (8, 24), (-6, -1),
        roughness=(0.0, 0.1), formants=(1, 2), attack=(0.05, 0.3), chorus=0.3, nocturnal=0.5,
    ),
    "boatwhistle": Family(
        (180, 420), (0.02, 0.2), (0.12, 0.35), (1, 2), (0.4, 0.8), (1.5, 8), (1, 1), (3, 10), (-9, -3),
        strongest=(1, 3), chorus=0.3, nocturnal=0.5,
    ),
    "knock": Family(
        (300, 1500), (0.1, 0.6), (0.006, 0.02), (1, 12), (0.08, 0.3), (1, 6), (1, 1), (1, 3),
        roughness=(0.02, 0.2), attack=(0.02, 0.1), falling=True, chorus=0.2, nocturnal=0.5,
    ),
}  # fmt: skip
# families for worlds of one kind of animal; all other worlds use the families not listed here, as older ones do
FAUNAS: dict[Fauna, tuple[str, ...]] = {
    "bats": ("bat_sweep", "bat_shallow", "bat_constant", "bat_buzz"),
    "fish": ("grunt", "boatwhistle", "knock"),
}
_ONLY_ON_REQUEST = ("motif", *(name for fauna in FAUNAS.values() for name in fauna))
_WHOLE_SONGS = 0.7  # share of motif singers whose song is one event; with the others, each motif is one


@dataclass(frozen=True)
class Syllable:
    """One shape in a species' repertoire; pitch in octaves around the species' centre."""

    duration_s: float
    contour: tuple[float, ...]  # CONTOUR_POINTS octave offsets, evenly spaced in time
    attack: float
    decay: float
    vibrato_hz: float
    vibrato_octaves: float
    pulse_hz: float
    pulse_depth: float
    level_db: float


@dataclass(frozen=True)
class Species:
    """A distribution of calls: everything that stays the same between two calls of the same animal."""

    label: str
    family: str
    sample_rate: int  # Hz at which its phrases are rendered
    centre_hz: float
    syllables: tuple[Syllable, ...]
    harmonics: tuple[float, ...]  # amplitudes of the fundamental and its multiples
    roughness: float
    formants: tuple[tuple[float, float, float], ...]  # centre Hz, width octaves, gain dB
    song: bool  # a phrase is one event; its syllables follow a drawn order, except for motifs
    train: bool  # many short notes in a row, which people box as one
    count: tuple[int, int]
    onset_s: float  # from syllable to syllable
    acceleration: float  # onset interval's relative change over a phrase
    glide_octaves: float  # pitch over a phrase
    swell_db: float  # loudness over a phrase
    interval_s: float
    source_db: float
    chorus: float
    variation: float  # spread of pitch (octaves) and timing (relative) between calls
    hours: tuple[tuple[float, float], ...]  # peaks of activity: hour of day, width in hours
    season: tuple[float, float]  # peak and width in days from the first day
    pause_s: float | None = None  # after each run through the repertoire, of a species that sings motifs

    @cached_property
    def wavetable(self) -> NDArray[np.float32]:
        """One period of the voice, peak-normalised, (WAVETABLE_POINTS,)."""
        phase = np.arange(WAVETABLE_POINTS) * (2 * np.pi / WAVETABLE_POINTS)
        wave = np.zeros(WAVETABLE_POINTS)
        for k, amplitude in enumerate(self.harmonics, start=1):
            wave += amplitude * np.sin(k * phase + k * k)  # scattered phases keep the crest factor low
        return np.asarray(wave / np.abs(wave).max(), dtype=np.float32)

    @cached_property
    def loudest_tone_db(self) -> float:
        """Amplitude of the strongest harmonic of the peak-normalised voice."""
        amplitudes = np.abs(np.fft.rfft(self.wavetable)) * (2 / WAVETABLE_POINTS)
        return float(20 * np.log10(amplitudes.max()))

    @property
    def longest_s(self) -> float:
        """About the longest phrase, without echoes."""
        notes_s = self.count[1] * (self.onset_s + (self.pause_s or 0.0) / len(self.syllables))
        return 1.5 * (notes_s + max(shape.duration_s for shape in self.syllables))

    def activity(self, hour: float) -> float:
        """Relative calling rate at an hour of the day: about 1 at a peak, 0.06 far from it."""
        apart = [min(abs(hour - peak) % 24, 24 - abs(hour - peak) % 24) / width for peak, width in self.hours]
        return 0.06 + sum(float(np.exp(-0.5 * z * z)) for z in apart)

    @property
    def band_hz(self) -> tuple[float, float]:
        """Generous limits of the voice, harmonics included."""
        reach = max(abs(octaves) for shape in self.syllables for octaves in shape.contour) + 0.4
        return self.centre_hz / 2**reach, self.centre_hz * 2**reach * len(self.harmonics)

    @cached_property
    def response_db(self) -> NDArray[np.float32]:
        """The vocal tract's response at CURVE_POINTS frequencies, dB."""
        hz = np.linspace(1.0, self.sample_rate / 2, CURVE_POINTS)
        curve = np.zeros(CURVE_POINTS)
        for centre, width, gain in self.formants:
            curve += gain * (np.exp(-0.5 * (np.log2(hz / centre) / width) ** 2) - 1.0)
        return np.asarray(np.maximum(curve, -30.0), dtype=np.float32)


def _draw(rng: np.random.Generator, bounds: Bounds) -> float:
    low, high = bounds
    if low > 0:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))
    return float(rng.uniform(low, high))


def _count(rng: np.random.Generator, bounds: tuple[int, int]) -> int:
    return (
        round(_draw(rng, (bounds[0], bounds[1])))
        if bounds[0] > 0
        else int(rng.integers(bounds[0], bounds[1] + 1))
    )


def families_for(sample_rate: int, fauna: Fauna | None = None) -> list[str]:
    """Families of a fauna (of birds and their neighbours by default) whose lowest pitch fits a sample rate."""
    wanted = [name for name in FAMILIES if name not in _ONLY_ON_REQUEST] if fauna is None else FAUNAS[fauna]
    fitting = [name for name in wanted if FAMILIES[name].centre_hz[0] * 1.3 < _TOP_OF_BAND * sample_rate]
    if not fitting:
        lowest = min(FAMILIES[name].centre_hz[0] for name in wanted) * 1.3 / _TOP_OF_BAND
        raise ConfigError(
            f"simulate: all calls are too high for a sample rate of {sample_rate} Hz at tape speed 1; expected at "
            f"least {int(lowest) + 1} Hz, times the tape speed"
        )
    return fitting


def draw_species(rng: np.random.Generator, index: int, family: str, sample_rate: int) -> Species:
    """Draw one species.

    Args:
        rng: the species' own generator.
        index: number in the world, part of the label.
        family: a key of :data:`FAMILIES`.
        sample_rate: Hz; pitch and harmonics stay below 0.46 of it.
    """
    ranges = FAMILIES[family]
    top_hz = _TOP_OF_BAND * sample_rate
    span = _draw(rng, ranges.span_octaves)
    highest = min(ranges.centre_hz[1], top_hz / 2 ** (0.5 * span + 0.1))
    centre_hz = _draw(rng, (min(ranges.centre_hz[0], 0.8 * highest), highest))
    base_s = _draw(rng, ranges.duration_s)
    syllables = tuple(_draw_syllable(rng, ranges, span, base_s) for _ in range(_count(rng, ranges.n_types)))
    if ranges.type_octaves > 0:
        reach = np.log2(top_hz / centre_hz) - 0.5 * span  # no note beyond the band
        syllables = tuple(_transposed(rng, shape, ranges.type_octaves, reach) for shape in syllables)
    duty = _draw(rng, ranges.duty)
    longest = max(1, int(_draw(rng, _PHRASE_S) * duty / base_s))
    count = min(_count(rng, ranges.count), longest)
    pause_s = None
    if family == "motif":
        song, pause_s = draw_motif(rng)
    else:
        song = family in ("warble", "song") or (len(syllables) > 1 and rng.random() < 0.4)
    n_harmonics = max(
        1, min(_count(rng, ranges.harmonics), int(top_hz / (centre_hz * 2 ** (0.5 * span + 0.05))))
    )
    tilt = rng.uniform(*ranges.tilt_db)
    ragged = rng.normal(0.0, 3.0, n_harmonics)  # dB; no two species share a timbre
    strongest = min(_strongest(rng, ranges), n_harmonics)
    harmonics = tuple(
        10 ** ((tilt * abs(np.log2((k + 1.0) / strongest)) + ragged[k]) / 20) for k in range(n_harmonics)
    )
    formants = tuple(
        (
            _draw(rng, (max(500.0, centre_hz), max(0.7 * top_hz, 1.2 * centre_hz))),
            *rng.uniform((0.3, 8), (1, 20)),
        )
        for _ in range(_count(rng, ranges.formants))
    )
    return Species(
        label=f"{family}-{index:02d}",
        family=family,
        sample_rate=sample_rate,
        centre_hz=centre_hz,
        syllables=syllables,
        harmonics=harmonics,
        roughness=_draw(rng, ranges.roughness),
        formants=formants,
        song=song,
        train=family in _TRAINS,
        count=(max(1, round(0.6 * count)), max(1, round(1.4 * count))),
        onset_s=base_s / duty,
        acceleration=float(rng.normal(0.0, 0.12)),
        glide_octaves=float(rng.normal(0.0, 0.06)),
        swell_db=float(rng.normal(0.0, 3.0)),
        interval_s=_draw(rng, ranges.interval_s),
        source_db=rng.uniform(*ranges.source_db),
        chorus=ranges.chorus,
        variation=_draw(rng, (0.01, 0.06)),
        hours=draw_hours(rng, nocturnal=bool(rng.random() < ranges.nocturnal)),
        season=(rng.uniform(-10.0, 40.0), rng.uniform(8.0, 40.0)),
        pause_s=pause_s,
    )


def _strongest(rng: np.random.Generator, ranges: Family) -> int:
    """Number of the strongest harmonic; nothing is drawn if it is always the first, so older worlds stay the same."""
    low, high = ranges.strongest
    return low if low == high else int(rng.integers(low, high + 1))


def draw_motif(rng: np.random.Generator) -> tuple[bool, float]:
    """Whether a song of motifs is one event, and the pause after each motif: longer where each is one."""
    whole = bool(rng.random() < _WHOLE_SONGS)
    return whole, float(rng.uniform(0.0, 0.25) if whole else rng.uniform(0.2, 0.8))


def _draw_syllable(rng: np.random.Generator, ranges: Family, span: float, base_s: float) -> Syllable:
    shape = rng.normal(size=CONTOUR_POINTS)
    straight = np.linspace(-1.0, 1.0, CONTOUR_POINTS) * rng.choice([-1.0, 1.0])
    contour = straight * rng.uniform(0.0, 1.5) + shape * rng.uniform(0.0, 0.7)
    if ranges.falling:
        contour = -(np.linspace(0.0, 1.0, CONTOUR_POINTS) ** _draw(rng, (0.3, 4.0)))
    contour -= 0.5 * (contour.max() + contour.min())
    contour *= 0.5 * span / max(float(np.abs(contour).max()), 1e-6)
    attack = _draw(rng, ranges.attack)
    return Syllable(
        duration_s=base_s * float(np.exp(rng.normal(0.0, ranges.type_spread))),
        contour=tuple(contour.tolist()),
        attack=attack,
        decay=min(rng.uniform(0.1, 0.8), 1.0 - attack),
        vibrato_hz=rng.uniform(8.0, 40.0),
        vibrato_octaves=_draw(rng, ranges.vibrato_octaves) * float(rng.random() < 0.4),
        pulse_hz=_draw(rng, ranges.pulse_hz),
        pulse_depth=_draw(rng, ranges.pulse_depth),
        level_db=float(rng.normal(0.0, 2.0)),
    )


def _transposed(rng: np.random.Generator, shape: Syllable, spread: float, max_octaves: float) -> Syllable:
    """The same shape at another pitch; some notes of a song buzz."""
    octaves = float(np.clip(rng.normal(0.0, spread), -1.2, max(0.0, max_octaves)))
    buzz = float(rng.random() < 0.15)
    return replace(
        shape,
        contour=tuple(point + octaves for point in shape.contour),
        pulse_hz=max(shape.pulse_hz, buzz * rng.uniform(40, 120)),
        pulse_depth=max(shape.pulse_depth, buzz * rng.uniform(0.5, 1.0)),
    )


def draw_hours(rng: np.random.Generator, *, nocturnal: bool) -> tuple[tuple[float, float], ...]:
    """Peaks of activity (hour, width): one at night, or dawn with perhaps noon or dusk."""
    if nocturnal:
        return ((float(rng.normal(22.5, 2.0)) % 24, rng.uniform(1.5, 4.0)),)
    dawn = (float(rng.normal(6.0, 0.8)), rng.uniform(0.8, 2.5))
    if rng.random() < 0.3:
        return (dawn, (float(rng.normal(19.5, 0.7)), rng.uniform(0.6, 1.5)))
    return (dawn, (float(rng.normal(12.0, 2.0)), rng.uniform(2.0, 6.0))) if rng.random() < 0.5 else (dawn,)
