"""Which events a search may return."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from mast.errors import ConfigError


@dataclass(frozen=True)
class Filter:
    """Conditions on events; all that are given must hold.

    Attributes:
        sites: any of these.
        start: wall clock, ISO 8601 (``2024-05-01`` or ``2024-05-01T05:30``); events before it are left out.
        end: wall clock; events at or after it are left out. Events without a clock time meet no condition on time.
        hours: from the first hour of the day up to, without, the second; ``(22, 4)`` runs over midnight.
        low_hz: least centre frequency, Hz.
        high_hz: largest centre frequency, Hz.
        min_score: least score.
        labels: any of these; ``""`` is an event without a label.
        recordings: any of these.
        not_recordings: none of these.
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

    def sql(self) -> str:
        """The condition as SQL over the event columns; empty where there is none.

        >>> Filter(sites=("Oak's",), min_score=0.5).sql()
        "site IN ('Oak''s') AND score >= 0.5"
        """
        parts = [
            *([f"site IN {texts(self.sites)}"] if self.sites else []),
            *([f"datetime >= {text(_clock(self.start, 'start'))}"] if self.start else []),
            *(
                [f"datetime <> '' AND datetime < {text(_clock(self.end, 'end'))}"] if self.end else []
            ),  # '' sorts first
            *([_hours(*self.hours)] if self.hours is not None else []),
            *([f"low_hz + high_hz >= {2 * float(self.low_hz)!r}"] if self.low_hz is not None else []),
            *([f"low_hz + high_hz <= {2 * float(self.high_hz)!r}"] if self.high_hz is not None else []),
            *([f"score >= {float(self.min_score)!r}"] if self.min_score is not None else []),
            *([f"label IN {texts(self.labels)}"] if self.labels else []),
            *([f"recording IN {texts(self.recordings)}"] if self.recordings else []),
            *([f"recording NOT IN {texts(self.not_recordings)}"] if self.not_recordings else []),
        ]
        return " AND ".join(parts)


def text(value: str) -> str:
    """A text as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def texts(values: Iterable[str]) -> str:
    """Texts as an SQL list."""
    return "(" + ", ".join(map(text, values)) + ")"


def _clock(given: str, field: str) -> str:
    """A time as texts in the column ``datetime`` begin: they sort by wall clock, whatever zone follows."""
    try:
        return datetime.fromisoformat(given).replace(tzinfo=None).isoformat()
    except ValueError:
        raise ConfigError(
            f"filter {field} '{given}': is no time; expected ISO 8601, as in 2024-05-01 or 2024-05-01T05:30"
        ) from None


def _hours(first: int, last: int) -> str:
    if not (0 <= first <= 23 and 0 <= last <= 24):
        raise ConfigError(f"filter hours {first}-{last}: expected two hours of the day, such as 5-9 or 22-4")
    wanted = range(first, last) if first < last else [*range(first, 24), *range(last)]
    return "(" + " OR ".join(f"datetime LIKE '%T{hour:02d}:%'" for hour in wanted) + ")"
