"""The data of a run, by site and by hour of the day: tables and one picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from mast.arrays import FloatArray
from mast.data.recordings import Dataset, parse_clock
from mast.reports.spectrogram import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SECONDS_UP_TO_S = 5 * 60.0  # our choice
_MINUTES_UP_TO_S = 3 * 3600.0  # our choice
_HEARD_COLOUR, _UNHEARD_COLOUR, _BOXES_COLOUR = "#2b7a78", "#c3ced6", "#b5542c"


class TimeUnit(NamedTuple):
    """The unit in which sound is counted."""

    plural: str
    singular: str
    seconds: float


class HourlyTotals(NamedTuple):
    """Something counted by hour of the day."""

    by_hour: FloatArray  # (24,)
    unknown: float  # of recordings whose clock time is unknown


def sites_table(datasets: Sequence[tuple[str, Dataset]]) -> list[list[str]]:
    """One row per site and kind, with the columns of :func:`sites_header`."""
    rows: list[list[str]] = []
    time = time_unit(datasets)
    for kind, dataset in datasets:
        table = dataset.recordings
        reviewed = _reviewed(dataset) if kind == "labelled" else _reviewed(dataset).iloc[:0]
        events = dataset.annotations.events if kind == "labelled" else dataset.annotations.events.iloc[:0]
        site_of = dict(zip(table["file"], table["site"].replace("", "unknown"), strict=True))
        heard_s = reviewed["seconds"].groupby(reviewed["recording"].map(site_of)).sum()
        boxes = events["recording"].map(site_of).value_counts()
        for site, own in table.groupby(table["site"].replace("", "unknown")):
            days = {text[:10] for text in own["datetime"] if text}
            long_s, listened_s = float(own["duration_s"].sum()), float(heard_s.get(site, 0.0))
            n = int(boxes.get(site, 0))
            labelled = kind == "labelled"
            rows.append(
                [
                    str(site),
                    kind,
                    f"{len(own):,}",
                    f"{len(days):,}" if days else "unknown",
                    f"{long_s / time.seconds:,.1f}",
                    f"{listened_s / time.seconds:,.1f}" if labelled else "–",
                    f"{n:,}" if labelled else "–",
                    f"{n / listened_s * time.seconds:,.1f}" if labelled and listened_s else "–",
                ]
            )
    return rows


def sites_header(datasets: Sequence[tuple[str, Dataset]]) -> list[str]:
    """Names of the columns of :func:`sites_table`."""
    plural, singular, _ = time_unit(datasets)
    counted = [f"{plural} of sound", f"{plural} listened to", "boxes", f"boxes per {singular} listened to"]
    return ["site", "kind", "recordings", "days", *counted]


def time_unit(datasets: Sequence[tuple[str, Dataset]]) -> TimeUnit:
    """Seconds or minutes for a little sound, hours for more."""
    total_s = sum(float(dataset.recordings["duration_s"].sum()) for _, dataset in datasets)
    if total_s <= _SECONDS_UP_TO_S:
        return TimeUnit("seconds", "second", 1.0)
    if total_s <= _MINUTES_UP_TO_S:
        return TimeUnit("minutes", "minute", 60.0)
    return TimeUnit("hours", "hour", 3600.0)


def sound_by_hour(dataset: Dataset) -> HourlyTotals:
    """Hours of sound in each hour of the day."""
    spans = zip(
        dataset.recordings["datetime"], [0.0] * len(dataset), dataset.recordings["duration_s"], strict=True
    )
    return _hours_by_clock(spans)


def reviewed_by_hour(dataset: Dataset) -> HourlyTotals:
    """Hours that were listened to in each hour of the day."""
    clock = dict(zip(dataset.recordings["file"], dataset.recordings["datetime"], strict=True))
    spans = _reviewed(dataset)
    return _hours_by_clock(zip(spans["recording"].map(clock), spans["start_s"], spans["end_s"], strict=True))


def boxes_by_hour(dataset: Dataset) -> HourlyTotals:
    """Boxes that begin in each hour of the day."""
    counts, unknown = np.zeros(24), 0.0
    for text in dataset.annotations.events["datetime"]:
        time = parse_clock(text)
        if time is None:
            unknown += 1
        else:
            counts[time.hour] += 1
    return HourlyTotals(counts, unknown)


def hours_figure(datasets: Sequence[tuple[str, Dataset]]) -> Figure | None:
    """Sound by hour of the day, labelled and unlabelled, and boxes per hour; None where no clock time is known."""
    labelled = next(dataset for kind, dataset in datasets if kind == "labelled")
    others = [dataset for kind, dataset in datasets if kind != "labelled"]
    sound, heard, boxes = sound_by_hour(labelled), reviewed_by_hour(labelled), boxes_by_hour(labelled)
    further = sum((sound_by_hour(dataset).by_hour for dataset in others), np.zeros(24))
    if not (sound.by_hour.any() or further.any()):
        return None
    figure = new_figure(10, 2.5 * (3 if others else 2))
    axes = figure.subplots(3 if others else 2, 1, sharex=True, squeeze=False)[:, 0]
    hour, time = np.arange(24), time_unit(datasets)
    per_hour = 3600.0 / time.seconds
    unheard = np.clip(sound.by_hour - heard.by_hour, 0, None)
    axes[0].bar(hour, heard.by_hour * per_hour, color=_HEARD_COLOUR, width=0.85, label="listened to")
    bottom = heard.by_hour * per_hour
    axes[0].bar(
        hour, unheard * per_hour, bottom=bottom, color=_UNHEARD_COLOUR, width=0.85, label="not listened to"
    )
    axes[0].set_ylabel(f"{time.plural} of sound")
    axes[0].set_title("Labelled recordings", loc="left", fontsize=11)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(heard.by_hour > 0, boxes.by_hour / (heard.by_hour * per_hour), 0.0)
    axes[1].bar(hour, rate, color=_BOXES_COLOUR, width=0.85)
    axes[1].set_ylabel(f"boxes per {time.singular}")
    axes[1].set_title(f"Boxes per {time.singular} listened to", loc="left", fontsize=11)
    if others:
        axes[2].bar(hour, further * per_hour, color=_UNHEARD_COLOUR, width=0.85)
        axes[2].set_ylabel(f"{time.plural} of sound")
        axes[2].set_title("Unlabelled recordings", loc="left", fontsize=11)
    if unheard.sum() > 1e-6 * max(sound.by_hour.sum(), 1e-9):
        axes[0].legend(
            frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1
        )
    for axis in axes:
        axis.set_xlim(-0.6, 23.6)
        axis.set_xticks(range(0, 24, 2), [f"{h:02d}" for h in range(0, 24, 2)])
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelbottom=True)
    axes[-1].set_xlabel("hour of the day (the recorder's clock)")
    return figure


def _reviewed(dataset: Dataset) -> pd.DataFrame:
    spans = dataset.annotations.reviewed
    return spans.assign(seconds=(spans["end_s"] - spans["start_s"]).clip(lower=0.0))


def _hours_by_clock(spans: Iterable[tuple[str, float, float]]) -> HourlyTotals:
    """(clock at the recording's start, from, to in seconds) → hours in each hour of the day."""
    counts, unknown = np.zeros(24), 0.0
    for text, start_s, end_s in spans:
        began = parse_clock(text)
        left_s = float(end_s - start_s)
        if began is None:
            unknown += left_s / 3600
            continue
        now = began + timedelta(seconds=float(start_s))
        while left_s > 1e-9:
            step_s = min(left_s, _seconds_to_full_hour(now))
            counts[now.hour] += step_s / 3600
            now += timedelta(seconds=step_s)
            left_s -= step_s
    return HourlyTotals(counts, unknown)


def _seconds_to_full_hour(time: datetime) -> float:
    past_s = time.minute * 60 + time.second + time.microsecond / 1e6
    return max(3600.0 - past_s, 1e-3)  # never 0, or rounding could keep the loop from ending
