"""A stretch of sound with its boxes: background, confounders, callers, and what can be seen of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mast.arrays import Samples
from mast.data.simulate.background import draw_tracks, read_tracks
from mast.data.simulate.calling_times import Call, schedule
from mast.data.simulate.calls import render_phrase
from mast.data.simulate.species import Species
from mast.data.simulate.visible import (
    BoxStyle,
    Event,
    Level,
    Power,
    PowerGrid,
    background_level,
    merge_events,
    visible_boxes,
)
from mast.data.simulate.world import Day, Site

_ECHO_SEEN_S = 0.2  # echoes later than this are never drawn into a box
# draws an event as if alone in silence
_CLEAN = BoxStyle(above_background_db=-200.0, masked_db=200.0, min_cells=1)


class Soundscape(NamedTuple):
    """A waveform and its boxes, in order of start."""

    waveform: Samples  # (n,) within ±1
    events: list[Event]
    hidden: list[Event]  # calls nobody could see; empty unless asked for


class _Arrival(NamedTuple):
    """The part of a call that reaches the microphone."""

    call: Call
    start: int  # first sample in its piece, on the spectrogram's hop
    heard: Samples
    seen: int  # samples that can matter for its box: the rest is fading echo
    audible: bool  # False: too faint to be part of the sound


def render(
    rng: np.random.Generator,
    site: Site,
    day: Day,
    hour: float,
    *,
    duration_s: float,
    style: BoxStyle,
    density: float = 1.0,
    hidden: bool = False,
    segment_s: float = 20.0,
) -> Iterator[Soundscape]:
    """Simulate a recording piece by piece, in constant memory.

    Each piece carries the boxes of the calls that begin in it, in seconds from the recording's start and not
    yet joined across pieces: :func:`mast.data.simulate.visible.merge_events` does that at the end. Calls ring
    on into the next piece. Hour and weather are those of the recording's start, however long it lasts.
    """
    rate = site.sample_rate
    total = round(duration_s * rate)
    tracks = draw_tracks(rng, site, day, hour, total)
    calls = schedule(rng, site, day, hour, duration_s, density=density)
    grid = _grid(rate)
    step = max(grid.hop, int(segment_s * rate) // grid.hop * grid.hop)
    ringing = np.zeros(0, dtype=np.float32)
    done = 0
    begin = 0
    while begin < total:
        n = min(step, total - begin)
        if total - begin - n < grid.window:  # no tiny piece at the end
            n = total - begin
        background = read_tracks(tracks, begin, n)
        level = background_level(background, grid)
        quietest_db = 10 * np.log10(level.blocks.min(axis=0))
        phrases: list[_Arrival] = []
        while done < len(calls) and calls[done].start_s * rate < begin + n:
            call = calls[done]
            done += 1
            audible = _can_be_visible(site, call, quietest_db, grid, style)
            if audible or hidden:
                phrases += _render_arrival(site, call, begin, total, grid, audible)
        animals = _mix(ringing, phrases, n)
        boxes, unseen = _draw_boxes(phrases, animals, level, grid, style, hidden)
        offset_s = begin / rate
        waveform = np.clip(background + animals[:n], -1.0, 1.0)
        yield Soundscape(
            waveform,
            [_shift(e, offset_s, duration_s) for e in boxes],
            [_shift(e, offset_s, duration_s) for e in unseen],
        )
        ringing = animals[n:]
        begin += n


def simulate_chunk(
    rng: np.random.Generator,
    site: Site,
    day: Day,
    hour: float,
    *,
    duration_s: float = 10.24,
    density: float = 1.0,
    hidden: bool = False,
) -> Soundscape:
    """One chunk with its boxes.

    Args:
        rng: decides everything that is not fixed by site and day.
        site: where.
        day: which day.
        hour: of the day, 0–24.
        duration_s: seconds; the paper's chunk by default.
        density: factor on the number of animals.
        hidden: also return the calls that cannot be seen.

    Returns:
        Waveform (float32, ±1) and boxes in seconds and hertz.
    """
    drawn = BoxStyle()
    pieces = list(
        render(rng, site, day, hour, duration_s=duration_s, style=drawn, density=density, hidden=hidden)
    )
    waveform = (
        np.concatenate([piece.waveform for piece in pieces]) if pieces else np.zeros(0, dtype=np.float32)
    )
    events = merge_events([event for piece in pieces for event in piece.events], drawn)
    return Soundscape(waveform, events, [event for piece in pieces for event in piece.hidden])


@lru_cache(maxsize=4)
def _grid(sample_rate: int) -> PowerGrid:
    return PowerGrid(sample_rate)


def _can_be_visible(
    site: Site, call: Call, quietest_db: NDArray[np.float64], grid: PowerGrid, style: BoxStyle
) -> bool:
    """Whether a call can possibly rise above the quietest background: a bound, to save rendering the rest."""
    received = site.acoustics.received_db(
        call.distance_m, call.level_db - site.full_scale_db, call.species.response_db
    )
    low, high = call.species.band_hz
    hz = site.acoustics.hz
    cell_db = 10 * np.log10(grid.window / 6.0)  # power of a full tone in one cell under a Hann window
    tone_db = received + call.species.loudest_tone_db + cell_db
    background = np.interp(hz, np.arange(len(quietest_db)) * grid.bin_hz, quietest_db)
    inside = (hz >= low) & (hz <= high)
    return bool(np.any((tone_db - background)[inside] > min(style.above_background_db, 0.0)))


def _render_arrival(
    site: Site, call: Call, begin: int, total: int, grid: PowerGrid, audible: bool
) -> list[_Arrival]:
    """What arrives of a call in the piece that starts at sample ``begin``; nothing if it is over by then."""
    rng = np.random.default_rng(call.seed)
    if isinstance(call.species, Species):
        dry = render_phrase(rng, call.species, octaves=call.octaves)
    else:
        dry = call.species.phrase(rng)
    heard = site.acoustics.transmit(
        dry, call.distance_m, call.level_db - site.full_scale_db, call.species.response_db
    )
    lead = -(-(grid.window - 1) // grid.hop) * grid.hop  # includes frames that catch only the onset
    start = round((call.start_s * site.sample_rate - begin) / grid.hop) * grid.hop - lead
    heard = np.concatenate([np.zeros(lead, np.float32), heard, np.zeros(grid.window, np.float32)])
    seen = lead + len(dry) + grid.window + int(_ECHO_SEEN_S * site.sample_rate)
    if start < 0:  # before the recording, or a lead that would reach into the piece already written
        heard, seen, start = heard[-start:], seen + start, 0
    heard = heard[: total - begin - start]
    if min(len(heard), seen) < grid.window:
        return []
    return [_Arrival(call, start, heard, min(seen, len(heard)), audible)]


def _mix(ringing: Samples, phrases: list[_Arrival], n: int) -> Samples:
    """All animals of a piece and what they leave for the next, at least ``n`` samples."""
    length = max([n, len(ringing), *(p.start + len(p.heard) for p in phrases)])
    animals = np.zeros(length, dtype=np.float32)
    animals[: len(ringing)] = ringing
    for phrase in phrases:
        if phrase.audible:
            animals[phrase.start : phrase.start + len(phrase.heard)] += phrase.heard
    return animals


def _draw_boxes(
    phrases: list[_Arrival], animals: Samples, level: Level, grid: PowerGrid, style: BoxStyle, hidden: bool
) -> tuple[list[Event], list[Event]]:
    """Boxes of each phrase, and the phrases that have none."""
    everything: Power | None = None
    boxes: list[Event] = []
    unseen: list[Event] = []
    for phrase in phrases:
        call = phrase.call
        first = phrase.start // grid.hop
        power = grid.power(phrase.heard[: phrase.seen])
        around = level.at(first, len(power))
        events: list[Event] = []
        if phrase.audible:
            on_top = power
            if _is_crowded(phrase, phrases):
                everything = grid.power(animals) if everything is None else everything
                on_top = everything[first : first + len(power)]
            song = call.species.song or (style.trains_are_songs and call.species.train)
            events = visible_boxes(power, around, on_top, first, grid, style, song=song)
        boxes += [_label_event(event, call) for event in events]
        if hidden and not events:
            alone = visible_boxes(power, around, power, first, grid, _CLEAN)
            unseen += [_label_event(event, call) for event in alone]
    return boxes, unseen


def _is_crowded(phrase: _Arrival, phrases: list[_Arrival]) -> bool:
    end = phrase.start + phrase.seen
    return any(p is not phrase and p.start < end and phrase.start < p.start + p.seen for p in phrases)


def _label_event(event: Event, call: Call) -> Event:
    return replace(event, label=call.species.label, distance_m=call.distance_m, caller=call.caller)


def _shift(event: Event, offset_s: float, duration_s: float) -> Event:
    return replace(event, start_s=event.start_s + offset_s, end_s=min(event.end_s + offset_s, duration_s))
