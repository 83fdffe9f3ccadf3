"""`python -m` for a study, in the test's own process: a new one spends seconds on imports."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import pytest


def run_as_program(module: str, *words: str | Path) -> None:
    """Run a module as a program with these words; one that ends with an error raises SystemExit."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that it has been imported already
        patch.setattr(sys, "argv", [module, *map(str, words)])
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            if end.code:
                raise
