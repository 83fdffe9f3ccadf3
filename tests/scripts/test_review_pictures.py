"""Pictures of the pages on real sound: small, and with the recordings' sources named on every page that shows one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = [
    picture for picture in (ROOT / "docs" / "images").glob("*.webp") if picture.stem != "soundscape_bench"
]
SOURCES = (
    "https://github.com/scikit-maad/scikit-maad",
    "BSD-3-Clause",
    "https://github.com/QutEcoacoustics/audio-analysis",
    "QUT Ecoacoustics",
    "Apache-2.0",
)


def test_they_are_small() -> None:
    assert PICTURES
    for picture in PICTURES:
        assert picture.stat().st_size < 150_000, picture.name


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name
)
def test_a_page_that_shows_one_names_its_sources(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shown = set(re.findall(r"images/(\w+\.webp)", text)) & {picture.name for picture in PICTURES}
    for source in SOURCES if shown else ():
        assert source in text, f"{page.name} shows {min(shown)}: {source}"
