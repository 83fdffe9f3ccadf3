"""`mast simulate` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from mast.cli.simulate import simulate
from mast.data import soundscape_bench
from mast.data.soundscape_bench import SoundscapeBench
from mast.errors import ConfigError

app = typer.Typer(rich_markup_mode=None)
app.command()(simulate)
SMALL = ["--recordings", "2", "--duration", "1", "--sites", "1", "--days", "1", "--species", "3", "--quiet"]


def test_writes_a_dataset_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "simulated"
    result = CliRunner().invoke(app, [str(out), *SMALL, "--hidden", "--format", "wav"])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("2 recordings")
    assert str(out) in result.stdout
    assert {p.name for p in out.iterdir()} == {
        "audio",
        "recordings.csv",
        "boxes.csv",
        "hidden.csv",
        "simulation.json",
    }
    assert all(p.suffix == ".wav" for p in (out / "audio").iterdir())


def test_all_sing_where_that_is_asked_for(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, [str(tmp_path / "out"), *SMALL, "--motifs", "1"])
    assert told.exit_code == 0, told.output
    parameters = json.loads((tmp_path / "out" / "simulation.json").read_text())
    assert [label.split("-")[0] for label in parameters["labels"]] == ["motif"] * 3


def test_bats_at_their_own_pace(tmp_path: Path) -> None:
    fast = ["--fauna", "bats", "--tape", "16", "--rate", "256000", "--duration", "2", "--hours", "20-24"]
    told = CliRunner().invoke(app, [str(tmp_path / "out"), *SMALL, *fast, "--density", "5"])
    assert told.exit_code == 0, told.output
    boxes = pd.read_csv(tmp_path / "out" / "boxes.csv")
    assert boxes["label"].str.startswith("bat_").all()
    assert boxes["low_hz"].median() > 10_000


def test_help_has_a_runnable_example() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert "mast simulate simulated/ --recordings 12" in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hours", "dawn"], "--hours dawn"),
        (["--hours", "9-5"], "hours 9–5"),
        (["--format", "mp3"], "format"),
        (["--calls", "nowhere"], "no such folder"),
    ],
)
def test_mistakes_are_reported_in_one_line(tmp_path: Path, options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [str(tmp_path / "out"), *SMALL, *options])
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_makes_the_benchmark_in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(**given: object) -> SoundscapeBench:
        return SoundscapeBench.model_validate(
            {"train": 1, "val": 1, "test": 1, "test_boxes": 0, "duration_s": 0.5, "home": 0} | given
        )

    monkeypatch.setattr(soundscape_bench, "SoundscapeBench", small)
    out = tmp_path / "bench"
    wanted = ["--benchmark", "soundscape-bench", "--unlabelled-minutes", "2", "--quiet"]
    result = CliRunner().invoke(app, [str(out), *wanted])
    assert result.exit_code == 0, result.output
    assert "unlabelled: 2 recordings" in result.stdout
    assert len(list((out / "unlabelled" / "audio").iterdir())) == 2
