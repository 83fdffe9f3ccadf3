"""Tables on disk."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from mast.files import atomic_file


def write_table(path: Path, table: pd.DataFrame) -> None:
    """A .parquet file, or else a CSV, whole or not at all."""
    with atomic_file(path) as part:
        if path.suffix.lower() == ".parquet":
            table.to_parquet(part, index=False)
        else:
            table.to_csv(part, index=False, lineterminator="\n")
