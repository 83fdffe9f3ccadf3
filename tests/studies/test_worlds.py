from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mast_studies.worlds import combine_worlds, draw, pool, with_common_name


def row(system: str, f1: float, difference: list[float] | None = None, **more: Any) -> dict[str, Any]:
    differences = {} if difference is None else {"f1": difference, "ap50": difference}
    return {
        "part": "site_ood",
        "system": system,
        "label": system.upper(),
        "seeds": [0],
        "f1": f1,
        "ap50": f1 - 0.1,
        "differences": differences,
        **more,
    }


def test_the_interval_of_a_mean_by_hand() -> None:
    # each world's interval is ± 1.96 · 0.01; without luck the mean of two has a standard deviation of 0.01 / √2
    own = [[0.02, 0.02 - 0.0196, 0.02 + 0.0196], [0.06, 0.06 - 0.0196, 0.06 + 0.0196]]
    plain = pool(own, training_sd=0.0)
    assert plain.mean == pytest.approx(0.04)
    assert plain.low == pytest.approx(0.04 - 1.96 * 0.01 / 2**0.5)
    assert plain.high == pytest.approx(0.04 + 1.96 * 0.01 / 2**0.5)
    # with 0.01 for each of two training runs the variance of a world is three times as large
    lucky = pool(own, training_sd=0.01)
    assert lucky.low == pytest.approx(0.04 - 1.96 * (3**0.5) * 0.01 / 2**0.5)


def test_no_interval_where_a_world_has_none() -> None:
    assert pool([[0.02, 0.0, 0.04], [0.06, None, None]]) == (pytest.approx(0.04), None, None)


def test_worlds_are_put_together_by_part_and_system() -> None:
    found = combine_worlds(
        {
            3: [row("rcnn", 0.5), row("st", 0.6, [0.1, 0.08, 0.12]), row("fcos", 0.4, [-0.1, -0.2, 0.0])],
            4: [row("rcnn", 0.6), row("st", 0.7, [0.1, 0.06, 0.14])],
        }
    )
    assert [(one["system"], one["worlds"]) for one in found] == [
        ("rcnn", [3, 4]),
        ("st", [3, 4]),
        ("fcos", [3]),
    ]
    assert found[0]["differences"] == {}
    assert found[1]["f1"] == [0.6, 0.7]
    assert found[1]["differences"]["f1"]["mean"] == pytest.approx(0.1)
    assert found[1]["differences"]["f1"]["by_world"] == [[0.1, 0.08, 0.12], [0.1, 0.06, 0.14]]
    assert found[1]["gained"] == {}  # an old table does not say


def test_round_1_stands_for_self_training_only_where_that_was_cut_short() -> None:
    both, cut = [row("rcnn", 0.5), row("st_1", 0.6), row("st", 0.7)], [row("rcnn", 0.4), row("st_1", 0.5)]
    names = ["st", "st_1"]
    assert with_common_name(both, names) == both
    assert [(one["system"], one["f1"]) for one in with_common_name(cut, names)] == [
        ("rcnn", 0.4),
        ("st", 0.5),
    ]


def test_a_table_of_two_seeds_or_of_something_else_is_refused_in_one_sentence(tmp_path: Path) -> None:
    both = tmp_path / "both.json"
    both.write_text(json.dumps({"figures": {"rows": [row("a", 0.5), {**row("b", 0.5), "seeds": [1]}]}}))
    other = tmp_path / "other.json"
    other.write_text("[]")
    for path, why in ((both, "holds 2 seeds"), (other, "not a table")):
        ran = subprocess.run(
            [sys.executable, "-m", "mast_studies.worlds", str(path), "--out", str(tmp_path / "out.json")],
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 1
        assert why in ran.stderr
        assert "Traceback" not in ran.stderr
    assert not (tmp_path / "out.json").exists()


def test_the_picture_has_a_mark_for_every_world_and_one_for_the_mean() -> None:
    rows = combine_worlds({seed: [row("st", 0.6, [0.1, 0.08, 0.12])] for seed in (3, 4, 5)})
    first, second = draw(rows, title="ahead").axes
    labels = [tick.get_text() for tick in first.get_yticklabels()]
    assert labels == [*(f"other sites, world {seed}" for seed in (3, 4, 5)), "other sites, mean"]
    assert len(first.containers) == len(second.containers) == 4
