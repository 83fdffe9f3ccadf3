"""When two results folders hold the same."""

from __future__ import annotations

from pathlib import Path

import pandas as pd


def assert_same_results(a: Path, b: Path) -> None:
    """The same events and the same failures, byte for byte; and as many marks as recordings."""
    for name in ("detections.csv", "failures.csv"):
        assert (a / name).read_bytes() == (b / name).read_bytes()
    pd.testing.assert_frame_equal(*(pd.read_parquet(x / "detections.parquet") for x in (a, b)))
    marks = [sorted(p.relative_to(x).as_posix() for p in (x / "recordings").rglob("*.*")) for x in (a, b)]
    assert marks[0] == marks[1]
