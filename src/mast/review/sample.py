"""The sample that corrects counts: which events to check, and what reviewers decided about them.

Only events that were drawn at random say something about the others: those that `mast summarize --check` drew, once
all of a stratum's are decided, or all events of a stratum. What was decided because it looked doubtful does not count.

An event's place in the random order depends on nothing but the event, so a larger sample contains the smaller one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mast.arrays import IntArray
from mast.errors import ConfigError
from mast.evaluation.corrected_counts import SITE_SEPARATOR, Checked, SiteStrata, Strata
from mast.reports.searched_recordings import read_events
from mast.reports.summary_counts import Sample
from mast.retrieval.naming import UNKNOWN
from mast.review.intake import random_rank, review_id
from mast.review.store import STORE
from mast.review.suggestions import NAMES_PATH_SQL, existing_path
from mast.review.to_check import read_to_check, write_to_check

_KEY = b"mast summarize"  # of the random order
_ID_COLUMNS = ("recording", "start_s", "end_s", "low_hz", "high_hz", "found_label", "source")
_DECIDED_SQL = (
    "SELECT e.id, r.name, e.label, e.status FROM events AS e JOIN recordings AS r ON r.id = e.recording_id "
    "WHERE e.status <> 'open' AND e.score IS NOT NULL AND e.ordinal IS NOT NULL"
)


@dataclass(frozen=True)
class CheckProgress:
    """How far checking the sample has come.

    Attributes:
        sample: the strata that are done; ``None`` if none is.
        drawn: events that were drawn.
        open: drawn events that are not decided yet.
        outdated: the events, or their labels, have changed since they were drawn.
        unnamed: open events that were accepted before the reviewer could see the name.
    """

    sample: Sample | None
    drawn: int
    open: int
    outdated: bool = False
    unnamed: int = 0


def count_sampled_sites(folder: Path) -> int:
    """How many sites have their own sample; 0 where one sample was drawn over all sites."""
    return len(
        {
            name.partition(SITE_SEPARATOR)[0]
            for name in read_to_check(folder)["stratum"]
            if SITE_SEPARATOR in name
        }
    )


def was_drawn_with_names(folder: Path) -> bool:
    """Whether the events that were drawn had labels that the detections do not have."""
    own = {label for batch in read_events(folder) for label in batch["label"].unique()}
    return not set(read_to_check(folder)["label"]) <= own


def reviewed_names_path(folder: Path) -> Path | None:
    """The table of names that the folder's review was given, if it is still there."""
    return existing_path(_query_review(folder / STORE, NAMES_PATH_SQL))


def draw_sample(
    folder: Path, batches: Iterable[pd.DataFrame], strata: Strata | SiteStrata, total: int
) -> IntArray:
    """Draw events to check and remember them in the folder; those drawn before from the same events stay.

    Args:
        folder: of `mast detect`.
        batches: its events, of :func:`mast.reports.searched_recordings.read_events`.
        strata: the strata that they fall into.
        total: how many to draw; with :class:`SiteStrata`, at each site.

    Returns:
        (H,) how many are drawn from each stratum.
    """
    wanted = strata.allocate(total)
    before = read_to_check(folder)
    if set(before["stratum"]) == set(strata.names):
        counts = before["stratum"].value_counts()
        wanted = np.maximum(wanted, [int(counts[name]) for name in strata.names])
    kept = pd.DataFrame()
    for batch in _with_ids(batches):
        codes = _stratum_codes(batch, strata)
        ranks = [random_rank(own, _KEY) for own in batch["event"]]
        ordered = pd.concat([kept, batch.assign(code=codes, rank=ranks)]).sort_values("rank")
        kept = ordered[ordered.groupby("code").cumcount() < wanted[ordered["code"].to_numpy()]]
    names = np.array(strata.names, dtype=object)
    write_to_check(folder, kept.assign(stratum=names[kept["code"].to_numpy(dtype=np.int64)]))
    return wanted


def _stratum_codes(events: pd.DataFrame, strata: Strata | SiteStrata) -> IntArray:
    """The stratum of each event."""
    columns = [events[name].to_numpy(dtype=object) for name in ("label", "site")]
    return strata.of(columns[0], events["score"].to_numpy(dtype=np.float64), columns[1])


def _with_ids(batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Events with their ids in the review, in the column ``event``."""
    seen: dict[bytes, int] = {}
    last = ""
    for batch in batches:
        ids = []
        for event in zip(*(batch[name].tolist() for name in _ID_COLUMNS), strict=True):
            if event[0] != last:  # the table is sorted by recording
                last, seen = event[0], {}
            ids.append(review_id(event, seen))
        yield batch.assign(event=ids)


def read_check_progress(
    folder: Path, batches: Iterable[pd.DataFrame], strata: Strata | SiteStrata
) -> CheckProgress:
    """Which part of the sample has been decided.

    Args:
        folder: of `mast detect`.
        batches: its events, of :func:`mast.reports.searched_recordings.read_events`.
        strata: the strata that they fall into.

    Raises:
        ConfigError: the review cannot be read.
    """
    drawn = read_to_check(folder)
    everything = _decided_events(folder, batches, strata)
    decided = everything[~everything["unnamed"]]
    code_of = {name: code for code, name in enumerate(strata.names)}
    known = set(decided["event"])
    outdated = len(drawn) > 0 and set(drawn["stratum"]) != set(strata.names)
    chosen: list[pd.DataFrame] = []
    for name, code in code_of.items():
        inside = decided[decided["stratum"] == code]
        own = set() if outdated else set(drawn.loc[drawn["stratum"] == name, "event"])
        if len(inside) == strata.sizes[code]:
            chosen.append(inside)
        elif own and own <= known:
            chosen.append(inside[inside["event"].isin(own)])
    rows = pd.concat(chosen) if chosen else decided[:0]
    checked = np.bincount(rows["stratum"].to_numpy(dtype=np.int64), minlength=len(strata))
    right = np.bincount(rows.loc[rows["right"], "stratum"].to_numpy(dtype=np.int64), minlength=len(strata))
    counted = Checked(strata.sizes, checked, right)
    sample = Sample(rows, counted, isinstance(strata, SiteStrata)) if chosen else None
    still_open = drawn["event"][~drawn["event"].isin(known)]
    unnamed = int(still_open.isin(everything["event"]).sum())
    return CheckProgress(sample, len(drawn), len(still_open), outdated, unnamed)


def _decided_events(
    folder: Path, batches: Iterable[pd.DataFrame], strata: Strata | SiteStrata
) -> pd.DataFrame:
    """Detections that somebody decided about.

    Columns ``event``, ``recording``, ``start_s``, ``score``, ``label``, ``stratum``, ``right``, ``unnamed``. Time,
    score and label are those of the table: somebody may have changed them in the review. An event is right if it was
    accepted under its label, or was accepted and has none. One that was accepted without a label while the table names
    it says nothing about the name.
    """
    rows = {str(row["id"]): row for row in _query_review(folder / STORE, _DECIDED_SQL)}
    names = {row["name"] for row in rows.values()}
    found = [
        own[own["event"].isin(rows)]
        for own in _with_ids(batch[batch["recording"].isin(names)] for batch in batches if names)
    ]
    columns = ["event", "recording", "start_s", "score", "label", "found_label", "site"]
    table = pd.concat(found)[columns].reset_index(drop=True) if found else pd.DataFrame(columns=columns)
    decisions = [rows[event] for event in table["event"]]
    accepted = np.array([row["status"] == "accepted" for row in decisions], dtype=bool)
    given = np.array([row["label"] for row in decisions], dtype=object)
    label = table["label"].to_numpy(dtype=object)
    any_label = np.isin(label, ["", UNKNOWN])
    named_since = ~any_label & (label != table["found_label"].to_numpy(dtype=object))
    return table.assign(
        stratum=_stratum_codes(table, strata),
        right=accepted & (any_label | (given == label)),
        unnamed=accepted & named_since & (given == ""),
    )


def _query_review(path: Path, sql: str) -> list[sqlite3.Row]:
    if not path.is_file():
        return []
    problem: sqlite3.Error | None = None
    for how in ("mode=ro", "immutable=1"):  # the second for a read-only folder
        try:
            db = sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)
            try:
                db.row_factory = sqlite3.Row
                return db.execute(sql).fetchall()
            finally:
                db.close()
        except sqlite3.Error as error:
            problem = error
    raise ConfigError(
        f"{path}: is not a review of mast review ({problem}); move it away, or open it with mast review"
    )
