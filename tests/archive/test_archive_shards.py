"""Shards that run at the same time into one folder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from same_results import assert_same_results
from typer.testing import Result

from mast.errors import ConfigError
from mast.inference.results import ResultsFolder

Run = Callable[..., Result]


def at_once(n: int, *arguments: str | Path) -> list[int]:
    command = [
        sys.executable,
        str(Path(__file__).with_name("shards_at_once.py")),
        str(n),
        *map(str, arguments),
    ]
    done = subprocess.run(
        [*command, "--quiet", "--device", "cpu"], capture_output=True, text=True, timeout=600
    )
    assert done.stdout, done.stderr
    return [int(code) for code in done.stdout.split()]


def test_all_at_once_are_one_run(whole: Path, survey: Path, model: Path, tmp_path: Path) -> None:
    arguments = (survey, "--model", model, "--formats", "csv,partitioned", "--no-summary")
    codes = at_once(4, *arguments, "--out", tmp_path / "out")
    assert sorted(codes) == [0, 0, 0, 4]  # one of them had the broken recording
    assert_same_results(tmp_path / "out", whole)
    found = pd.read_parquet(tmp_path / "out" / "partitioned")
    assert len(found) == len(pd.read_parquet(whole / "detections.parquet"))


def test_the_tables_may_be_left_to_a_last_run(
    run: Run, whole: Path, survey: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for shard in ("0/2", "1/2"):
        result = run(survey, "--model", model, "--out", out, "--shard", shard, "--no-tables")
        assert result.exit_code in (0, 4)
        assert "recordings are done in" in result.output
        assert sorted(path.name for path in out.iterdir()) == ["recordings", "run.json"]
    assert run(survey, "--model", model, "--out", out).exit_code == 4
    assert_same_results(out, whole)


def test_a_folder_that_another_shard_just_made_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    is_file, asked = Path.is_file, 0

    def late(self: Path) -> bool:
        """The first time it is asked for, run.json is not there; right after, somebody else has made it."""
        nonlocal asked
        if self.name == "run.json":
            asked += 1
            if asked == 1:
                folder.mkdir()
                (folder / "recordings").mkdir()
                made = {"mast": "0", "made_with": {"model": "m", "root": "r"}}
                self.write_text(json.dumps(made))
                return False
        return is_file(self)

    monkeypatch.setattr(Path, "is_file", late)
    ResultsFolder(folder, {"model": "m"}, "r")
    assert asked == 2
    with pytest.raises(ConfigError, match="made with the model mast-m, not mast-x"):
        ResultsFolder(folder, {"nested_in_recording": 0.5, "model": "x"}, "r")
