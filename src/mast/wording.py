"""How numbers are written for people."""

from __future__ import annotations

from collections.abc import Sequence


def counted(n: int, noun: str) -> str:
    """A number with its noun, in the singular for one.

    >>> counted(1, "recording"), counted(1_200, "box"), counted(0, "reviewed box")
    ('1 recording', '1,200 boxes', '0 reviewed boxes')
    """
    plural = f"{noun}{'es' if noun.endswith(('box', 'stretch')) else 's'}"
    return f"{n:,} {noun if n == 1 else plural}"


def format_rate(rate: float, noun: str) -> str:
    """How many per second.

    >>> format_rate(0.2, "chunk"), format_rate(1.3, "chunk"), format_rate(1_185.0, "chunk")
    ('under 1 chunk/s', '1 chunk/s', '1,185 chunks/s')
    """
    return f"{counted(round(rate), noun)}/s" if rate > 0.5 else f"under 1 {noun}/s"


def format_hours(hours: float) -> str:
    """A duration in the unit that reads best.

    >>> format_hours(1_200), format_hours(1.5), format_hours(0.05), format_hours(0.0011)
    ('1,200 h', '1.5 h', '3.0 min', '4.0 s')
    """
    if hours >= 100:
        return f"{hours:,.0f} h"
    if hours >= 1 or not hours:
        return f"{hours:.1f} h"
    return f"{hours * 60:.1f} min" if hours >= 1 / 60 else f"{hours * 3_600:.1f} s"


def format_names(names: Sequence[str], n: int) -> str:
    """The first few names, and how many more there are.

    >>> format_names(["a", "b"], 2), format_names(["a", "b", "c"], 2)
    ('a, b', 'a, b and 1 more')
    """
    return ", ".join(names[:n]) + (f" and {len(names) - n:,} more" if len(names) > n else "")
