"""Options that every command takes, and the progress bar they share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from mast.cli.bars import ReportedBar
    from mast.runs import Progress

MAX_HZ = 5e6  # bat recorders reach a quarter of a million
EXIT_SOME_FAILED = 4  # for a command that finished, though some recordings could not be read

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1; by default the GPU, if there is one.")]


def number(*names: str, low: float, high: float, help: str) -> Any:
    """An option that is a number between two others; NaN is refused, too."""
    return typer.Option(*names, min=low, max=high, callback=_not_nan, help=help)


def score(*names: str, help: str) -> Any:
    """A score, a share or an overlap."""
    return number(*names, low=0.0, high=1.0, help=help)


def hertz(*names: str, help: str) -> Any:
    """A frequency."""
    return number(*names, low=0.0, high=MAX_HZ, help=help)


def upper_edge(*, help: str) -> Any:
    """The upper edge of a band: in Hz, or by the name of animals (:data:`mast.grid.BANDS_HZ`)."""
    return typer.Option("--band", parser=_band_hz, metavar="HZ|fish|frogs|birds|bats", help=help)


def _band_hz(text: str) -> float:
    from mast.errors import ConfigError
    from mast.grid import upper_edge_hz

    try:
        return upper_edge_hz(text)
    except ConfigError as error:
        raise typer.BadParameter(f"{error}.") from None


def seconds(*names: str, help: str) -> Any:
    """A time within a recording; at most thirty years."""
    return number(*names, low=0.0, high=1e9, help=help)


def count(*names: str, low: int = 1, high: int = 1_000_000, help: str) -> Any:
    """How many."""
    return typer.Option(*names, min=low, max=high, help=help)


def _not_nan(value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number that can be compared.")
    return value


BoxName = Literal["all", "strongest"]  # what one box encloses
BoxesArgument = Annotated[
    Path, typer.Argument(help="Folder of mast detect, or boxes in any format that mast reads.")
]
AudioFolder = Annotated[
    Path | None, typer.Option(help="Folder of the recordings; by default where detect found them.")
]
Join = Annotated[
    float | None,
    number(
        "--join",
        low=0.0,
        high=3_600.0,
        help="Merge boxes in a similar band that are at most this many seconds apart: notes become songs.",
    ),
]
BatchSize = Annotated[
    int | None, count(high=65_536, help="Windows per batch; by default what suits the device.")
]
StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="What mast embed wrote: a folder or a URI.")
]
StoreModel = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="The store's model, to embed sound; by default as recorded in the store."
    ),
]
LabelFilter = Annotated[list[str] | None, typer.Option(help="Only this label; may be given several times.")]
Port = Annotated[int, typer.Option(min=0, max=65_535, help="Port of the page; 0 takes a free one.")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Only print the address.")]
Seed = Annotated[int, count("--seed", low=0, high=2**32 - 1, help="Random seed.")]


def progress_bar(quiet: bool, *, unit: str = "") -> ReportedBar:
    """A progress bar on stderr with rate and remaining time; silent when ``quiet``.

    Use as a context manager; ``add_task("scan", total=n)`` then ``advance(task)``.
    """
    from rich.console import Console

    from mast.cli.bars import RATE_WINDOW_S, ReportedBar, bar_columns

    return ReportedBar(
        *bar_columns(unit),
        console=Console(stderr=True),
        disable=quiet,
        transient=False,
        speed_estimate_period=RATE_WINDOW_S,
        unit=unit,
    )


@contextmanager
def progress_counter(
    quiet: bool, what: str, unit: str, total: int | None = None
) -> Iterator[Callable[..., None]]:
    """A progress bar that counts; yields a function that advances it, by one or by a given number."""
    with progress_bar(quiet, unit=unit) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n=1: bar.advance(task, n)


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Where the user stops the block, say that the same command resumes it."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(
            f"mast: stopped; what is done is kept in {out}; run the same command again to resume.", err=True
        )
        raise typer.Exit(130) from None


@contextmanager
def step_progress(quiet: bool, what: str) -> Iterator[Progress]:
    """A progress bar that follows work by its reports (:data:`mast.runs.Progress`)."""
    from mast.cli.bars import step_reporter

    with progress_bar(quiet, unit="{task.fields[text]}") as bar:
        yield step_reporter(bar, what)


def lock_folder(out: Path, name: str = ".lock") -> AbstractContextManager[None]:
    """Lock a folder for the length of the block; where another process holds the lock, the command is refused.

    Args:
        out: the folder.
        name: of the lock file in it; commands whose locks differ may write to the folder at the same time.
    """
    from mast.cli.reporting import current_report
    from mast.files import sole_writer

    # where several processes train one model together, the first holds the lock for all
    if os.environ.get("RANK", "0") != "0":
        return nullcontext()
    current_report().claim_folder(out)
    return sole_writer(out, name)


def say(message: str, *, quiet: bool) -> None:
    """One line on stderr, unless quiet; a name or a label in it may be of any length."""
    from mast.cli.reporting import current_report
    from mast.errors import shorten

    current_report().note(shorten(message))
    if not quiet:
        typer.echo(shorten(message), err=True)
