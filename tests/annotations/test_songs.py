"""Notes into songs."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.annotations.songs import join_boxes, join_events, song_numbers
from mast.events import as_events, boxes_of, empty_events

Rows = list[tuple[str, float, float, float, float]]


def naive_songs(boxes: np.ndarray[tuple[int, int], np.dtype[np.float64]], gap_s: float) -> list[set[int]]:
    """Compare all with all, and join groups that share a member until nothing changes."""
    groups = [{k} for k in range(len(boxes))]
    for i, (s1, l1, e1, h1) in enumerate(boxes):
        for j, (s2, l2, e2, h2) in enumerate(boxes[:i]):
            apart = max(s1 - e2, s2 - e1, 0.0)
            whole = max(h1, h2) - min(l1, l2)
            alike = (min(h1, h2) - max(l1, l2)) / whole >= 0.25 if whole > 0 else True
            if apart <= gap_s and alike:
                groups.append({i, j})
    while True:
        for a in groups:
            other = next((b for b in groups if b is not a and a & b), None)
            if other is not None:
                a |= other
                groups.remove(other)
                break
        else:
            return groups


# multiples of a quarter: no rounding decides
steps, lengths = (st.integers(low, high).map(lambda k: k / 4) for low, high in ((0, 40), (1, 12)))
hertz = st.integers(0, 8).map(float)
box = st.tuples(steps, hertz, lengths, hertz)


@settings(max_examples=50)
@given(st.lists(box, max_size=8), st.sampled_from([0.0, 0.25, 1.0, 3.0]))
def test_songs_are_those_of_a_naive_twin(rows: list[tuple[float, float, float, float]], gap_s: float) -> None:
    boxes = np.array([(s, low, s + length, low + height) for s, low, length, height in rows]).reshape(-1, 4)
    song = song_numbers(boxes, gap_s)
    found = {frozenset(np.flatnonzero(song == k).tolist()) for k in set(song.tolist())}
    assert found == {frozenset(group) for group in naive_songs(boxes, gap_s)}
    scores = np.arange(len(boxes)) % 3 / 3
    joined, best = join_boxes(boxes, scores, gap_s)
    table = as_events(
        pd.DataFrame(boxes, columns=["start_s", "low_hz", "end_s", "high_hz"]).assign(
            recording="a", score=scores
        )
    )
    expected = join_events(table, gap_s)
    assert sorted(joined.tolist()) == sorted(boxes_of(expected).tolist())
    assert sorted(scores[best].tolist()) == sorted(expected["score"].tolist())


def test_a_song_by_hand() -> None:
    rows = [
        ("b.wav", 1.0, 1.2, 900, 2_000, 0.5, "wren", "2024-05-01T06:00:01"),
        ("a.wav", 5.0, 5.2, 1_000, 2_000, 0.4, "wren", "2024-05-01T06:00:05"),
        ("a.wav", 5.6, 5.9, 1_200, 2_400, 0.9, "wren", "2024-05-01T06:00:05.6"),
        ("a.wav", 5.3, 5.5, 5_000, 6_000, 0.8, "wren", ""),  # another band
        ("a.wav", 5.3, 5.5, 1_000, 2_000, 0.7, "tit", ""),  # another bird
        ("a.wav", 6.5, 6.6, 1_000, 2_000, 0.6, "wren", ""),  # too late
    ]
    columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score", "label", "datetime"]
    joined = join_events(as_events(pd.DataFrame(rows, columns=columns)), 0.5)
    assert joined["notes"].tolist() == [1, 2, 1, 1, 1]
    assert joined["recording"].tolist() == ["b.wav", "a.wav", "a.wav", "a.wav", "a.wav"]
    assert boxes_of(joined)[1].tolist() == [5.0, 1_000, 5.9, 2_400]
    assert joined["score"].tolist() == [0.5, 0.9, 0.8, 0.7, 0.6]
    assert joined["datetime"][1] == "2024-05-01T06:00:05"
    assert list(joined.columns) == [*empty_events().columns, "notes"]
    assert (
        join_events(joined.drop(columns="notes"), 0.5)["notes"].tolist() == [1] * 5
    )  # nothing is left to join


def test_no_events() -> None:
    assert join_events(empty_events(), 1.0).empty
