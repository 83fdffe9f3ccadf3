"""Activity by date and hour of the day as a picture, with the sun's lines on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from mast.events import FloatArray
from mast.reports.heard import NO_CLOCK, Place
from mast.reports.sun import SunTimes, sun_times

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNHEARD = "#e4e7ea"
_RISE, _SET = "#d9480f", "#5f3dc4"
_EPOCH = date(1970, 1, 1)
_TICKS = 9  # dates below a picture at most
_ALWAYS_WHOLE, _MOST_EMPTY = 60, 4  # days; of longer spans, how many there may be for each with sound


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

    Days without sound are part of it, unless they are so many that nobody would see the others.
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
    rate = np.divide(calls, hours, out=np.full(hours.shape, np.nan), where=hours > 0)
    return Activity(rate.T, [_EPOCH + timedelta(days=int(day)) for day in days])


def plot_activity(found: Activity, sky: Sky | None = None) -> Figure:
    """A heat map: dates from left to right, hours of the day upwards; grey where nothing was recorded."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    days = found.days
    figure = Figure(figsize=(min(10.4, max(4.2, 2.6 + 0.14 * len(days))), 3.3), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_facecolor(_UNHEARD)
    top = float(np.nanmax(found.rate)) if np.isfinite(found.rate).any() else 0.0
    image = axes.imshow(
        np.ma.masked_invalid(found.rate),
        origin="lower",
        aspect="auto",
        extent=(-0.5, len(days) - 0.5, 0, 24),
        cmap=colormaps["YlGnBu"],
        vmin=0.0,
        vmax=top or 1.0,
        interpolation="nearest",
    )
    figure.colorbar(image, ax=axes, label="events per hour", pad=0.02)
    if sky is not None:
        _draw_sun(axes, found, sky)
    axes.set_xlim(-0.5, len(days) - 0.5)
    axes.set_ylim(0, 24)
    axes.set_yticks(range(0, 25, 6))
    axes.set_ylabel("Hour of the day")
    step = max(1, math.ceil(len(days) / min(_TICKS, max(2, int(figure.get_figwidth())))))
    shown = range(0, len(days), step)
    one_year = days[0].year == days[-1].year
    axes.set_xticks(list(shown), [f"{days[k].day} {days[k]:{'%b' if one_year else '%b %Y'}}" for k in shown])
    if one_year:
        axes.set_xlabel(str(days[0].year))
    axes.tick_params(labelsize=9)
    return figure


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


def _draw_sun(axes: Axes, found: Activity, sky: Sky) -> None:
    """Lines, broken where the sun stays up or down and where they pass midnight; dashes where days are left out."""
    times: Sequence[SunTimes] = [sun_times(day, *sky.place) for day in found.days]
    at = np.arange(len(times), dtype=np.float64)
    for hours, colour in (([t.rise_h for t in times], _RISE), ([t.set_h for t in times], _SET)):
        local = (np.array(hours) + sky.offset_h) % 24
        if found.has_gaps or len(times) == 1:
            axes.hlines(local, at - 0.5, at + 0.5, color=colour, linewidth=1.8)
            continue
        local[:-1][np.abs(np.diff(local)) > 12] = np.nan
        axes.plot(at, local, color=colour, linewidth=1.8)
