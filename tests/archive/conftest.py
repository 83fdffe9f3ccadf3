"""A small survey, a detector with random weights, and what `mast detect` finds with them in one process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

sys.path.insert(0, str(Path(__file__).parents[1] / "inference"))
from random_detector import save_detector, write_sound

from mast.cli.detect import detect

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def run() -> Run:
    app = typer.Typer()
    app.command()(detect)
    options = [
        "--quiet",
        "--device",
        "cpu",
        "--no-summary",
    ]  # a page of pictures takes longer than the search
    return lambda *words: CliRunner().invoke(app, [*options, *map(str, words)])


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_detector(tmp_path_factory.mktemp("run") / "best").parent


@pytest.fixture(scope="session")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve short recordings in two folders and one that is not sound."""
    root = tmp_path_factory.mktemp("survey")
    for i in range(12):
        write_sound(root / ("OAK", "ELM")[i % 2] / f"20230510_{i:02d}0000.wav", 2 + i * 0.5, seed=i)
    (root / "OAK" / "broken.wav").write_text("no sound at all")
    return root


@pytest.fixture(scope="session")
def whole(survey: Path, model: Path, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The survey searched by one process."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert run(survey, "--model", model, "--out", out).exit_code == 4
    return out
