"""The words of the tree: one spelling."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "docs", "scripts", "benchmarks")
KINDS = {".py", ".md", ".toml", ".js", ".css", ".html", ".jinja", ".sh", ".sbatch"}
AMERICAN = re.compile(
    r"label(ed|ing)|behavior|neighbor(?!s=)|flavor|favor|catalog\b|spelled|recognize(?!d_links)|organiz|analyz"
    r"|(normal|optim|summar|initial|synchron|random|visual|character|categor)iz(ed|es|ing|ation)"
    r"|generaliz(?!able)",  # in the paper's title
    re.IGNORECASE,
)
NAMES_OF_OTHERS = (
    "is_initialized",  # Ray
    "UMAP visualization",  # a caption of the paper
    "identical optimization settings",  # its words
    'option.replace("labeled"',  # both spellings of --unlabelled are understood
    '["--unlabelled", "--unlabeled"]',
)


def lines() -> Iterator[tuple[str, str]]:
    """Every line of the tree that people read, with its place."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in [*ROOT.glob("*.md"), *sorted(files)]:
        if path.suffix in KINDS and path != Path(__file__) and "node_modules" not in path.parts:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}", line


def test_spelling_is_british() -> None:
    wrong = [
        where
        for where, line in lines()
        if AMERICAN.search(line) and not any(name in line for name in NAMES_OF_OTHERS)
    ]
    assert not wrong, "\n".join(wrong)
