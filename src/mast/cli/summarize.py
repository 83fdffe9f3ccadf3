"""`mast summarize`: from boxes to calls per hour, day and site."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.event_files import locate_recordings
from mast.cli.options import AudioFolder, Quiet, count, lock_folder, number, say
from mast.wording import counted, format_hours

if TYPE_CHECKING:
    import pandas as pd

    from mast.evaluation.corrected_counts import SiteStrata, Strata
    from mast.reports.searched_recordings import Place, SearchedRecordings
    from mast.reports.summary_page import Advice
    from mast.review.sample import CheckProgress

_TABLES = {"counts": "hour", "days": "day", "sites": "site"}  # table → its finest column
_OUTPUT_FILES = {*(f"{name}.csv" for name in _TABLES), "summary.xlsx", "summary.html"}
_SAMPLE_ERROR = 0.15  # error of the sample that is advised; our choice: about an evening's checking


def summarize(
    detections: Annotated[Path, typer.Argument(help="Folder of mast detect.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the summary; an earlier one is replaced.")
    ],
    names: Annotated[
        Path | None,
        typer.Option(help="Count by the names in this table of mast name or mast classify."),
    ] = None,
    check: Annotated[
        int | None, count(help="Draw this many events to check in mast review, to correct the counts.")
    ] = None,
    each_site: Annotated[
        bool,
        typer.Option(
            "--each-site", help="Draw that many at each site, so that each site has its own interval."
        ),
    ] = False,
    latitude: Annotated[
        float | None,
        number("--latitude", low=-90, high=90, help="Latitude of the sites in degrees, north positive."),
    ] = None,
    longitude: Annotated[
        float | None,
        number("--longitude", low=-180, high=180, help="Longitude of the sites in degrees, east positive."),
    ] = None,
    utc_offset: Annotated[
        float | None,
        number(
            "--utc-offset",
            low=-14,
            high=14,
            help="UTC offset of the recorders' clocks in hours; by default, what their headers say.",
        ),
    ] = None,
    audio: AudioFolder = None,
    quiet: Quiet = False,
) -> None:
    """Count calls per hour, day and site, with the effort behind them.

    Writes counts.csv, one row per site, day, hour and label, zeros included: hours recorded, recordings that failed,
    calls, calls per recorded hour. days.csv and sites.csv hold the same per day and site, summary.xlsx all three.
    summary.html is a page to send: activity by hour and date, and pictures of the best and the doubtful events. It
    shows sunrise and sunset where a place is known: from the headers of the recordings, columns latitude and longitude
    of their recordings.csv, or --latitude and --longitude for all sites.

    With --names the label of a box is the name that mast name or mast classify gave it. A box that is not in that table
    is "unknown". Give mast review the same table, so that names are checked, too.

    Not all detections are right. --check 60 draws 60 of them at random within bands of score, and remembers them in
    DETECTIONS/to_check.csv. Decide about each in mast review (order "Sample to check"), run mast summarize again, and
    the tables also hold corrected counts with 95 % intervals. Only events drawn this way count: those checked because
    they looked doubtful say nothing about the rest. False alarms are corrected; missed calls stay missed. To compare
    sites, draw with --check 30 --each-site: each site is then corrected by its own sample.

    \b
    Examples:
      mast summarize detections/ --out summary
      mast summarize detections/ --out summary --check 60
      mast summarize detections/ --out summary --names named.csv
    """
    from mast.errors import AnnotationError, ConfigError
    from mast.files import write_atomic
    from mast.reports.searched_recordings import (
        describe_clock_differences,
        read_events,
        read_searched_recordings,
    )
    from mast.reports.summary_counts import count_events, count_table
    from mast.reports.summary_page import PAGE, SummaryContext, summary_page
    from mast.reports.workbook import write_workbook
    from mast.retrieval.naming import read_names
    from mast.review.sample import count_sampled_sites, draw_sample, read_check_progress
    from mast.table_files import write_table

    if (latitude is None) != (longitude is None):
        raise ConfigError("--latitude and --longitude belong together; give both, or neither")
    if each_site and check is None:
        raise ConfigError("--each-site needs --check; give both, as in --check 30 --each-site")
    if detections.is_file():
        raise ConfigError(
            f"{detections}: is a file; expected a results folder of mast detect (a table of names goes with --names)"
        )
    _check_output_folder(out)
    _report_step("reading the detections", 0)
    heard = read_searched_recordings(detections)
    named = None if names is None else read_names(names)
    by_site = each_site or (check is None and count_sampled_sites(detections) > 0)
    strata, unnamed = _make_strata(detections, named, by_site)
    if names is not None and unnamed:
        _report_unnamed(unnamed, int(strata.sizes.sum()), names, detections, quiet)
    if check is not None and not len(strata):
        raise AnnotationError(
            f"{detections}: holds no events, so there is nothing to check; leave --check out"
        )
    if check is not None:
        draw_sample(detections, read_events(detections, named), strata, check)
    checking = read_check_progress(detections, read_events(detections, named), strata)
    _report_step("counting calls", 1)
    counts = count_events(read_events(detections, named), heard, strata=strata)
    tables: dict[str, pd.DataFrame] = {
        name: count_table(counts, level, checking.sample)  # type: ignore[arg-type]
        for name, level in _TABLES.items()
    }
    options = {
        "--names": names,
        "--latitude": latitude,
        "--longitude": longitude,
        "--utc-offset": utc_offset,
        "--audio": audio,
    }
    given = [str(word) for option in options.items() if option[1] is not None for word in option]
    command = shlex.join(["mast", "summarize", str(detections), "--out", str(out), *given])
    advice = _advice(strata, checking, detections, command, names)
    surroundings = SummaryContext(
        places=_places(heard, latitude, longitude),
        utc_offset_h=utc_offset,
        locate=None if audio is None and heard.root is None else locate_recordings(detections, audio),
        sample=checking.sample,
        advice=advice,
    )
    _report_step("drawing the pictures", 2)
    with lock_folder(out):
        for name, table in tables.items():
            write_table(out / f"{name}.csv", table)
        for name in write_workbook(out / "summary.xlsx", tables):
            say(
                f"{name}.csv has {len(tables[name]):,} rows, too many for a sheet, so summary.xlsx leaves it out",
                quiet=quiet,
            )
        write_atomic(out / PAGE, summary_page(counts, detections.absolute().name, surroundings).encode())
    if differ := describe_clock_differences(heard):
        say(differ, quiet=quiet)
    for step in advice:
        say(str(step), quiet=quiet)
    typer.echo(f"{counted(counts.calls, 'event')} in {format_hours(heard.hours)} → {out / PAGE}.")


def _report_step(what: str, done: int) -> None:
    """Report which of three steps is running, for a page that waits."""
    from mast.cli.reporting import current_report

    current_report().update(what, done, 3, "steps", None)


def _places(heard: SearchedRecordings, latitude: float | None, longitude: float | None) -> dict[str, Place]:
    from mast.reports.searched_recordings import Place, find_places

    if latitude is not None and longitude is not None:
        return dict.fromkeys(heard.sites, Place(latitude, longitude))
    return find_places(heard)


def _check_output_folder(out: Path) -> None:
    from mast.errors import ConfigError

    if out.is_dir() and any(
        path.name not in _OUTPUT_FILES and not path.name.startswith(".") for path in out.iterdir()
    ):
        raise ConfigError(f"--out {out}: holds other files than a summary; choose a new --out")


def _make_strata(
    detections: Path, names: pd.DataFrame | None, by_site: bool
) -> tuple[Strata | SiteStrata, int]:
    """Strata of all events by label and score, perhaps at each site; and how many events are not among the names.

    Only these three columns are held in memory.
    """
    import numpy as np

    from mast.evaluation.corrected_counts import stratify, stratify_by_site
    from mast.reports.searched_recordings import read_events

    parts, unnamed = [], 0
    for batch in read_events(detections, names):
        dtypes = {"label": object, "score": np.float64, "site": object}
        parts.append([batch[name].to_numpy(dtype=dtype) for name, dtype in dtypes.items()])
        unnamed += 0 if names is None else int((~batch["in_names"]).sum())
    if not parts:
        return stratify(np.empty(0, dtype=object), np.empty(0)), 0
    labels, scores, sites = (np.concatenate(column) for column in zip(*parts, strict=True))
    return (stratify_by_site(labels, scores, sites) if by_site else stratify(labels, scores)), unnamed


def _report_unnamed(unnamed: int, total: int, names: Path, detections: Path, quiet: bool) -> None:
    """Say how many events are not among the names; refuse names of other detections."""
    from mast.errors import ConfigError

    if unnamed == total:
        raise ConfigError(
            f"--names {names}: holds none of the events in {detections}; expected names of these detections"
        )
    say(
        f"{names} has no names for {unnamed:,} of {counted(total, 'event')}: they count as unknown; run mast name or "
        "mast classify again",
        quiet=quiet,
    )


def _advice(
    strata: Strata | SiteStrata, checking: CheckProgress, detections: Path, rerun: str, names: Path | None
) -> tuple[Advice, ...]:
    """What to do next for counts one can trust; ``rerun`` is the command that was run."""
    from mast.evaluation.corrected_counts import sample_size
    from mast.reports.summary_page import Advice
    from mast.review.sample import count_sampled_sites, reviewed_names_path, was_drawn_with_names

    if not len(strata):
        return ()
    review = shlex.join(
        ["mast", "review", str(detections), *([] if names is None else ["--names", str(names)])]
    )
    if checking.outdated and names is None and was_drawn_with_names(detections):
        what = "The sample was drawn with names. Run it with --names FILE, as when the sample was drawn"
        known = reviewed_names_path(detections)
        command = f"{rerun} --names {'FILE' if known is None else shlex.quote(str(known))}"
    elif checking.outdated:
        what = "The events or their names have changed since the sample was drawn. Draw it again; decisions are kept"
        sites = count_sampled_sites(detections)
        each = f"{math.ceil(checking.drawn / sites)} --each-site" if sites else f"{checking.drawn}"
        command = f"{rerun} --check {each}"
    elif checking.unnamed and checking.unnamed == checking.open:
        what = (
            f"{counted(checking.unnamed, 'event')} to check {'was' if checking.unnamed == 1 else 'were'} accepted "
            "without a name. Type the right names, then run mast summarize again"
        )
        command = review
    elif checking.open:
        what = (
            f"{checking.open:,} of {checking.drawn:,} events to check are still open. Decide about them (order “Sample "
            "to check”), then run mast summarize again"
        )
        command = review
    elif checking.sample is None:
        size = sample_size(strata.sizes, strata.expected, _SAMPLE_ERROR)
        what = f"Check {size:,} events to know the share of right calls to about ± {_SAMPLE_ERROR:.0%}"
        command = f"{rerun} --check {size}"
    else:
        return ()
    return (Advice(what, command),)
