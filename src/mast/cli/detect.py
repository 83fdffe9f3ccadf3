"""`mast detect`: boxes for every recording."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

import typer

from mast.cli.options import (
    EXIT_SOME_FAILED,
    BatchSize,
    BoxName,
    Device,
    Join,
    Quiet,
    count,
    lock_folder,
    progress_bar,
    resumable,
    say,
    score,
    upper_edge,
)
from mast.wording import counted

if TYPE_CHECKING:
    from mast.archive.crew import Engine
    from mast.archive.locations import Recording
    from mast.archive.worker import DetectorSpec
    from mast.inference.results import ResultsFolder, Totals

# a test compares with FORMATS
_FORMATS = "csv, parquet, raven, audacity, coco, yolo, aoef, kaleidoscope, birdeep"
# sound that reaches four times the band searched, or only half of it, is reported: birds at 48 kHz are neither, and
# bats at 192 kHz reach three quarters of --band bats
_FAR_ABOVE, _FAR_BELOW = 4, 2
EngineName = Literal["local", "ray"]  # who does the work
_PARTITIONED = "partitioned"  # not an annotation format: a Parquet dataset for DuckDB, pandas, Spark


def detect(
    recordings: Annotated[
        list[str],
        typer.Argument(
            metavar="RECORDINGS…",
            help="Recordings and folders, searched with all subfolders; or URIs such as s3://bucket/survey.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the results; a stopped run there resumes.")
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="A run of mast fit or mast train, a model folder, hf://owner/name; the embedded model by default.",
        ),
    ] = "default",
    formats: Annotated[
        str, typer.Option(help=f"What to write, separated by commas: {_FORMATS}, {_PARTITIONED}.")
    ] = "csv,parquet",
    threshold: Annotated[
        float | None,
        score(help="Minimum score of an event, as in the tables; the model's own by default."),
    ] = None,
    precision: Annotated[
        float | None,
        score(
            help="Instead of a threshold: the one that reached this precision on the model's own validation recordings."
        ),
    ] = None,
    band: Annotated[
        float | None,
        upper_edge(help="Upper edge of the band to search; the model's own by default."),
    ] = None,
    box: Annotated[
        BoxName | None,
        typer.Option(
            help="all of a call, or its strongest harmonic without echo; by default what the model learnt, else all, "
            "but strongest where a model trained on lower sounds searches above 50 kHz."
        ),
    ] = None,
    join: Join = None,
    hop: Annotated[float, score(help="Step from window to window as a share of the window.")] = 0.75,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough",
            help="Listen at three playing speeds and merge what is found: better at new places, three times slower.",
        ),
    ] = False,
    batch: BatchSize = None,
    device: Device = None,
    embed: Annotated[
        bool, typer.Option("--embed", help="Also write embeddings.npy, the encoder's features of each event.")
    ] = False,
    compile: Annotated[
        bool | None,
        typer.Option(
            help="Compile the model for the GPU first: slow start, then faster; on by default for MAST on CUDA."
        ),
    ] = None,
    shard: Annotated[
        str,
        typer.Option(metavar="I/N", help="Search only every N-th recording, from the I-th; I counts from 0."),
    ] = "0/1",
    engine: Annotated[
        EngineName,
        typer.Option(help="local: this machine. ray: the cluster at RAY_ADDRESS, or Ray on this machine."),
    ] = "local",
    workers: Annotated[
        int | None,
        count(
            high=10_000,
            help="Processes that search side by side; local: 1 by default, ray: all GPUs, or all CPUs, of the cluster.",
        ),
    ] = None,
    tables: Annotated[
        bool,
        typer.Option(
            help="Make the tables of all recordings; --no-tables for shards, if a last run makes them."
        ),
    ] = True,
    summary: Annotated[
        bool, typer.Option(help="With the tables, also make summary.html: what was found, at a glance.")
    ] = True,
    quiet: Quiet = False,
) -> None:
    """Find the sounds in recordings of any length, as time–frequency boxes.

    Writes detections.parquet and detections.csv for all recordings, a folder for each other format, failures.csv,
    run.json, and summary.html, a page that shows what was searched and found; with --embed also embeddings.npy, whose
    row k belongs to row k of detections.parquet. The results of each recording are saved as soon as it is done: run
    the same command again after a stop and it resumes, without losing or duplicating anything. Tables are written
    again each time; if you have changed detections.csv or a file in raven/, yours are kept as detections.earlier.csv
    and raven.earlier/.
    Results of another model or other settings are never mixed into one folder; only --threshold may be raised
    later, which filters the tables at once. Shards may share one folder, and run at the same time.

    --formats partitioned writes a Parquet dataset by site and date, for DuckDB, pandas and the like. --workers 4
    searches with four processes; one that dies is replaced, and a recording that crashes its worker twice is listed as
    failed. --engine ray does the same on a cluster. docs/scaling.md says what large archives need.

    The score of an event is the probability that it is right, where the model was calibrated (mast train does
    that on validation recordings), and --threshold is in the same scores. --precision 0.9 takes the lowest
    threshold at which nine in ten were right on the model's validation recordings, says which recordings those
    were, and stops if no threshold was that good. Expect less at other sites. The embedded model was calibrated on
    clips that a vision-language model boxed and nobody checked: with it, check a sample of your own before you trust
    the figure.

    --thorough plays each recording at its own speed, faster and slower, and merges what is found. Most calls are found
    at every speed and most false alarms at only one, so calls are ranked better. It helps with recorders that the model
    does not know, and can do harm with those it was trained on. It takes three times as long and gives no embeddings;
    mast embed --model adds them afterwards.

    Experts differ in what they draw as one box. --box strongest cuts each box down to the strongest harmonic, without
    the others and without echo: good for bats, bad for birds and fish. --box all leaves the whole call, and --join 0.3
    merges boxes in a similar band with gaps of at most 0.3 s. Without these options boxes are drawn as the model
    learnt from your boxes (mast fit --init default), and otherwise as the model gives them; the exception is a model
    trained on lower sounds that searches above 50 kHz, as the embedded one does with --band bats: there the default is
    strongest.

    Recordings that cannot be read are listed with reasons in failures.csv and tried again next time; those
    whose sound ends early are searched as far as they go, and listed as damaged.

    Sites and times in a dataset's recordings.csv take precedence over those in headers and names.

    Exit code: 0 when all were searched, 4 when some failed, 2 when none could be searched.

    \b
    Examples:
      mast detect recordings/ --out detections
      mast detect recordings/ --model runs/detector --out detections --formats csv,raven
      mast detect hydrophone/ --band fish --out detections
      mast detect bats/ --band bats --out detections
      mast detect recordings/ --thorough --out detections
      mast detect bats/ --band bats --box all --out whole_calls
    """
    from mast.archive.locations import list_recordings
    from mast.archive.worker import DetectorSpec
    from mast.detect_options import DetectOptions
    from mast.errors import AudioError, ConfigError
    from mast.inference.results import ResultsFolder
    from mast.models.find import model_warning
    from mast.uris import is_uri

    wanted = _parse_formats(formats)
    part, parts = _parse_shard(shard)
    if is_uri(str(out).replace(":/", "://", 1)):  # a Path drops the second slash
        raise ConfigError(
            f"--out {out}: results must be on a local or shared disk; copy them to cloud storage afterwards"
        )
    listing = list_recordings(recordings)
    mine = listing.recordings[part::parts]
    options = DetectOptions(
        device=device,
        threshold=threshold,
        precision_target=precision,
        hop=hop,
        thorough=thorough,
        batch_size=batch,
        embed=embed,
        compile=compile,
        band_hz=band,
        box=box,
        join_s=join,
    )
    with (
        resumable(out),
        lock_folder(out, f".shard-{part}-of-{parts}.lock"),
        _make_engine(engine, DetectorSpec(model, options), workers) as running,
    ):
        facts = running.facts
        results = ResultsFolder(
            out,
            facts.settings,
            listing.root,
            options=options,
            model=_absolute_name(model),
            band_hz=facts.band_hz,
            inputs=[_absolute_name(given) for given in recordings],
            operating_point=facts.operating_point,
            size_of=listing.size_of(),
        )
        if doubt := model_warning(model):
            say(f"mast: warning: {doubt}", quiet=quiet)
        if facts.sentence:
            say(facts.sentence, quiet=quiet)
        failures = _search(running, results, _pending_recordings(results, mine, quiet), quiet)
    totals = results.combine(wanted, listing.unlisted) if tables else None
    if totals is not None:
        for earlier in totals.kept:
            say(f"mast: warning: {earlier}", quiet=False)
        if summary:
            _write_summary(results, totals, quiet)
    if mine and len(failures) == len(mine):
        raise AudioError(f"no recording can be read ({len(mine):,} tried); the first: {failures[0]}")
    damaged = sum(results.is_damaged(recording.source) for recording in mine)
    typer.echo(_closing_line(out, totals, len(mine), len(failures), damaged, len(listing.unlisted)))
    if totals is not None and totals.events:
        say(f"Next: {shlex.join(['mast', 'review', str(out)])}", quiet=quiet)
    if totals is not None:
        if hint := _suggest_band([one["sample_rate"] / 2 for one in totals.searched], facts.band_hz[1]):
            say(hint, quiet=quiet)
        _warn_of_stale_results(
            results, totals, {one.source.recording for one in listing.recordings}, wanted, quiet
        )
    if failures or listing.unlisted:
        raise typer.Exit(EXIT_SOME_FAILED)


def _warn_of_stale_results(
    results: ResultsFolder, totals: Totals, listed: set[str], wanted: list[str], quiet: bool
) -> None:
    """Warn of results that are older than the tables, and of recordings that are no longer there."""
    if totals.older:
        folders = ", ".join(f"{name}/" for name in totals.older)
        verb, pronoun = ("is", "it") if len(totals.older) == 1 else ("are", "them")
        say(
            f"mast: warning: {folders} in {results.folder} {verb} older than these results; add --formats "
            f"{','.join([*wanted, *totals.older])} to write {pronoun} again",
            quiet=quiet,
        )
    if gone := results.find_missing(totals, listed):
        say(
            f"mast: warning: {counted(len(gone), 'recording')} searched earlier {'is' if len(gone) == 1 else 'are'} no "
            f"longer there, such as {gone[0]}; the tables still hold what was found (a new --out leaves it out)",
            quiet=quiet,
        )


def _pending_recordings(results: ResultsFolder, recordings: list[Recording], quiet: bool) -> list[Recording]:
    """The recordings that are still to be searched; facts about the others are brought up to date."""
    todo = []
    for one in recordings:
        if results.is_done(one.source):
            results.update_metadata(one.source)
        else:
            todo.append(one)
    if len(todo) < len(recordings):
        done = f"{len(recordings) - len(todo):,} of {len(recordings):,}"
        say(f"{done} recordings are already done", quiet=quiet)
    return todo


def _closing_line(
    out: Path, totals: Totals | None, tried: int, failed: int, damaged: int, unlisted: int
) -> str:
    """The last line: what was found, and what could not be searched."""
    done = (
        f"{tried - failed:,} of {tried:,} recordings are done in {out}; without --no-tables, the same command"
    )
    found = [
        f"{counted(totals.events, 'event')} in {counted(totals.recordings, 'recording')} → {out / 'detections.csv'}"
        if totals is not None
        else f"{done} makes the tables"
    ]
    wrong = [
        *([f"{failed:,} of {tried:,} recordings failed"] if failed else []),
        *([f"{damaged:,} damaged"] if damaged else []),
        *([f"{counted(unlisted, 'folder')} cannot be listed"] if unlisted else []),
    ]
    return "; ".join([*found, *wrong]) + (f" (see {out / 'failures.csv'})." if wrong else ".")


def _write_summary(results: ResultsFolder, totals: Totals, quiet: bool) -> None:
    """Make the page next to the tables; if that fails, the results are still there."""
    from contextlib import suppress

    from mast.errors import shorten
    from mast.reports.searched_recordings import recordings_from_marks
    from mast.reports.summary_page import PAGE, write_results_summary

    try:
        write_results_summary(
            results.folder, recordings_from_marks(results.run, totals.searched, totals.failures)
        )
    except Exception as error:
        with suppress(OSError):
            (results.folder / PAGE).unlink(missing_ok=True)  # an earlier one would show other results
        say(f"mast: warning: {PAGE} could not be made ({shorten(error)})", quiet=quiet)


def _search(engine: Engine, results: ResultsFolder, todo: list[Recording], quiet: bool) -> list[str]:
    """Search recordings and keep what is found; returns why some failed."""
    import time
    import warnings

    from mast.audio import DamagedAudioWarning

    failures: list[str] = []
    heard_s, began = 0.0, time.monotonic()
    with progress_bar(quiet, unit="recordings") as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedAudioWarning)  # listed in failures.csv instead
        task = bar.add_task("detect", total=len(todo))

        def show(seconds: float) -> None:
            nonlocal heard_s
            heard_s += seconds
            speed = heard_s / max(time.monotonic() - began, 1e-9)
            bar.update(task, description=f"detect {heard_s / 3600:,.2f} h, {speed:,.0f}× real time")

        for outcome in engine.search(todo, progress=show):
            kept = results.add(outcome)
            if kept.error:
                failures.append(kept.error)
            bar.advance(task)
    return failures


def _absolute_name(given: str) -> str:
    """A path that means the same from another folder; a name like ``default`` unchanged; a URI without its secrets."""
    from mast.uris import is_uri

    if is_uri(given):
        parts = urlsplit(given)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return str(Path(given).absolute()) if Path(given).exists() else given


def _suggest_band(tops_hz: list[float], high_hz: float) -> str:
    """A hint where some recordings end far below the band that was searched, or all far above it; else empty.

    Args:
        tops_hz: half the sample rate of each recording.
        high_hz: upper edge of the band.
    """
    if not tops_hz:
        return ""
    from mast.grid import BANDS_HZ

    low, search_again = min(tops_hz), "search it again, into another folder, with --band"
    searched = f"searched up to {high_hz / 1000:g} kHz"
    if low >= _FAR_ABOVE * high_hz:
        return (
            f"This sound reaches {low / 1000:g} kHz but was {searched}; for bats and other high calls, {search_again} "
            f"{min(low, BANDS_HZ['bats']):.0f}."
        )
    short = [top for top in tops_hz if top <= high_hz / _FAR_BELOW]
    if not short:
        return ""
    end = f"{max(short) / 1000:g} kHz"
    if len(short) < len(tops_hz):
        return (
            f"mast: warning: {len(short):,} of {counted(len(tops_hz), 'recording')}, {searched}, "
            f"{'holds' if len(short) == 1 else 'hold'} no sound above {end} (half the sample rate); no higher call can "
            "be found there"
        )
    return (
        f"mast: warning: this sound ends at {end} (half its sample rate) but was {searched}; no higher call can be "
        f"found in it; for lower calls, {search_again} {max(short):.0f}"
    )


def _make_engine(name: EngineName, spec: DetectorSpec, workers: int | None) -> Engine:
    """The engine that does the work, with the detector loaded."""
    import os
    from dataclasses import replace

    from mast.archive.crew import CrewEngine, OneProcess
    from mast.errors import ConfigError

    if name == "ray":
        try:
            from mast.archive.ray_crew import RayCrew
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "ray":
                raise
            raise ConfigError(
                "--engine ray: Ray is not installed; run `pip install 'mast-audio[ray]'`, or leave --engine out"
            ) from None
        crew = RayCrew(replace(spec, threads=1), workers=workers)
        return CrewEngine(crew, workers or crew.capacity)
    if workers is None or workers == 1:
        return OneProcess(spec)
    from mast.archive.processes import ProcessCrew

    threads = max(1, (os.cpu_count() or 1) // workers)
    return CrewEngine(ProcessCrew(replace(spec, threads=threads)), workers)


def _parse_formats(text: str) -> list[str]:
    from mast.annotations import FORMATS
    from mast.errors import AnnotationError

    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in ("parquet", _PARTITIONED) and name not in FORMATS:
            raise AnnotationError(
                f"--formats {name}: no such format; choose among {_FORMATS}, {_PARTITIONED}"
            )
    return names


def _parse_shard(text: str) -> tuple[int, int]:
    import re

    from mast.errors import ConfigError

    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip())
    if match is None or not int(match[1]) < int(match[2]):
        raise ConfigError(
            f"--shard {text}: expected I/N with I from 0 to N − 1, such as 0/4, 1/4, 2/4 and 3/4"
        )
    return int(match[1]), int(match[2])
