"""From a species to a waveform: one phrase, dry and at unit level, as heard next to the animal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mast.arrays import Samples
from mast.data.simulate.species import CONTOUR_POINTS, WAVETABLE_POINTS, Species, Syllable

MAX_PHRASE_S = 8.0  # our choice: the longest phrases in the boxed bird recordings that we looked at last 8 s
_CONTROL_HZ = 1_000.0  # rate of roughness and of the drawn curves
# renditions of one syllable before copies are reused (speed; a copy in a trill is natural)
_SHAPES_PER_PHRASE = 4


def _smooth_basis(points: int) -> NDArray[np.float64]:
    """Cosine-eased interpolation weights from knots to points, (points, CONTOUR_POINTS)."""
    at = np.linspace(0.0, CONTOUR_POINTS - 1.0, points)
    left = np.minimum(at.astype(int), CONTOUR_POINTS - 2)
    ease = 0.5 - 0.5 * np.cos(np.pi * (at - left))
    basis = np.zeros((points, CONTOUR_POINTS))
    basis[np.arange(points), left] = 1.0 - ease
    basis[np.arange(points), left + 1] = ease
    return basis


_BASIS = _smooth_basis(64)
_BASIS_GRID = np.linspace(0.0, 1.0, 64)


def render_syllable(
    rng: np.random.Generator, species: Species, shape: Syllable, *, octaves: float = 0.0
) -> Samples:
    """One rendition of one syllable shape.

    Args:
        rng: draws this rendition's deviations.
        species: whose voice.
        shape: which syllable of its repertoire.
        octaves: shift of pitch (the animal's own, and the phrase's glide).

    Returns:
        Samples, peak about 1.
    """
    spread, sample_rate = species.variation, species.sample_rate
    duration_s = shape.duration_s * float(np.exp(rng.normal(0.0, 2.0 * spread)))
    n = max(int(duration_s * sample_rate), 32)
    fastest = max(
        shape.pulse_hz * 12, shape.vibrato_hz * 12, _CONTROL_HZ if species.roughness > 0.004 else 0.0
    )
    held = max(1, int(n / max(64.0, duration_s * fastest)))  # samples per control point
    points = n // held
    control = np.linspace(0.0, 1.0, points)

    knots = np.asarray(shape.contour) * (1.0 + rng.normal(0.0, 3.0 * spread)) + rng.normal(
        0.0, spread, CONTOUR_POINTS
    )
    pitch = np.interp(control, _BASIS_GRID, _BASIS @ knots) + octaves
    if shape.vibrato_octaves > 0:
        pitch += shape.vibrato_octaves * np.sin(
            2 * np.pi * (shape.vibrato_hz * duration_s * control + rng.random())
        )
    if species.roughness > 0.004:
        pitch += species.roughness * rng.standard_normal(points)
    hz = species.centre_hz * np.exp2(pitch)
    np.minimum(hz, 0.49 * sample_rate / len(species.harmonics), out=hz)

    envelope = np.minimum(control / shape.attack, 1.0) * np.minimum((1.0 - control) / shape.decay, 1.0)
    envelope *= envelope * (3.0 - 2.0 * envelope)
    if shape.pulse_depth > 0:
        wave = 0.5 + 0.5 * np.cos(2 * np.pi * shape.pulse_hz * duration_s * control)
        envelope *= 1.0 - shape.pulse_depth * (1.0 - wave * wave)

    phase = np.cumsum(_upsample(hz * (WAVETABLE_POINTS / sample_rate), held), dtype=np.float64)
    phase += rng.random() * WAVETABLE_POINTS
    index = phase.astype(np.int32)
    index &= WAVETABLE_POINTS - 1
    return species.wavetable.take(index) * _upsample(envelope, held)


def _upsample(curve: NDArray[np.float64], held: int) -> Samples:
    """Each control value held for ``held`` samples, sloping to the next."""
    values = curve.astype(np.float32)
    steps = np.empty_like(values)
    np.subtract(values[1:], values[:-1], out=steps[:-1])
    steps[-1] = 0.0
    ramp = np.arange(held, dtype=np.float32) / np.float32(held)
    return (values[:, None] + steps[:, None] * ramp).reshape(-1)


def render_phrase(rng: np.random.Generator, species: Species, *, octaves: float = 0.0) -> Samples:
    """One phrase: syllables in the species' rhythm, at most MAX_PHRASE_S long, peak 1.

    Args:
        rng: draws this phrase.
        species: who calls.
        octaves: this animal's own pitch.
    """
    sample_rate = species.sample_rate
    count = int(rng.integers(species.count[0], species.count[1] + 1))
    tempo = species.onset_s * float(np.exp(rng.normal(0.0, 2.0 * species.variation)))
    progress = np.arange(count) / max(count - 1, 1)
    steps = tempo * np.exp(species.acceleration * progress + rng.normal(0.0, species.variation, count))
    order = np.arange(count) % len(species.syllables)
    if species.song and species.pause_s is None:
        order = rng.integers(0, len(species.syllables), count)
        runs = rng.integers(1, 4, count)  # songs repeat a note a few times before the next
        order = np.repeat(order, runs)[:count]
    if species.song or species.pause_s is not None:
        lengths = np.array([shape.duration_s for shape in species.syllables])
        steps *= lengths[order] / np.exp(np.log(lengths).mean())  # after a long note, the next starts later
    if species.pause_s is not None:
        steps[order == len(species.syllables) - 1] += species.pause_s
    onsets = np.concatenate([[0.0], np.cumsum(steps)[:-1]])
    count = max(1, int(np.searchsorted(onsets, MAX_PHRASE_S)))
    gains = 10 ** ((species.swell_db * (progress[:count] - 0.5) + rng.normal(0.0, 1.0, count)) / 20)

    renditions: dict[tuple[int, int], Samples] = {}
    pieces: list[tuple[int, Samples]] = []
    for k in range(count):
        kind = int(order[k])
        key = (kind, k * _SHAPES_PER_PHRASE // count)
        if key not in renditions:
            shift = octaves + species.glide_octaves * float(progress[k])
            level = 10 ** (species.syllables[kind].level_db / 20)
            renditions[key] = np.float32(level) * render_syllable(
                rng, species, species.syllables[kind], octaves=shift
            )
        pieces.append((int(onsets[k] * sample_rate), renditions[key]))
    phrase = np.zeros(max(start + len(piece) for start, piece in pieces), dtype=np.float32)
    for (start, piece), gain in zip(pieces, gains, strict=False):
        phrase[start : start + len(piece)] += np.float32(gain) * piece
    phrase /= max(float(np.abs(phrase).max()), 1e-9)
    return phrase
