from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
from as_a_program import run_as_program

BOX = ["start_s", "end_s", "low_hz", "high_hz"]


def test_pieces_are_compared_with_what_the_expert_drew_in_them(tmp_path: Path) -> None:
    data = tmp_path / "birds"
    data.mkdir()
    sf.write(data / "a.wav", np.zeros(16_000 * 30, dtype=np.float32), 16_000)
    pd.DataFrame({"file": ["a.wav"], "duration_s": [30.0]}).to_csv(data / "recordings.csv", index=False)
    expert = [
        (2.0, 3.0, 1000, 2000),  # drawn too
        (9.0, 11.0, 1000, 2000),  # cut by the piece's end, and drawn up to there
        (15.0, 16.0, 3000, 4000),  # between the pieces
        (22.0, 23.0, 500, 900),  # missed
    ]
    pd.DataFrame(expert, columns=BOX).assign(file="a.wav", label="").to_csv(data / "boxes.csv", index=False)
    drawn = [
        ("a.wav", 0, 10, 2.0, 3.0, 1000, 2000),
        ("a.wav", 0, 10, 9.0, 10.0, 1000, 2000),
        ("a.wav", 0, 10, 5.0, 6.0, 1000, 2000),  # what the expert left out
        ("a.wav", 20, 30, *[np.nan] * 4),
    ]
    table = pd.DataFrame(drawn, columns=["file", "from_s", "to_s", *BOX])
    table.to_csv(tmp_path / "drawn_birds.csv", index=False)
    words = ["--data", data, "--drawn", tmp_path, "--out", tmp_path / "out.json"]
    run_as_program("mast_studies.checked_agreement", *words)
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["command"].startswith("python -m mast_studies.checked_agreement --data ")
    figures = written["figures"]["birds"]
    assert (figures["pieces"], figures["boxes_of_the_expert"], figures["boxes_drawn"]) == (2, 3, 3)
    assert figures["precision"] == figures["recall"] == pytest.approx(2 / 3, abs=1e-3)
