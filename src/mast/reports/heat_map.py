"""Activity by date and hour of the day as a picture, with the sun's lines on it.

An SVG from a template: sharp at every size, and made in milliseconds, because every `mast detect` ends by drawing one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from mast.arrays import FloatArray
from mast.evaluation.metrics import ratio
from mast.reports.searched_recordings import NO_CLOCK, Place
from mast.reports.spectrogram import image_png
from mast.reports.sun import sun_times
from mast.reports.templating import render

_UNHEARD = (228, 231, 234)
_SCALE = ("#ffffd9", "#c7e9b4", "#41b6c4", "#225ea8", "#081d58")  # from none to most; ColorBrewer's YlGnBu
_SUN = ("#d9480f", "#5f3dc4")  # sunrise, sunset
_EPOCH = date(1970, 1, 1)
_ALWAYS_WHOLE, _MAX_EMPTY = 60, 4  # days; of longer spans, how many there may be for each with sound
_HEIGHT, _LEFT, _TOP, _BOTTOM, _RIGHT = 216, 44, 8, 40, 96  # pixels of the map, and around it
_DAY, _NARROW, _WIDE = 14, 168, 880  # pixels of a day; of the map at least and at most
_LABEL = 84  # pixels between dates


class Observer(NamedTuple):
    """Where and when sunrise and sunset are computed: the place, and the recorder's clock in hours from UTC."""

    place: Place
    offset_h: float


class Activity(NamedTuple):
    """Calls per recorded hour, (24, days), NaN where nothing was recorded; and which days these are."""

    rate: FloatArray
    days: list[date]

    @property
    def has_gaps(self) -> bool:
        """Whether days without sound are left out in between."""
        return (self.days[-1] - self.days[0]).days >= len(self.days)


def compute_activity(effort: pd.DataFrame, tally: pd.DataFrame) -> Activity | None:
    """From effort and counts of one site, by ``slot``; ``None`` where no recording has a clock.

    Days without sound are part of it, unless there are so many that the others would be too narrow to see.
    """
    spent = effort[(effort["slot"] != NO_CLOCK) & (effort["recorded_s"] > 0)]
    if spent.empty:
        return None
    heard = np.unique(spent["slot"].to_numpy(dtype=np.int64) // 24)
    every = np.arange(heard[0], heard[-1] + 1)
    days = heard if len(every) > max(_ALWAYS_WHOLE, _MAX_EMPTY * len(heard)) else every
    hours, calls = np.zeros((len(days), 24)), np.zeros((len(days), 24))
    for table, values, target in ((spent, spent["recorded_s"] / 3_600, hours), (tally, tally["n"], calls)):
        slot = table["slot"].to_numpy(dtype=np.int64)
        known = np.isin(slot // 24, days)
        np.add.at(
            target, (np.searchsorted(days, slot[known] // 24), slot[known] % 24), values.to_numpy()[known]
        )
    rate = ratio(calls, hours)
    return Activity(rate.T, [_EPOCH + timedelta(days=int(day)) for day in days])


def draw_activity(found: Activity, observer: Observer | None = None) -> Markup:
    """A heat map as SVG: dates from left to right, hours of the day upwards; grey where nothing was recorded."""
    wide = int(np.clip(_DAY * len(found.days), _NARROW, _WIDE))
    peak = float(np.nanmax(found.rate)) if np.isfinite(found.rate).any() else 0.0
    return render(
        "heat_map.svg",
        width=_LEFT + wide + _RIGHT,
        height=_TOP + _HEIGHT + _BOTTOM,
        left=_LEFT,
        top=_TOP,
        wide=wide,
        high=_HEIGHT,
        cells=_cells_png(found.rate, peak),
        hours=[(_y(hour), hour) for hour in range(0, 25, 6)],
        dates=list(_date_labels(found.days, wide)),
        sun=list(_sun_lines(found, observer, wide)) if observer is not None else [],
        colours=_SCALE,
        rates=[(share, _format_rate(peak * share)) for share in ((0.0, 0.5, 1.0) if peak else (0.0,))],
    )


def _cells_png(rate: FloatArray, peak: float) -> bytes:
    """A pixel for each hour of each day, as PNG."""
    from PIL import Image

    stops = np.array([[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in _SCALE], dtype=np.float64)
    known = np.isfinite(rate)
    at = np.where(known, rate, 0.0) / (peak or 1.0)
    colours = np.stack([np.interp(at, np.linspace(0, 1, len(stops)), stops[:, k]) for k in range(3)], axis=-1)
    colours[~known] = _UNHEARD
    return image_png(Image.fromarray(colours[::-1].round().astype(np.uint8)))


def _date_labels(days: list[date], wide: int) -> Iterator[tuple[float, str]]:
    """Where along the map dates are written; the year on the first, or on each where there are several years."""
    one_year = days[0].year == days[-1].year
    step = max(1, math.ceil(_LABEL * len(days) / wide))
    for k in range(0, len(days), step):
        year = f" {days[k].year}" if k == 0 or not one_year else ""
        yield _x(k + 0.5, len(days), wide), f"{days[k].day} {days[k]:%b}{year}"


def sun_hours(found: Activity, observer: Observer) -> FloatArray:
    """(2, days) sunrise and sunset by the recorder's clock; NaN where the sun stays up or down."""
    times = [sun_times(day, *observer.place) for day in found.days]
    hours = np.array([[t.rise_h for t in times], [t.set_h for t in times]])
    return np.asarray((hours + observer.offset_h) % 24)


def _sun_lines(found: Activity, observer: Observer, wide: int) -> Iterator[tuple[str, str]]:
    """A dash for each day, as a path, and its colour."""
    for hours, colour in zip(sun_hours(found, observer), _SUN, strict=True):
        dashes = "".join(
            f"M{_x(k, len(hours), wide):.1f} {_y(float(hour)):.1f}H{_x(k + 1, len(hours), wide):.1f}"
            for k, hour in enumerate(hours)
            if math.isfinite(hour)
        )
        if dashes:
            yield dashes, colour


def _x(day: float, days: int, wide: int) -> float:
    return _LEFT + wide * day / days


def _y(hour: float) -> float:
    return _TOP + _HEIGHT * (1 - hour / 24)


def _format_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 20 else f"{rate:.3g}"


def sun_note(found: Activity, observer: Observer) -> str:
    """What the lines are, or why there are none on some days."""
    kinds = [sun_times(day, *observer.place).kind for day in found.days]
    n = len(kinds)
    never = [
        f"does not {verb}" + ("" if kinds.count(kind) == n else f" on {kinds.count(kind)} of these {n} days")
        for kind, verb in (("polar day", "set"), ("polar night", "rise"))
        if kind in kinds
    ]
    lines = "" if "" not in kinds else "lines: sunrise (orange) and sunset (violet)"
    sun = f"the sun {' and '.join(never)}" if never else ""
    return "; ".join(part for part in (lines, sun) if part)
