"""`mast`: the list of commands, and how errors reach the user."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from mast import __version__
from mast.cli.classify import classify
from mast.cli.clips import clips
from mast.cli.cluster import cluster
from mast.cli.convert import convert
from mast.cli.detect import detect
from mast.cli.embed import embed
from mast.cli.evaluate import evaluate
from mast.cli.export import export
from mast.cli.fit import fit
from mast.cli.measure import measure
from mast.cli.name import name
from mast.cli.plan import plan
from mast.cli.plot import plot
from mast.cli.pretrain import pretrain
from mast.cli.review import review
from mast.cli.scan import scan
from mast.cli.search import search
from mast.cli.selftrain import selftrain
from mast.cli.simulate import simulate
from mast.cli.summarize import summarize
from mast.cli.train import train
from mast.errors import MastError, machine_fault, shortened

app = typer.Typer(
    name="mast",
    help="Find animal sounds in field recordings as time–frequency boxes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


EXIT_WRONG, EXIT_BUG = 2, 3  # wrong usage is 2, too, by click's custom; see main()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mast {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find animal sounds in field recordings as time–frequency boxes."""


class _Wanted:
    """What the user asked of all commands alike."""

    traceback = False


_DEBUG = Annotated[bool, typer.Option("--debug", help="Show the traceback when something fails.")]


def with_debug(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the option ``--debug``, which :func:`main` reads."""

    @functools.wraps(command)
    def run(*, debug: bool, **given: Any) -> None:
        _Wanted.traceback = debug
        try:
            command(**given)
        except KeyboardInterrupt:  # typer would end without a word
            typer.echo("mast: stopped.", err=True)
            raise typer.Exit(130) from None

    own = inspect.signature(command, eval_str=True).parameters.values()
    flag = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_DEBUG)
    run.__signature__ = inspect.Signature([*own, flag])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in [*own, flag]}
    return run


for _command in (
    detect,
    review,
    summarize,
    clips,
    measure,
    name,
    fit,
    scan,
    plan,
    convert,
    simulate,
    plot,
    evaluate,
    embed,
    search,
    classify,
    cluster,
    pretrain,
    train,
    selftrain,
    export,
):
    app.command()(with_debug(_command))


def _without_studies() -> None:
    """One table or figure of the paper; only in a clone of mast's repository."""
    raise MastError(
        "experiment: the paper's studies are not part of this installation; "
        "clone mast's repository and run `pip install -e .[studies]` in it"
    )


try:
    from mast_studies.command import experiment
except ModuleNotFoundError as missing:
    if missing.name != "mast_studies":
        raise
    _anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command("experiment", context_settings=_anything)(with_debug(_without_studies))
else:
    app.command()(with_debug(experiment))


def main() -> None:
    """Run the command line.

    Exit 0 on success, 2 when one sentence says what to put right, 3 on a bug of ours, 4 when a batch was finished but
    some of its recordings failed, 130 when interrupted.
    """
    threading.excepthook = _quiet_about_the_machine
    warnings.formatwarning = _one_line
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # a full disk shows only now
    except KeyboardInterrupt:
        typer.echo("mast: stopped.", err=True)
        sys.exit(130)
    except Exception as error:
        if _Wanted.traceback:
            raise
        fault = str(error) if isinstance(error, MastError) else machine_fault(error)
        if fault is not None:
            typer.echo(f"mast: {shortened(fault)}", err=True)
            sys.exit(EXIT_WRONG)
        what = shortened(f"{type(error).__name__}: {error}")
        typer.echo(f"mast: internal error: {what} (--debug shows where)", err=True)
        sys.exit(EXIT_BUG)


def _one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as users read it: without the line of code that it came from."""
    return f"mast: warning: {shortened(message)}\n"


def _quiet_about_the_machine(raised: threading.ExceptHookArgs) -> None:
    """Print no traceback of a thread that the machine refused something: whoever waits for it hears of it."""
    if _Wanted.traceback or raised.exc_value is None or machine_fault(raised.exc_value) is None:
        threading.__excepthook__(raised)


if __name__ == "__main__":
    main()
