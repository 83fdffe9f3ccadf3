"""Every page says first what its reader will have at its end, and the README is short."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_blocks import DOCS, ROOT

PROMISE = "by the end of this page "
FAR = 700  # characters of the page's title and opening; our choice


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_opens_with_what_its_reader_will_have(page: Path) -> None:
    opening = page.read_text(encoding="utf-8").partition("\n## ")[0][:FAR]
    assert PROMISE in " ".join(opening.lower().split())


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) < 780
