"""`mast selftrain`: a detector improved with unlabelled sound."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mast.cli.options import Debug, Quiet, Seed, say, steps
from mast.cli.recipes import Annotations, Band, Preset, RunFolder, Settings, recipe_from


def selftrain(
    data: Annotated[Path, typer.Argument(help="The labelled dataset the detector was trained on.")],
    unlabeled: Annotated[
        list[Path],
        typer.Option("--unlabeled", "-u", help="A folder of recordings nobody labelled; may be repeated."),
    ],
    init: Annotated[Path, typer.Option(help="The detector to start from: a training run's best.")],
    out: RunFolder,
    annotations: Annotations = None,
    preset: Preset = "base",
    band: Band = None,
    settings: Settings = None,
    quiet: Quiet = False,
    debug: Debug = False,
    seed: Seed = 0,
) -> None:
    """Let a detector label sound nobody labelled, learn from that, and refine on the expert's boxes; again.

    Each round: pseudo-boxes on the unlabelled sound (OUT/round-N/pseudo.parquet), Stage 1 on them, Stage 2 on the
    expert's. Writes OUT/best (a model folder) and OUT/rounds.csv. `--set selftrain.curriculum=stage1` (or stage2,
    union) runs the paper's ablations.

    \b
    Example:
      mast selftrain labelled/ --unlabeled archive/ --init runs/detector/best --out runs/selftrain --preset tiny
    """
    from mast.data import load_dataset
    from mast.selftrain.rounds import self_train

    recipe = recipe_from(preset, band, settings)
    dataset = load_dataset(data, annotations=annotations)
    with steps(quiet, "self-train") as progress:
        rows = self_train(
            dataset,
            unlabeled,
            init,
            out,
            recipe,
            seed=seed,
            progress=progress,
            say=lambda text: say(text, quiet=quiet),
        )
    last = rows.iloc[-1]
    say(
        f"Done: validation F1 {last['f1']:.3f} after {recipe.selftrain.rounds} rounds. Detector in {out / 'best'}.",
        quiet=quiet,
    )
