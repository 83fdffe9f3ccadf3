"""`mast plan`: which clips to annotate next, as tasks that can be opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.options import (
    Device,
    Quiet,
    Seed,
    count,
    lock_folder,
    number,
    progress_counter,
    say,
    upper_edge,
)
from mast.wording import counted

if TYPE_CHECKING:
    import pandas as pd

    from mast.data import Dataset
    from mast.detect_options import DetectOptions
    from mast.grid import FrontEnd
    from mast.planning.cover import Survey
    from mast.planning.survey import Surveyor
    from mast.planning.tasks import Prefill

_STRATEGIES = "time-balanced, random, sequential, diverse"  # a test compares with PLAN_STRATEGIES
_FORMATS = "raven, audacity, aoef"  # a test compares with TASK_FORMATS
# our choice: 20 minutes of sound at the default length; with 32 clips of 10 s, the choice of clips already affects F1
# (docs/label_planning.md)
_CLIPS = 40
_TRAIN_SHARE = 0.7  # of labelled sound, as mast train divides it by default


def plan(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Folder of recordings, with boxes or without.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder for the tasks.")],
    clips: Annotated[
        int,
        count(
            "--clips", "-n", help="How many clips; the best come first, so whoever listens may stop earlier."
        ),
    ] = _CLIPS,
    clip_length: Annotated[
        float | None,
        number(
            "--clip-length",
            low=0.1,
            high=86_400.0,
            help="Seconds of a clip; three of the model's chunks (30.72 s) by default.",
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help=f"{_STRATEGIES}; diverse with --model, else time-balanced by default."),
    ] = None,
    format: Annotated[str, typer.Option("--format", help=f"Format of the tables: {_FORMATS}.")] = "raven",
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A detector or a pretrained encoder, for diverse; a detector for --prefill. A run or model folder, "
            "default or hf://owner/name.",
        ),
    ] = None,
    detections: Annotated[
        Path | None,
        typer.Option(
            help="Results of mast detect on DATA: where the detector is unsure, and boxes for --prefill."
        ),
    ] = None,
    prefill: Annotated[
        bool, typer.Option("--prefill", help="Fill the tables with the detector's boxes, to be corrected.")
    ] = False,
    annotations: Annotated[
        Path | None,
        typer.Option(help="What was annotated before, in any format; boxes.csv in DATA by default."),
    ] = None,
    curve: Annotated[
        Path | None,
        typer.Option(
            help="Label-budget curve as CSV (mast experiment label-budget), to estimate the gain from these clips."
        ),
    ] = None,
    candidates: Annotated[
        int,
        count(help="Clips that the model looks at for diverse; a balanced sample of a large archive."),
    ] = 1_500,
    band: Annotated[
        float | None,
        upper_edge(help="Upper edge of the band; the model's own by default, 8000 where there is none."),
    ] = None,
    device: Device = None,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Choose clips to annotate next, and write them as tasks for Raven, Audacity or Whombat.

    Only sound that nobody has listened to is chosen. time-balanced takes one clip from each hour of the day in turn,
    and within an hour one from each site; random and sequential do what they say; diverse takes clips that together
    sound like the whole archive, more of them where the detector is unsure, and needs --model.

    The folder holds the clips as WAV files, a table for each (or project.json for Whombat), plan.csv and a README for
    the person who listens. The best clips come first. Give the finished folder to mast convert --from tasks: it puts
    the boxes into the original recordings, and knows which spans were listened to. A table that nobody has touched and
    nobody has ticked off in plan.csv counts as not heard.

    \b
    Example:
      mast plan recordings/ --out tasks
      mast plan recordings/ --clips 100 --format audacity --out tasks
      mast convert tasks recordings/boxes.csv --from tasks --to csv
    """
    from mast.data import load_dataset
    from mast.detect_options import DetectOptions
    from mast.errors import MastError
    from mast.planning.candidates import candidate_clips, default_clip_s, heard_clips, training_chunks
    from mast.planning.choose import choose_clips, count_spread, thin_out
    from mast.planning.tasks import write_tasks

    chosen_strategy = _choose_strategy(strategy, model)
    _check_format(format)
    dataset = load_dataset(data, annotations=annotations)
    surveyor = (
        _make_surveyor(model, device, band) if model is not None and chosen_strategy == "diverse" else None
    )
    front_end = surveyor.front_end if surveyor else _front_end(model, band)
    clip_s = clip_length if clip_length is not None else default_clip_s(front_end)
    free = candidate_clips(dataset, front_end, clip_s)
    if free.empty:
        raise MastError(
            f"{data}: everything here has been listened to already; add recordings, or plan elsewhere"
        )
    heard = heard_clips(dataset, clip_s)
    found = _read_detections(detections, dataset) if detections is not None else None
    survey = None
    if surveyor is not None:
        free = thin_out(free, candidates, seed=seed).reset_index(drop=True)
        survey = _run_survey(surveyor, dataset, free, thin_out(heard, candidates, seed=seed), found, quiet)
    chosen = choose_clips(free, clips, chosen_strategy, heard=heard, survey=survey, seed=seed)  # type: ignore[arg-type]
    if chosen_strategy == "time-balanced" and (free["hour"] < 0).any():
        say("The clock time of some recordings is unknown; they count as an hour of their own.", quiet=quiet)
    prefill_boxes = _make_prefill(prefill, model, found, DetectOptions(device=device, band_hz=band))
    with lock_folder(out), progress_counter(quiet, "cut", "clips", len(chosen)) as advance:
        written = write_tasks(
            out,
            chosen,
            dataset,
            format=format,  # type: ignore[arg-type]
            strategy=chosen_strategy,
            prefill=prefill_boxes,
            progress=advance,
        )
    for name, reason in written.attrs["failed"]:
        typer.echo(f"left out, {name}: {reason}", err=True)
    if len(chosen) < clips:
        say(f"There are only {len(chosen)} clips that nobody has listened to.", quiet=quiet)
    usable = training_chunks(clip_s, front_end)
    if not usable:
        typer.echo(
            f"mast: clips of {clip_s:g} s are shorter than a chunk ({front_end.chunk_s:g} s), so a detector cannot be "
            "trained on them unless they are whole recordings.",
            err=True,
        )
    if curve is not None:
        typer.echo(_estimate_gain(curve, dataset, front_end, clip_s, len(written), chosen_strategy, seed))
    minutes = float((written["end_s"] - written["start_s"]).sum()) / 60
    places = [counted(n, what.removesuffix("s")) for what, n in count_spread(chosen).items() if n]
    typer.echo(
        f"{counted(len(written), 'clip')}, {minutes:.1f} min, {chosen_strategy}, of {', '.join(places)} → {out}; "
        f"open {out / 'README.txt'} first."
    )


def _choose_strategy(given: str | None, model: str | None) -> str:
    from mast.errors import ConfigError
    from mast.planning.choose import PLAN_STRATEGIES

    if given is None:
        return "diverse" if model is not None else "time-balanced"
    if given not in PLAN_STRATEGIES:
        raise ConfigError(f"--strategy {given}: no such strategy; choose one of {', '.join(PLAN_STRATEGIES)}")
    if given == "diverse" and model is None:
        raise ConfigError(
            "--strategy diverse: needs --model, a detector or a pretrained encoder, to know what clips sound like; "
            "time-balanced needs none"
        )
    return given


def _check_format(given: str) -> None:
    from mast.errors import ConfigError
    from mast.planning.tasks import TASK_FORMATS

    if given not in TASK_FORMATS:
        raise ConfigError(
            f"--format {given}: no such format of tasks; choose one of {', '.join(TASK_FORMATS)}"
        )


def _make_surveyor(model: str, device: str | None, band: float | None) -> Surveyor:
    from mast.planning.survey import Surveyor

    return Surveyor(model, device=device, band_hz=band)


def _front_end(model: str | None, band: float | None) -> FrontEnd:
    from mast.grid import FrontEnd

    if model is not None:
        from mast.planning.survey import model_front_end

        return model_front_end(model, band)
    return FrontEnd() if band is None else FrontEnd.for_band(band)


def _run_survey(
    surveyor: Surveyor,
    dataset: Dataset,
    free: pd.DataFrame,
    heard: pd.DataFrame,
    found: pd.DataFrame | None,
    quiet: bool,
) -> Survey:
    from dataclasses import replace

    from mast.planning.survey import expected_errors_by_clip

    total = surveyor.count_chunks(free) + surveyor.count_chunks(heard)
    with progress_counter(quiet, "look", "chunks", total) as advance:
        survey = surveyor.survey(dataset, free, heard, progress=advance)
    for reason in survey.failures.values():
        typer.echo(f"left out: {reason}", err=True)
    return survey if found is None else replace(survey, uncertainty=expected_errors_by_clip(found, free))


def _read_detections(path: Path, dataset: Dataset) -> pd.DataFrame:
    """The events of a results folder or table, by the dataset's names."""
    from mast.annotations.recording_names import RecordingNames
    from mast.cli.event_files import read_event_file
    from mast.errors import AnnotationError

    known = dataset.recordings.rename(columns={"file": "recording"})
    events = read_event_file(path, known[["recording", "duration_s", "sample_rate"]]).events
    names = RecordingNames(list(dataset.recordings["file"]))
    named = {name: names.of_path(name) for name in events["recording"].unique()}
    events = events.assign(recording=events["recording"].map(named))
    in_dataset = events["recording"].isin(set(dataset.recordings["file"]))
    if len(events) and not in_dataset.any():
        raise AnnotationError(
            f"{path}: none of its {len(named)} recordings is in {dataset.root}; give detections of the same recordings"
        )
    return events[in_dataset].reset_index(drop=True)


def _make_prefill(
    wanted: bool, model: str | None, found: pd.DataFrame | None, options: DetectOptions
) -> Prefill | None:
    from mast.errors import ConfigError

    if not wanted:
        return None
    if found is not None:
        from mast.planning.tasks import prefill_from_events

        return prefill_from_events(found)
    if model is None:
        raise ConfigError(
            "--prefill: needs boxes to fill in; give a detector with --model, or results of mast detect with "
            "--detections"
        )
    from mast.inference import Detector

    detector = Detector(model, options)
    return lambda path, row: detector.detect(path)


def _estimate_gain(
    curve: Path, dataset: Dataset, front_end: FrontEnd, clip_s: float, n_clips: int, strategy: str, seed: int
) -> str:
    """One sentence about what these clips should gain, or why that cannot be estimated."""
    from mast.data.chunks import chunk_table
    from mast.errors import ConfigError
    from mast.events import boxes_of
    from mast.grid import in_band
    from mast.planning.candidates import training_chunks
    from mast.planning.expected_gain import estimate_gain, read_curve

    known = read_curve(curve, strategy=strategy)
    spans = dataset.annotations.reviewed
    heard_s, new_s = float((spans["end_s"] - spans["start_s"]).sum()), n_clips * clip_s
    if known.unit == "chunks":  # those that train, of all that are labelled
        labelled = int(chunk_table(dataset, front_end)["labelled"].sum())
        now, more = _TRAIN_SHARE * labelled, _TRAIN_SHARE * n_clips * training_chunks(clip_s, front_end)
    elif known.unit == "boxes":
        boxes = int(in_band(boxes_of(dataset.annotations.events), front_end).sum())  # those that train
        if not boxes or not heard_s:
            return "No estimate: the curve counts boxes, and nothing in this band is annotated yet."
        now, more = float(boxes), boxes / heard_s * new_s
    else:
        now, more = (
            (heard_s / 60, new_s / 60) if known.unit == "minutes" else (heard_s / clip_s, float(n_clips))
        )
    try:
        return estimate_gain(known, now, more, seed=seed).sentence
    except ConfigError as error:
        return f"No estimate: {error}."
