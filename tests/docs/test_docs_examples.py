"""Blocks of the documentation that are marked as running do run, page by page, in a folder like a user's."""

from __future__ import annotations

import ast
import importlib
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
from doc_blocks import PAGES, Block, blocks, command_lines
from typer.testing import CliRunner

from mast.cli.main import app

sys.path.insert(0, str(Path(__file__).parents[1] / "inference"))
from random_detector import save_detector, write_sound

RUNNING = [page for page in PAGES if any(block.runs for block in blocks(page))]
SHORTER = {"simulate": ["--duration", "5"]}  # the same recordings, cut short
EXPECTED = {
    "quick_start.md",
    "raven_to_detector.md",
    "checking.md",
    "summarize.md",
    "formats.md",
    "metrics.md",
    "api.md",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of two places, tables drawn in Raven, a detector, and what it found."""
    root = tmp_path_factory.mktemp("home")
    for place, site in (("recordings", "OAK"), ("newsite", "ELM"), ("archive", "OAK")):
        for hour in (5, 6):
            write_sound(root / place / f"{site}_20240512_{hour:02d}0000.wav", 4, seed=hour)
    write_sound(root / "dawn.wav", 4)
    for place, site in (("raven_tables", "OAK"), ("newsite_tables", "ELM")):
        (root / place).mkdir()
        for hour, rows in ((5, [(0.5, 1.2, 900, 1_400), (2.0, 2.6, 2_000, 2_900)]), (6, [])):
            table = pd.DataFrame(
                rows, columns=["Begin Time (s)", "End Time (s)", "Low Freq (Hz)", "High Freq (Hz)"]
            )
            table.insert(0, "Selection", range(1, len(table) + 1))
            name = f"{site}_20240512_{hour:02d}0000.Table.1.selections.txt"
            table.to_csv(root / place / name, sep="\t", index=False)
    for run in ("birds", "practice"):
        save_detector(root / "runs" / run / "best")
    for out, threshold in (("detections", "0.3"), ("detections_before", "0.4")):
        folders = [str(root / "recordings"), str(root / "newsite")]
        given = ["--model", str(root / "runs/birds"), "--out", str(root / out), "--threshold", threshold]
        done = CliRunner().invoke(app, ["detect", *folders, *given, "--device", "cpu", "--quiet"])
        assert done.exit_code == 0, done.output
    for tables, place in (("raven_tables", "recordings"), ("newsite_tables", "newsite")):
        given = [str(root / tables), str(root / place / "boxes.csv"), "--audio", str(root / place)]
        done = CliRunner().invoke(app, ["convert", *given, "--to", "csv", "--quiet"])
        assert done.exit_code == 0, done.output
    return root


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.name)
def test_the_page_runs(page: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "home"
    shutil.copytree(home, folder)
    monkeypatch.chdir(folder)
    for block in blocks(page):
        if block.runs:
            run_python(block) if block.language == "python" else run_commands(block)


def run_python(block: Block) -> None:
    exec(compile(block.text, block.page.name, "exec"), {"__name__": "example"})


def run_commands(block: Block) -> None:
    lines = command_lines(block)
    assert lines, f"{block.page.name}: a block is marked as running and holds no command"
    for words in lines:
        done = CliRunner().invoke(app, [*words, *SHORTER.get(words[0], []), "--quiet"])
        assert done.exit_code == 0, (
            f"{block.page.name}: mast {' '.join(words)}: {done.exception!r} {done.output}"
        )


def test_the_pages_that_teach_do_run() -> None:
    assert {page.name for page in RUNNING} >= EXPECTED


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_the_docs_names_what_exists(page: Path) -> None:
    for block in blocks(page):
        if block.language != "python":
            continue
        for node in ast.walk(ast.parse(block.text, filename=page.name)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mast":
                module = importlib.import_module(str(node.module))
                for name in node.names:
                    assert hasattr(module, name.name), f"{page.name}: {node.module} has no {name.name}"
