"""Which recordings a folder of `mast detect` is about: what was searched, when, where, and which failed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mast.annotations.detections import (
    DETECTIONS,
    DONE,
    FAILED,
    MARKS,
    RUN,
    DetectionRun,
    failure_facts,
    found_batches,
    mark_facts,
    marks,
    read_run,
)
from mast.annotations.tables import Table, read_table
from mast.arrays import FloatArray
from mast.audio import Metadata, describe, metadata, names_on_disk
from mast.data.recordings import listed_places, parse_clock
from mast.errors import AudioError, ConfigError, MastError, not_a_folder, shorten
from mast.events import BOX_COLUMNS
from mast.retrieval.naming import UNKNOWN
from mast.wording import format_names

BOX = ["recording", *BOX_COLUMNS]
_COLUMNS = [*BOX, "score", "label", "site", "source"]
_SITES_NAMED = 3  # of those with the same clock
_HEADERS_READ = 3  # recordings of a site whose headers are searched for the place
_EPOCH = datetime(1970, 1, 1)
NO_CLOCK = -(1 << 40)  # the hour of events whose time is unknown
_HOUR_US = 3_600_000_000


class Place(NamedTuple):
    """Degrees, north and east positive."""

    latitude: float
    longitude: float


@dataclass(frozen=True)
class SearchedRecordings:
    """What was searched.

    Attributes:
        run: how the detections were made.
        recordings: ``recording``, ``site``, ``start_us`` (wall clock, microseconds since 1970; NaN where unknown),
            ``offset_h`` (of that clock to UTC; NaN where not stated), ``duration_s``, ``damaged``.
        failed: the same columns for recordings that could not be searched; ``duration_s`` is NaN where unknown.
    """

    run: DetectionRun
    recordings: pd.DataFrame
    failed: pd.DataFrame

    @property
    def hours(self) -> float:
        """Hours that were searched."""
        return float(self.recordings["duration_s"].sum()) / 3_600

    @property
    def sites(self) -> list[str]:
        """All sites; the empty name for recordings that state none."""
        return sorted({*self.recordings["site"], *self.failed["site"]})

    @property
    def root(self) -> Path | None:
        """The folder that recordings are named relative to, if it is on this machine."""
        return Path(self.run.root) if Path(self.run.root).is_dir() else None


def read_searched_recordings(folder: Path) -> SearchedRecordings:
    """What a results folder was made from.

    Raises:
        ConfigError: it is not a folder of `mast detect`, or not a complete one.
    """
    run = read_run(folder) if folder.is_dir() else None
    if run is None:
        what = f"{RUN} is missing" if folder.is_dir() else not_a_folder(folder)
        raise ConfigError(f"{folder}: {what}; expected a results folder of mast detect")
    if not (folder / DETECTIONS).is_file():
        raise ConfigError(
            f"{folder}: {DETECTIONS} is missing, so mast detect has not finished here; run it again to resume "
            "where it stopped"
        )
    done = [facts for _, path in marks(folder, DONE) if (facts := mark_facts(path)) is not None]
    failures = [facts for _, path in marks(folder, FAILED) if (facts := failure_facts(path)) is not None]
    if not done and not failures:
        raise ConfigError(
            f"{folder}: {MARKS}/ is missing or empty, so it is not known how much was searched; copy the whole folder "
            "of mast detect"
        )
    return recordings_from_marks(run, done, {str(facts["recording"]) for facts in failures})


def recordings_from_marks(
    run: DetectionRun, done: Iterable[Mapping[str, Any]], failed: Iterable[str]
) -> SearchedRecordings:
    """The same from the facts in the marks of finished recordings, and the names of those that failed."""
    rows = [
        _recording_row(
            facts["recording"],
            facts.get("site"),
            facts.get("datetime"),
            facts.get("duration_s"),
            facts.get("damage"),
        )
        for facts in done
    ]
    names = {row["recording"] for row in rows}
    unheard = sorted(set(failed) - names)
    stated = _read_stated_metadata(Path(run.root)) if unheard else {}
    lost = [_failed_row(name, run.root, stated) for name in unheard]
    columns = ["recording", "site", "start_us", "offset_h", "duration_s", "damaged"]
    return SearchedRecordings(run, pd.DataFrame(rows, columns=columns), pd.DataFrame(lost, columns=columns))


def _recording_row(
    name: object, site: object, clock: object, duration_s: object, damage: object = ""
) -> dict[str, Any]:
    start_us, offset_h = math.nan, math.nan
    try:
        began = parse_clock(str(clock or ""))
    except ValueError:
        began = None
    if began is not None:
        start_us = (began.replace(tzinfo=None) - _EPOCH).total_seconds() * 1e6
        offset = began.utcoffset()
        offset_h = math.nan if offset is None else offset.total_seconds() / 3_600
    return {
        "recording": str(name),
        "site": str(site or ""),
        "start_us": start_us,
        "offset_h": offset_h,
        "duration_s": math.nan if duration_s is None else float(str(duration_s)),
        "damaged": bool(damage),
    }


def _failed_row(name: str, root: str, stated: Mapping[Path, Metadata]) -> dict[str, Any]:
    """Time and site as stated, or else from the name or a readable header; the duration if it can be read."""
    path = next((p for spelt in names_on_disk(name) if (p := Path(root, spelt)).is_file()), Path(root, name))
    duration_s = None
    try:
        info, known = describe(path, root)
        duration_s = info.duration_s
    except AudioError:
        known = metadata(path, root)
    known = known.updated_with(stated.get(path, Metadata()))
    return _recording_row(name, known.site, known.clock_at(0.0), duration_s)


def _read_stated_metadata(root: Path) -> dict[Path, Metadata]:
    """Sites and times of recordings that a ``recordings.csv`` states."""
    folder = _listing_folder(root)
    try:
        return {} if folder is None else listed_places(folder)
    except MastError:  # somebody else's table
        return {}


def _listing_folder(root: Path) -> Path | None:
    """The folder that holds the ``recordings.csv`` of recordings."""
    folders = (root, root.parent) if root.name == "audio" else (root,)
    return next((folder for folder in folders if (folder / "recordings.csv").is_file()), None)


def read_events(folder: Path, names: pd.DataFrame | None = None) -> Iterator[pd.DataFrame]:
    """The table of detections, a batch in memory at a time; ``found_label`` is the label that they were found with.

    Args:
        folder: of `mast detect`.
        names: from :func:`mast.retrieval.naming.read_names`, for their labels; an event that is not in it is unknown,
            and False in the column ``in_names``.

    Raises:
        AnnotationError: it cannot be read.
    """
    named = None if names is None else names.drop_duplicates(BOX)[[*BOX, "label"]]
    for batch in found_batches(folder, _COLUMNS):
        events = batch.to_pandas()
        events["found_label"] = events["label"]
        if named is not None:
            label = events[BOX].merge(named, "left", BOX)["label"]
            events["in_names"] = label.notna().to_numpy()
            events["label"] = label.fillna(UNKNOWN).to_numpy(object)
        yield events


def hour_slots(start_us: FloatArray, start_s: FloatArray) -> np.ndarray:
    """Hours since 1970 by the recorder's clock; :data:`NO_CLOCK` where there is none."""
    at = start_us + start_s * 1e6
    known = np.isfinite(at)
    return np.where(known, np.floor_divide(np.where(known, at, 0.0), _HOUR_US), NO_CLOCK).astype(np.int64)


def effort_by_hour(searched: SearchedRecordings) -> pd.DataFrame:
    """Seconds that were recorded, and recordings that failed, by ``site`` and ``slot``, an hour since 1970."""
    pieces: list[tuple[str, int, float, int, float]] = []
    columns = ("site", "start_us", "duration_s")
    for site, start_us, duration_s in zip(*(searched.recordings[c].tolist() for c in columns), strict=True):
        if not duration_s > 0:
            continue
        if math.isnan(start_us):
            pieces.append((site, NO_CLOCK, duration_s, 0, 0.0))
            continue
        at, end = start_us, start_us + duration_s * 1e6
        while at < end - 0.5:
            slot = int(at // _HOUR_US)
            until = min(end, float((slot + 1) * _HOUR_US))
            pieces.append((site, slot, (until - at) / 1e6, 0, 0.0))
            at = until
    for site, start_us, duration_s in zip(*(searched.failed[c].tolist() for c in columns), strict=True):
        slot = NO_CLOCK if math.isnan(start_us) else int(start_us // _HOUR_US)
        pieces.append((site, slot, 0.0, 1, duration_s))
    names = ["site", "slot", "recorded_s", "failed_recordings", "failed_s"]
    # a failed recording of unknown length makes the sum unknown
    return pd.DataFrame(pieces, columns=names).groupby(["site", "slot"], as_index=False).sum(skipna=False)


def day_of(slot: int) -> str:
    """The day of an hour since 1970; empty for :data:`NO_CLOCK`."""
    return "" if slot == NO_CLOCK else (_EPOCH + timedelta(hours=slot)).date().isoformat()


def describe_clock_differences(searched: SearchedRecordings) -> str:
    """A sentence if recorders are known to have kept different times; empty otherwise."""
    stated = searched.recordings.dropna(subset=["offset_h"])
    sites_of = stated.groupby("offset_h")["site"].unique()
    if len(sites_of) < 2:
        return ""
    clocks = "; ".join(
        f"{format_names([shorten(site) or 'no site' for site in sorted(sites)], _SITES_NAMED)} "
        f"{'is' if len(sites) == 1 else 'are'} in {_utc(hours)}"
        for hours, sites in zip(sites_of.index.tolist(), sites_of, strict=True)
    )
    return f"Clocks differ: {clocks}. Hours are those of each recorder's clock."


def _utc(offset_h: float) -> str:
    """UTC, UTC+2, UTC-5:30."""
    hours, minutes = divmod(round(abs(offset_h) * 60), 60)
    if not hours and not minutes:
        return "UTC"
    return f"UTC{'-' if offset_h < 0 else '+'}{hours}" + (f":{minutes:02}" if minutes else "")


def find_places(searched: SearchedRecordings) -> dict[str, Place]:
    """Where sites lie: from ``recordings.csv`` next to the recordings, or from the headers of a few of each."""
    root = searched.root
    if root is None:
        return {}
    site_of = dict(zip(searched.recordings["recording"], searched.recordings["site"], strict=True))
    places = _listed_places(root, site_of)
    for site, own in searched.recordings.groupby("site"):
        for name in own["recording"].head(_HEADERS_READ) if str(site) not in places else ():
            paths = (root / spelt for spelt in names_on_disk(str(name)))
            about = metadata(next((path for path in paths if path.is_file()), root / str(name)), root)
            if about.latitude is not None and about.longitude is not None:
                places[str(site)] = Place(about.latitude, about.longitude)
                break
    return {
        site: place
        for site, place in places.items()
        if abs(place.latitude) <= 90 and abs(place.longitude) <= 180
    }


def _listed_places(root: Path, site_of: Mapping[str, str]) -> dict[str, Place]:
    """Places that a ``recordings.csv`` states in columns ``latitude`` and ``longitude``, by site."""
    folder = _listing_folder(root)
    try:
        return {} if folder is None else _places_in_table(read_table(folder / "recordings.csv"), site_of)
    except MastError:  # somebody else's table
        return {}


def _places_in_table(table: Table, site_of: Mapping[str, str]) -> dict[str, Place]:
    file = table.find("file", "recording")
    latitude, longitude = table.find("latitude", "lat"), table.find("longitude", "lon", "lng")
    places: dict[str, Place] = {}
    if file is not None and latitude is not None and longitude is not None:
        north, east = (table.numbers(column, blank_is_nan=True) for column in (latitude, longitude))
        for name, y, x in zip(table.texts(file), north, east, strict=True):
            site = site_of.get(name.strip(), site_of.get(f"audio/{name.strip()}"))
            if site is not None and math.isfinite(y) and math.isfinite(x):
                places.setdefault(site, Place(float(y), float(x)))
    return places
