"""What the documentation promises about the command line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mast.cli.main import app

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(str(command.callback.__name__) for command in app.registered_commands if command.callback)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_and_the_common_options(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0
    assert re.search(rf"Examples?:\n    mast {name} \S", shown.output), shown.output
    for option in ("--quiet", "--debug"):
        assert option in shown.output
    assert f"`mast {name} " in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_usage_exits_with_2(name: str) -> None:
    assert CliRunner().invoke(app, [name, "--no-such-option"]).exit_code == 2


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from mast.cli.main import app\n"
        "heavy = {'torch', 'pandas', 'numpy', 'matplotlib', 'soundfile', 'scipy'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
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
