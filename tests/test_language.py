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
    'Normalization", ',  # nodes of ONNX
)


def texts() -> Iterator[tuple[Path, str]]:
    """Every file of the tree that people read."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in [*ROOT.glob("*.md"), *sorted(files)]:
        if path.suffix in KINDS and path != Path(__file__) and "node_modules" not in path.parts:
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def lines() -> Iterator[tuple[str, str]]:
    """Every line of them, with its place."""
    for path, text in texts():
        for number, line in enumerate(text.splitlines(), start=1):
            yield f"{path}:{number}: {line.strip()}", line


def test_spelling_is_british() -> None:
    wrong = [
        where
        for where, line in lines()
        if AMERICAN.search(line) and not any(name in line for name in NAMES_OF_OTHERS)
    ]
    assert not wrong, "\n".join(wrong)


WORST = {  # fifty phrases that stood here once, and what they became
    "least score": "minimum score",
    "least overlap": "minimum overlap",
    "least length": "minimum length",
    "least agreement": "minimum agreement",
    "is no time": "is not a valid time",
    "is no text": "is not text",
    "is no table": "is not a table",
    "is no recording": "is not a recording",
    "is no number": "is not a number",
    "made anew": "rebuilt",
    "written anew": "rewritten",
    "it goes on": "it resumes",
    "there goes on": "there resumes",
    "as it comes": "as is",
    "told of": "reported",
    "tells of": "reports",
    "known of": "known about",
    "what lacks": "what is missing",
    "belongs into": "belongs in",
    "run them apart": "run them separately",
    "without a word": "silently",
    "so-manieth": "every n-th",
    "at most so many": "at most this many",
    "by so many": "by this many",
    "doubling anything": "duplicating anything",
    "of them rightly": "of them correctly",
    "parts songs": "splits songs into notes",
    "parts calls": "splits calls",
    "whose eyes": "who drew them",
    "holds what the paper promises": "(a claim that the results do not support)",
    "model of lower voices": "model trained on lower sounds",
    "as they state by default": "by default, what their headers say",
    "can hold the fact": "where both formats allow it",
    "has no place for": "cannot store",
    "further columns": "other columns",
    "share the work so": "so that processes can share the work",
    "others then say": "others can then run",
    "by the events by default": "by default, chosen to fit the events",
    "are not all right": "not all are right",
    "was begun": "was started",
    "has begun": "has started",
    "taken for somebody": "mistaken for a person",
    "of which nobody": "without a single one",
    "nothing tells it": "not clearly different",
    "are met better": "fits better",
    "against animals in it": "to avoid animals in it",
    "with them goes": "the export also says",
    "by the device by default": "by default, chosen for the device",
    "not quite never": "sometimes",
    "much to ask of": "seldom yields",
}
FOREIGN = re.compile(
    r"(?<!there )\b(is|are) no (label|model|store|folder|dataset|database|outcome|cut|gain"
    r"|part of|probabilities|powers|annotations|JSON|tensors|detector|crew|animal|group|chunk|single|reason)\b"
    r"|\banew\b|known of (a|the|it|what)\b"
    r"|so many (frames|bins|dB|epochs|labels|chunks|inches|ticks|recordings|times|steps)\b"
    r"|\b(one|a) (row|line|hit|task) a (box|call|chunk|clip|event|group|recording|score|value)\b"
    r"|that parts\b|less than nothing|leads? C's stderr|stderr leads|the model's eyes"
    r"|says of (it|itself|themselves|an error)|goes on when|goes on behind|something more than something",
    re.IGNORECASE,
)


def test_the_worst_phrases_are_gone() -> None:
    assert len(WORST) == 50
    worst = re.compile(rf"(?<!there )\b({'|'.join(WORST)})\b", re.IGNORECASE)
    for path, text in texts():
        flat = " ".join(line.strip().lstrip("#/*> ") for line in text.splitlines())  # comments run over lines
        found = worst.search(flat)
        assert found is None, f"{path}: {flat[max(0, found.start() - 60) : found.end() + 60]}"


def test_phrases_are_idiomatic() -> None:
    wrong = [where for where, line in lines() if FOREIGN.search(line)]
    assert not wrong, "\n".join(wrong)
