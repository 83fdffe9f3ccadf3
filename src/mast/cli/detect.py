"""`mast detect`: boxes for every recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.options import Debug, Quiet, Seed, progress, say

if TYPE_CHECKING:
    from mast.inference import Detector, ResultsFolder, Source

EXIT_SOME_FAILED = 4  # finished, but some recordings could not be read
_FORMATS = (
    "csv, parquet, raven, audacity, coco, yolo, aoef, kaleidoscope, birdeep"  # a test compares with FORMATS
)


def detect(
    recordings: Annotated[
        list[Path],
        typer.Argument(metavar="RECORDINGS…", help="Recordings and folders, searched with all subfolders."),
    ],
    model: Annotated[Path, typer.Option("--model", "-m", help="A run of mast train, or a model folder.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of the results; a stopped run there goes on.")
    ],
    formats: Annotated[
        str, typer.Option(help=f"What to write, with commas between: {_FORMATS}.")
    ] = "csv,parquet",
    threshold: Annotated[
        float | None,
        typer.Option(help="Least score of an event, as in the tables; the model's own by default."),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(help="Instead of a threshold: the one that reached this precision on validation."),
    ] = None,
    hop: Annotated[float, typer.Option(help="Step from window to window as a share of the window.")] = 0.75,
    batch: Annotated[int | None, typer.Option(help="Windows at once; by the device by default.")] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1; the GPU where there is one by default.")
    ] = None,
    embed: Annotated[
        bool, typer.Option("--embed", help="Also write embeddings.npy, the encoder's features of each event.")
    ] = False,
    compile: Annotated[
        bool | None,
        typer.Option(
            help="Compile the model for the GPU first: slow start, then faster; on CUDA by default."
        ),
    ] = None,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Do only every N-th recording, from the I-th; I counts from 0.")
    ] = "0/1",
    quiet: Quiet = False,
    debug: Debug = False,
    seed: Seed = 0,
) -> None:
    """Find the sounds in recordings of any length, as time–frequency boxes.

    Writes detections.parquet and detections.csv over all recordings, a folder per further format (written
    anew each time), failures.csv and run.json; with --embed also embeddings.npy, whose row k belongs to row k
    of detections.parquet. Each recording is kept as soon as it is done: run the same command again after a stop
    and it goes on, without losing or doubling anything. Results of another model or other settings are never
    mixed into one folder. Shards may share one folder.

    The score of an event is the probability that it is right, where the model was calibrated (mast train does
    that on validation recordings), and --threshold is in the same scores. --precision 0.9 takes the lowest
    threshold at which nine in ten were right on validation, and stops with a sentence where none was that good;
    expect less at other sites.

    Recordings that cannot be read are listed with reasons in failures.csv and tried again next time; those
    whose sound ends early are searched as far as they go, and listed as damaged.

    Exit code: 0 when all were searched, 4 when some failed, 1 when none could be searched.

    \b
    Example:
      mast detect recordings/ --model runs/detector --out detections --formats csv,raven
    """
    from mast.errors import AudioError
    from mast.inference import Detector, ResultsFolder

    wanted = _formats(formats)
    part, parts = _shard(shard)
    sources, root = _sources(recordings)
    mine = sources[part::parts]
    detector = Detector(
        model,
        device=device,
        threshold=threshold,
        precision_target=precision,
        hop=hop,
        batch_size=batch,
        embed=embed,
        compile=compile,
    )
    results = ResultsFolder(out, detector.settings, root, operating_point=detector.scores.operating_point)
    if detector.scores.sentence:
        say(detector.scores.sentence, quiet=quiet)
    todo = [source for source in mine if not results.is_done(source)]
    if len(todo) < len(mine):
        say(f"{len(mine) - len(todo):,} of {len(mine):,} recordings are done already", quiet=quiet)
    try:
        failures = _search(detector, results, todo, quiet)
    except KeyboardInterrupt:
        typer.echo(
            f"mast: stopped; what is done is kept in {out}, the same command goes on from there.", err=True
        )
        raise typer.Exit(130) from None
    totals = results.combine(wanted)
    if mine and len(failures) == len(mine):
        raise AudioError(f"none of the {len(mine):,} recordings can be read; the first: {failures[0]}")
    damaged = sum(results.is_damaged(source) for source in mine)
    closing = [
        f"{totals.events:,} events in {totals.recordings:,} recordings → {out / 'detections.csv'}",
        *([f"{len(failures):,} of {len(mine):,} recordings failed"] if failures else []),
        *([f"{damaged:,} damaged"] if damaged else []),
    ]
    if failures or damaged:
        closing[-1] += f" (see {out / 'failures.csv'})"
    typer.echo("; ".join(closing) + ".")
    if failures:
        raise typer.Exit(EXIT_SOME_FAILED)


def _search(detector: Detector, results: ResultsFolder, todo: list[Source], quiet: bool) -> list[str]:
    """Search recordings and keep what is found; give back the reasons of those that failed."""
    import time
    import warnings

    from mast.audio import DamagedAudioWarning

    failures: list[str] = []
    heard_s, began = 0.0, time.monotonic()
    with progress(quiet, unit="recordings") as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedAudioWarning)  # listed in failures.csv instead
        task = bar.add_task("detect", total=len(todo))

        def show(seconds: float) -> None:
            nonlocal heard_s
            heard_s += seconds
            speed = heard_s / max(time.monotonic() - began, 1e-9)
            bar.update(task, description=f"detect {heard_s / 3600:,.2f} h, {speed:,.0f}× real time")

        for outcome in detector.outcomes(todo, progress=show):
            results.add(outcome)
            if outcome.error:
                failures.append(outcome.error)
            bar.advance(task)
    return failures


def _sources(arguments: list[Path]) -> tuple[list[Source], Path]:
    """Every recording once, sorted by its name in the results, and the folder the names are relative to."""
    import os

    from mast.audio import find_recordings
    from mast.errors import AudioError
    from mast.inference import Source

    for argument in arguments:
        if not argument.exists():
            raise AudioError(f"{argument}: no such file or folder; check the name")
    given = [Path(os.path.abspath(argument)) for argument in arguments]
    root = Path(os.path.commonpath([path if path.is_dir() else path.parent for path in given]))
    paths = [found for path in given for found in (find_recordings(path) if path.is_dir() else [path])]
    if not paths:
        raise AudioError(
            f"{', '.join(map(str, arguments))}: no recordings found; expected files ending in .wav, .flac, .mp3, "
            ".ogg or .opus, here or in folders below"
        )
    # old cards hold names that are no text; tables need text
    names = {
        path: os.fsencode(path.relative_to(root).as_posix()).decode("utf-8", errors="backslashreplace")
        for path in paths
    }
    sources = [Source(path, name, root) for path, name in names.items()]
    return sorted(sources, key=lambda source: source.recording), root


def _formats(text: str) -> list[str]:
    from mast.annotations import FORMATS
    from mast.errors import AnnotationError

    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name != "parquet" and name not in FORMATS:
            raise AnnotationError(f"--formats {name}: no such format; choose among {_FORMATS}")
    return names


def _shard(text: str) -> tuple[int, int]:
    import re

    from mast.errors import ConfigError

    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if match is None or not int(match[1]) < int(match[2]):
        raise ConfigError(
            f"--shard {text}: expected I/N with I from 0 to N − 1, such as 0/4, 1/4, 2/4 and 3/4"
        )
    return int(match[1]), int(match[2])
