"""How numbers are said to people."""

from __future__ import annotations


def counted(n: int, noun: str) -> str:
    """A number with its noun, in the singular for one.

    >>> counted(1, "recording"), counted(1_200, "box"), counted(0, "event")
    ('1 recording', '1,200 boxes', '0 events')
    """
    plural = {"box": "boxes", "stretch": "stretches"}.get(noun, f"{noun}s")
    return f"{n:,} {noun if n == 1 else plural}"
