"""`mast pretrain`: masked-audio pretraining of the encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mast.cli.options import Quiet, Seed, lock_folder, say, step_progress
from mast.cli.recipes import Band, PresetName, RunFolder, Settings, recipe_from
from mast.wording import format_rate


def pretrain(
    data: Annotated[list[Path], typer.Argument(help="Folders of recordings; labels are not needed.")],
    out: RunFolder,
    preset: PresetName = "base",
    init: Annotated[
        str | None,
        typer.Option(
            help="Start from a run or model folder, default, hf://owner/name, or AudioMAE's pretrained.pth."
        ),
    ] = None,
    band: Band = None,
    settings: Settings = None,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Teach the encoder your soundscapes, without labels.

    Writes OUT/best and OUT/last (model folders), OUT/reconstruction.png and OUT/curves.jsonl.

    \b
    Example:
      mast pretrain recordings/ --out runs/pretrain --preset tiny
    """
    from mast.reports.reconstruction import draw_reconstructions
    from mast.training.pretraining import pretrain as run

    recipe = recipe_from(preset, band, settings)
    with lock_folder(out), step_progress(quiet, "pretrain") as progress:
        result = run(data, out, recipe, init=init, seed=seed, progress=progress)
    picture = draw_reconstructions(out / "best", data[0], out / "reconstruction.png", seed=seed)
    best = result.best
    say(
        f"Done: held-out error {best['error']:.3f} after epoch {result.best_epoch} (guessing the mean patch: "
        f"{best['mean_patch_error']:.3f}); {format_rate(result.chunks_per_s, 'chunk')}. "
        f"Encoder in {out / 'best'}, picture in {picture}.",
        quiet=quiet,
    )
