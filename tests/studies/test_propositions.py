from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from made_up_found import write_found

from mast.errors import MastError
from mast.evaluation.part_tables import PartTables
from mast.grid import FrontEnd
from mast_studies.propositions import check, error_by_confidence, noise, rounds_of

END_S = 20.48


def boxes(rows: list[tuple[float, float]]) -> pd.DataFrame:
    """Half-second boxes at these times, with these scores."""
    return pd.DataFrame(
        [
            {
                "recording": "a.wav",
                "start_s": start,
                "end_s": start + 0.5,
                "low_hz": 1_000.0,
                "high_hz": 2_000.0,
                "score": score,
            }
            for start, score in rows
        ]
    )


@pytest.fixture
def tables() -> PartTables:
    """Two chunks: in the first the confident box is right and another wrong, in the second the only box is wrong."""
    truth = boxes([(1.0, 1.0), (3.0, 1.0)])
    found = boxes([(1.0, 0.9), (7.0, 0.7), (15.0, 0.5), (3.0, 0.1)])
    heard = pd.DataFrame([{"recording": "a.wav", "start_s": 0.0, "end_s": END_S}])
    return PartTables(truth, found, heard, FrontEnd(), threshold=0.4)


def test_errors_fall_as_confidence_rises(tables: PartTables) -> None:
    assert error_by_confidence(tables.match(), 0.4, groups=3) == [1.0, 1.0, 0.0]
    assert error_by_confidence(tables.match(), None, groups=4) == [0.0, 1.0, 1.0, 0.0]


def test_noise_by_hand(tables: PartTables) -> None:
    # the first chunk is half wrong with a mean confidence of 0.8, the second all wrong with 0.5
    seen = noise(tables.match(), 0.4)
    assert seen["chunks"] == 2
    assert seen["uniform"] == pytest.approx(0.75)
    assert seen["weighted"] == pytest.approx((0.8 * 0.5 + 0.5 * 1.0) / 1.3)


def test_the_product_of_every_round() -> None:
    told = {"pseudo_labels": [{"round": 1, "boxes": 7, "precision": 0.5, "recall": 0.4}]}
    assert rounds_of(told) == [{"round": 1, "precision": 0.5, "recall": 0.4, "product": 0.2}]
    assert rounds_of({}) == []


def test_a_world_is_checked_part_by_part(tmp_path: Path) -> None:
    write_found(tmp_path, "from_scratch", hits={"a.wav": 2}, truths={"a.wav": 4}, false_alarms={"a.wav": 2})
    (part,) = check(tmp_path / "made_up-0" / "found")["parts"].values()
    assert part["boxes"] == 4
    assert part["error, least to most confident"] == [1.0, 1.0, 0.0, 0.0]
    with pytest.raises(MastError, match="has no tables of from_scratch"):
        check(tmp_path)
