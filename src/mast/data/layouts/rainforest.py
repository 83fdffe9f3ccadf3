"""Site and date folders with Raven tables: how long-term rainforest recordings are mostly kept.

``13A/2018-07-10/060000.wav`` …, and Raven selection tables next to the recordings or in a tree of the same
folders (``annotations/13A/2018-07-10/060000.Table.1.selections.txt``). A table may belong to one recording, by its
name, or to all recordings of a folder, by its `Begin File` column. The label is in the column `Sonotype`
where there is one.

A recording without a table was not listened to. Those with one are divided as in the paper (Sec. "Datasets"): a
single day at a single site is *home*, to train, tune and test on; other days there are ``temporal_ood``, other
sites ``site_ood``.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pandas as pd

from mast.annotations import AnnotationSet, read_annotations
from mast.annotations.tables import read_text
from mast.audio import find_recordings
from mast.audio.clock import metadata
from mast.data.layouts.folder import LayoutDataset, probe_recordings
from mast.data.splits import SITE_OOD, TEMPORAL_OOD
from mast.errors import AnnotationError

_DATE = re.compile(r"^(\d{4})[-_.]?(\d\d)[-_.]?(\d\d)$")
_NO_PLACE = {"annotations", "annotation", "audio", "audios", "labels", "raven", "recordings", "selections"}
_NO_PLACE |= {"tables"}
_TABLES = {".txt", ".tsv"}


def read_rainforest(folder: Path, *, home: tuple[str, str] | None = None) -> LayoutDataset:
    """Read the folder.

    Args:
        folder: holds site folders with date folders (2018-07-10, 2018_07_10 or 20180710) in them.
        home: site and date (YYYY-MM-DD) of the labelled day; by default the site and date with the most boxes.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in find_recordings(folder)}
    table = probe_recordings(folder, paths.values())
    if table.empty:
        raise AnnotationError(f"{folder}: no recording in this folder; expected SITE/DATE/recordings")
    table["place"] = [_place(name) for name in table["recording"]]
    table["site"] = [place.split("/")[0] for place in table["place"]]
    table["datetime"] = [
        _start_of_recording(paths[name], folder, place)
        for name, place in zip(table["recording"], table["place"], strict=True)
    ]
    events, reviewed = _read_tables(folder, table)
    days = table["datetime"].str.slice(0, 10)
    heard = table["recording"].isin(set(reviewed["recording"]))
    place_of = dict(zip(table["recording"], zip(table["site"], days, strict=True), strict=True))
    home = _find_home(events, reviewed, place_of, home, folder)
    table["split"] = [
        "" if not known or (site, day) == home else SITE_OOD if site != home[0] else TEMPORAL_OOD
        for known, site, day in zip(heard, table["site"], days, strict=True)
    ]
    annotations = AnnotationSet(events, reviewed, table.drop(columns="place"))
    return LayoutDataset(annotations, {name: paths[name] for name in table["recording"]})


def _place(name: str) -> str:
    """``13A/2018-07-10`` of a path: its folders without names such as "audio", all dates in one format."""
    folders = [f for f in PurePosixPath(name).parent.parts if f.lower() not in _NO_PLACE]
    place = [f"{m[1]}-{m[2]}-{m[3]}" if (m := _DATE.match(f)) else f for f in folders]
    if not place or _DATE.match(place[0]):
        raise AnnotationError(f"{name}: in no site folder; expected SITE/DATE/{PurePosixPath(name).name}")
    return "/".join(place)


def _start_of_recording(path: Path, root: Path, place: str) -> str:
    """Start of a recording: its own clock time, else midnight of its date folder; empty where neither is known."""
    when = metadata(path, root).datetime
    if when is not None:
        return when.isoformat()
    dates = [part for part in place.split("/") if _DATE.match(part)]
    return f"{dates[-1]}T00:00:00" if dates else ""


def _read_tables(folder: Path, table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Events and reviewed spans of all Raven tables, each read among the recordings of its own folder."""
    parts: list[AnnotationSet] = []
    for file in sorted(f for f in folder.rglob("*") if f.suffix.lower() in _TABLES and f.is_file()):
        if "begin time (s)" not in read_text(file)[:2_000].lower():
            continue  # notes, not a selection table
        name = file.relative_to(folder).as_posix()
        place = _place(name)
        near = table["place"].eq(place) | table["place"].str.startswith(f"{place}/")
        known = table.loc[near, ["recording", "duration_s", "sample_rate"]]
        found = read_annotations(file, "raven", recordings=known)
        unknown = sorted(set(found.annotated()) - set(known["recording"]))
        if unknown:
            raise AnnotationError(
                f"{file}: {unknown[0]} is not a recording of {place}; expected the table to be named after its "
                "recording, or to name it in a column Begin File"
            )
        parts.append(found)
    if not parts:
        raise AnnotationError(f"{folder}: no Raven selection table; expected .txt beside the recordings")
    events = pd.concat([_with_sonotypes(part.events) for part in parts], ignore_index=True)
    return events, pd.concat([part.reviewed for part in parts], ignore_index=True).drop_duplicates()


def _with_sonotypes(events: pd.DataFrame) -> pd.DataFrame:
    """Events labelled by their column `Sonotype`, where there is one."""
    column = next((c for c in events if str(c).strip().lower() in ("sonotype", "sonotypes")), None)
    if column is None:
        return events
    named = events[column].fillna("").astype(str).str.strip()
    return events.assign(label=named.where(named != "", events["label"])).drop(columns=column)


def _find_home(
    events: pd.DataFrame,
    reviewed: pd.DataFrame,
    place_of: dict[str, tuple[str, str]],
    home: tuple[str, str] | None,
    folder: Path,
) -> tuple[str, str]:
    listened = {place_of[name] for name in reviewed["recording"]}
    if home is not None and home not in listened:
        found = ", ".join(f"{site}/{day}" for site, day in sorted(listened)[:6])
        raise AnnotationError(
            f"{folder}: nothing of {home[0]}/{home[1]} was annotated; choose one of {found}"
        )
    if home is not None:
        return home
    counts = dict.fromkeys(sorted(listened), 0)
    for name in events["recording"]:
        counts[place_of[name]] += 1
    return max(counts, key=lambda place: counts[place])
