"""Calls by site, day, hour and label, with the effort behind them: counts, rates, and counts corrected by a sample.

Every hour that was recorded has a row for every label, zeros included; an hour that was not recorded has none. Events
count in the hour in which they begin, by the recorder's own clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from mast.arrays import IntArray
from mast.errors import AnnotationError
from mast.evaluation.corrected_counts import Checked, Corrected, SiteStrata, Strata, correct
from mast.reports.searched_recordings import (
    BOX,
    NO_CLOCK,
    SearchedRecordings,
    day_of,
    effort_by_hour,
    hour_slots,
)

CountLevel = Literal["hour", "day", "site"]
_KEYS = ["site", "slot", "label", "stratum"]
_SHOWN_PER_RECORDING = 2  # best or doubtful events of one recording
_MAX_TALLIES = 64  # batches whose counts are kept apart


@dataclass(frozen=True)
class Counts:
    """What was found.

    Attributes:
        searched: the recordings that were searched.
        effort: from :func:`mast.reports.searched_recordings.effort_by_hour`.
        tally: ``n`` events by ``site``, ``slot``, ``label`` and ``stratum``.
        labels: all labels, sorted.
        best: events with the highest scores, a few of each recording.
        doubtful: those nearest the threshold.
    """

    searched: SearchedRecordings
    effort: pd.DataFrame
    tally: pd.DataFrame
    labels: list[str]
    best: pd.DataFrame
    doubtful: pd.DataFrame

    @property
    def calls(self) -> int:
        """All events."""
        return int(self.tally["n"].sum())


@dataclass(frozen=True)
class Sample:
    """Events that were drawn at random and checked, whole strata of them.

    Attributes:
        rows: ``recording``, ``start_s``, ``label``, ``stratum``, ``right``.
        strata: events, checked ones and right ones of each stratum.
        by_site: each site has its own sample.
    """

    rows: pd.DataFrame
    strata: Checked
    by_site: bool = False


def count_events(
    batches: Iterable[pd.DataFrame],
    searched: SearchedRecordings,
    *,
    strata: Strata | SiteStrata | None = None,
    shown: int = 10,
) -> Counts:
    """Count events, a batch in memory at a time.

    Args:
        batches: from :func:`mast.reports.searched_recordings.read_events`.
        searched: the recordings they are in.
        strata: in which events are counted separately.
        shown: how many of the best and of the doubtful events to keep.
    """
    threshold = 0.5 if searched.run.threshold is None else searched.run.threshold
    tallies: list[pd.DataFrame] = []
    best, doubtful = pd.DataFrame(), pd.DataFrame()
    for batch in batches:
        tallies.append(tally_events(batch, searched, strata))
        if len(tallies) >= _MAX_TALLIES:
            tallies = [_sum_tallies(tallies)]
        scores = batch["score"].to_numpy(dtype=np.float64)
        best = _keep_first(best, batch.assign(order=-scores), shown)
        doubtful = _keep_first(doubtful, batch.assign(order=np.abs(scores - threshold)), shown)
    tally = _sum_tallies(tallies)
    if len(best) and len(doubtful):  # with few events, none is shown as both
        keys = set(best[BOX].itertuples(index=False, name=None))
        doubtful = doubtful[[row not in keys for row in doubtful[BOX].itertuples(index=False, name=None)]]
    labels = sorted(set(tally["label"])) or [""]
    return Counts(searched, effort_by_hour(searched), tally, labels, best, doubtful)


def _keep_first(kept: pd.DataFrame, more: pd.DataFrame, shown: int) -> pd.DataFrame:
    """The first by ``order``, a few of each recording."""
    nearest = more.nsmallest(50 * shown, "order") if len(more) > 50 * shown else more
    joined = pd.concat([kept, nearest]) if len(kept) else nearest
    ordered = joined.sort_values("order", kind="stable")
    return (
        ordered.groupby("recording", sort=False).head(_SHOWN_PER_RECORDING).head(shown).reset_index(drop=True)
    )


def tally_events(
    events: pd.DataFrame, searched: SearchedRecordings, strata: Strata | SiteStrata | None = None
) -> pd.DataFrame:
    """``n`` events by ``site``, ``slot``, ``label`` and ``stratum``, which is already a column, or given by ``strata``.

    Raises:
        AnnotationError: an event of a recording that is not marked as done.
    """
    index = pd.Index(searched.recordings["recording"]).get_indexer(pd.Index(events["recording"]))
    if (index < 0).any():
        name = events["recording"].iloc[int(np.flatnonzero(index < 0)[0])]
        raise AnnotationError(
            f"{name}: has detections but is not among the recordings that were searched; run mast detect again to "
            "rebuild the tables"
        )
    labels = events["label"].to_numpy(dtype=object)
    start_us = searched.recordings["start_us"].to_numpy(dtype=np.float64)[index]
    if strata is not None:
        scores, sites = events["score"].to_numpy(dtype=np.float64), events["site"].to_numpy(dtype=object)
        stratum = strata.of(labels, scores, sites)
    else:
        stratum = (
            events["stratum"].to_numpy() if "stratum" in events else np.zeros(len(events), dtype=np.int64)
        )
    frame = pd.DataFrame(
        {
            "site": searched.recordings["site"].to_numpy(dtype=object)[index],
            "slot": hour_slots(start_us, events["start_s"].to_numpy(dtype=np.float64)),
            "label": labels,
            "stratum": stratum,
        }
    )
    return _sum_tallies([frame.assign(n=1)])


def _sum_tallies(tallies: list[pd.DataFrame]) -> pd.DataFrame:
    if not tallies:
        return pd.DataFrame({"site": [], "slot": [], "label": [], "stratum": [], "n": []}).astype(
            {"slot": np.int64, "stratum": np.int64, "n": np.int64}
        )
    return pd.concat(tallies).groupby(_KEYS).sum().reset_index()


def count_table(counts: Counts, level: CountLevel, sample: Sample | None = None) -> pd.DataFrame:
    """One row per site, day, hour and label; or per site, day and label; or per site and label.

    Args:
        counts: what was found.
        level: the finest column.
        sample: what was checked; without it the corrected columns are empty.
    """
    keys = ["site", "period"]
    spent = counts.effort.assign(period=_slot_periods(counts.effort["slot"], level)).drop(columns="slot")
    spent = spent.groupby(keys, as_index=False).sum(skipna=False)
    table = spent.merge(pd.DataFrame({"label": counts.labels}), how="cross")
    tally = counts.tally.assign(period=_slot_periods(counts.tally["slot"], level))
    calls = tally.groupby([*keys, "label"], as_index=False)["n"].sum()
    # "outer": a call in the last second of a recording may have begun in an hour that has no sound
    table = table.merge(calls, how="outer", on=[*keys, "label"])
    table["n"] = table["n"].fillna(0)
    table.loc[table["recorded_s"].isna(), ["recorded_s", "failed_recordings", "failed_s"]] = 0
    table = table.sort_values([*keys, "label"], kind="stable", ignore_index=True)
    corrected = _correct_rows(table, tally, counts.searched, level, sample)
    hours = table["recorded_s"] / 3_600
    rate = hours.where(hours > 0)
    found = pd.DataFrame(
        {
            "site": table["site"],
            **_period_columns(table["period"], level),
            "label": table["label"],
            "recorded_hours": hours.round(4),
            "failed_recordings": table["failed_recordings"].astype(np.int64),
            "failed_hours": (table["failed_s"] / 3_600).round(4),
            "calls": table["n"].astype(np.int64),
            "calls_per_hour": (table["n"] / rate).round(4),
            "corrected_calls": np.round(corrected.estimate, 2),
            "corrected_low": np.round(corrected.low, 2),
            "corrected_high": np.round(corrected.high, 2),
            "corrected_per_hour": (corrected.estimate / rate).round(4),
        }
    )
    return found


def correct_total(sample: Sample) -> Corrected:
    """The number of all events that are right."""
    unchecked = (sample.strata.sizes - sample.strata.checked)[None]
    return correct(sample.strata, unchecked, [int(sample.strata.right.sum())])


def _slot_periods(slot: pd.Series[int], level: CountLevel) -> pd.Series[int]:
    if level == "hour":
        return slot
    if level == "day":
        return (slot // 24).where(slot != NO_CLOCK, NO_CLOCK)
    return slot * 0


def _period_columns(period: pd.Series[int], level: CountLevel) -> dict[str, object]:
    if level == "site":
        return {}
    per_day = 24 if level == "hour" else 1
    names = {p: day_of(p if p == NO_CLOCK else p // per_day * 24) for p in period.unique().tolist()}
    day: dict[str, object] = {"day": period.map(names)}
    if level == "day":
        return day
    return {**day, "hour": (period % 24).where(period != NO_CLOCK).astype("Int64")}


def _correct_rows(
    table: pd.DataFrame,
    tally: pd.DataFrame,
    searched: SearchedRecordings,
    level: CountLevel,
    sample: Sample | None,
) -> Corrected:
    """The corrected count of each row."""
    nothing = np.full(len(table), np.nan)
    if sample is None:
        return Corrected(nothing, nothing, nothing)
    keys = ["site", "period", "label"]
    row_of = pd.MultiIndex.from_frame(table[keys])
    strata = len(sample.strata.sizes)
    unchecked = np.zeros((len(table), strata), dtype=np.int64)
    _add_tally(unchecked, row_of, tally, 1)
    right = np.zeros((len(table), strata), dtype=np.int64)
    if len(sample.rows):
        for rows, target, sign in (
            (sample.rows, unchecked, -1),
            (sample.rows[sample.rows["right"]], right, 1),
        ):
            cells = tally_events(rows, searched)
            _add_tally(target, row_of, cells.assign(period=_slot_periods(cells["slot"], level)), sign)
    return correct(sample.strata, unchecked, right.sum(axis=1))


def _add_tally(target: IntArray, row_of: pd.MultiIndex, tally: pd.DataFrame, sign: int) -> None:
    keys = pd.MultiIndex.from_frame(tally[["site", "period", "label"]])
    np.add.at(target, (row_of.get_indexer(keys), tally["stratum"].to_numpy()), sign * tally["n"].to_numpy())
