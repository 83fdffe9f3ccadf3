from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from toy_preset import toy_preset
from typer.testing import CliRunner

from mast.cli.main import app
from mast_studies import embedded, neighbours, training_runs

PRESET = toy_preset(pretrain_chunks=32)


def run(root: Path, study: str, tones: Path):  # type: ignore[no-untyped-def]
    (root / "toy.toml").write_text(PRESET)
    command = ["experiment", study, "--data", str(tones), "--preset", str(root / "toy.toml"), "--quiet"]
    command += ["--work", str(root / "work"), "--out", str(root / "out"), "--name", "tones"]
    return CliRunner().invoke(app, command)


def test_from_sound_to_embeddings_once(tmp_path: Path, tones: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MIN_EVENTS", 10**6)  # UMAP takes seconds to compile
    told = run(tmp_path, "umap-chunks", tones)
    assert told.exit_code == 0, told.output + str(told.exception)
    table = pd.read_csv(tmp_path / "out" / "umap-chunks.csv")
    assert set(table["measure"]) == {"hours_apart", "events_apart"}  # there is one site
    assert set(table["way"]) == {"random", "mel", "pretrained", "encoder"}
    assert (tmp_path / "out" / "umap-chunks.png").stat().st_size > 5_000
    kept = tmp_path / "work" / "tones-0" / "embedded" / "mast"
    boxes = pd.read_parquet(kept / "boxes.parquet")
    assert {"train", "val", "test"} == set(boxes["part"])
    found = pd.read_parquet(tmp_path / "work" / "tones-0" / "found" / "mast" / "test.truth.parquet")
    assert ((boxes["part"] == "test") & (boxes["kind"] == "truth")).sum() == len(found)

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("done again")

    for name in ("fit_detector", "pretrain"):
        monkeypatch.setattr(training_runs, name, refuse)
    with monkeypatch.context() as patch:
        patch.setattr(embedded, "embed_parts", refuse)
        told = run(tmp_path, "retrieval", tones)  # what is there is used
        assert "all labelled boxes are called 'tone'" in str(told.exception)
    # of another detector, they are made again
    about = json.loads((kept / "about.json").read_text())
    (kept / "about.json").write_text(json.dumps(about | {"detector": "another"}))
    assert run(tmp_path, "umap-chunks", tones).exit_code == 0
    assert json.loads((kept / "about.json").read_text()) == about
