"""What the documentation shows as code: blocks, command lines, and names in the text."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from mast.cli.main import SUMMARIES, load_command

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
RUNS = "<!-- runs -->"
_FENCE = re.compile(r"^( *)(```+|~~~+) *(\w*)[^\n]*\n(.*?)^\1\2 *$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A piece of code in a page."""

    page: Path
    language: str  # empty for indented blocks
    text: str
    runs: bool  # marked as one that works as it stands


def blocks(page: Path) -> list[Block]:
    """Fenced and indented blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found: list[tuple[int, Block]] = []

    def take(match: re.Match[str]) -> str:
        indent = match[1]
        body = "\n".join(line.removeprefix(indent) for line in match[4].splitlines())
        marked = text[: match.start()].rstrip().endswith(RUNS)
        found.append((match.start(), Block(page, match[3], body, marked)))
        return re.sub(r"[^\n]", " ", match[0])  # keeps positions

    rest = _FENCE.sub(take, text)
    for match in re.finditer(r"(?:(?<=\n\n)|\A)((?: {4}[^\n]*\n)+)", rest):
        lines = [line.removeprefix("    ") for line in match[1].splitlines()]
        found.append((match.start(), Block(page, "", "\n".join(lines), False)))
    return [block for _, block in sorted(found, key=lambda item: item[0])]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def command_lines(block: Block) -> list[list[str]]:
    """Every ``mast …`` in a block as words; what comes before it (srun, variables) and after it (pipes) is cut off."""
    if block.language in ("python", "text", "json", "toml"):
        return []
    found = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if not re.search(r"(?:^|[\s/])mast [a-z]", line) or line.lstrip().startswith("#"):
            continue
        line = re.sub(r"\$\{?\w+\}?|\$\(\([^)]*\)\)", "1", line)
        words = shlex.split(line, comments=True)
        at = next((i for i, word in enumerate(words) if word.rsplit("/", 1)[-1] == "mast"), None)
        if at is None or (at and not _starts_commands(words[:at])):
            continue
        rest = words[at + 1 :]
        end = next(
            (i for i, word in enumerate(rest) if word in ("|", "&&", "||", ";", ">", "&", ">>", "2>")), None
        )
        found.append(rest[:end])
    return found


def _starts_commands(words: list[str]) -> bool:
    """Whether a command may follow these words: ``srun``, ``time``, ``NAME=value``, a prompt."""
    return all(
        word in ("srun", "time", "$", "nohup", "exec") or "=" in word or word.startswith("-")
        for word in words
    )


def commands() -> dict[str, Any]:
    """The commands that exist, by name."""
    return {name: load_command(name) for name in SUMMARIES}


def options(command: Any) -> set[str]:
    """Every option of a command, as typed."""
    known = {"--help", "-h"}
    for param in command.params:
        known |= {name for name in (*param.opts, *param.secondary_opts) if name.startswith("-")}
    return known
