"""Figures of ``results/``, how pages write them, and whether a page has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from doc_blocks import ROOT


@cache
def results(name: str) -> Any:
    """All of ``results/NAME.json``."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))


def figures(name: str) -> Any:
    """The figures of ``results/NAME.json``."""
    return results(name)["figures"]


def page_text(page: str) -> str:
    """A page, named from the root of the repository, as one line."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def assert_says(page: str, *expected: str) -> None:
    """The page has every one of these texts, wherever its lines end."""
    assert expected
    text = page_text(page)
    missing = [one for one in expected if one not in text]
    assert not missing, f"{page} should say: {' … '.join(missing)}"


def minus(value: float, digits: int = 3) -> str:
    """−0.010, with the sign that prose has; what rounds to 0 has none."""
    return f"{value:z.{digits}f}".replace("-", "−")


def signed(value: float) -> str:
    """+0.010 or −0.010; what rounds to 0 from below has no sign."""
    return minus(value) if value < 0 else f"+{value:.3f}"


def interval(value: Sequence[float], metric: str = "") -> str:
    """A difference and its interval: 0.030 (−0.001 to 0.062), or 0.030 F1 (−0.001 to 0.062)."""
    difference, low, high = map(minus, value)
    return f"{difference}{metric and ' '}{metric} ({low} to {high})"


def both_intervals(differences: Mapping[str, Sequence[float]]) -> str:
    """0.030 F1 (0.001 to 0.062) and 0.013 AP50 (−0.025 to 0.055)."""
    return f"{interval(differences['f1'], 'F1')} and {interval(differences['ap50'], 'AP50')}"


def flipped(value: Sequence[float]) -> list[float]:
    """The difference of B and A and its interval, from that of A and B."""
    difference, low, high = value
    return [-difference, -high, -low]


def f1_text(row: Mapping[str, Any]) -> str:
    """0.47 (0.32–0.60)."""
    low, high = row["f1_interval"]
    return f"{row['f1']:.2f} ({low:.2f}–{high:.2f})"


def three_digits(values: Iterable[float]) -> list[str]:
    """0.512 and −0.010, as texts."""
    return [minus(value) for value in values]


def percent(shares: Iterable[float]) -> list[str]:
    """61 and 69, as texts."""
    return [f"{100 * share:.0f}" for share in shares]


def join_words(texts: Iterable[str]) -> str:
    """0.512, 0.510 and 0.570."""
    *others, last = texts
    return f"{', '.join(others)} and {last}"
