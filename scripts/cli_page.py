"""Write docs/cli.md from the commands' own help: `python scripts/cli_page.py` (`--check` fails if it is stale)."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

from mast.cli.main import SUMMARIES, load_command

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
COMMON = ("quiet", "debug", "help")  # every command has these, so they are listed once, at the top
TOP = """\
# Command line

By the end of this page you can look up every option of every command, and know what the exit codes mean.

*This page is written by `scripts/cli_page.py` from the help of each command; `mast COMMAND --help` says the same in the
terminal.*

Every command shows progress on stderr and puts data on stdout or into files.

| exit code | meaning |
|---|---|
| 0 | success |
| 2 | one sentence on stderr says what to put right: an option, bad input, a full disk, a missing permission |
| 3 | a bug in mast; `--debug` shows where |
| 4 | finished, but some recordings failed |
| 130 | interrupted (Ctrl-C) |

After 2, 4 and 130 you can run the same command again. `app`, `detect`, `review`, `clips`, `adapt`, `fit`, `embed`,
`pretrain`, `train`, `selftrain` and `experiment` keep what is finished and resume. All others start over; some then
need a new folder.
"""


def main() -> None:
    """Write the page, or compare it."""
    fresh = cli_page()
    if "--check" in sys.argv:
        same = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == fresh
        sys.exit(0 if same else "docs/cli.md: differs from the commands' help; run scripts/cli_page.py")
    PAGE.write_text(fresh, encoding="utf-8")


def cli_page() -> str:
    """The whole page."""
    commands = {name: load_command(name) for name in SUMMARIES}
    any_command = next(iter(commands.values()))
    parts = [
        TOP,
        "Every command takes:\n",
        _options(any_command, [p for p in _params(any_command) if _is_common(p)]),
    ]
    parts.append(
        "\n".join(f"- [`mast {name}`](#mast-{name}): {_first_line(c)}" for name, c in commands.items())
    )
    parts += [_command(name, command) for name, command in commands.items()]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _command(name: str, command: Any) -> str:
    context = _context(command)
    own = [param for param in _params(command) if not _is_common(param)]
    arguments = [param for param in own if param.param_type_name == "argument"]
    options = [param for param in own if param.param_type_name == "option"]
    parts = [f"## mast {name}", *_prose(command.help or "")]
    usage = command.get_usage(context).removeprefix("Usage: ").split(" ", 1)[1]
    parts.append(f"```text\nmast {name} {usage}\n```")
    if arguments:
        parts.append(_table("argument", [param.get_help_record(context) for param in arguments]))
    if options:
        parts.append(_options(command, options))
    return "\n\n".join(parts)


def _prose(help_text: str) -> list[str]:
    r"""Paragraphs of a help text; a paragraph after a line with only ``\b`` keeps its line breaks."""
    blocks = []
    for paragraph in inspect.cleandoc(help_text).split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        if lines[0].strip() == "\b":
            title, *code = lines[1:]
            code_block = "\n".join(line.removeprefix("  ") for line in code)
            blocks.append(f"{title}\n\n```bash\n{code_block}\n```")
        else:
            blocks.append(_markdown(" ".join(line.strip() for line in lines)))
    return blocks


def _options(command: Any, options: list[Any]) -> str:
    context = _context(command)
    return _table("option", [param.get_help_record(context) for param in options])


def _table(what: str, records: list[tuple[str, str]]) -> str:
    rows = [f"| {what} | meaning | default |", "| --- | --- | --- |"]
    for name, about in records:
        text, default = _default(about)
        rows.append(f"| `{_cell(' '.join(name.split()))}` | {_cell(_markdown(text))} | {_cell(default)} |")
    return "\n".join(rows)


def _default(about: str) -> tuple[str, str]:
    """The text of an option, and the facts in the brackets at its end: required, a default, a range."""
    found = re.fullmatch(r"(.*?)\s+\[([^\[\]]*)\]", about, flags=re.DOTALL)
    if found is None or not re.match(r"required|default|-?\d|x", found[2]):
        return about, ""
    facts = []
    for fact in found[2].split("; "):
        name, _, value = fact.partition(": ")
        facts.append(f"`{value}`" if name == "default" else re.sub(r"^x>=(\S+)$", r"at least \1", fact))
    return found[1], ", ".join(facts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _markdown(text: str) -> str:
    """Help text as Markdown: options become code, and characters that Markdown would swallow are escaped."""
    pieces = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(pieces), 2):  # outside backticks
        linked = re.split(r"(docs/\w+\.md)", pieces[i])
        for k, text in enumerate(linked):
            if k % 2:
                linked[k] = f"[{text}]({text.removeprefix('docs/')})"
            else:
                escaped = re.sub(r"([*_<\[\]])", r"\\\1", text)
                linked[k] = re.sub(r"(?<![\w-])(--[a-z][a-z-]*(?: \d+(?:\.\d+)?)?)", r"`\1`", escaped)
        pieces[i] = "".join(linked)
    return "".join(pieces)


def _first_line(command: Any) -> str:
    sentence = inspect.cleandoc(command.help or "").split("\n\n")[0]
    return _markdown(" ".join(sentence.split()))


def _params(command: Any) -> list[Any]:
    context = _context(command)
    return [param for param in command.get_params(context) if not param.hidden]


def _is_common(param: Any) -> bool:
    return param.name in COMMON


def _context(command: Any) -> Any:
    return command.context_class(command, info_name=command.name, help_option_names=["-h", "--help"])


if __name__ == "__main__":
    main()
