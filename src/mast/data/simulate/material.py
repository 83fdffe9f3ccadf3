"""Real sound as material: isolated call clips, and backgrounds to paste them into.

Clips are freed of their own background (spectral subtraction) and cut where they are silent, so that what is
pasted is the call. Backgrounds are used as they are: **a real background may hold animals of its own, which
then carry no box.** ``quiet`` keeps only the calmest share of each background, which lowers that risk but
does not remove it; for exact truth use procedural backgrounds or material known to be empty.
"""

from __future__ import annotations

import csv
import re
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft, ndimage, signal

from mast.arrays import Samples
from mast.audio import AUDIO_SUFFIXES, find_recordings, read
from mast.data.simulate.species import CURVE_POINTS, draw_hours, draw_motif
from mast.errors import ConfigError, not_a_folder

_BACKGROUNDS_OF_SITE = 8  # maximum number of recordings
Share = Literal["learning", "validation", "test"]

MAX_CLIP_S = 8.0  # a longer call is used in pieces of this length
_FRAME_S = 0.016
_CLIP_RANGE = 1e-3  # cells with less than this share of the loudest one's power count as background
_PATCH_SHARE = 0.01  # patches with less than this of the loudest one's energy are specks of noise
_LONGEST_NOTE_S = 0.6  # of a clip that is a note of a song
_SPLIT_S = 0.5  # silence inside a clip that separates two calls


class Note(NamedTuple):
    """One note of a motif: which clip, how fast it is played, and the silence after it."""

    clip: int
    speed: float
    rest_s: float


@dataclass(frozen=True)
class ClipSpecies:
    """A species made of real clips: each call is one of them, sometimes repeated, or a song of a few."""

    label: str
    paths: tuple[Path, ...]
    sample_rate: int
    interval_s: float
    source_db: float
    hours: tuple[tuple[float, float], ...]
    chorus: float = 0.05
    season: tuple[float, float] = (15.0, 60.0)
    variation: float = 0.0
    loudest_tone_db: float = 0.0
    speed: float = 1.0  # of the tape: slower is lower and longer
    song: bool = False
    train: bool = False
    motif: tuple[Note, ...] = ()  # what it sings, again and again
    _cache: dict[tuple[int, float], list[Samples]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def longest_s(self) -> float:
        """The longest call used."""
        return MAX_CLIP_S

    def activity(self, hour: float) -> float:
        """Relative calling rate at an hour of the day."""
        apart = [min(abs(hour - peak) % 24, 24 - abs(hour - peak) % 24) / width for peak, width in self.hours]
        return 0.1 + sum(float(np.exp(-0.5 * z * z)) for z in apart)

    @property
    def band_hz(self) -> tuple[float, float]:
        """Unknown, so everything."""
        return 0.0, self.sample_rate / 2

    @cached_property
    def response_db(self) -> NDArray[np.float32]:
        """Flat: the clip already has its colour."""
        return np.zeros(CURVE_POINTS, dtype=np.float32)

    def phrase(self, rng: np.random.Generator) -> Samples:
        """One call, peak 1: the loudest stretch of a clip, or another one; short ones may come in a series."""
        if self.motif:
            return self._song(rng)
        calls = self._calls(int(rng.integers(len(self.paths))), self.speed)
        if not calls:
            return np.zeros(1, dtype=np.float32)
        call = calls[int(rng.integers(len(calls)))]
        repeats = int(rng.integers(2, 7)) if len(call) < 0.4 * self.sample_rate and rng.random() < 0.3 else 1
        if repeats == 1:
            return call
        step = int(len(call) * rng.uniform(1.1, 2.5))
        series = np.zeros(step * (repeats - 1) + len(call), dtype=np.float32)
        for k in range(repeats):
            series[k * step : k * step + len(call)] += call * np.float32(rng.uniform(0.6, 1.0))
        return series

    def _song(self, rng: np.random.Generator) -> Samples:
        """The motif a few times over, at this animal's tempo and no longer than a clip may be."""
        tempo = float(np.exp(rng.normal(0.0, 0.1)))
        pieces: list[Samples] = []
        for note in self.motif:
            calls = self._calls(note.clip, note.speed)
            sound = calls[0][: int(_LONGEST_NOTE_S * self.sample_rate)] if calls else np.zeros(1, np.float32)
            rest = np.zeros(int(note.rest_s * tempo * self.sample_rate), np.float32)
            pieces += [sound * np.float32(rng.uniform(0.5, 1.0)), rest]
        motif = np.concatenate(pieces)
        times = min(int(rng.integers(2, 11)), max(1, int(MAX_CLIP_S * self.sample_rate) // len(motif)))
        song = np.tile(motif, times)[: int(MAX_CLIP_S * self.sample_rate)]
        return song / np.float32(max(float(np.abs(song).max()), 1e-9))

    def _calls(self, which: int, speed: float) -> list[Samples]:
        """The calls of a clip at a speed."""
        key = which, speed
        if key not in self._cache:
            if len(self._cache) > 512:
                self._cache.clear()
            tape = read(self.paths[which], sample_rate=round(self.sample_rate / speed))
            self._cache[key] = isolate_calls(tape, self.sample_rate)
        return self._cache[key]


@dataclass(frozen=True)
class Backgrounds:
    """Recordings to paste calls into."""

    paths: tuple[Path, ...]
    sample_rate: int
    quiet: float = 1.0
    _cache: dict[int, Samples] = field(default_factory=dict, repr=False, compare=False)

    def for_site(self, rng: np.random.Generator) -> Backgrounds:
        """The few recordings that belong to one site."""
        chosen = rng.permutation(len(self.paths))[:_BACKGROUNDS_OF_SITE]
        return Backgrounds(tuple(self.paths[k] for k in sorted(chosen)), self.sample_rate, self.quiet)

    def loop(self, rng: np.random.Generator) -> Samples:
        """One of the recordings as a loop of unit power."""
        which = int(rng.integers(len(self.paths)))
        if which not in self._cache:
            samples = read(self.paths[which], end_s=120.0, sample_rate=self.sample_rate)
            samples = trim_silence(samples - samples.mean(), self.sample_rate)
            samples = quietest(samples, self.sample_rate, self.quiet)
            self._cache[which] = samples / np.float32(np.sqrt(np.mean(np.square(samples))) + 1e-9)
        return self._cache[which]


@dataclass(frozen=True)
class Material:
    """What real sound a world may use."""

    species: tuple[ClipSpecies, ...] = ()
    backgrounds: Backgrounds | None = None


def load_material(
    calls: Path | None,
    backgrounds: Path | None,
    sample_rate: int,
    *,
    call_labels: Sequence[str] = (),
    background_labels: Sequence[str] = (),
    quiet: float = 1.0,
    speeds: tuple[float, float] = (1.0, 1.0),
    motifs: float = 0.0,
    seed: int = 0,
    share: Share | None = None,
) -> Material | None:
    """Find real calls and backgrounds.

    Args:
        calls: folder of isolated calls, or None. Labels come from a ``clips.csv`` (``file,label`` and more)
            in it, if there is one; otherwise a call's label is the name of its folder.
        backgrounds: folder of backgrounds, or None.
        sample_rate: Hz they are brought to.
        call_labels: patterns such as ``frog`` or ``clo43sd/*``; a clip is used when its label, its source or
            its path matches one. Empty: all are used.
        background_labels: the same for backgrounds.
        quiet: share of each background that is used, its calmest seconds first.
        speeds: calls are played at a speed between these, different for each label and seed.
        motifs: share of the labels whose calls are notes of songs.
        seed: of speeds and songs.
        share: use only this share of each label's calls, and of the backgrounds: worlds that differ in this alone have
            the same species and sites, and no recording in common. A label with one call is left out; if it has two,
            learning and validation use the same one.
    """
    if calls is None and backgrounds is None:
        return None
    if not 0 < quiet <= 1:
        raise ConfigError(
            f"simulate: the quiet share of backgrounds is {quiet:g}; expected more than 0 and at most 1"
        )
    species: tuple[ClipSpecies, ...] = ()
    if calls is not None:
        by_label: defaultdict[str, list[Path]] = defaultdict(list)
        for path, label in _clips(calls, call_labels):
            by_label[label].append(path)
        species = tuple(
            _clip_species(label, own, sample_rate, speeds, motifs, seed)
            for label, paths in sorted(by_label.items())
            if (own := _select_share(paths, share))
        )
    field_sound = None
    if backgrounds is not None:
        paths = _select_share([p for p, _ in _clips(backgrounds, background_labels)], share)
        if not paths:
            raise ConfigError(
                f"simulate: {backgrounds} holds only one background; expected at least two to divide"
            )
        field_sound = Backgrounds(paths, sample_rate, quiet)
    return Material(species, field_sound)


def _select_share(paths: Sequence[Path], share: Share | None) -> tuple[Path, ...]:
    """All of them, or one share: half are for tests; of the others, one in four is for validation.

    All shares are lists of the same length, so that worlds draw the same numbers; some repeat their recordings.
    """
    if share is None:
        return tuple(paths)
    count = len(paths) // 2
    if share == "test":
        return tuple(paths[len(paths) - count :])
    others = paths[: len(paths) - count]
    held = max(1, count // 4) if len(others) > 1 else 0
    own = others[-held:] if share == "validation" and held else others[: len(others) - held]
    return tuple(own[k % len(own)] for k in range(count))


def isolate_calls(samples: Samples, sample_rate: int) -> list[Samples]:
    """The calls in a clip: background subtracted, silence cut away, peak 1; loudest first.

    The cells of the spectrogram that are kept are at least 9 dB above the level of their frequency in its quietest
    fifth of frames, and no more than 30 dB below the loudest cell.
    """
    window = max(16, int(2 * _FRAME_S * sample_rate))
    if len(samples) < 2 * window or not np.any(samples):
        return []
    hop = window // 4
    _, _, spectrum = signal.stft(samples, nperseg=window, noverlap=window - hop)  # (bins, frames)
    power = np.abs(spectrum) ** 2
    floor = 8.0 * np.quantile(power, 0.2, axis=1, keepdims=True)
    call_cells = power > np.maximum(floor, _CLIP_RANGE * power.max())
    gain = ndimage.uniform_filter(call_cells.astype(np.float32), 3)  # a lone cell is noise, a hole is not
    patches, count = ndimage.label(gain >= 0.34)
    loudness = ndimage.sum_labels(power, patches, np.arange(count + 1))
    loudness[0] = 0.0  # patch 0 is everything else
    gain *= (loudness >= _PATCH_SHARE * loudness.max())[patches] & (patches > 0)
    clean = signal.istft(spectrum * gain, nperseg=window, noverlap=window - hop)[1][: len(samples)]
    energy = (power * gain).sum(axis=0)
    loud = np.flatnonzero(energy > energy.max() * 10 ** (-2.5))
    calls: list[Samples] = []
    for run in np.split(loud, np.flatnonzero(np.diff(loud) > _SPLIT_S * sample_rate / hop) + 1):
        start = max(0, int((run[0] - 1) * hop))
        end = min(len(clean), int((run[-1] + 2) * hop), start + int(MAX_CLIP_S * sample_rate))
        call = clean[start:end].astype(np.float32)
        peak = float(np.abs(call).max(initial=0.0))
        if len(call) < 2 * hop or peak <= 0:
            continue
        fade = np.minimum(1.0, np.arange(len(call)) / hop).astype(np.float32)
        calls.append(call * fade * fade[::-1] / peak)
    return calls


def trim_silence(samples: Samples, sample_rate: int) -> Samples:
    """A background without its fades and gaps: the longest stretch within 15 dB of its usual level."""
    frame = max(1, int(0.05 * sample_rate))
    count = len(samples) // frame
    if count < 4:
        return samples
    level = np.sqrt(np.mean(np.square(samples[: count * frame].reshape(count, frame)), axis=1))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], level > 0.18 * np.quantile(level, 0.6), [0]])))
    starts, ends = edges[::2], edges[1::2]
    if not starts.size:
        return samples
    longest = int(np.argmax(ends - starts))
    return samples[starts[longest] * frame : ends[longest] * frame]


def quietest(samples: Samples, sample_rate: int, share: float) -> Samples:
    """The calmest ``share`` of a background as a loop: pieces of about 2 s, in order, joined by short fades.

    Calm means few cells of the spectrogram far above their frequency's median. At least 4 s are kept, so that
    the loop does not sound like one: backgrounds shorter than 6 s are used whole.
    """
    fade = int(0.05 * sample_rate)
    piece = 2 * sample_rate
    if share >= 1 or len(samples) < 3 * piece:
        return close_loop(samples, fade)
    count = len(samples) // piece
    window = int(0.032 * sample_rate)
    power = np.abs(fft.rfft(samples[: count * piece // window * window].reshape(-1, window), axis=1)) ** 2
    busy = (power > 10.0 * np.median(power, axis=0)).mean(axis=1)
    activity = np.array([busy[k * piece // window : (k + 1) * piece // window].mean() for k in range(count)])
    chosen = np.sort(np.argsort(activity, kind="stable")[: max(2, round(share * count))])
    ramp = np.linspace(0.0, 1.0, fade, dtype=np.float32)
    loop = close_loop(samples[chosen[0] * piece : (chosen[0] + 1) * piece], fade)
    for k in chosen[1:]:
        following = samples[k * piece : (k + 1) * piece].copy()
        following[:fade] = following[:fade] * np.sqrt(ramp) + loop[-fade:] * np.sqrt(1 - ramp)
        loop = np.concatenate([loop[:-fade], following])
    return close_loop(loop, fade)


def close_loop(samples: Samples, fade: int) -> Samples:
    """Fade the end into the beginning, so that it may be played round and round (shorter by ``fade``)."""
    fade = min(fade, len(samples) // 2)
    if fade < 1:
        return samples
    ramp = np.linspace(0.0, 1.0, fade, dtype=np.float32)
    loop = samples[:-fade].copy()
    loop[:fade] = samples[:fade] * np.sqrt(ramp) + samples[-fade:] * np.sqrt(1 - ramp)
    return loop


def _clip_species(
    label: str,
    paths: tuple[Path, ...],
    sample_rate: int,
    speeds: tuple[float, float],
    motifs: float,
    seed: int,
) -> ClipSpecies:
    name = zlib.crc32(label.encode())
    rng = np.random.default_rng(name)
    slow, fast = np.log(speeds)
    speed = float(np.exp(np.random.default_rng([name, seed]).uniform(slow, fast)))
    song, motif = _draw_song(np.random.default_rng([name, seed, 1]), len(paths), speed, motifs)
    return ClipSpecies(
        label=label,
        paths=paths,
        sample_rate=sample_rate,
        interval_s=rng.uniform(1.5, 8.0),
        source_db=rng.uniform(78.0, 94.0),
        hours=draw_hours(rng, nocturnal=bool(rng.random() < 0.3)),
        speed=speed,
        song=song,
        motif=motif,
    )


def _draw_song(
    rng: np.random.Generator, clips: int, speed: float, share: float
) -> tuple[bool, tuple[Note, ...]]:
    """Whether its song is one event, and the notes of its motif; none for a species that calls."""
    if rng.random() >= share:
        return False, ()
    whole, pause_s = draw_motif(rng)
    count = int(rng.integers(2, 5))
    notes = [
        Note(int(rng.integers(clips)), speed * float(2 ** rng.normal(0.0, 0.3)), rng.uniform(0.0, 0.12))
        for _ in range(count)
    ]
    notes[-1] = notes[-1]._replace(rest_s=notes[-1].rest_s + pause_s)
    return whole, tuple(notes)


def _clips(folder: Path, patterns: Sequence[str]) -> list[tuple[Path, str]]:
    """(path, label) of the clips in a folder that match, in a fixed order."""
    if not folder.is_dir():
        raise ConfigError(f"simulate: {folder}: {not_a_folder(folder)}; expected a folder of recordings")
    table = folder / "clips.csv"
    rows: list[tuple[Path, str, tuple[str, ...]]] = []  # and all that a pattern may match
    if table.is_file():
        with table.open(newline="", encoding="utf-8-sig") as lines:
            for number, row in enumerate(csv.DictReader(lines), start=2):
                if not row.get("file"):
                    raise ConfigError(
                        f"simulate: {table}, row {number}: no file named; expected columns file,label"
                    )
                path = folder / row["file"]
                label = row.get("label") or ""
                if not label or Path(label).suffix.lower() in AUDIO_SUFFIXES:  # a file's name is not a label
                    label = row.get("source") or path.parent.name
                rows.append((path, label, (label, row.get("source") or "", Path(row["file"]).as_posix())))
    else:
        for path in find_recordings(folder):
            label = path.parent.name if path.parent != folder else "call"
            rows.append((path, label, (label, "", path.relative_to(folder).as_posix())))
    wants = re.compile("|".join(map(translate, patterns)) if patterns else "")
    chosen = [(path, label) for path, label, texts in rows if any(map(wants.match, texts))]
    if not chosen:
        wanted = f" matching {', '.join(patterns)}" if patterns else ""
        raise ConfigError(f"simulate: no recording{wanted} in {folder}; check the folder and the patterns")
    return sorted(chosen)
