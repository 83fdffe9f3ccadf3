"""Numbers as people say them."""

from __future__ import annotations

import pytest

from mast.wording import counted


@pytest.mark.parametrize(
    ("n", "noun", "said"),
    [
        (0, "event", "0 events"),
        (1, "recording", "1 recording"),
        (1_200, "box", "1,200 boxes"),
        (1, "box", "1 box"),
    ],
)
def test_one_is_singular(n: int, noun: str, said: str) -> None:
    assert counted(n, noun) == said
