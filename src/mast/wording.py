"""How numbers are said to people."""

from __future__ import annotations

from collections.abc import Sequence


def counted(n: int, noun: str) -> str:
    """A number with its noun, in the singular for one.

    >>> counted(1, "recording"), counted(1_200, "box"), counted(0, "reviewed box")
    ('1 recording', '1,200 boxes', '0 reviewed boxes')
    """
    plural = f"{noun}{'es' if noun.endswith(('box', 'stretch')) else 's'}"
    return f"{n:,} {noun if n == 1 else plural}"


def per_second(rate: float, noun: str) -> str:
    """How many a second.

    >>> per_second(0.2, "chunk"), per_second(1.3, "chunk"), per_second(1_185.0, "chunk")
    ('under 1 chunk/s', '1 chunk/s', '1,185 chunks/s')
    """
    return f"{counted(round(rate), noun)}/s" if rate > 0.5 else f"under 1 {noun}/s"


def first_names(names: Sequence[str], most: int) -> str:
    """The first few names, and how many more there are.

    >>> first_names(["a", "b"], 2), first_names(["a", "b", "c"], 2)
    ('a, b', 'a, b and 1 more')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
