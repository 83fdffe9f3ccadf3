"""`mast fit`: all of it in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mast.cli.options import Debug, Quiet, Seed, say, steps
from mast.cli.recipes import Annotations, Band, Preset, Settings, recipe_from


def fit(
    data: Annotated[
        Path, typer.Argument(help="A labelled dataset: recordings and boxes.csv (or --annotations).")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The run's folder; a stopped run there goes on.")],
    unlabeled: Annotated[
        list[Path] | None,
        typer.Option("--unlabeled", "-u", help="A folder of recordings nobody labelled; may be repeated."),
    ] = None,
    annotations: Annotations = None,
    preset: Preset = "base",
    init: Annotated[
        str | None,
        typer.Option(
            help="Start from a run or model folder, default (the embedded detector), hf://owner/name, or AudioMAE's "
            "pretrained.pth, instead of pretraining."
        ),
    ] = None,
    band: Band = None,
    settings: Settings = None,
    quiet: Quiet = False,
    debug: Debug = False,
    seed: Seed = 0,
) -> None:
    """From a folder of recordings with some boxes to a detector and a report.

    Scan, statistics, pretraining on all sound, training on the boxes, self-training on the unlabelled sound,
    calibration, evaluation, report. Writes OUT/best (the model), OUT/metrics.json and OUT/report.html.

    Run the same command again after a stop and it goes on; what has not changed since is not done again, and what was
    made from other data or settings is moved to OUT/earlier. Without --unlabeled there is no self-training.

    \b
    Example:
      mast fit labelled/ --unlabeled archive/ --out runs/birds --preset tiny
    """
    from mast.fit.pipeline import Show
    from mast.fit.pipeline import fit as run
    from mast.reports.fit_verdict import START

    recipe = recipe_from(preset, band, settings)
    show = Show(say=lambda text: say(text, quiet=quiet), bar=lambda what: steps(quiet, what))
    try:
        fitted = run(
            data,
            unlabeled or [],
            out,
            recipe,
            show=show,
            annotations=annotations,
            init=init,
            seed=seed,
        )
    except KeyboardInterrupt:
        typer.echo(
            f"mast: stopped; what is done is kept in {out}, the same command goes on from there.", err=True
        )
        raise typer.Exit(130) from None
    for line in fitted.summary():
        typer.echo(line)
    origin = "the start, as it comes" if fitted.metrics["recommended"] == START else "as trained here"
    typer.echo(f"Model: {out / 'best'} ({origin}). Report: {out / 'report.html'}.")
    typer.echo(f"Next: mast detect RECORDINGS/ --model {out} --out detections")
