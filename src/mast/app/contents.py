"""What is in a folder, read in the background as `mast scan` reads it, and a picture of some of its sound."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mast.audio import probe
from mast.data.folder_survey import RecordingRow, add_up, survey
from mast.errors import MastError, machine_fault, shorten
from mast.review.colours import encode_png
from mast.review.tiles import View, levels_db, to_levels
from mast.review.workspace import Workspace

_KEPT = 8  # folders whose contents are remembered
_NAMED = 10  # sites and broken files that are listed by name
_PICTURE_S = 20.0  # of sound in the picture (our choice): single calls can be seen
_RANGE_DB = 30.0  # minimum from the first colour to the last: a call 6 dB above the noise stands out


@dataclass
class _Reading:
    """A folder that is being read, or has been read."""

    done: int = 0
    total: int = 0
    sentence: str = ""
    found: dict[str, Any] | None = None


class Contents:
    """What is known about folders."""

    def __init__(self) -> None:
        self._readings: OrderedDict[Path, _Reading] = OrderedDict()
        self._lock = threading.Lock()

    def describe(self, folder: Path, *, again: bool = False) -> dict[str, Any]:
        """What is in a folder, or how far reading it has come; starts reading an unknown folder."""
        with self._lock:
            reading = self._readings.get(folder)
            ended = reading is not None and (reading.found is not None or reading.sentence)
            if reading is None or (again and ended):
                reading = self._readings[folder] = _Reading()
                threading.Thread(target=self._read, args=(folder, reading), daemon=True).start()
            self._readings.move_to_end(folder)
            while len(self._readings) > _KEPT:
                self._readings.popitem(last=False)
        if reading.sentence:
            return {"state": "failed", "sentence": reading.sentence}
        if reading.found is not None:
            return {"state": "read", **reading.found}
        return {"state": "reading", "done": reading.done, "total": reading.total}

    def highest_hz(self, folder: Path) -> float:
        """Half the highest sample rate in a folder; 0 where it has not been read."""
        reading = self._readings.get(folder)
        found = reading.found if reading is not None else None
        return max((one["hz"] for one in found["sample_rates"]), default=0) / 2 if found else 0.0

    def _read(self, folder: Path, reading: _Reading) -> None:
        def show(done: int, total: int) -> None:
            reading.done, reading.total = done, total

        try:
            found = survey(folder, progress=show)
            if not found.rows:
                raise found.unreadable_error(folder)
            reading.found = _summarise(found.rows, found.failures)
        except Exception as error:
            known = str(error) if isinstance(error, MastError) else machine_fault(error)
            reading.sentence = shorten(known or f"{type(error).__name__}: {error}")


def _summarise(rows: list[RecordingRow], failures: list[RecordingRow]) -> dict[str, Any]:
    every = add_up(rows)
    whole = [row for row in rows if not row["warning"]] or rows
    return {
        "recordings": len(rows),
        "hours": every.hours,
        "sites": [{"name": name, "recordings": n} for name, n in every.sites.most_common(_NAMED) if name],
        "site_count": len(every.sites) - ("" in every.sites),
        "first_day": every.days[0] if every.days else "",
        "last_day": every.days[-1] if every.days else "",
        "day_count": len(every.days),
        "undated": every.undated,
        "sample_rates": [{"hz": rate, "recordings": n} for rate, n in every.sample_rates.most_common()],
        "broken": failures[:_NAMED],
        "broken_count": len(failures),
        "warned_count": sum(bool(row["warning"]) for row in rows),
        "shown": whole[len(whole) // 2]["file"],
    }


def picture(folder: Path, name: str, *, width: int = 720, height: int = 200) -> bytes:
    """A PNG of the first seconds of a recording over its whole band, with the noise dark and calls bright.

    Raises:
        AudioError: it lies outside the folder, is not a recording, or cannot be read.
    """
    path = Workspace(folder, "dataset", folder).path(name)
    info = probe(path)
    view = View(0.0, max(min(_PICTURE_S, info.duration_s), 0.1), 0.0, info.sample_rate / 2, width, height)
    levels = levels_db(path, view)
    noise, loud = np.percentile(levels, [40, 99.8])
    shown = replace(view, floor_db=float(noise), range_db=max(float(loud - noise), _RANGE_DB))
    return encode_png(to_levels(levels, shown), shown.colours)
