"""Which events a search may return."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mast.errors import ConfigError


@dataclass(frozen=True)
class Filter:
    """Conditions on events; all that are given must hold.

    Attributes:
        sites: any of these.
        start: wall clock, ISO 8601 (``2024-05-01`` or ``2024-05-01T05:30``); events before it are left out.
        end: wall clock; events at or after it are left out. Events without a clock time meet no condition on time.
        hours: from the first hour of the day up to but not including the second; ``(22, 4)`` spans midnight.
        low_hz: lowest centre frequency, Hz.
        high_hz: highest centre frequency, Hz.
        min_score: minimum score.
        labels: any of these; ``""`` is an event without a label.
        recordings: any of these.
        not_recordings: none of these.

    Raises:
        ConfigError: a time or an hour that makes no sense.

    >>> from mast.retrieval.filters import Filter
    >>> Filter(hours=(22, 4), min_score=0.5).columns
    ['score', 'datetime']
    """

    sites: tuple[str, ...] = ()
    start: str = ""
    end: str = ""
    hours: tuple[int, int] | None = None
    low_hz: float | None = None
    high_hz: float | None = None
    min_score: float | None = None
    labels: tuple[str, ...] = ()
    recordings: tuple[str, ...] = ()
    not_recordings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in ("start", "end"):
            if getattr(self, field):
                _parse_time(getattr(self, field), field)
        first, last = self.hours or (0, 24)
        if not (0 <= first <= 23 and 0 <= last <= 24):
            raise ConfigError(
                f"filter hours {first}-{last}: expected two hours of the day, such as 5-9 or 22-4"
            )

    @property
    def columns(self) -> list[str]:
        """The event columns that the conditions use."""
        centre = self.low_hz is not None or self.high_hz is not None
        used = {
            "recording": self.recordings or self.not_recordings,
            "low_hz": centre,
            "high_hz": centre,
            "score": self.min_score is not None,
            "label": self.labels,
            "site": self.sites,
            "datetime": self.start or self.end or self.hours is not None,
        }
        return [column for column, is_used in used.items() if is_used]

    def mask(self, events: pa.Table) -> NDArray[np.bool_]:
        """(N,) which events meet all conditions; only their :attr:`columns` are needed.

        >>> Filter(sites=("Oak's",), min_score=0.5).mask(pa.table({"site": ["Oak's", "", "Oak's"], "score": [1, 1, 0]}))
        array([ True, False, False])
        """
        conditions = [
            *([is_one_of(events["site"], self.sites)] if self.sites else []),
            *([pc.greater_equal(events["datetime"], _parse_time(self.start, "start"))] if self.start else []),
            *([pc.not_equal(events["datetime"], "")] if self.end else []),  # unknown, and sorts first
            *([pc.less(events["datetime"], _parse_time(self.end, "end"))] if self.end else []),
            *([_in_hours(events["datetime"], *self.hours)] if self.hours is not None else []),
            *([pc.greater_equal(_centre(events), self.low_hz)] if self.low_hz is not None else []),
            *([pc.less_equal(_centre(events), self.high_hz)] if self.high_hz is not None else []),
            *([pc.greater_equal(events["score"], self.min_score)] if self.min_score is not None else []),
            *([is_one_of(events["label"], self.labels)] if self.labels else []),
            *([is_one_of(events["recording"], self.recordings)] if self.recordings else []),
            *(
                [pc.invert(is_one_of(events["recording"], self.not_recordings))]
                if self.not_recordings
                else []
            ),
        ]
        met = np.ones(events.num_rows, dtype=bool)
        for condition in conditions:
            met &= condition.to_numpy()
        return met


def is_one_of(column: pa.ChunkedArray, texts: Iterable[str]) -> pa.ChunkedArray:
    """Row by row, whether a column of texts holds one of these."""
    return pc.is_in(column, value_set=pa.array(texts, type=pa.string()))


def _centre(events: pa.Table) -> pa.ChunkedArray:
    return pc.divide(pc.add(events["low_hz"], events["high_hz"]), 2.0)


def _parse_time(given: str, field: str) -> str:
    """A time as it is written in the column ``datetime``, which sorts by wall clock, whatever zone follows."""
    try:
        return datetime.fromisoformat(given).replace(tzinfo=None).isoformat()
    except ValueError:
        raise ConfigError(
            f"filter {field} '{given}': not a valid time; expected ISO 8601, as in 2024-05-01 or 2024-05-01T05:30"
        ) from None


def _in_hours(clock: pa.ChunkedArray, first: int, last: int) -> pa.ChunkedArray:
    hours = range(first, last) if first < last else [*range(first, 24), *range(last)]
    wanted = pa.array([f"T{hour:02d}:".encode() for hour in hours], type=pa.binary())
    return pc.is_in(pc.binary_slice(clock.cast(pa.binary()), 10, 14), value_set=wanted)
