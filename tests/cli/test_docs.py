"""What the documentation promises about the command line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mast.cli.main import SUMMARIES, app, load_command

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_command_has_an_example_and_the_common_options(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0
    assert re.search(rf"Examples?:\n    mast {name} \S", shown.output), shown.output
    for option in ("--quiet", "--debug"):
        assert option in shown.output
    assert f"`mast {name} " in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SUMMARIES)
def test_wrong_usage_exits_with_2(name: str) -> None:
    assert CliRunner().invoke(app, [name, "--no-such-option"]).exit_code == 2


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_fits_its_line_and_opens_the_help(name: str) -> None:
    assert f"{name} {SUMMARIES[name]}" in re.sub(" +", " ", CliRunner().invoke(app, ["--help"]).output)
    first = " ".join(load_command(name).help.split("\n\n")[0].split())
    assert first.startswith(SUMMARIES[name].removesuffix("."))


def test_the_page_names_the_commands_that_resume() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    said = re.search(r"you can run the same command again\. (.*?) keep what is finished", page, re.DOTALL)
    assert said is not None
    help_texts = {name: CliRunner().invoke(app, [name, "--help"]).output for name in SUMMARIES}
    assert re.findall(r"`(\w+)`", said[1]) == [name for name, text in help_texts.items() if "resume" in text]


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from mast.cli.main import app\n"
        "try:\n    app()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'torch', 'pandas', 'numpy', 'matplotlib', 'soundfile', 'scipy', 'rich', 'jinja2', 'mast_studies'}\n"
        "found = {one for one in sys.modules if one in heavy or one.startswith('mast.cli.')} - {'mast.cli.main'}\n"
        "sys.exit(', '.join(sorted(found)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_mistake_is_one_line_and_debug_shows_where(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mast.cli.main", "scan", str(tmp_path / "none")]
    plain = subprocess.run(command, capture_output=True, text=True)
    assert plain.returncode == 2
    assert plain.stderr.startswith("mast: ")
    assert len(plain.stderr.splitlines()) == 1
    told = subprocess.run([*command, "--debug"], capture_output=True, text=True)
    assert "Traceback" in told.stderr


def test_the_tables_of_the_readme_are_those_of_the_results() -> None:
    check = [sys.executable, str(ROOT / "scripts" / "readme_tables.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
