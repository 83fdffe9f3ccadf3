"""Calls by site, day, hour and label: beside counting by hand."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mast.annotations.detections import DetectionRun
from mast.errors import AnnotationError
from mast.evaluation.corrected_counts import Checked
from mast.reports.searched_recordings import (
    SearchedRecordings,
    describe_clock_differences,
    recordings_from_marks,
)
from mast.reports.summary_counts import Sample, correct_total, count_events, count_table

RUN = DetectionRun(root="/nowhere", threshold=0.3)


def facts(name: str, site: str, clock: str, duration_s: float) -> dict[str, Any]:
    return {"recording": name, "site": site, "datetime": clock, "duration_s": duration_s, "damage": ""}


def events(*rows: tuple[str, float, float, str]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["recording", "start_s", "score", "label"])
    return table.assign(end_s=table["start_s"] + 1, low_hz=100.0, high_hz=200.0, source="detector")


@pytest.fixture
def heard() -> SearchedRecordings:
    """Two hours from half past five at A, a minute at B with a failed neighbour, and one without a clock."""
    done = [
        facts("a.wav", "A", "2024-05-01T05:30:00+02:00", 7_200),
        facts("b.wav", "B", "2024-05-01T23:59:30", 60),
        facts("c.wav", "B", "", 30),
    ]
    return recordings_from_marks(RUN, done, ["B_20240502_000000.wav"])


def test_hours_are_cut_at_the_clock_and_zeros_are_rows(heard: SearchedRecordings) -> None:
    found = events(
        ("a.wav", 1_799.9, 0.9, "wren"), ("a.wav", 1_800.0, 0.8, "wren"), ("b.wav", 31, 0.5, "owl")
    )
    table = count_table(count_events([found], heard), "hour")
    assert list(table.columns[:5]) == ["site", "day", "hour", "label", "recorded_hours"]
    rows = [
        (row.site, row.day, None if pd.isna(row.hour) else row.hour, row.label, row.recorded_hours, row.calls)
        for row in table.itertuples()
    ]
    assert rows == [
        ("A", "2024-05-01", 5, "owl", 0.5, 0),
        ("A", "2024-05-01", 5, "wren", 0.5, 1),
        ("A", "2024-05-01", 6, "owl", 1.0, 0),
        ("A", "2024-05-01", 6, "wren", 1.0, 1),
        ("A", "2024-05-01", 7, "owl", 0.5, 0),
        ("A", "2024-05-01", 7, "wren", 0.5, 0),
        ("B", "", None, "owl", 0.0083, 0),
        ("B", "", None, "wren", 0.0083, 0),
        ("B", "2024-05-01", 23, "owl", 0.0083, 0),
        ("B", "2024-05-01", 23, "wren", 0.0083, 0),
        ("B", "2024-05-02", 0, "owl", 0.0083, 1),
        ("B", "2024-05-02", 0, "wren", 0.0083, 0),
    ]
    assert table["calls_per_hour"].tolist()[1] == 2.0
    failed = table[table["failed_recordings"] > 0]
    assert failed[["day", "hour"]].drop_duplicates().values.tolist() == [["2024-05-02", 0]]
    assert failed["failed_hours"].isna().all()  # nobody knows how long it was
    assert table["corrected_calls"].isna().all()


def test_days_and_sites_add_up_to_the_hours(heard: SearchedRecordings) -> None:
    found = events(*[("a.wav", float(t), 0.9, "wren") for t in range(0, 7_200, 600)], ("c.wav", 2.0, 0.5, ""))
    counts = count_events([found[:5], found[5:]], heard)
    hours, days, sites = (count_table(counts, level) for level in ("hour", "day", "site"))
    for table in (hours, days, sites):
        assert table["calls"].sum() == counts.calls == 13
        assert table.groupby("label")["recorded_hours"].sum().tolist() == pytest.approx(
            [2.025, 2.025], abs=1e-3
        )
    assert sites["site"].tolist() == ["A", "A", "B", "B"]


def test_beside_counting_one_by_one() -> None:
    generator = np.random.default_rng(3)
    began = {
        f"r{k}.wav": datetime(2024, 3, 30) + timedelta(minutes=int(generator.integers(0, 5_000)))
        for k in range(20)
    }
    site = {name: "AB"[k % 2] for k, name in enumerate(began)}
    done = [facts(name, site[name], clock.isoformat(), 5_000) for name, clock in began.items()]
    rows = [
        (
            str(generator.choice(list(began))),
            float(generator.uniform(0, 5_000)),
            0.5,
            str(generator.choice(["x", "y"])),
        )
        for _ in range(500)
    ]
    table = count_table(count_events([events(*rows)], recordings_from_marks(RUN, done, [])), "hour")
    expected: dict[tuple[object, ...], int] = {}
    for name, start, _, label in rows:
        when = began[name] + timedelta(seconds=start)
        key = (site[name], when.date().isoformat(), when.hour, label)
        expected[key] = expected.get(key, 0) + 1
    found = {(r.site, r.day, r.hour, r.label): r.calls for r in table.itertuples() if r.calls}
    assert found == expected


def test_nothing_found_is_rows_of_zeros(heard: SearchedRecordings) -> None:
    counts = count_events([], heard)
    table = count_table(counts, "site")
    assert table["calls"].tolist() == [0, 0]
    assert counts.best.empty
    assert counts.doubtful.empty


def test_events_of_an_unknown_recording_are_refused(heard: SearchedRecordings) -> None:
    with pytest.raises(AnnotationError, match=r"x\.wav: has detections but is not among the recordings"):
        count_events([events(("x.wav", 1.0, 0.5, ""))], heard)


def test_best_and_doubtful_are_few_of_each_recording_and_never_the_same(heard: SearchedRecordings) -> None:
    found = events(
        *[("a.wav", float(k), 0.99 - 0.001 * k, "") for k in range(20)],
        *[("b.wav", float(k), 0.5 + 0.001 * k, "") for k in range(20)],
        *[("c.wav", float(k), 0.31 + 0.001 * k, "") for k in range(2)],
    )
    for batches in ([found], [found[k : k + 7] for k in range(0, len(found), 7)]):
        counts = count_events(batches, heard, shown=4)
        assert counts.best["score"].round(3).tolist() == [0.99, 0.989, 0.519, 0.518]
        assert counts.doubtful["score"].round(3).tolist() == [0.31, 0.311, 0.5, 0.501]
    few = count_events([found[:3]], heard, shown=4)
    assert (len(few.best), len(few.doubtful)) == (2, 1)


def test_corrected_counts_borrow_the_precision_of_their_strata(heard: SearchedRecordings) -> None:
    found = events(*[("a.wav", 60.0 * k, 0.9, "") for k in range(100)]).assign(stratum=0)
    counts = count_events([found], heard)
    checked = found[:20].assign(right=[True] * 10 + [False] * 10)
    sample = Sample(checked, Checked(np.array([100]), np.array([20]), np.array([10])))
    hours = count_table(counts, "hour", sample)
    first = hours[hours["hour"] == 5].iloc[0]
    # 30 calls begin before six: 20 of them were checked, 10 are right; of the other 10 half
    assert (first["calls"], first["corrected_calls"]) == (30, 15.0)
    assert 10 <= first["corrected_low"] < 15 < first["corrected_high"] <= 20
    assert hours["corrected_calls"].sum() == pytest.approx(50)
    total = correct_total(sample)
    assert total.estimate[0] == 50
    site = count_table(counts, "site", sample).iloc[0]
    assert (site["corrected_low"], site["corrected_high"]) == (total.low[0], total.high[0])
    assert site["corrected_per_hour"] == 25.0


def test_clocks_that_differ_are_named() -> None:
    north = facts("n.wav", "North", "2024-05-01T05:30:00+00:00", 60)
    south = facts("s.wav", "South", "2024-05-01T05:30:00+02:00", 60)
    island = facts("i.wav", "", "2024-05-01T05:30:00-03:30", 60)
    unknown = facts("u.wav", "East", "2024-05-01T05:30:00", 60)
    assert describe_clock_differences(recordings_from_marks(RUN, [south, unknown], [])) == ""
    assert describe_clock_differences(recordings_from_marks(RUN, [north, south, unknown], [])) == (
        "Clocks differ: North is in UTC; South is in UTC+2. Hours are those of each recorder's clock."
    )
    found = describe_clock_differences(
        recordings_from_marks(RUN, [{**north, "site": "South"}, north, south, island], [])
    )
    assert found.startswith(
        "Clocks differ: no site is in UTC-3:30; North, South are in UTC; South is in UTC+2."
    )


def test_recordings_older_than_the_epoch_of_computers_have_their_day() -> None:
    tape = recordings_from_marks(RUN, [facts("a.wav", "A", "1961-02-03T04:05:06", 60)], [])
    table = count_table(count_events([events(("a.wav", 1.0, 0.9, ""))], tape), "hour")
    assert table[["day", "hour", "calls"]].values.tolist() == [["1961-02-03", 4, 1]]
