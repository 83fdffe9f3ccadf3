"""`mast clips`: detections as sound files with a picture each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mast.cli.event_files import front_end_of, locate_recordings
from mast.cli.options import (
    EXIT_SOME_FAILED,
    AudioFolder,
    BoxesArgument,
    Join,
    LabelFilter,
    Quiet,
    Seed,
    count,
    lock_folder,
    number,
    progress_counter,
    score,
)
from mast.wording import counted

if TYPE_CHECKING:
    import pandas as pd

INPUTS_FILE = "clips.json"  # what a folder of clips was made from


def clips(
    detections: BoxesArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the clips; a stopped run there resumes.")
    ],
    most: Annotated[int, count("-n", "--most", help="How many clips; with --per, of each group.")] = 100,
    choose: Annotated[
        Literal["best", "random"], typer.Option(help="The best by score, or a random draw.")
    ] = "best",
    per: Annotated[
        Literal["label", "site", "day", "hour", "recording"] | None,
        typer.Option(help="Choose within each label, site, day, hour of the day or recording."),
    ] = None,
    label: LabelFilter = None,
    min_score: Annotated[float | None, score("--min-score", help="Minimum score of an event.")] = None,
    pad: Annotated[
        float, number("--pad", low=0.0, high=60.0, help="Seconds of sound before and after each event.")
    ] = 0.5,
    format: Annotated[
        Literal["wav", "flac"], typer.Option(help="Sound format: wav or flac, 16 bit.")
    ] = "wav",
    pictures: Annotated[bool, typer.Option(help="Draw a spectrogram of each clip, with its box.")] = True,
    no_voices: Annotated[
        bool,
        typer.Option("--no-voices", help="Leave out clips in which people speak; needs the voices extra."),
    ] = False,
    join: Join = None,
    audio: AudioFolder = None,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Cut detections out of their recordings, to listen to, send or publish.

    Writes a sound file and a picture for each, clips.csv with one row per clip, and index.html, which shows and plays
    them all. File names begin with a number, so they sort best first; with --per each group has a folder of its own.
    Sound keeps its sample rate. Only the sound around each event is read.

    --no-voices listens for speech around each event. A clip that would contain any is not cut, and voices.csv lists the
    stretches. It misses faint and distant voices; docs/checking.md says how many.

    Run the same command again after a stop: clips that exist are not cut again. Events whose recording is missing
    or cannot be read are listed in failures.csv.

    Exit code: 0 when all were cut, 4 when some could not be, 2 when none could.

    \b
    Examples:
      mast clips detections/ --out best
      mast clips detections/ --out sample --choose random --most 60 --seed 1
      mast clips detections/ --out by_hour --per hour --most 5 --min-score 0.8
    """
    from mast.annotations import read_annotations
    from mast.annotations.songs import join_events
    from mast.classifiers.voices import VoiceFinder
    from mast.errors import AudioError
    from mast.reports.clip_files import choose_events, cut_clips

    events = read_annotations(detections).events
    events = _filter_events(
        events if join is None else join_events(events, join), detections, label, min_score
    )
    chosen = choose_events(events, most, choice=choose, per=per, seed=seed)
    inputs = {"detections": str(detections.absolute()), "most": most, "choose": choose, "per": per}
    inputs |= {"label": label or [], "min_score": min_score, "pad": pad, "format": format, "seed": seed}
    inputs |= ({} if join is None else {"join": join}) | ({"no_voices": True} if no_voices else {})
    voices = VoiceFinder() if no_voices else None
    locate = locate_recordings(detections, audio)
    _check_inputs(out, inputs | {"events": _digest(chosen)})
    with lock_folder(out), progress_counter(quiet, "clips", "clips", len(chosen)) as advance:
        cut = cut_clips(
            chosen,
            locate,
            out,
            pad_s=pad,
            format=format,
            front_end=front_end_of(None, detections),
            pictures=pictures,
            voices=voices,
            progress=advance,
        )
    if not cut.clips and not cut.failures:
        raise AudioError(
            f"somebody speaks in all {len(chosen):,} clips (see {out / 'voices.csv'}), so none was cut"
        )
    if not cut.clips:
        raise AudioError(f"no event could be cut ({len(chosen):,} tried); the first: {cut.failures[0][1]}")
    failed = f"; {len(cut.failures):,} could not be cut (see {out / 'failures.csv'})" if cut.failures else ""
    if cut.left_out:
        failed = f"; {cut.left_out:,} left out because somebody speaks (see {out / 'voices.csv'}){failed}"
    typer.echo(
        f"{counted(len(cut.clips), 'clip')} of {counted(len(events), 'event')} → {out / 'index.html'}{failed}."
    )
    if cut.failures:
        raise typer.Exit(EXIT_SOME_FAILED)


def _filter_events(
    events: pd.DataFrame, detections: Path, labels: list[str] | None, min_score: float | None
) -> pd.DataFrame:
    from mast.errors import AnnotationError

    wanted = events
    if labels:
        wanted = wanted[wanted["label"].isin(labels)]
    if min_score is not None:
        wanted = wanted[wanted["score"] >= min_score]
    if wanted.empty:
        why = (
            "holds no events" if events.empty else f"none of its {len(events):,} events meets the conditions"
        )
        raise AnnotationError(f"{detections}: {why}; there is nothing to cut")
    return wanted


def _check_inputs(out: Path, inputs: dict[str, object]) -> None:
    """Refuse a folder that holds clips made with other options, or somebody's files."""
    from mast.errors import ConfigError
    from mast.files import holds_files
    from mast.runs import load_inputs, refuse_other_inputs, save_inputs

    record = out / INPUTS_FILE
    before = load_inputs(record)
    if before is not None:
        old_events, new_events = before.pop("events", None), inputs.pop("events")
        refuse_other_inputs(out, before, inputs, instead="choose a new --out")
        if old_events != new_events:
            raise ConfigError(
                f"--out {out}: holds clips of events that have changed since; choose a new --out"
            )
    elif holds_files(out):
        raise ConfigError(
            f"--out {out}: exists and holds no clips ({INPUTS_FILE} is missing); choose a new --out"
        )
    else:
        save_inputs(record, inputs)


def _digest(events: pd.DataFrame) -> str:
    """A fingerprint of the boxes that are cut."""
    import hashlib

    from mast.events import BOX_COLUMNS

    text = events[["recording", *BOX_COLUMNS, "label"]].to_csv(index=False, float_format="%.6f")
    return hashlib.sha256(text.encode()).hexdigest()[:16]
