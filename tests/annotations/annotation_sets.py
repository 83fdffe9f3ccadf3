"""Annotation sets to write and read back: generated ones, and how to compare them."""

from __future__ import annotations

import math

import pandas as pd
from hypothesis import strategies as st

from mast.annotations import AnnotationSet
from mast.annotations.base import Format
from mast.events import EVENT_COLUMNS

RATE = 16_000.0
# text as people type it: letters, marks, digits, punctuation and symbols of any script, spaces, commas, quotes
WORDS = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"]), max_size=12)
RECORDINGS = ["a.wav", "b.flac", "site 1/c,d.WAV", 'site 1/ünïcode "q".wav', "deep/er/a.flac", "no_ending"]


def _limits(top: float) -> st.SearchStrategy[list[float]]:
    """Two numbers in order, no smaller than a nanosecond or nanohertz unless zero."""
    number = st.floats(0, top).map(lambda value: value if value > 1e-9 else 0.0)
    return st.tuples(number, number).map(sorted)


@st.composite
def annotation_sets(draw: st.DrawFn, *, text: st.SearchStrategy[str] = WORDS) -> AnnotationSet:
    """Sets with known durations and rates; events anywhere, spans whole, partial or none, every event column."""
    names = draw(st.lists(st.sampled_from(RECORDINGS), unique=True, max_size=4))
    durations = [draw(st.floats(0.5, 100_000, allow_subnormal=False)) for _ in names]
    recordings = pd.DataFrame({"recording": names, "duration_s": durations, "sample_rate": RATE})
    recordings["site"] = [draw(st.sampled_from(["", "AM1", "río, sur"])) for _ in names]
    recordings["datetime"] = [draw(st.sampled_from(["", "2023-05-10T07:30:00"])) for _ in names]
    events, spans = [], []
    for name, duration in zip(names, durations, strict=True):
        for _ in range(draw(st.integers(0, 3))):
            times, band = draw(_limits(duration)), draw(_limits(RATE / 2))
            event = {
                "recording": name,
                "start_s": times[0],
                "end_s": times[1],
                "low_hz": band[0],
                "high_hz": band[1],
            }
            event["label"] = draw(text)
            event["score"] = draw(st.one_of(st.just(1.0), st.floats(0, 1)))
            event["source"] = draw(st.sampled_from(["expert", "detector"]))
            event["snr_db"] = draw(st.sampled_from([-3.25, 0.1, 12.5]))
            events.append(event)
        for _ in range(draw(st.integers(0, 2))):
            whole = draw(st.booleans())
            span = (0.0, duration) if whole else draw(_limits(duration))
            spans.append({"recording": name, "start_s": span[0], "end_s": span[1]})
    empty = AnnotationSet()
    return AnnotationSet(
        pd.DataFrame(events) if events else empty.events,
        pd.DataFrame(spans) if spans else empty.reviewed,
        recordings,
    )


def storable_part(annotations: AnnotationSet, format: Format) -> AnnotationSet:
    """What is left of a set when a format has dropped what it cannot store."""
    events = annotations.events
    if "*" not in format.event_columns:
        events = events[[c for c in events.columns if c in format.event_columns]]
    return AnnotationSet(events, annotations.reviewed, annotations.recordings)


def comparable_rows(annotations: AnnotationSet) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Events and spans as sorted rows that compare equal when all values are equal to the last bit."""
    columns = [
        c for c in annotations.events.columns if c in EVENT_COLUMNS or annotations.events[c].notna().any()
    ]
    events = annotations.events[sorted(columns)]
    return _rows(events), _rows(annotations.reviewed[["recording", "start_s", "end_s"]])


def _rows(table: pd.DataFrame) -> list[tuple[object, ...]]:
    rows = [
        tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in row)
        for row in table.itertuples(index=False, name=None)
    ]
    return sorted(rows, key=repr)
