"""Spans of time against a ruler of whole seconds."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mast.spans import merge_spans, subtract_spans, total_s

spans_of = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 8)).map(lambda s: (float(s[0]), float(s[0] + s[1]))),
    max_size=6,
)


@given(spans_of, spans_of)
def test_spans_against_a_ruler(some: list[tuple[float, float]], holes: list[tuple[float, float]]) -> None:
    def cells(spans: list[tuple[float, float]]) -> set[int]:
        return {k for k in range(40) for a, b in spans if a <= k < b}

    assert cells(merge_spans(some)) == cells(some)
    assert cells(subtract_spans(some, holes)) == cells(some) - cells(holes)
    for result in (merge_spans(some), subtract_spans(some, holes)):
        assert all(a < b for a, b in result)
        assert all(before[1] <= after[0] for before, after in pairwise(result))
        assert total_s(result) == len(cells(result))
    assert merge_spans([]) == subtract_spans([], holes) == []
