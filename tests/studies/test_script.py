"""Studies run as programs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from as_a_program import run_as_program

import mast_studies


def test_bad_input_gets_one_sentence(tmp_path: Path) -> None:
    words = (
        "--model",
        "default",
        "--data",
        tmp_path / "nowhere",
        "--work",
        tmp_path,
        "--out",
        tmp_path / "out.json",
    )
    with pytest.raises(SystemExit) as ended:
        run_as_program("mast_studies.nested_boxes", *words)
    assert (
        str(ended.value) == f"mast: {tmp_path / 'nowhere'}: no such folder; expected a folder of recordings"
    )
    assert not (tmp_path / "out.json").exists()


def test_all_studies_end_that_way() -> None:
    programs = [
        text
        for file in Path(mast_studies.__file__).parent.glob("*.py")
        if '__name__ == "__main__"' in (text := file.read_text(encoding="utf-8"))
    ]
    assert len(programs) > 10
    assert all(re.search(r"^ +run_script\(main\)$", text, re.MULTILINE) for text in programs)
