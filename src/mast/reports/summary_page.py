"""``summary.html``: what was found at a glance, one page to send. Pictures are embedded; there is no sound in it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from mast.errors import shorten
from mast.evaluation.corrected_counts import Corrected
from mast.events import as_events
from mast.files import write_atomic
from mast.grid import FrontEnd
from mast.reports.contact_sheet import (
    Locate,
    make_locator,
    make_tiles,
    scale_note,
    sheet_front_end,
    tile_grid,
)
from mast.reports.heat_map import Activity, Observer, compute_activity, draw_activity, sun_note
from mast.reports.html_page import (
    Section,
    cards,
    code,
    figure,
    heading,
    page,
    paragraph,
    side_by_side,
    table,
)
from mast.reports.searched_recordings import (
    NO_CLOCK,
    Place,
    SearchedRecordings,
    describe_clock_differences,
    find_places,
    read_events,
)
from mast.reports.summary_counts import Counts, Sample, correct_total, count_events, count_table
from mast.retrieval.naming import UNKNOWN
from mast.wording import counted, format_hours, format_names

PAGE = "summary.html"
_MAX_ROWS = 40  # of a table on the page
_SHORT_H = 0.1  # of sound in all: below this, rates are per minute
MISSED = "Calls that the detector missed are in no count here, corrected or not."


class Advice(NamedTuple):
    """A next step."""

    what: str
    command: str

    def __str__(self) -> str:
        return f"{self.what}: {self.command}"


@dataclass(frozen=True)
class SummaryContext:
    """What is known besides the counts.

    Attributes:
        places: of sites.
        utc_offset_h: of the recorders' clocks, where given.
        locate: where recordings lie; ``None`` where they are not here.
        sample: what was checked.
        advice: what to do next, and what to type for it.
        maps: maximum number of heat maps.
    """

    places: Mapping[str, Place] = field(default_factory=dict)
    utc_offset_h: float | None = None
    locate: Locate | None = None
    sample: Sample | None = None
    advice: tuple[Advice, ...] = ()
    maps: int = 12


def summary_page(counts: Counts, title: str, context: SummaryContext) -> str:
    """The whole page."""
    total = None if context.sample is None else correct_total(context.sample)
    return page(
        title,
        _lead(counts, context.sample, total),
        [
            Section("When", "when", _when_section(counts, context)),
            Section("Where", "where", _where_section(counts, context.sample)),
            Section(
                "What", "what", _what_section(counts, context.sample) if len(counts.labels) > 1 else Markup()
            ),
            Section("How sure", "sure", _accuracy_section(counts, total, context)),
            Section(
                "The best",
                "best",
                _pictures_section(counts, counts.best, context.locate, "The highest scores."),
            ),
            Section(
                "The doubtful",
                "doubtful",
                _pictures_section(
                    counts, counts.doubtful, context.locate, "Scores nearest the threshold: look here first."
                ),
            ),
            Section("How it was made", "made", _method_section(counts.searched)),
        ],
    )


def write_results_summary(folder: Path, searched: SearchedRecordings) -> None:
    """The page that `mast detect` writes next to its tables: cheap, with a bounded number of pictures."""
    counts = count_events(read_events(folder), searched)
    context = SummaryContext(
        places=find_places(searched),
        locate=None if searched.root is None else make_locator([searched.root]),
        advice=(
            Advice("Look at them and listen", shlex.join(["mast", "review", folder.name])),
            Advice(
                "Tables per hour, day and site, and a sample to check",
                shlex.join(["mast", "summarize", folder.name, "--out", "summary"]),
            ),
        ),
        maps=4,
    )
    title = folder.absolute().name
    write_atomic(folder / PAGE, summary_page(counts, title, context).encode())


def _lead(counts: Counts, sample: Sample | None, total: Corrected | None) -> Markup:
    searched = counts.searched
    n, failed, damaged = (
        len(searched.recordings),
        len(searched.failed),
        int(searched.recordings["damaged"].sum()),
    )
    recordings = "recording" if n == 1 else "recordings"
    lost = "".join(f", {k:,} {what}" for k, what in ((failed, "failed"), (damaged, "damaged")) if k)
    facts = [
        (format_hours(searched.hours), f"searched in {n:,} {recordings}{lost}"),
        (f"{counts.calls:,}", "events found"),
    ]
    if searched.hours > 0:
        unit = _rate_unit(searched)
        facts.append((_format_rate(counts.calls / searched.hours, unit), f"events per {unit} searched"))
    if sample is not None and total is not None and np.isfinite(total.estimate[0]):
        facts.append((f"{total.estimate[0]:,.0f}", _describe_right(counts, sample, total)))
    return paragraph(_describe_span(counts), soft=True) + cards(facts)


def _describe_right(counts: Counts, sample: Sample, total: Corrected) -> str:
    """What the number of events that are right means; an event without a name is right where it was accepted."""
    of, interval, nameless = counted(counts.calls, "event"), f"({_format_interval(total, 0)})", ["", UNKNOWN]
    if not set(counts.labels) & set(nameless):
        return f"of {of} have the right name after correction {interval}"
    said = f"of {of} are right after correction {interval}"
    if set(counts.labels) <= set(nameless):
        return said
    rows = count_table(_merge_sites(counts), "site", sample)
    without = round(rows.loc[rows["label"].isin(nameless), "corrected_calls"].sum())
    return f"{said}: {round(total.estimate[0]) - without:,} with the right name, {without:,} without a name"


def _describe_span(counts: Counts) -> str:
    """Sites and days in words."""
    sites = [site for site in counts.searched.sites if site]
    known = counts.effort.loc[counts.effort["slot"] != NO_CLOCK, "slot"] // 24
    where = f"{'Site' if len(sites) == 1 else 'Sites'} {format_names(sites, 5)}" if sites else "No site given"
    if known.empty:
        return f"{where}; the recordings have no clock time."
    days = [pd.Timestamp(int(day), unit="D") for day in (known.min(), known.max())]
    first, last = (f"{day.day} {day:%B %Y}" for day in days)
    return (
        f"{where}; {first}."
        if first == last
        else f"{where}; {first} to {last}, {known.nunique():,} days with sound."
    )


def _when_section(counts: Counts, context: SummaryContext) -> Markup:
    by = counts.tally.groupby(["site", "label"])["n"].sum()
    clockless = counts.tally[counts.tally["slot"] == NO_CLOCK].groupby(["site", "label"])["n"].sum()
    wanted = sorted(
        ((site, label) for site in counts.searched.sites for label in counts.labels),
        key=lambda pair: (-int(by.get(pair, 0)), pair),
    )
    shown = [pair for pair in wanted if by.get(pair, 0)] or wanted[:1]
    body = paragraph(
        "Events per recorded hour, by date and hour of the recorder's clock. Grey: nothing was recorded.",
        soft=True,
    )
    if differ := describe_clock_differences(counts.searched):
        body += paragraph(differ)
    maps: list[Markup] = []
    drawable = [(*pair, found) for pair in shown if (found := _activity_of(counts, *pair)) is not None]
    for site, label, found in drawable[: context.maps]:
        observer, caveat = _find_observer(counts.searched, site, context)
        name = shorten(site) or "no site"
        what = f", {shorten(label) or 'no label'}" if len(counts.labels) > 1 else ""
        notes = [
            _describe_shown(int(by.get((site, label), 0)), int(clockless.get((site, label), 0))),
            sun_note(found, observer) if observer is not None else "",
            caveat,
            "days without sound are left out" if found.has_gaps else "",
        ]
        caption = "; ".join(note for note in notes if note) + "."
        maps.append(heading(name + what) + figure(draw_activity(found, observer), caption))
    body += side_by_side(maps)
    if not drawable:
        return paragraph("The recordings have no clock time, so activity cannot be shown by date and hour.")
    if len(drawable) > context.maps:
        body += paragraph(
            f"The {context.maps} busiest of {len(drawable)} sites and labels; counts.csv has all.", soft=True
        )
    without_h = counts.effort.loc[counts.effort["slot"] == NO_CLOCK, "recorded_s"].sum() / 3_600
    if without_h:
        body += paragraph(f"{format_hours(without_h)} have no clock time and are in no picture.", soft=True)
    return body


def _describe_shown(events: int, clockless: int) -> str:
    """How many events a picture is about, and how many of them it does not show."""
    without = f", {clockless:,} of them without a clock time (not shown)" if clockless else ""
    return counted(events, "event") + without


def _activity_of(counts: Counts, site: str, label: str) -> Activity | None:
    """By date and hour; ``None`` where the site's recordings have no clock time."""
    effort = counts.effort[counts.effort["site"] == site]
    tally = counts.tally[(counts.tally["site"] == site) & (counts.tally["label"] == label)]
    return compute_activity(effort, tally)


def _find_observer(
    searched: SearchedRecordings, site: str, context: SummaryContext
) -> tuple[Observer | None, str]:
    """Where to compute sunrise and sunset, and what was assumed for it."""
    place = context.places.get(site)
    if place is None:
        return None, ""
    if context.utc_offset_h is not None:
        return Observer(place, context.utc_offset_h), ""
    stated = searched.recordings.loc[searched.recordings["site"] == site, "offset_h"].dropna()
    if len(stated):
        return Observer(place, float(stated.mode().iloc[0])), ""
    guess = round(place.longitude / 15)
    return Observer(
        place, guess
    ), f"the clock's time zone is unknown; UTC{guess:+d} is assumed from the longitude"


def _where_section(counts: Counts, sample: Sample | None) -> Markup:
    rows = count_table(_merge_labels(counts), "site", sample and _drop_labels(sample))
    unit = _rate_unit(counts.searched)
    header = ["site", "recordings", "sound", "failed", "days", "events", f"per {unit}"]
    n = counts.searched.recordings.groupby("site").size()
    timed = counts.effort[(counts.effort["slot"] != NO_CLOCK) & (counts.effort["recorded_s"] > 0)]
    days = (timed["slot"] // 24).groupby(timed["site"]).nunique()
    if sample is not None:
        header.append("corrected (95 %)")
    cells = [
        [
            shorten(row["site"]) or "no site",
            f"{int(n.get(row['site'], 0)):,}",
            format_hours(row["recorded_hours"]),
            f"{row['failed_recordings']:,}",
            f"{int(days.get(row['site'], 0)):,}",
            f"{row['calls']:,}" if row["site"] in n else "–",  # no zero where nothing could be heard
            _format_rate(row["calls_per_hour"], unit),
            *([_format_corrected(row)] if sample is not None else []),
        ]
        for row in rows.head(_MAX_ROWS).to_dict("records")
    ]
    more = paragraph(f"The first {_MAX_ROWS} of {len(rows)} sites; sites.csv has all.", soft=True)
    return table(header, cells) + (more if len(rows) > _MAX_ROWS else Markup())


def _merge_labels(counts: Counts) -> Counts:
    """The same counts without their labels."""
    return replace(counts, labels=[""], tally=counts.tally.assign(label=""))


def _merge_sites(counts: Counts) -> Counts:
    """The same counts without their sites."""
    searched = replace(
        counts.searched,
        recordings=counts.searched.recordings.assign(site=""),
        failed=counts.searched.failed.assign(site=""),
    )
    return replace(
        counts, searched=searched, effort=counts.effort.assign(site=""), tally=counts.tally.assign(site="")
    )


def _drop_labels(sample: Sample) -> Sample:
    return replace(sample, rows=sample.rows.assign(label=""))


def _what_section(counts: Counts, sample: Sample | None) -> Markup:
    rows = count_table(_merge_sites(counts), "site", sample).sort_values("calls", ascending=False)
    unit = _rate_unit(counts.searched)
    header = ["label", "events", f"per {unit}", *(["corrected (95 %)"] if sample is not None else [])]
    cells = [
        [
            shorten(row["label"]) or "no label",
            f"{row['calls']:,}",
            _format_rate(row["calls_per_hour"], unit),
            *([_format_corrected(row)] if sample is not None else []),
        ]
        for row in rows.head(_MAX_ROWS).to_dict("records")
    ]
    more = paragraph(f"The first {_MAX_ROWS} of {len(rows)} labels; sites.csv has all.", soft=True)
    return table(header, cells) + (more if len(rows) > _MAX_ROWS else Markup())


def _accuracy_section(counts: Counts, total: Corrected | None, context: SummaryContext) -> Markup:
    if not counts.calls:
        return Markup()
    body = Markup()
    if context.sample is not None and total is not None:
        checked, right = int(context.sample.strata.checked.sum()), int(context.sample.strata.right.sum())
        body += paragraph(
            f"Of {checked:,} events that were drawn at random and checked, {right:,} are right."
        )
        if np.isfinite(total.estimate[0]):
            share = total.estimate[0] / counts.calls
            body += paragraph(
                f"So about {total.estimate[0]:,.0f} of the {counts.calls:,} events are right ({share:.0%}; 95 % "
                f"interval {_format_interval(total, 0)}). {_explain_intervals(counts, context.sample)}"
            )
    else:
        body += paragraph("Some of these are false alarms. Nobody has checked how many.")
    for advice in context.advice:
        body += paragraph(f"{advice.what}:") + code(advice.command)
    return body + paragraph(MISSED, soft=True)


def _explain_intervals(counts: Counts, sample: Sample) -> str:
    """Which rows have their own interval."""
    rare = ", and of a rare label," if len(counts.labels) > 1 else ""
    if sample.by_site:
        return (
            "Each site has a sample of its own, so its interval is its own. The row of a single hour or day"
            f"{rare} is corrected by the shares of its site: where it rains, more is wrong than its row says."
        )
    return (
        f"The interval is for all events together. The row of a single site or hour{rare} is corrected by the same "
        "shares: where it rains, more is wrong than its row says."
    )


def _pictures_section(counts: Counts, events: pd.DataFrame, locate: Locate | None, note: str) -> Markup:
    if events.empty:
        return Markup()
    if locate is None:
        return paragraph("The recordings are not on this machine, so there are no pictures.", soft=True)
    shown = as_events(events.drop(columns="order"))
    band = counts.searched.run.band_hz
    front_end = sheet_front_end(shown) if band is None else FrontEnd.for_band(band[1])
    tiles = make_tiles(shown, locate, front_end=front_end, sound=False)
    problems = [tile.problem for tile in tiles if tile.problem]
    if len(problems) == len(tiles):
        return paragraph(f"There are no pictures: {shorten(problems[0])}.", soft=True)
    scale = scale_note(shown, front_end)
    return paragraph(f"{note} {scale[0].upper()}{scale[1:]}.", soft=True) + tile_grid(tiles)


def _method_section(searched: SearchedRecordings) -> Markup:
    run = searched.run
    rows = [
        ["model", f"{run.model} ({run.model_id})" if run.model else run.model_id],
        ["minimum score", "unknown" if run.threshold is None else f"{run.threshold:.3g}"],
        ["band", "unknown" if run.band_hz is None else f"{run.band_hz[0]:g}–{run.band_hz[1]:g} Hz"],
    ]
    return table(["detector", ""], rows, words=(0, 1))


def _format_corrected(row: Mapping[Any, Any]) -> str:
    estimate, low, high = (float(row[f"corrected_{name}"]) for name in ("calls", "low", "high"))
    return "–" if np.isnan(estimate) else f"{estimate:,.0f} ({low:,.0f}–{high:,.0f})"


def _format_interval(total: Corrected, row: int) -> str:
    return f"{total.low[row]:,.0f}–{total.high[row]:,.0f}"


def _rate_unit(searched: SearchedRecordings) -> str:
    """The unit of time for rates: for a few minutes of sound, a rate per hour suggests far more."""
    return "hour" if searched.hours >= _SHORT_H else "minute"


def _format_rate(per_hour: float, unit: str) -> str:
    rate = per_hour / 60 if unit == "minute" else per_hour
    if np.isnan(rate):
        return "–"
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}" if rate >= 1 else f"{rate:.2g}"
