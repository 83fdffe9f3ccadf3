"""Spans of time, such as those that were listened to: lists of ``(start_s, end_s)``, sorted and disjoint."""

from __future__ import annotations

from collections.abc import Iterable

TimeSpan = tuple[float, float]


def merge_spans(spans: Iterable[TimeSpan], *, gap_s: float = 0.0) -> list[TimeSpan]:
    """The same time in as few spans as possible: those at most ``gap_s`` apart are merged, empty ones are dropped.

    >>> merge_spans([(4, 6), (0, 2), (2, 3)])
    [(0, 3), (4, 6)]
    """
    result: list[TimeSpan] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if result and start <= result[-1][1] + gap_s:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def subtract_spans(spans: Iterable[TimeSpan], holes: Iterable[TimeSpan]) -> list[TimeSpan]:
    """The time of ``spans`` that is in none of ``holes``.

    >>> subtract_spans([(0, 10)], [(2, 3), (9, 12)])
    [(0, 2), (3, 9)]
    """
    cut = merge_spans(holes)
    result: list[TimeSpan] = []
    at = 0
    for begin, end in merge_spans(spans):
        start = begin
        while at < len(cut) and cut[at][1] <= start:
            at += 1
        k = at
        while k < len(cut) and cut[k][0] < end:
            if cut[k][0] > start:
                result.append((start, cut[k][0]))
            start = max(start, cut[k][1])
            k += 1
        if start < end:
            result.append((start, end))
    return result


def total_s(spans: Iterable[TimeSpan]) -> float:
    """Seconds in all."""
    return sum(end - start for start, end in spans)
