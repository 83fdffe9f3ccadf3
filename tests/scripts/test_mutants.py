"""The list of mutants fits the code, and the script tells a test that notices from one that does not."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import mutants

LIST = mutants.load_mutants()
_RUN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import mutants
mutants._SLOW = ()
try:
    for mutant, killer in mutants.run_mutants(mutants.load_mutants(Path("list.toml")), Path.cwd()):
        print(mutant.name, killer or "survived", flush=True)
except mutants.MutantError as error:
    print(error)
"""


@pytest.mark.parametrize("mutant", LIST, ids=lambda mutant: mutant.name)
def test_every_mutant_still_applies(mutant: mutants.Mutant) -> None:
    ast.parse(mutant.apply(mutants.ROOT))
    for test in mutant.tests:
        file, _, name = test.partition("::")
        text = (mutants.ROOT / file).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0]}" in text, f"{test} is gone"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository: one function, one test, two mutants."""
    (tmp_path / "src").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "src" / "sums.py").write_text(
        "def double(x):\n    return 2 * x\n\n\ndef unused():\n    return 1\n"
    )
    (tmp_path / "tests" / "test_sums.py").write_text(
        "from sums import double\n\n\ndef test_double():\n    assert double(2) == 4\n"
    )
    (tmp_path / "list.toml").write_text(
        "".join(
            f'[[mutant]]\nname = "{name}"\nbreaks = "it"\nfile = "src/sums.py"\n'
            f'old = "{old}"\nnew = "{new}"\ntests = ["tests/test_sums.py"]\n'
            for name, old, new in (("triple", "2 * x", "3 * x"), ("never", "return 1", "return 2"))
        )
    )
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def said(tree: Path) -> list[str]:
    folder = str(Path(mutants.__file__).parent)
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they take longer than the tests
    command = [sys.executable, "-c", _RUN, folder]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_noticed_and_not_noticed(tree: Path) -> None:
    before = (tree / "src" / "sums.py").read_text()
    assert said(tree) == ["triple tests/test_sums.py::test_double", "never survived"]
    assert (tree / "src" / "sums.py").read_text() == before  # only a copy is changed


def test_what_fails_anyway_notices_nothing(tree: Path) -> None:
    (tree / "tests" / "test_sums.py").write_text("def test_wrong():\n    assert False\n")
    assert said(tree) == ["tests/test_sums.py::test_wrong fails without any change; fix it first"]


@pytest.mark.parametrize("text", ["x = 1\n", "2 * x, 2 * x\n"])
def test_a_text_that_is_not_there_exactly_once_is_reported(tree: Path, text: str) -> None:
    (tree / "src" / "sums.py").write_text(text)
    (sentence,) = said(tree)
    assert sentence.startswith("mutant triple: its old text occurs ")
    assert f"{text.count('2 * x')} times in src/sums.py, expected once" in sentence


def test_names_are_unique(tree: Path) -> None:
    twice = (tree / "list.toml").read_text() * 2
    (tree / "list.toml").write_text(twice)
    with pytest.raises(mutants.MutantError, match="is listed twice"):
        mutants.load_mutants(tree / "list.toml")
