"""Examples in docstrings give what they say they give; the page of the Python interface has one for every function."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import DOCS, blocks, command_lines
from typer.testing import CliRunner

from mast.cli.main import app

SOURCE = Path(__file__).parents[2] / "src"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in (SOURCE / "mast").rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)
PAGE = DOCS / "api.md"
_SHOWN = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.MULTILINE)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the examples run in, made as the page says."""
    folder = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        commands = command_lines(blocks(PAGE)[0])
        assert [words[0] for words in commands] == ["simulate", "embed"]
        for words in commands:
            done = CliRunner().invoke(app, [*words, "--quiet"])
            assert done.exit_code == 0, done.output
    return folder


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_show(
    name: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path / "made")
    monkeypatch.chdir(tmp_path / "made")
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted
    assert not found.failed


def _shown() -> Iterator[tuple[str, Any]]:
    """Every function, method and class that the page shows, by its full name."""
    for name, options in _SHOWN.findall(PAGE.read_text(encoding="utf-8")):
        try:
            shown: Any = importlib.import_module(name)
        except ModuleNotFoundError:
            module, _, own = name.rpartition(".")
            shown = getattr(importlib.import_module(module), own)
        if not inspect.ismodule(shown):
            yield name, shown
        if inspect.isfunction(shown):
            continue
        wanted = re.search(r"members: \[(.*)\]", options)
        for member in re.findall(r"\w+", wanted[1]) if wanted else vars(shown):
            value = getattr(shown, member)
            ours = getattr(value, "__module__", "").startswith("mast")
            if ours and callable(value) and not member.startswith("_") and "members: false" not in options:
                yield f"{name}.{member}", value


SHOWN = dict(_shown())


def _has_example(shown: Any) -> bool:
    """Whether a docstring holds an example with its output."""
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(shown) or "")
    return any(example.want for example in examples)


def test_the_page_shows_what_it_should() -> None:
    assert {"mast.load", "mast.inference.Detector.stream", "mast.errors.machine_fault"} <= SHOWN.keys()
    assert len(SHOWN) > 50


@pytest.mark.parametrize("name", SHOWN)
def test_everything_on_the_page_has_an_example_with_its_output(name: str) -> None:
    shown = SHOWN[name]
    if inspect.isclass(shown) and issubclass(shown, Exception) and shown.__name__ != "MastError":
        return  # that of MastError is theirs, too
    inside = inspect.isclass(shown) and any(
        _has_example(own) for member, own in SHOWN.items() if member.startswith(f"{name}.")
    )
    assert _has_example(shown) or inside, f"{name}: no example with its output on the page"
