"""`mast export`: a detector for other programs and other people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from mast.cli.options import Quiet, lock_folder, say


def export(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run of mast fit or mast train, a model folder, default or hf://owner/name."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    format: Annotated[
        Literal["onnx", "hub"],
        typer.Option(help="onnx: a graph for other programs; hub: a folder to share."),
    ] = "onnx",
    name: Annotated[
        str | None,
        typer.Option(help="hub: what it will be called there, owner/name; the folder's name by default."),
    ] = None,
    licence: Annotated[
        str | None,
        typer.Option(help="hub: licence of the weights, such as cc-by-4.0; the model's own by default."),
    ] = None,
    half: Annotated[
        bool, typer.Option("--half", help="hub: store weights in half precision, in half the space.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write a detector as an ONNX graph or a folder for a model hub.

    onnx: model.onnx takes sound (any number of chunks of one channel), computes features, and gives boxes and scores;
    it is compared with the PyTorch model, and refused if the two differ by more than rounding. Next to it are
    model.json, README.md and detect_onnx.py, which finds events with numpy and onnxruntime alone. Baselines cannot be
    exported this way.

    hub: model.safetensors, model.json and a model card made from it, ready for `hf upload`; others can then run mast
    detect --model hf://owner/name.

    \b
    Example:
      mast export runs/detector --out exported/ --format onnx
      mast export runs/detector --out share/ --format hub --name me/dawn-chorus --licence cc-by-4.0 --half
    """
    from mast.errors import ConfigError
    from mast.export.hub_folder import write_hub_folder
    from mast.export.onnx_folder import write_onnx_folder
    from mast.models.card import load_card
    from mast.models.find import find_model

    folder = find_model(run)
    if format == "hub":
        with lock_folder(out):
            card = write_hub_folder(
                folder, out, name=name, licence=licence, dtype="float16" if half else None
            )
        if not card.licence:
            say("no licence is stated, so others may not use the model; give one with --licence", quiet=quiet)
        where = name or "OWNER/NAME"
        typer.echo(f"Model and its card → {out / 'README.md'}; share it with `hf upload {where} {out}`.")
        return
    given = [
        option for option, value in (("--name", name), ("--licence", licence), ("--half", half)) if value
    ]
    if given:
        raise ConfigError(f"{', '.join(given)}: only for --format hub; leave it out or choose that format")
    with lock_folder(out):
        report = write_onnx_folder(folder, out)
    say(
        f"compared with torch on {report.n_boxes:,} boxes: scores differ by at most {report.score_difference:.1e}, "
        f"boxes by {report.box_difference:.1e} cells",
        quiet=quiet,
    )
    habit = load_card(folder).habit
    if habit is not None and not habit.changes_nothing:
        say(
            "the model's habit of drawing boxes is not in the graph; README.md says what the graph gives",
            quiet=quiet,
        )
    typer.echo(f"{report.megabytes:.1f} MB → {report.path}; {out / 'README.md'} says how to use it.")
