from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from mast_studies.pseudo_quality import TABLE, load_truth, measure_rounds


def box(recording: str, start_s: float, end_s: float) -> dict[str, object]:
    return {"recording": recording, "start_s": start_s, "end_s": end_s, "low_hz": 1_000.0, "high_hz": 2_000.0}


def test_precision_and_recall_of_pseudo_labels_chunk_by_chunk(tmp_path: Path) -> None:
    unlabelled = tmp_path / "unlabelled"
    calls = [
        box("a.wav", 1.0, 2.0),
        box("a.wav", 7.0, 7.05),  # in both chunks
        box("a.wav", 9.8, 11.8),  # the first chunk holds a tenth of it
        box("b.wav", 3.0, 4.0),  # nobody's chunk
    ]
    truth = pd.DataFrame(calls).rename(columns={"recording": "file"})
    truth.to_csv(tmp_path / "unlabelled_truth.csv", index=False)
    run = tmp_path / "run"
    (run / "round-1").mkdir(parents=True)
    heard = pd.DataFrame(
        {"root": str(unlabelled), "recording": "a.wav", "start_s": [0.0, 5.0], "valid_s": 10.0}
    )
    heard.to_parquet(run / "round-1" / "unlabelled.parquet")
    found = [
        {**box("a.wav", 1.0, 2.0), "chunk": 0},
        {**box("a.wav", 7.0, 7.05), "chunk": 1},
        {**box("a.wav", 13.0, 14.0), "chunk": 1},  # nothing there
    ]
    pd.DataFrame(found).assign(score=0.9, label="", root=str(unlabelled)).to_parquet(
        run / "round-1" / "pseudo.parquet"
    )
    known = load_truth((unlabelled,))
    assert known is not None
    (row,) = measure_rounds(run, known).to_dict("records")
    assert (row["round"], row["boxes"]) == (1, 3)
    assert row["precision"] == pytest.approx(2 / 3)
    assert row["recall"] == pytest.approx(2 / 4)  # the short call counts in each chunk that holds it
    assert row["recall of under 0.1 s"] == pytest.approx(1 / 2)
    assert (run / TABLE).exists()


def test_without_truth_nothing_is_measured(tmp_path: Path) -> None:
    assert load_truth((tmp_path / "unlabelled",)) is None
    assert load_truth(()) is None
