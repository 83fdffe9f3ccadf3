"""`mast app`: the page that leads from a folder to an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mast.cli.options import NoBrowser, Port, Quiet


def app(
    folder: Annotated[Path | None, typer.Argument(help="Folder to open: recordings, or results.")] = None,
    port: Port = 8764,
    no_browser: NoBrowser = False,
    quiet: Quiet = False,
) -> None:
    """Open a page that takes you from recordings to results: find the sounds in a folder, check, count, export them.

    The page runs the commands that you could type: mast detect, mast summarize, mast fit. They keep running when the
    page is closed or this command is stopped; a run that was stopped can be resumed on the page or in a terminal,
    wherever it was started. Results are next to the recordings, in a folder whose name ends in -mast.

    Only this machine can open the page, and only with the token in the address that is printed.

    \b
    Example:
      mast app recordings/
    """
    from mast.app.folders import parse_folder
    from mast.app.window import create_window
    from mast.review.serve import serve

    first = None if folder is None else parse_folder(str(folder.absolute()))

    def print_address(address: str) -> None:
        typer.echo(f"Page: {address}")
        if not quiet:
            typer.echo("Ctrl-C closes it; commands that it has started keep running.")

    serve(
        lambda token: create_window(first, token=token),
        port=port,
        browser=not no_browser,
        say=print_address,
    )
