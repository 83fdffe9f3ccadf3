"""`mast adapt`: a detector adapted to recordings nobody labelled."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from mast.cli.options import Quiet, Seed, lock_folder, resumable, say, step_progress, upper_edge
from mast.cli.recipes import RunFolder


def adapt(
    recordings: Annotated[
        list[Path], typer.Argument(metavar="RECORDINGS…", help="Folders of recordings; no boxes are needed.")
    ],
    out: RunFolder,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="The detector to adapt: a run or model folder, hf://owner/name; the embedded model by default.",
        ),
    ] = "default",
    band: Annotated[
        float | None, upper_edge(help="Upper edge of the band; the detector's own by default.")
    ] = None,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Adapt a detector to your recordings, without labels.

    The detector searches a sample of your recordings, learns from the boxes it finds, and is averaged with its original
    weights. Its threshold is shifted so that it finds as many boxes as before: what changes is which ones. Writes
    OUT/best, a model folder. Training takes about an hour at most; the command says how long before it starts. Run the
    same command again after a stop and it resumes.

    Without labels nothing can show whether this helped; docs/zero_shot.md reports its effect on recordings that experts
    had boxed. If you have some boxes, use mast fit, which measures what it gains.

    \b
    Example:
      mast adapt recordings/ --out adapted
      mast detect recordings/ --model adapted --out detections
    """
    from mast.runs import Reporter
    from mast.selftrain.adaptation import adapt as run

    show = Reporter(say=lambda text: say(text, quiet=quiet), bar=lambda what: step_progress(quiet, what))
    with resumable(out), lock_folder(out):
        adapted = run(recordings, out, init=model, band_hz=band, seed=seed, reporter=show)
    say(f"Done. Model: {adapted.model}.", quiet=quiet)
    folders = " ".join(shlex.quote(str(folder)) for folder in recordings)
    typer.echo(f"Next: mast detect {folders} --model {shlex.quote(str(out))} --out detections")
