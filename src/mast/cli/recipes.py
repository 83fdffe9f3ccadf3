"""Options that all training commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mast.cli.options import upper_edge

if TYPE_CHECKING:
    from mast.training.recipe import Recipe
    from mast.training.start import Start

LabelledData = Annotated[
    Path, typer.Argument(help="A labelled dataset: recordings and boxes.csv (or --annotations).")
]
UNLABELLED = typer.Option(
    "--unlabelled", "-u", help="A folder of recordings nobody labelled; may be repeated."
)
RunFolder = Annotated[
    Path, typer.Option("--out", "-o", help="The run's folder; a stopped run there is resumed.")
]
Annotations = Annotated[Path | None, typer.Option(help="Boxes in any format, if not DATA/boxes.csv.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Change one setting, as in train.epochs=5; may be repeated."
    ),
]
PresetName = Annotated[
    str, typer.Option("--preset", "-p", help="tiny, small, base, paper, or a recipe.toml.")
]
AutoPreset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        "-p",
        help="tiny, small, base, paper, or a recipe.toml; by default tiny on a CPU, base on a GPU, and from a detector "
        "(--init) as many epochs as the boxes need.",
    ),
]
Band = Annotated[
    float | None,
    upper_edge(help="Upper edge of the band; by default that of the detector to start from, or 8000."),
]


def recipe_from(preset: str, band: float | None, settings: list[str] | None) -> Recipe:
    """The recipe that a command's options describe."""
    from mast.training.recipe import load_recipe

    overrides = chosen_settings(settings)
    if band is not None:
        overrides["band_hz"] = band
    return load_recipe(preset, overrides)


def chosen_settings(settings: list[str] | None) -> dict[str, Any]:
    """What ``--set`` says, by dotted names."""
    from mast.training.recipe import parse_override

    return dict(parse_override(text) for text in settings or [])


def preset_for_machine(start: Start) -> str:
    """The preset where none is given: tiny when starting from a detector or without a GPU, else base."""
    import torch

    return "tiny" if start.is_detector or not torch.cuda.is_available() else "base"
