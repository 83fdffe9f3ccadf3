"""`mast selftrain`: a detector improved with unlabelled sound."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mast.cli.options import Quiet, Seed, lock_folder, say, step_progress
from mast.cli.recipes import UNLABELLED, Annotations, Band, PresetName, RunFolder, Settings, recipe_from


def selftrain(
    data: Annotated[Path, typer.Argument(help="The labelled dataset the detector was trained on.")],
    unlabelled: Annotated[list[Path], UNLABELLED],
    init: Annotated[
        str,
        typer.Option(help="The detector to start from: a run or model folder, default or hf://owner/name."),
    ],
    out: RunFolder,
    teachers: Annotated[
        list[str] | None,
        typer.Option(
            "--teacher",
            help="Another detector, of any kind, that labels together with the model: boxes that they agree on count "
            "for more. Can be given several times.",
        ),
    ] = None,
    annotations: Annotations = None,
    preset: PresetName = "base",
    band: Band = None,
    settings: Settings = None,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Let a detector label sound nobody labelled and learn from it, then refine it on the expert's boxes; repeat.

    Each round: pseudo-boxes on the unlabelled sound (OUT/round-N/pseudo.parquet), Stage 1 on them, Stage 2 on the
    expert's. Writes OUT/best (a model folder), OUT/rounds.csv and OUT/rounds.html, the report. Where DATA has labelled
    out-of-domain parts, they are measured too, but decide nothing. `--set selftrain.curriculum=stage1` (or stage2,
    union) runs the paper's ablations; `--set selftrain.stop_when_no_gain=true` ends with the first round that does not
    help on validation; `--set selftrain.adaptive=recording` raises the threshold in recordings with doubtful boxes.

    \b
    Example:
      mast selftrain labelled/ --unlabelled archive/ --init runs/detector --out runs/selftrain --preset tiny
    """
    from mast.data import load_dataset
    from mast.reports.rounds_page import write_rounds_page
    from mast.selftrain.rounds import self_train

    recipe = recipe_from(preset, band, settings)
    dataset = load_dataset(data, annotations=annotations)
    with lock_folder(out), step_progress(quiet, "self-train") as progress:
        rows = self_train(
            dataset,
            unlabelled,
            init,
            out,
            recipe,
            seed=seed,
            teachers=teachers or (),
            progress=progress,
            say=lambda text: say(text, quiet=quiet),
        )
    page = write_rounds_page(out)
    first, kept = rows.iloc[0], rows[rows["kept"]].iloc[0]
    which = "the initial model: no round helped" if kept["round"] == 0 else f"of round {kept['round']}"
    say(
        f"Done: validation F1 {kept['f1']:.3f}, {first['f1']:.3f} before. "
        f"Detector ({which}) in {out / 'best'}, report in {page}.",
        quiet=quiet,
    )
