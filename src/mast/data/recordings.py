"""A dataset: a folder of recordings, what is known about them, and what people boxed in them.

Three states of a recording are kept apart: boxed, *reviewed* and empty (somebody listened, nothing called),
and unlabelled (nobody listened). What was reviewed is decided by the first of these that exists:

1. ``reviewed.csv`` in the folder (``file``, and ``start_s``, ``end_s`` where only a part was listened to);
2. a column ``reviewed`` (true or false) in ``recordings.csv``;
3. ``boxes.csv`` next to ``recordings.csv``: every listed recording was listened to (only those with boxes, if
   ``boxes.csv`` names recordings that are not listed: it may mean one without boxes);
4. what the annotation files say; where a format says nothing, the recordings that it has boxes for.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mast.annotations import AnnotationSet, read_annotations
from mast.annotations.sidecars import NO, YES, flag_texts, read_reviewed
from mast.annotations.tables import Table, read_table
from mast.audio import (
    Metadata,
    Unlisted,
    as_audio_errors,
    describe,
    find_recordings,
    metadata,
    names_on_disk,
    text_names,
)
from mast.data.dataset_names import DatasetNames, check_listing
from mast.errors import AnnotationError, AudioError, MastError, not_a_folder, shorten
from mast.spans import TimeSpan, merge_spans
from mast.wording import counted

_TEXT_COLUMNS = ("file", "site", "datetime", "split", "licence")
_NUMBER_COLUMNS = ("duration_s", "sample_rate", "channels")
RECORDINGS_COLUMNS = ("file", "site", "datetime", "split", "duration_s", "sample_rate", "channels", "licence")
SLACK_S = 0.01  # durations in tables are rounded
_MAX_SAMPLES_PER_BYTE = 8_000  # FLAC takes a dozen bytes for 65,535 samples of silence
_LONGEST = timedelta(days=366)  # no recording lasts longer


@dataclass(frozen=True)
class Dataset:
    """Recordings and their annotations.

    Attributes:
        root: the folder.
        recordings: one row each. ``file`` is the name that events use for it; ``site``, ``datetime`` (of its
            start, ISO 8601), ``split``, ``licence`` are empty where unknown; ``duration_s``, ``sample_rate``
            are always known, ``channels`` is NaN where not; other columns of ``recordings.csv`` follow.
        annotations: events and reviewed spans, by the same names.
        failures: ``file`` and ``error`` of recordings that cannot be read or are missing, and of folders that cannot be
            listed; they are in no other table.

    >>> from mast.data import load_dataset
    >>> dataset = load_dataset("sim")
    >>> dataset.recordings[["file", "site", "duration_s"]]
                           file site  duration_s
    0  S01_20240512_055800.flac  S01        10.0
    1  S02_20240512_105600.flac  S02        10.0
    2  S03_20240512_094600.flac  S03        10.0
    >>> dataset.boxed_recordings
    ['S01_20240512_055800.flac', 'S03_20240512_094600.flac']
    """

    root: Path
    recordings: pd.DataFrame
    annotations: AnnotationSet = field(default_factory=AnnotationSet)
    failures: pd.DataFrame = field(default_factory=lambda: pd.DataFrame({"file": [], "error": []}))

    def __len__(self) -> int:
        return len(self.recordings)

    def path(self, recording: str) -> Path:
        """Where a recording lies on disk.

        >>> from mast.data import load_dataset
        >>> load_dataset("sim").path("S01_20240512_055800.flac").as_posix()
        'sim/audio/S01_20240512_055800.flac'
        """
        return _locate(self.root, recording) or self.root / recording

    @property
    def reviewed_recordings(self) -> list[str]:
        """Recordings that somebody listened to, at least in part, in the order of ``recordings``."""
        heard = set(self.annotations.reviewed["recording"])
        return [str(name) for name in self.recordings["file"] if name in heard]

    @property
    def boxed_recordings(self) -> list[str]:
        """Recordings with at least one box, in the order of ``recordings``."""
        boxed = set(self.annotations.events["recording"])
        return [str(name) for name in self.recordings["file"] if name in boxed]

    def heard_spans(self) -> dict[str, list[TimeSpan]]:
        """What was listened to, by recording; spans that are apart only by rounding are joined.

        >>> from mast.data import load_dataset
        >>> load_dataset("sim").heard_spans()["S01_20240512_055800.flac"]
        [(0.0, 10.0)]
        """
        reviewed, known = self.annotations.reviewed, set(self.recordings["file"])
        found: dict[str, list[TimeSpan]] = {}
        for name, *span in zip(*(reviewed[c] for c in ("recording", "start_s", "end_s")), strict=True):
            if name in known:
                found.setdefault(name, []).append((float(span[0]), float(span[1])))
        return {name: merge_spans(own, gap_s=SLACK_S) for name, own in sorted(found.items())}

    def select(self, *, split: str | None = None, recordings: Collection[str] | None = None) -> Dataset:
        """The part of the dataset with this value in the ``split`` column, or with these names (or both).

        >>> from mast.data import load_dataset
        >>> part = load_dataset("sim").select(recordings=["S01_20240512_055800.flac"])
        >>> len(part), len(part.annotations.events)
        (1, 4)
        """
        known = set(self.recordings["file"])
        if recordings is not None and set(recordings) - known:
            unknown = sorted(set(recordings) - known)
            raise MastError(
                f"{self.root}: there is no recording {unknown[0]} in this dataset ({len(known)} recordings)"
            )
        chosen = pd.Series(True, index=self.recordings.index)
        if split is not None:
            chosen &= self.recordings["split"] == split
            if not chosen.any():
                found = sorted(set(self.recordings["split"]) - {""})
                where = "its column split is empty; copy the parts from split.csv of a training run"
                raise MastError(
                    f"{self.root}: no recording is in split '{split}'; "
                    f"{'found ' + ', '.join(found) if found else where}"
                )
        if recordings is not None:
            chosen &= self.recordings["file"].isin(set(recordings))
        names = set(self.recordings.loc[chosen, "file"])
        parts = (self.annotations.events, self.annotations.reviewed, self.annotations.recordings)
        return replace(
            self,
            recordings=self.recordings[chosen].reset_index(drop=True),
            annotations=AnnotationSet(*(part[part["recording"].isin(names)] for part in parts)),
        )


def load_dataset(folder: str | Path, *, annotations: str | Path | None = None) -> Dataset:
    """Read a dataset from a folder of recordings.

    Args:
        folder: holds recordings, at any depth; ``recordings.csv`` and ``boxes.csv`` where they exist.
        annotations: boxes in any supported format, a file or a folder; ``boxes.csv`` by default.

    Raises:
        MastError: no recordings; most recordings that a table names are missing or cannot be read; a name fits several
            recordings.

    Warns:
        UserWarning: recordings that cannot be read or are missing, which are left out with their boxes (they are listed
            in ``Dataset.failures``), boxes that start after their recording has ended, and boxes above half its sample
            rate, which are cut to it or left out.

    >>> from mast.data import load_dataset
    >>> dataset = load_dataset("sim")
    >>> len(dataset), len(dataset.annotations.events), len(dataset.reviewed_recordings)
    (3, 5, 3)
    """
    root = Path(folder)
    if not root.is_dir():
        raise MastError(f"{root}: {not_a_folder(root)}; expected a folder of recordings")
    listing = root / "recordings.csv"
    listed = read_table(listing) if listing.is_file() else None
    unlisted: list[Unlisted] = []
    table = _from_listing(listed) if listed is not None else _from_folder(root, unlisted)
    if table.empty:
        where = (
            f"{listing}: lists no recording" if listed is not None else f"{root}: no recording in this folder"
        )
        raise MastError(
            f"{where}; expected wav, flac, mp3, ogg or opus files" + "".join(f"; {u}" for u in unlisted[:1])
        )
    all_names = list(table["file"])
    missing = [] if listed is None else [name for name in all_names if _locate(root, name) is None]
    check_listing(listing, all_names, missing)
    table, failures = _fill_in_all(root, table[~table["file"].isin(missing)], unlisted)

    known = table.rename(columns={"file": "recording"})[
        ["recording", "duration_s", "sample_rate", "site", "datetime"]
    ]
    source = Path(annotations) if annotations is not None else root / "boxes.csv"
    if annotations is not None and not source.exists():
        raise AnnotationError(f"{source}: no such file or folder of annotations")
    found = read_annotations(source, recordings=known) if source.exists() else AnnotationSet()
    names = DatasetNames(
        root,
        present=list(table["file"]),
        missing=missing,
        unreadable=list(failures["file"]),
        is_listed=listed is not None,
    )
    events = names.select_usable(found.events, source, boxes=True)
    reviewed = _reviewed_spans(root, table, events, found.reviewed, names, source)
    names.warn_of_other_missing(listing, all_names)
    _warn_of_late_boxes(events, table, source)
    boxed = AnnotationSet(_with_site_and_time(events, table), reviewed, known)
    if warning := boxed.nyquist_warning("boxes"):
        warnings.warn(f"{source}: {warning}", stacklevel=2)
    failures = pd.concat([failures, names.failures()], ignore_index=True)
    return Dataset(root, table, boxed.clipped_to_nyquist(), failures)


def parse_clock(text: str) -> datetime | None:
    """A time as ``recordings`` holds it; ``None`` where it is empty."""
    return datetime.fromisoformat(text) if text else None


def listed_places(folder: Path) -> dict[Path, Metadata]:
    """Sites and times that ``recordings.csv`` in a folder states, by recording; see :func:`stated_places`."""
    listing = folder / "recordings.csv"
    if not listing.is_file():
        return {}
    located = ((_locate(folder, name), stated) for name, stated in stated_places(listing).items())
    return {path: stated for path, stated in located if path is not None}


def stated_places(listing: Path) -> dict[str, Metadata]:
    """Sites and times that a ``recordings.csv`` states, by the names it uses.

    A table of that name without a column ``file`` is somebody else's and says nothing.

    Raises:
        MastError: the table cannot be read, or a time in it is not valid.
    """
    table = read_table(listing)
    file, site, clock = table.find("file", "recording"), table.find("site"), table.find("datetime")
    if file is None:
        return {}
    times = _parse_times(table, clock) if clock else [None] * len(table)
    sites = table.texts(site) if site else [""] * len(table)
    places = {}
    for name, where, when in zip(table.texts(file), sites, times, strict=True):
        if where.strip() or when:
            places[name.strip()] = Metadata(site=where.strip() or None, datetime=when)
    return places


def _locate(root: Path, name: str) -> Path | None:
    """A recording named relative to the dataset's folder or to its ``audio/``."""
    places = [place / spelt for spelt in names_on_disk(name) for place in (root, root / "audio")]
    return next((path for path in places if _is_file(path)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _from_listing(listed: Table) -> pd.DataFrame:
    """The rows of ``recordings.csv``, checked."""
    listed.require({"file": ("file", "recording")})
    columns: dict[str, object] = {}
    for name in _TEXT_COLUMNS:
        column = listed.find("file", "recording") if name == "file" else listed.find(name)
        columns[name] = [text.strip() for text in listed.texts(column)] if column else [""] * len(listed)
    for name in _NUMBER_COLUMNS:
        column = listed.find(name)
        columns[name] = listed.numbers(column, blank_is_nan=True) if column else np.full(len(listed), np.nan)
    used = [listed.find(name) or "" for name in ("file", "recording", *_TEXT_COLUMNS, *_NUMBER_COLUMNS)]
    extra = {name: values for name, values in listed.extra_columns(used).items() if name not in columns}
    table = pd.DataFrame({**{name: columns[name] for name in RECORDINGS_COLUMNS}, **extra})
    first_row: dict[str, int] = {}
    for row, name in enumerate(table["file"]):
        where = f"{listed.where(row)}, file"
        if not name:
            raise MastError(f"{where}: empty; expected the name of a recording")
        if name in first_row:
            raise MastError(
                f"{where}: {name} is listed twice (first in line {listed.lines[first_row[name]]}); remove one"
            )
        first_row[name] = row
    if clock := listed.find("datetime"):
        table["datetime"] = [when.isoformat() if when else "" for when in _parse_times(listed, clock)]
    return table


def _parse_times(listed: Table, column: str) -> list[datetime | None]:
    """A column of times, checked."""
    times: list[datetime | None] = []
    for row, text in enumerate(listed.texts(column)):
        try:
            when = parse_clock(text.strip())
            if when is not None:
                when + _LONGEST  # the end of the recording has a time, too
        except (ValueError, OverflowError):
            raise MastError(
                f"{listed.where(row)}, datetime: '{shorten(text)}' is not a valid time; "
                "expected ISO 8601, as in 2023-05-10T07:30:00"
            ) from None
        times.append(when)
    return times


def recordings_in(root: Path, unlisted: list[Unlisted] | None = None) -> dict[str, Path]:
    """Every recording below the folder by its name: relative to it, or to its ``audio/`` where that is unambiguous."""
    paths = {name: path for path, name in text_names(find_recordings(root, unlisted=unlisted), root).items()}
    return {
        name if name.removeprefix("audio/") in paths else name.removeprefix("audio/"): path
        for name, path in paths.items()
    }


def _from_folder(root: Path, unlisted: list[Unlisted]) -> pd.DataFrame:
    """A row for every recording below the folder."""
    table = pd.DataFrame({"file": list(recordings_in(root, unlisted))})
    for column in RECORDINGS_COLUMNS[1:]:
        table[column] = np.nan if column in _NUMBER_COLUMNS else ""
    return table


def _fill_in_all(
    root: Path, table: pd.DataFrame, unlisted: list[Unlisted]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Fill in what headers, names and folders say; unreadable recordings go into a table of their own."""
    records = table.to_dict("records")
    failures = [
        {"file": f"{name}/", "error": shorten(folder)}
        for folder in unlisted
        for name in text_names([folder.folder], root).values()
    ]
    readable = []
    for record in records:
        path = _locate(root, str(record["file"])) or root / str(record["file"])
        try:
            _fill_in(record, path, root)
        except AudioError as error:
            failures.append({"file": str(record["file"]), "error": shorten(error)})
            continue
        readable.append(record)
    if failures:
        warnings.warn(
            f"{root}: {len(failures)} of {len(records) + len(unlisted)} recordings cannot be read and are left out; "
            f"the first: {failures[0]['error']}",
            stacklevel=3,
        )
    if not readable:
        raise AudioError(
            f"{root}: no recording can be read ({len(records):,} tried); the first: {failures[0]['error']}"
        )
    return pd.DataFrame(readable, columns=table.columns), pd.DataFrame(failures, columns=["file", "error"])


def _fill_in(record: dict[Hashable, Any], path: Path, root: Path) -> None:
    """Fill in what is not known yet about a recording.

    Raises:
        AudioError: it cannot be read.
    """
    if not _is_plausible(record["duration_s"], record["sample_rate"], path):
        info, known = describe(path, root)
        record |= {"duration_s": info.duration_s, "sample_rate": float(info.sample_rate)}
        if np.isnan(record["channels"]):
            record["channels"] = float(info.channels)
    elif not record["site"] or not record["datetime"]:
        with as_audio_errors(path):
            known = metadata(path, root)
    else:
        return
    record["site"] = record["site"] or known.site or ""
    record["datetime"] = record["datetime"] or (known.datetime.isoformat() if known.datetime else "")


def _is_plausible(duration_s: float, sample_rate: float, path: Path) -> bool:
    """Whether a length is listed that a file of this size can have."""
    if not (duration_s > 0 and sample_rate > 0):  # NaN: not listed
        return False
    try:
        return duration_s * sample_rate <= _MAX_SAMPLES_PER_BYTE * path.stat().st_size
    except OSError:
        return False


def _reviewed_spans(
    root: Path,
    table: pd.DataFrame,
    events: pd.DataFrame,
    stated: pd.DataFrame,
    names: DatasetNames,
    source: Path,
) -> pd.DataFrame:
    """The spans somebody listened to, by the rules at the top of this file; ends are filled in.

    ``events`` and ``stated`` spans are from ``source``, the events already with the dataset's names.
    """
    own = read_reviewed(root)
    boxed = set(events["recording"])
    if own is not None:
        spans = names.select_usable(own, root / "reviewed.csv")
    elif "reviewed" in table:
        spans = _whole_spans(table.loc[_reviewed_flags(table, root / "recordings.csv"), "file"])
    elif names.is_listed and source == root / "boxes.csv" and source.is_file():
        spans = _whole_spans(table["file"])
        if names.unlisted and (unboxed := len(set(table["file"]) - boxed)):
            spans = spans[spans["recording"].isin(boxed)]
            warnings.warn(
                f"{source}: {counted(unboxed, 'recording')} without boxes may be meant by {names.unlisted[0]}, so "
                f"{'it does' if unboxed == 1 else 'they do'} not count as heard and empty",
                stacklevel=3,
            )
    else:
        heard = names.select_usable(stated[["recording", "start_s", "end_s"]], source)
        unstated = sorted(boxed - set(heard["recording"]))
        spans = pd.concat([heard, _whole_spans(pd.Series(unstated, dtype=object))], ignore_index=True)
    length = dict(zip(table["file"], table["duration_s"], strict=True))
    spans["start_s"] = spans["start_s"].astype("float64").fillna(0.0)
    spans["end_s"] = spans["end_s"].astype("float64").fillna(spans["recording"].map(length).astype("float64"))
    return spans.drop_duplicates().reset_index(drop=True)


def _whole_spans(files: pd.Series[str]) -> pd.DataFrame:
    """Spans over whole recordings."""
    return pd.DataFrame({"recording": list(files), "start_s": 0.0, "end_s": np.nan})


def _reviewed_flags(table: pd.DataFrame, path: Path) -> pd.Series[bool]:
    """The column ``reviewed`` as booleans."""
    texts = flag_texts(table["reviewed"])
    wrong = table.index[~texts.isin(YES | NO)]
    if len(wrong):
        raise MastError(
            f"{path}, reviewed of {table.loc[wrong[0], 'file']}: found '{table.loc[wrong[0], 'reviewed']}', "
            "expected true or false"
        )
    return texts.isin(YES)


def _warn_of_late_boxes(events: pd.DataFrame, table: pd.DataFrame, source: Path) -> None:
    """A box after the end is in no chunk, and usually a sign of boxes matched to the wrong recording."""
    length = events["recording"].map(dict(zip(table["file"], table["duration_s"], strict=True)))
    late = events.index[events["start_s"] >= length]
    if len(late):
        row, one = int(late[0]), len(late) == 1
        sentence = (
            "1 box starts after its recording has ended, so it is never used; it"
            if one
            else f"{len(late):,} boxes start after their recording has ended, so they are never used; the first"
        )
        warnings.warn(
            f"{source}: {sentence} is row {row + 1} (header not counted), at {events['start_s'][row]:g} s of "
            f"{events['recording'][row]}, which lasts {length[row]:g} s; {'does it' if one else 'do they'} belong to "
            "another recording?",
            stacklevel=3,
        )


def _with_site_and_time(events: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Events with the site and wall-clock time of their recording, where they have none of their own."""
    site = dict(zip(table["file"], table["site"], strict=True))
    clock = {name: parse_clock(text) for name, text in zip(table["file"], table["datetime"], strict=True)}
    placed = events.copy()
    placed["site"] = [
        own or site[name] for own, name in zip(events["site"], events["recording"], strict=True)
    ]
    placed["datetime"] = [
        own or ("" if (began := clock[name]) is None else (began + timedelta(seconds=start)).isoformat())
        for own, name, start in zip(events["datetime"], events["recording"], events["start_s"], strict=True)
    ]
    return placed
