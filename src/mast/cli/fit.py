"""`mast fit`: from labelled recordings to a detector in one command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from mast.cli.options import BoxName, Join, Quiet, Seed, lock_folder, resumable, say, step_progress
from mast.cli.recipes import (
    UNLABELLED,
    Annotations,
    AutoPreset,
    Band,
    LabelledData,
    RunFolder,
    Settings,
    chosen_settings,
    preset_for_machine,
    recipe_from,
)


def fit(
    data: LabelledData,
    out: RunFolder,
    unlabelled: Annotated[list[Path] | None, UNLABELLED] = None,
    annotations: Annotations = None,
    preset: AutoPreset = None,
    init: Annotated[
        str | None,
        typer.Option(
            help="Start from a run or model folder, default (the embedded detector), hf://owner/name, or AudioMAE's "
            "pretrained.pth, instead of pretraining."
        ),
    ] = None,
    band: Band = None,
    box: Annotated[
        BoxName | None,
        typer.Option(
            help="How the detector to start from draws boxes, as in mast detect, until your boxes say otherwise."
        ),
    ] = None,
    join: Join = None,
    settings: Settings = None,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Make a detector and a report from recordings with some boxes.

    Scan, statistics, pretraining on all sound, training on the boxes, self-training on the unlabelled sound,
    calibration, evaluation, report. Writes OUT/best (the model), OUT/metrics.json and OUT/report.html.

    Run the same command again after a stop and it resumes; what has not changed since is not done again, and what was
    made from other data or settings is moved to OUT/earlier. Without --unlabelled there is no self-training.

    Before it trains, it times a few steps and says how long all of it will take on this machine. Started from a
    detector (--init), it also measures that one as is, and keeps it if training did not help; from a few boxes, it
    averages both. The last lines say which was kept, and why. With five boxes or more it first learns, in seconds, how
    you draw them (whole calls or the strongest harmonic, notes or songs) and which minimum score suits your
    recordings. It uses only what fits held-out boxes better. Your way of drawing is kept in the model, trained or not,
    if it fits held-out boxes better, and mast detect then draws boxes that way.

    \b
    Example:
      mast fit labelled/ --init default --out runs/birds
      mast fit labelled/ --unlabelled archive/ --out runs/birds --preset tiny
    """
    from mast.detect_options import DetectOptions
    from mast.errors import ConfigError
    from mast.fit.pipeline import fit as run
    from mast.models.card import load_card
    from mast.reports.fit_verdict import HABIT, START
    from mast.runs import Reporter
    from mast.training.start import Start

    start = Start.find(init)
    if (box is not None or join is not None) and not start.is_detector:
        raise ConfigError(
            "--box, --join: say how the detector to start from draws boxes; give one with --init, or leave them out"
        )
    recipe = recipe_from(preset or preset_for_machine(start), band, settings)
    show = Reporter(say=lambda text: say(text, quiet=quiet), bar=lambda what: step_progress(quiet, what))
    with resumable(out), lock_folder(out):
        fitted = run(
            data,
            unlabelled or [],
            out,
            recipe,
            reporter=show,
            annotations=annotations,
            init=start.path,
            drawn=DetectOptions(box=box, join_s=join),
            fixed=None if preset else chosen_settings(settings).keys(),
            seed=seed,
        )
    for line in fitted.summary():
        typer.echo(line)
    origins = {START: "the starting model, as is", HABIT: "the starting model, adjusted to your boxes"}
    origin = origins.get(fitted.metrics["recommended"], "as trained here")
    typer.echo(f"Model: {out / 'best'} ({origin}). Report: {out / 'report.html'}.")
    habit = load_card(fitted.model).habit
    if habit is not None and not habit.changes_nothing:
        typer.echo(f"It draws {habit}; mast detect --box all gives its boxes as they are.")
    # for a detector that finds nothing, the summary says what to do first
    if fitted.metrics["validation_f1"][fitted.metrics["recommended"]] != 0:
        typer.echo(f"Next: mast detect RECORDINGS/ --model {shlex.quote(str(out))} --out detections")
