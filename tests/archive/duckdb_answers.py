"""DuckDB in a process of its own: in pytest's it would end with a page of complaints about what it leaves behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

# without pandas, which takes longer to import than all the rest
_ASK = "import sys, duckdb; duckdb.sql(sys.argv[1]).write_parquet(sys.argv[2])"


def ask_duckdb(query: str) -> pd.DataFrame:
    """The answer as a table. Paths in the query start from the current folder."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.parquet"
        done = subprocess.run(
            [sys.executable, "-c", _ASK, query, str(answer)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        table: pd.DataFrame = pd.read_parquet(answer)
        return table
