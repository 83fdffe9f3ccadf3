"""A study run as `python -m mast_studies.NAME`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from mast.errors import MastError


def run_script(main: Callable[[], None]) -> None:
    """Run a study; a mistake in its input ends it with one sentence instead of a traceback."""
    try:
        main()
    except MastError as error:
        sys.exit(f"mast: {error}")
