from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf

from mast.data.recordings import load_dataset
from mast.evaluation.part_tables import PartTables
from mast.events import as_events
from mast.grid import FrontEnd
from mast_studies.other_sites import analyse_world, kinds_of_false_alarms, recall_by_species

COLUMNS = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score"]
HEARD, UNHEARD = "S01_20240512_000000.flac", "S07_20240512_000000.flac"


@pytest.fixture
def tables() -> PartTables:
    truth = [
        [HEARD, 5.0, 5.5, 3000, 4000, 1],
        [HEARD, 1.0, 2.0, 1000, 2000, 1],
        [HEARD, 5.6, 6.1, 3000, 4000, 1],
        [UNHEARD, 1.0, 8.0, 1000, 2000, 1],
    ]
    found = [
        [HEARD, 1.0, 2.0, 1000, 2000, 0.9],  # right
        [HEARD, 1.1, 2.0, 1000, 2000, 0.8],  # the same call again
        [HEARD, 1.6, 2.2, 1000, 2000, 0.7],  # badly fitting
        [HEARD, 4.9, 6.9, 1500, 5000, 0.7],  # round both
        [HEARD, 8.0, 8.5, 1000, 2000, 0.7],  # nothing there
        [UNHEARD, 2.0, 2.3, 1000, 2000, 0.7],  # a note of the song, and another
        [UNHEARD, 3.0, 3.3, 1000, 2000, 0.7],
        [UNHEARD, 9.0, 9.5, 1000, 2000, 0.1],  # below the threshold
    ]
    heard = pd.DataFrame({"recording": [HEARD, UNHEARD], "start_s": [0.0, 0.0], "end_s": [10.24, 10.24]})
    return PartTables(
        *(as_events(pd.DataFrame(rows, columns=COLUMNS)) for rows in (truth, found)), heard, FrontEnd(), 0.5
    )


def test_kinds_of_false_alarms(tables: PartTables) -> None:
    assert kinds_of_false_alarms(tables.match(), 0.5) == {
        "again": 1,
        "badly fitting": 1,
        "part of a call": 2,
        "round several": 1,
        "beside a call": 0,
        "nothing there": 1,
    }


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """The labelled dataset of a benchmark: a frog sings at home, too, a crow and a hen do not."""
    home = "S02_20240512_000000.flac"
    rows = [[home, 1.0, 2.0, 1000, 2000, "frog"]]
    rows += [[HEARD, 1.0, 2.0, 1000, 2000, "frog"], [HEARD, 5.0, 5.5, 3000, 4000, "crow"]]
    rows += [[HEARD, 4.0, 7.0, 2000, 6000, "hen"]]  # around the crow's and the next call, and cut by no table
    rows += [[HEARD, 5.6, 6.1, 3000, 4000, "frog"], [UNHEARD, 0.5, 8.0, 1000, 2000, "crow"]]
    folder = tmp_path / "labelled"
    folder.mkdir()
    columns = ["file", "start_s", "end_s", "low_hz", "high_hz", "label"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "boxes.csv", index=False)
    parts = {home: "train", HEARD: "site_ood", UNHEARD: "site_ood"}
    listing = pd.DataFrame({"file": list(parts), "split": list(parts.values())})
    listing.to_csv(folder / "recordings.csv", index=False)
    for name in parts:
        sf.write(folder / name, np.zeros(10 * 16_000), 16_000)
    return tmp_path


def test_calls_of_species_from_elsewhere_are_told_apart(tables: PartTables, bench: Path) -> None:
    told = recall_by_species(tables, tables.match(), load_dataset(bench / "labelled"))
    assert told == {
        "at home, too": {"boxes": 2, "recall": 0.5},
        "not at home": {"boxes": 2, "recall": 0.0},
    }


@pytest.mark.usefixtures("bench")
def test_sites_and_long_calls_are_told_apart(tables: PartTables, tmp_path: Path) -> None:
    tables.save(tmp_path / "found" / "toy", "site_ood")
    (tmp_path / "benchmark.json").write_text(
        json.dumps({"seed": 3, "found": {"never_heard": ["S07", "S08"]}})
    )
    world = analyse_world(tmp_path, tmp_path / "found")
    figures = world["systems"]["toy"]
    assert figures["all"]["boxes"] == 4
    assert (figures["heard without labels"]["recordings"], figures["never heard"]["recordings"]) == (1, 1)
    assert figures["never heard"]["f1"] == 0
    assert figures["heard without labels"]["precision"] == pytest.approx(1 / 5)
    assert figures["heard without labels"] == figures["without calls over 5 s"]
    best = 2 * 1 / (1 + 4)  # the first box alone is right
    assert figures["threshold"] == {
        "chosen at home": 0.5,
        "best here": 0.9,
        "f1 with the best": round(best, 4),
    }
