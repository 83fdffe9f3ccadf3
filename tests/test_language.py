"""The words of the tree: one spelling, and phrases that a native speaker would not stumble over."""

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


FOREIGN = re.compile(
    r"(?<!there )\b(is|are) no (text|time|table|recording|label|model|store|folder|dataset|database|outcome|cut|gain"
    r"|part of|probabilities|powers|annotations|JSON|tensors|detector|crew|animal|group|chunk|single|reason)\b"
    r"|as it comes\b|\banew\b|\btold of\b|known of (a|the|it|what)\b|so[- ]manieth|by so many\b"
    r"|so many (frames|bins|dB|epochs|labels|chunks|inches|ticks|recordings|times|steps)\b"
    r"|\bleast (score|overlap|length|agreement)\b|\bof them rightly\b|that parts\b|\bparts calls\b"
    r"|less than nothing|leads? C's stderr|stderr leads|the model's eyes|without a word\b"
    r"|says of (it|itself|themselves|an error)|tells of|what lacks\b|run them apart|belongs into"
    r"|goes on when|goes on behind|something more than something"
)


def test_phrases_are_idiomatic() -> None:
    wrong = [where for where, line in lines() if FOREIGN.search(line)]
    assert not wrong, "\n".join(wrong)
