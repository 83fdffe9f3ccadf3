"""Activity by date and hour of the day as a picture, with the sun's lines on it.

An SVG made by hand: sharp at every size, and made in milliseconds, for `mast detect` ends with it.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np
import pandas as pd

from mast.arrays import FloatArray
from mast.evaluation.metrics import ratio
from mast.reports.heard import NO_CLOCK, Place
from mast.reports.sun import sun_times

_UNHEARD = (228, 231, 234)
_SCALE = ("#ffffd9", "#c7e9b4", "#41b6c4", "#225ea8", "#081d58")  # of none to most; ColorBrewer's YlGnBu
_SUN = ("#d9480f", "#5f3dc4")  # sunrise, sunset
_EPOCH = date(1970, 1, 1)
_ALWAYS_WHOLE, _MOST_EMPTY = 60, 4  # days; of longer spans, how many there may be for each with sound
_HEIGHT, _LEFT, _TOP, _BOTTOM, _RIGHT = 216, 44, 8, 40, 96  # pixels of the map, and around it
_DAY, _NARROW, _WIDE = 14, 168, 880  # pixels of a day; of the map at least and at most
_LABEL = 84  # pixels between dates


class Sky(NamedTuple):
    """Where the sun is looked up: the place, and the recorder's clock in hours from UTC."""

    place: Place
    offset_h: float


class Activity(NamedTuple):
    """Calls per recorded hour, (24, days), NaN where nothing was recorded; and which days these are."""

    rate: FloatArray
    days: list[date]

    @property
    def has_gaps(self) -> bool:
        """Whether days without sound are left out between."""
        return (self.days[-1] - self.days[0]).days >= len(self.days)


def activity(effort: pd.DataFrame, tally: pd.DataFrame) -> Activity | None:
    """From effort and counts of one site, by ``slot``; ``None`` where no recording has a clock.

    Days without sound are part of it, unless there are so many that nobody would see the others.
    """
    spent = effort[(effort["slot"] != NO_CLOCK) & (effort["recorded_s"] > 0)]
    if spent.empty:
        return None
    heard = np.unique(spent["slot"].to_numpy(dtype=np.int64) // 24)
    every = np.arange(heard[0], heard[-1] + 1)
    days = heard if len(every) > max(_ALWAYS_WHOLE, _MOST_EMPTY * len(heard)) else every
    hours, calls = np.zeros((len(days), 24)), np.zeros((len(days), 24))
    for table, values, target in ((spent, spent["recorded_s"] / 3_600, hours), (tally, tally["n"], calls)):
        slot = table["slot"].to_numpy(dtype=np.int64)
        known = np.isin(slot // 24, days)
        np.add.at(
            target, (np.searchsorted(days, slot[known] // 24), slot[known] % 24), values.to_numpy()[known]
        )
    rate = ratio(calls, hours)
    return Activity(rate.T, [_EPOCH + timedelta(days=int(day)) for day in days])


def draw_activity(found: Activity, sky: Sky | None = None) -> str:
    """A heat map as SVG: dates from left to right, hours of the day upwards; grey where nothing was recorded."""
    days = len(found.days)
    wide = int(np.clip(_DAY * days, _NARROW, _WIDE))
    most = float(np.nanmax(found.rate)) if np.isfinite(found.rate).any() else 0.0
    width, height = _LEFT + wide + _RIGHT, _TOP + _HEIGHT + _BOTTOM
    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" style="max-width:100%;height:auto;display:block" '
        'role="img" aria-label="activity by date and hour" font-size="12" fill="#1d2327">',
        f'<image x="{_LEFT}" y="{_TOP}" width="{wide}" height="{_HEIGHT}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{_cells(found.rate, most)}"/>',
        f'<rect x="{_LEFT}" y="{_TOP}" width="{wide}" height="{_HEIGHT}" fill="none" stroke="#5c6670"/>',
        *_axes(found, wide),
        *(_sun_lines(found, sky, wide) if sky is not None else ()),
        *_legend(_LEFT + wide + 16, most),
        "</svg>",
    ]
    return "".join(parts)


def _cells(rate: FloatArray, most: float) -> str:
    """A pixel for each hour of each day, as PNG."""
    from PIL import Image

    stops = np.array([[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in _SCALE], dtype=np.float64)
    known = np.isfinite(rate)
    at = np.where(known, rate, 0.0) / (most or 1.0)
    colours = np.stack([np.interp(at, np.linspace(0, 1, len(stops)), stops[:, k]) for k in range(3)], axis=-1)
    colours[~known] = _UNHEARD
    buffer = io.BytesIO()
    Image.fromarray(colours[::-1].round().astype(np.uint8)).save(buffer, format="png")
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _axes(found: Activity, wide: int) -> Iterator[str]:
    for hour in range(0, 25, 6):
        y = _y(hour)
        yield f'<line x1="{_LEFT - 4}" x2="{_LEFT}" y1="{y:g}" y2="{y:g}" stroke="#5c6670"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:g}" text-anchor="end">{hour}</text>'
    middle = _TOP + _HEIGHT / 2
    yield f'<text x="12" y="{middle:g}" text-anchor="middle" transform="rotate(-90 12 {middle:g})">hour</text>'
    days = found.days
    one_year = days[0].year == days[-1].year
    step = max(1, math.ceil(_LABEL * len(days) / wide))
    for k in range(0, len(days), step):
        x = _x(k + 0.5, len(days), wide)
        foot = _TOP + _HEIGHT
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{foot}" y2="{foot + 4}" stroke="#5c6670"/>'
        year = f" {days[k].year}" if k == 0 or not one_year else ""
        yield f'<text x="{x:.1f}" y="{foot + 18}" text-anchor="middle">{days[k].day} {days[k]:%b}{year}</text>'


def _legend(x: int, most: float) -> Iterator[str]:
    """What the colours mean: events per hour, from none to most."""
    stops = "".join(
        f'<stop offset="{k / (len(_SCALE) - 1)}" stop-color="{c}"/>' for k, c in enumerate(_SCALE)
    )
    yield f'<linearGradient id="scale" x1="0" x2="0" y1="1" y2="0">{stops}</linearGradient>'
    yield f'<rect x="{x}" y="{_TOP}" width="14" height="{_HEIGHT}" fill="url(#scale)" stroke="#5c6670"/>'
    for share in (0.0, 0.5, 1.0) if most else (0.0,):
        yield f'<text x="{x + 20}" y="{_TOP + _HEIGHT * (1 - share) + 4:g}">{_plain(most * share)}</text>'
    middle, right = _TOP + _HEIGHT / 2, x + 72
    yield (
        f'<text x="{right}" y="{middle:g}" text-anchor="middle" transform="rotate(-90 {right} {middle:g})">'
        "events per hour</text>"
    )


def sun_hours(found: Activity, sky: Sky) -> FloatArray:
    """(2, days) sunrise and sunset by the recorder's clock; NaN where the sun stays up or down."""
    times = [sun_times(day, *sky.place) for day in found.days]
    hours = np.array([[t.rise_h for t in times], [t.set_h for t in times]])
    return np.asarray((hours + sky.offset_h) % 24)


def _sun_lines(found: Activity, sky: Sky, wide: int) -> Iterator[str]:
    """A dash a day."""
    for hours, colour in zip(sun_hours(found, sky), _SUN, strict=True):
        dashes = "".join(
            f"M{_x(k, len(hours), wide):.1f} {_y(float(hour)):.1f}H{_x(k + 1, len(hours), wide):.1f}"
            for k, hour in enumerate(hours)
            if math.isfinite(hour)
        )
        if dashes:
            yield f'<path d="{dashes}" stroke="{colour}" stroke-width="2" fill="none"/>'


def _x(day: float, days: int, wide: int) -> float:
    return _LEFT + wide * day / days


def _y(hour: float) -> float:
    return _TOP + _HEIGHT * (1 - hour / 24)


def _plain(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 20 else f"{rate:.3g}"


def sun_note(found: Activity, sky: Sky) -> str:
    """What the lines are, or why there are none on some days."""
    kinds = [sun_times(day, *sky.place).kind for day in found.days]
    n = len(kinds)
    never = [
        f"does not {verb}" + ("" if kinds.count(kind) == n else f" on {kinds.count(kind)} of these {n} days")
        for kind, verb in (("polar day", "set"), ("polar night", "rise"))
        if kind in kinds
    ]
    lines = "" if "" not in kinds else "lines: sunrise (orange) and sunset (violet)"
    sun = f"the sun {' and '.join(never)}" if never else ""
    return "; ".join(part for part in (lines, sun) if part)
