"""Names for events that never change."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pandas as pd


def event_ids(events: pd.DataFrame) -> list[str]:
    """A name for each event that is the same whenever and wherever it is computed.

    Made from recording, box (to a microsecond and a millihertz) and source; of equal boxes in one table, the second
    gets its own name. It begins with a letter: spreadsheets take 12e45 for a number.
    """
    seen: dict[str, int] = {}
    names = []
    columns = ("recording", "source", "start_s", "end_s", "low_hz", "high_hz")
    for recording, source, *box in zip(*(events[name].tolist() for name in columns), strict=True):
        name = event_id(recording, source, box)
        repeat = seen.get(name, 0)
        seen[name] = repeat + 1
        names.append(event_id(recording, source, box, repeat=repeat) if repeat else name)
    return names


def event_id(recording: str, source: str, box: Sequence[float], *, repeat: int = 0) -> str:
    """The name of one event, as :func:`event_ids` gives it.

    Args:
        recording: its name.
        source: who drew the box.
        box: start and end in seconds, lower and upper edge in hertz.
        repeat: how many equal events come before it in the table.
    """
    start, end, low, high = box
    key = f"{recording}\n{source}\n{start:.6f}\n{end:.6f}\n{low:.3f}\n{high:.3f}"
    if repeat:
        key += f"\n{repeat}"
    return "e" + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:20]
