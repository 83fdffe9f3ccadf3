from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mast.errors import MastError
from mast.evaluation.part_tables import PartTables
from mast.events import as_events
from mast.grid import FrontEnd
from mast_studies.fused_systems import (
    PARTS,
    VALIDATION,
    fuse_systems,
    measure_world,
    seed_of,
    with_probabilities,
)

COLUMNS = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score"]
NAMES = [f"r{n}.wav" for n in range(4)]


def part(seed: int) -> PartTables:
    """Twelve calls in each recording. A detector finds all of them, and as many false alarms that only it makes."""
    rng = np.random.default_rng(seed)
    truth, found = [], []
    for name in NAMES:
        for k in range(1, 13):
            truth.append([name, 10.0 * k, 10.0 * k + 1, 1000, 2000, 1])
            found.append(
                [name, 10.0 * k + rng.normal(0, 0.05), 10.0 * k + 1, 1000, 2000, rng.uniform(0.3, 0.9)]
            )
            start = 10.0 * k + 2 + 4 * (seed % 2)
            found.append([name, start, start + 1, 3000, 4000, rng.uniform(0.3, 0.9)])
    heard = pd.DataFrame({"recording": NAMES, "start_s": 0.0, "end_s": 140.0})
    tables = (as_events(pd.DataFrame(rows, columns=COLUMNS)) for rows in (truth, found))
    return PartTables(*tables, heard, FrontEnd())


def test_two_that_err_apart_are_better_together(tmp_path: Path) -> None:
    folders = [tmp_path / "found" / name for name in ("a", "b")]
    for seed, folder in enumerate(folders):
        for name in (VALIDATION, *PARTS):
            part(seed).save(folder, name)
    figures = measure_world(folders)
    assert list(figures) == ["a", "b", "a+b"]
    for name in (VALIDATION, *PARTS):
        assert figures["a+b"][name]["f1"] > 0.95
        assert max(figures[one][name]["f1"] for one in "ab") < 0.8
        assert figures["a+b"][name]["ap50"] > figures["a"][name]["ap50"] + 0.1


def test_scores_are_means_over_the_systems() -> None:
    own = with_probabilities({VALIDATION: part(0)})[VALIDATION]
    nothing = part(1)
    nothing = PartTables(nothing.truth, nothing.found.iloc[:0], nothing.heard, nothing.front_end)
    together = fuse_systems([own, nothing]).found.sort_values(["recording", "start_s", "low_hz"])
    expected = own.found.sort_values(["recording", "start_s", "low_hz"])
    np.testing.assert_allclose(together["score"], expected["score"] / 2)
    np.testing.assert_allclose(together["start_s"], expected["start_s"], atol=1e-6)


def test_a_folder_without_a_seed() -> None:
    assert seed_of(Path("work/soundscape-bench-14/found")) == 14
    with pytest.raises(
        MastError, match="expected a folder named found, inside one such as soundscape-bench-4"
    ):
        seed_of(Path("work/found"))
