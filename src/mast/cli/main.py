"""`mast`: the list of commands, and how errors reach the user."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from mast import __version__
from mast.errors import MastError, machine_fault, shorten

# what `mast --help` shows, in this order; each command has a module of its own, imported when it is called
SUMMARIES = {
    "app": "Open a page that takes you from recordings to results.",
    "detect": "Find the sounds in recordings of any length.",
    "review": "Look at boxes, listen, correct and confirm in the browser.",
    "summarize": "Count calls per hour, day and site.",
    "clips": "Cut detections out of their recordings.",
    "measure": "Measure every box: frequencies, where its energy lies.",
    "name": "Name boxes by what a classifier hears, or call them unknown.",
    "adapt": "Adapt a detector to your recordings, without labels.",
    "fit": "Make a detector and a report from recordings with some boxes.",
    "scan": "Show what is in a folder: hours, sites, days, unreadable files.",
    "plan": "Choose clips to annotate next.",
    "convert": "Convert annotations between formats.",
    "simulate": "Make recordings in which every call is known.",
    "plot": "Draw a recording's spectrogram with boxes.",
    "evaluate": "Score detections: precision, recall, F1, average precision.",
    "embed": "Put events and their embeddings into a store.",
    "search": "Find events that sound most like an event, a box or a clip.",
    "classify": "Name events by the annotated examples they sound like.",
    "cluster": "Find groups of events that sound alike.",
    "pretrain": "Teach the encoder your soundscapes, without labels.",
    "train": "Train a detector on boxes that people drew.",
    "selftrain": "Let a detector label sound nobody labelled and learn from it.",
    "export": "Write a detector as an ONNX graph or a folder for a model hub.",
    "experiment": "Make a table or figure of the paper.",
}


class _Commands(TyperGroup):
    """Knows commands by name and summary; the module of a command is imported when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name else None, rest


class _Command(TyperCommand):
    """Knows that a name may be one of a recipe's settings, which are not options themselves."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # by name, as typer has its own copy of click
            if type(error).__name__ == "NoSuchOption" and any("--set" in one.opts for one in self.params):
                setting = _find_setting(str(getattr(error, "option_name", "")), self.name or "")
                if setting:
                    error.possibilities = [f"--set {setting}=…"]  # type: ignore[attr-defined]
            raise


def _find_setting(option: str, command: str) -> str:
    """The setting of a command's recipe that an unknown option may mean; empty where there is none."""
    from mast.training.recipe import Recipe

    field, recipe = option.lstrip("-").replace("-", "_"), Recipe()
    section = {"fit": "train"}.get(command, command)
    if field in getattr(type(getattr(recipe, section, None)), "model_fields", {}):
        return f"{section}.{field}"
    return field if field in Recipe.model_fields else ""


def _to_british(option: str) -> str:
    """An option as we spell it; the American spelling is understood, too."""
    return option.replace("labeled", "labelled")


app = typer.Typer(
    name="mast",
    cls=_Commands,
    help="Find animal sounds in field recordings as time–frequency boxes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": _to_british},
)


EXIT_USER_ERROR, EXIT_BUG = 2, 3  # wrong usage is 2, too, as click does it; see main()


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


class _GlobalOptions:
    """Options that all commands share."""

    traceback = False


_DEBUG = Annotated[bool, typer.Option("--debug", help="Show the traceback when something fails.")]


def with_debug(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the option ``--debug``, which :func:`main` reads."""

    @functools.wraps(command)
    def run(*, debug: bool, **given: Any) -> None:
        from mast.cli.reporting import report_command

        _GlobalOptions.traceback = debug
        try:
            with report_command():
                command(**given)
        except KeyboardInterrupt:  # typer would exit without a message
            typer.echo("mast: stopped.", err=True)
            raise typer.Exit(130) from None

    own = inspect.signature(command, eval_str=True).parameters.values()
    flag = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_DEBUG)
    run.__signature__ = inspect.Signature([*own, flag])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in [*own, flag]}
    return run


def _placeholder() -> None:
    """Stands for a command in the list; :class:`_Commands` calls the real one."""


for _name, _summary in SUMMARIES.items():
    app.command(_name, help=_summary)(_placeholder)


def load_command(name: str) -> Any:
    """A command of :data:`SUMMARIES`, with all its options."""
    module = f"mast.cli.{name}"
    function = _experiment() if name == "experiment" else getattr(importlib.import_module(module), name)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, cls=_Command)(with_debug(function))
    return typer.main.get_command(single)


def _experiment() -> Callable[..., None]:
    try:
        from mast_studies.command import experiment
    except ModuleNotFoundError as missing:
        if missing.name != "mast_studies":
            raise
        raise MastError(
            "experiment: the paper's studies are not part of this installation; "
            "clone mast's repository and run `pip install -e .[studies]` in it"
        ) from None
    return experiment


def main() -> None:
    """Run the command line.

    Exit 0 on success, 2 when one sentence says what to correct, 3 on a bug in mast, 4 when a batch was finished but
    some of its recordings failed, 130 when interrupted.
    """
    from mast.cli.fast_exit import exit_at_once

    # to find plugins, pydantic reads a file of every installed package; we use none
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    threading.excepthook = _handle_thread_exception
    warnings.formatwarning = _format_warning
    with exit_at_once():
        _run_command()


def _run_command() -> None:
    """Run the command; errors become a sentence and an exit status."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # a full disk shows only now
    except KeyboardInterrupt:
        typer.echo("mast: stopped.", err=True)
        sys.exit(130)
    except Exception as error:
        if _GlobalOptions.traceback:
            raise
        from mast.cli.reporting import error_sentence

        typer.echo(f"mast: {error_sentence(error)}", err=True)
        known = isinstance(error, MastError) or machine_fault(error) is not None
        sys.exit(EXIT_USER_ERROR if known else EXIT_BUG)


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as users read it: without the line of code that it came from."""
    return f"mast: warning: {shorten(message)}\n"


def _handle_thread_exception(raised: threading.ExceptHookArgs) -> None:
    """Print no traceback for a thread that the machine stopped (a full disk, say): whoever waits for it reports it."""
    if _GlobalOptions.traceback or raised.exc_value is None or machine_fault(raised.exc_value) is None:
        threading.__excepthook__(raised)


if __name__ == "__main__":
    main()
