"""``to_check.csv`` in a results folder: the events that `mast summarize --check` drew for somebody to check."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from mast.annotations.tables import read_table
from mast.table_files import write_table

TO_CHECK = "to_check.csv"
_COLUMNS = ["event", "stratum", "recording", "start_s", "end_s", "low_hz", "high_hz", "score", "label"]


def read_to_check(folder: Path) -> pd.DataFrame:
    """``event`` (its id in the review), ``stratum`` and ``label`` of each; no rows where nothing was drawn.

    Raises:
        AnnotationError: the table cannot be read.
    """
    path = folder / TO_CHECK
    if not path.is_file():
        return pd.DataFrame({"event": [], "stratum": [], "label": []}, dtype=object)
    table = read_table(path)
    columns = table.require({name: (name,) for name in ("event", "stratum", "label")})
    return pd.DataFrame({name: table.texts(column) for name, column in columns.items()}, dtype=object)


def write_to_check(folder: Path, drawn: pd.DataFrame) -> Path:
    """Write the events that were drawn."""
    path = folder / TO_CHECK
    write_table(path, drawn[_COLUMNS])
    return path
