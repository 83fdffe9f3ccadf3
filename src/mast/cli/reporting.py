"""The report of the running command (:mod:`mast.progress`): started and ended by ``main``, fed by progress bars."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import typer

from mast.errors import MastError, machine_fault, shorten
from mast.progress import REPORT_IN, CommandReport

EXIT_STOPPED = 130  # by the user
_current: ContextVar[CommandReport | None] = ContextVar("report", default=None)


def current_report() -> CommandReport:
    """The report of the running command; without one, a report that nobody reads."""
    return _current.get() or CommandReport([])


@contextmanager
def report_command() -> Iterator[None]:
    """Report on the command in the block."""
    own = CommandReport(sys.argv[1:])
    if folder := os.environ.pop(REPORT_IN, ""):  # not for processes that this one starts
        own.claim_folder(Path(folder))
        own.begin()
    token = _current.set(own)
    try:
        yield
        own.end("done")
    except typer.Exit as end:
        own.end("stopped" if end.exit_code == EXIT_STOPPED else "done")
        raise
    except KeyboardInterrupt:
        own.end("stopped")
        raise
    except Exception as error:
        own.end("failed", error_sentence(error))
        raise
    finally:
        _current.reset(token)


def error_sentence(error: Exception) -> str:
    """The sentence that users see for an error: what to correct, or that it is a bug in mast."""
    fault = str(error) if isinstance(error, MastError) else machine_fault(error)
    if fault is not None:
        return shorten(fault)
    return f"internal error: {shorten(f'{type(error).__name__}: {error}')} (--debug shows where)"
