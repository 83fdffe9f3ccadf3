"""Options that all training commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mast.training.recipe import Recipe

RunFolder = Annotated[
    Path, typer.Option("--out", "-o", help="The run's folder; a killed run there is continued.")
]
Annotations = Annotated[Path | None, typer.Option(help="Boxes in any format, if not DATA/boxes.csv.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Change one setting, as in train.epochs=5; may be repeated."
    ),
]
Preset = Annotated[str, typer.Option("--preset", "-p", help="tiny, small, base, paper, or a recipe.toml.")]
Band = Annotated[
    float | None,
    typer.Option("--band", metavar="HZ", help="Upper edge of the band: 2000 for fish, 192000 for bats."),
]


def recipe_from(preset: str, band: float | None, settings: list[str] | None) -> Recipe:
    """The recipe that a command's options describe."""
    from mast.grid import FrontEnd
    from mast.training.recipe import load_recipe, parse_override

    overrides = dict(parse_override(text) for text in settings or [])
    if band is not None:
        overrides["front_end"] = FrontEnd.for_band(band).model_dump()
    return load_recipe(preset, overrides)
