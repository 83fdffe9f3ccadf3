"""The rule that stops self-training, on rounds that were all measured."""

from __future__ import annotations

import json
from pathlib import Path

from as_a_program import run_as_program
from made_up_found import write_found


def test_the_rule_keeps_what_validation_says_and_is_measured_on_the_tests(tmp_path: Path) -> None:
    truths = {"a.wav": 10, "b.wav": 10}
    for system, on_validation, on_test in (("mast", 5, 4), ("mast_st_1", 7, 6), ("mast_st", 6, 9)):
        for part, hits in (("val", on_validation), ("site_ood", on_test)):
            write_found(tmp_path / "work", system, part=part, hits=dict.fromkeys(truths, hits), truths=truths)
    out = tmp_path / "rule.json"
    run_as_program("mast_studies.stop_rule", "--work", tmp_path / "work", "--out", out)
    found = json.loads(out.read_text(encoding="utf-8"))["figures"]["made_up"]
    assert found["kept"] == [1]
    f1 = found["f1"]["site_ood"]
    assert f1["no round"] < f1["the rule"] < f1["all rounds"]  # the second round was thrown away, wrongly
