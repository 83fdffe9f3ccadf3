"""Measured parts on disk and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mast.errors import MastError
from mast.evaluation.part_tables import PartTables, has_part, parts_in
from mast.events import BOX_COLUMNS, as_events
from mast.grid import FrontEnd, grid_to_events
from mast.probability import Calibration

BATS = FrontEnd.for_band(96_000)


@pytest.fixture
def part() -> PartTables:
    """Two true boxes, one of them found with an overlap of exactly one half, and a detection that scores 0.2."""
    truth = pd.DataFrame([(10, 5, 50, 25), (100, 5, 150, 20)], columns=BOX_COLUMNS)
    found = pd.DataFrame([(10, 5, 50, 15), (100, 5, 150, 20)], columns=BOX_COLUMNS)
    for table in (truth, found):
        table[BOX_COLUMNS] = grid_to_events(table[BOX_COLUMNS], BATS, chunk_start_s=7 * BATS.chunk_s)
    heard = pd.DataFrame({"recording": ["a.wav", "b.wav"], "start_s": 0.0, "end_s": 100.0})
    return PartTables(
        as_events(truth.assign(recording="a.wav")),
        as_events(found.assign(recording="a.wav", score=[0.6, 0.2])),
        heard,
        BATS,
        0.4,
        Calibration(method="platt", slope=2.0, intercept=-1.0),
    )


def test_boxes_are_compared_in_cells(part: PartTables) -> None:
    outcome = part.match()
    assert outcome.iou.tolist() == [0.5, 1.0]  # half of the bins, not of the hertz
    assert outcome.scores.tolist() == [0.6, 0.2]  # the detector's own
    found = part.evaluate()
    assert (found.metrics["precision"], found.metrics["recall"]) == (1.0, 0.5)
    assert replace(part, threshold=None).evaluate().metrics["recall"] == 1.0
    assert found.n_recordings == 2


def test_users_see_probabilities(part: PartTables) -> None:
    assert part.above_threshold["score"].tolist() == [0.6]
    assert (
        part.with_probabilities(part.found)["score"].tolist() == part.calibration.apply([0.6, 0.2]).tolist()
    )


def test_what_is_read_is_what_was_written(part: PartTables, tmp_path: Path) -> None:
    assert not has_part(tmp_path, "test")
    nothing = replace(part, found=part.found.iloc[:0], threshold=None)
    for name, given in (("test", part), ("empty", nothing)):
        given.save(tmp_path, name)
        again = PartTables.load(tmp_path, name)
        for table in ("truth", "found", "heard"):
            pd.testing.assert_frame_equal(getattr(again, table), getattr(given, table))
        assert (again.front_end, again.threshold, again.calibration) == (
            given.front_end, given.threshold, given.calibration,
        )  # fmt: skip
    np.testing.assert_array_equal(PartTables.load(tmp_path, "test").match().iou, part.match().iou)
    assert has_part(tmp_path, "test")
    assert parts_in(tmp_path) == ["empty", "test"]


def test_tables_that_are_not_there_are_named(part: PartTables, tmp_path: Path) -> None:
    with pytest.raises(MastError, match=r"its tables of test cannot be read .* measure again"):
        PartTables.load(tmp_path, "test")
    part.save(tmp_path, "test")
    (tmp_path / "test.json").write_text("{}")
    with pytest.raises(MastError, match="cannot be read"):
        PartTables.load(tmp_path, "test")
