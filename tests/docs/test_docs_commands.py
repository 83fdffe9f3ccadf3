"""Commands, options and settings in the documentation are those of the program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import DOCS, PAGES, ROOT, Block, blocks, command_lines, commands, options, prose

from mast.training.recipe import PRESETS, load_recipe, parse_override
from mast_studies.presets import OWN_PRESETS

NAMES = {page: page.name for page in PAGES}
RENDERED_FROM_HELP = DOCS / "cli.md"


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_every_command_line_is_understood(page: Path) -> None:
    known, shown = commands(), 0
    for block in blocks(page):
        for words in command_lines(block):
            assert words[0] in known, f"{page.name}: mast {' '.join(words)}: no such command"
            _check_line(page, known[words[0]], words)
            shown += 1
    assert shown or page.name not in (
        "README.md",
        "quick_start.md",
        "raven_to_detector.md",
        "checking.md",
        "cli.md",
    )


def _check_line(page: Path, command: Any, words: list[str]) -> None:
    line = f"{page.name}: mast {' '.join(words)}"
    if any("…" in word or word == "..." for word in words):  # left open: only its options can be checked
        unknown = {word.split("=")[0] for word in words if word.startswith("--")} - options(command)
        assert not unknown, f"{line}: no option {', '.join(sorted(unknown))}"
        return
    try:
        given = command.make_context(words[0], list(words[1:])).params
    except Exception as error:
        pytest.fail(f"{line}: {error}")
    for text in given.get("settings") or []:
        load_recipe("tiny", dict([parse_override(text)]))
    preset = given.get("preset")
    known = (*PRESETS, *OWN_PRESETS) if words[0] == "experiment" else PRESETS
    assert preset is None or preset in known or str(preset).endswith(".toml"), f"{line}: no preset {preset}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_every_command_named_in_the_text_exists_with_its_options(page: Path) -> None:
    known = commands()
    for code in re.findall(r"`(mast [a-z][^`]*)`", prose(page)):
        words = code.split()
        names = [word for word in words[1].split("/") if word]
        for name in names:
            assert name in known, f"{page.name}: `{code}`: no such command"
        asked = {re.split(r"[=…]", word)[0] for word in words[2:] if word.startswith("--")}
        unknown = asked - options(known[names[0]])
        assert not unknown, f"{page.name}: `{code}`: no option {', '.join(sorted(unknown))}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_every_setting_in_the_text_can_be_set(page: Path) -> None:
    for text in re.findall(
        r"(?<![\w.])((?:pretrain|train|selftrain)\.[a-z_.0-9]+=[\w.]+)", page.read_text("utf-8")
    ):
        load_recipe("tiny", dict([parse_override(text)]))


def test_settings_that_do_not_exist_would_be_noticed() -> None:
    page = DOCS / "quick_start.md"
    with pytest.raises(pytest.fail.Exception, match="--nonsense"):
        _check_line(page, commands()["scan"], ["scan", "recordings/", "--nonsense"])
    lines = command_lines(Block(page, "bash", "srun mast scan a \\\n  --out b | head\n# mast none", False))
    assert lines == [["scan", "a", "--out", "b"]]


def test_the_page_of_commands_is_current() -> None:
    check = [sys.executable, str(ROOT / "scripts" / "cli_page.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = RENDERED_FROM_HELP.read_text(encoding="utf-8")
    for name, command in commands().items():
        section = text.split(f"\n## mast {name}\n")[1].split("\n## ")[0]
        own = options(command) - {"--help", "-h", "--quiet", "-q", "--debug", "--seed"}
        assert all(option in section for option in own), name
