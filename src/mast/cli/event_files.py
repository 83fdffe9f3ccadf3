"""Events from whatever a user points at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mast.cli.options import EXIT_SOME_FAILED, say

if TYPE_CHECKING:
    import pandas as pd

    from mast.annotations import AnnotationSet
    from mast.grid import FrontEnd
    from mast.reports.contact_sheet import Locate


def read_event_file(path: Path, known: pd.DataFrame | None) -> AnnotationSet:
    """Read annotations in any format, also the folder that `mast detect` writes.

    ``known`` recordings are used only where a format cannot be read without their durations or rates: names
    stay as written, so that the caller decides what they mean.
    """
    from mast.annotations import read_annotations
    from mast.errors import AnnotationError

    try:
        return read_annotations(path)
    except AnnotationError:
        if known is None:
            raise
        return read_annotations(path, recordings=known)


def front_end_of(band: float | None, *predictions: Path | None) -> FrontEnd | None:
    """The front end of the given band, or of the band of the first of these results that `mast detect` wrote."""
    from mast.annotations.detections import find_run
    from mast.grid import FrontEnd

    if band is not None:
        return FrontEnd.for_band(band)
    for path in predictions:
        run = None if path is None else find_run(path)
        if run is not None and run.band_hz is not None:
            return FrontEnd.for_band(run.band_hz[1])
    return None


def cut_to_nyquist(annotations: AnnotationSet, what: str, source: Path, *, quiet: bool) -> AnnotationSet:
    """Cut boxes to half the sample rate, where that is known; says what was cut or left out."""
    if warning := annotations.nyquist_warning(what):
        say(f"mast: warning: {source}: {warning}", quiet=quiet)
    return annotations.clipped_to_nyquist()


def locate_recordings(boxes: Path, audio: Path | None) -> Locate:
    """Where to find the recordings of events: in ``audio``, else where detect found them, else next to the events."""
    from mast.annotations.detections import read_run
    from mast.errors import ConfigError, not_a_folder
    from mast.reports.contact_sheet import make_locator

    if audio is not None and not audio.is_dir():
        raise ConfigError(f"--audio {audio}: {not_a_folder(audio)}; expected the folder of the recordings")
    if audio is None:
        folder = boxes if boxes.is_dir() else boxes.parent
        run = read_run(folder)
        audio = folder if run is None else Path(run.root)
    if not audio.is_dir():
        raise ConfigError(f"{audio}: no such folder of recordings; say where they are with --audio")
    return make_locator([audio])


def check_table(out: Path) -> None:
    """Refuse, before any work, what is not the name of a table or cannot be written."""
    from mast.errors import ConfigError
    from mast.files import check_writable

    if out.suffix.lower() not in (".csv", ".parquet"):
        raise ConfigError(f"{out}: expected the name of a table, ending in .csv or .parquet")
    check_writable(out)


def process_recordings(
    events: pd.DataFrame,
    locate: Locate,
    work: Callable[[Path, pd.DataFrame], pd.DataFrame],
    advance: Callable[[int], None],
) -> tuple[list[pd.DataFrame], dict[str, str]]:
    """What ``work`` returns for each recording and its events, and by recording why it failed.

    ``advance`` gets the number of events of each recording.
    """
    from mast.errors import AudioError, ConfigError
    from mast.reports.contact_sheet import recording_not_found

    results, failures = [], {}
    for name, own in events.groupby("recording", sort=False):
        path = locate(str(name))
        try:
            if path is None:
                raise recording_not_found(str(name))
            results.append(work(path, own))
        except (AudioError, ConfigError) as error:
            failures[str(name)] = str(error)
        advance(len(own))
    return results, failures


def report_outcome(sentence: str, failures: Mapping[str, str], *, quiet: bool) -> None:
    """Say what was done, and what could not be read: ``failures`` holds the reasons by recording."""
    for why in list(failures.values())[:3]:
        say(f"mast: warning: {why}", quiet=quiet)
    unread = f"; recordings that are missing or cannot be read: {len(failures):,}" if failures else ""
    typer.echo(f"{sentence}{unread}.")
    if failures:
        raise typer.Exit(EXIT_SOME_FAILED)
