"""When and where a recording was made, from its header, its name, and the folders it lies in.

What is not stated stays unknown. A clock time carries a time zone only where one is stated: AudioMoth
comments and GUANO chunks state it, most file names do not and are in the recorder's own time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mast.audio.headers import header_notes, parse_offset


@dataclass(frozen=True)
class Metadata:
    """When, where and with what a recording was made; ``None`` is unknown."""

    site: str | None = None
    datetime: datetime | None = None
    recorder: str | None = None
    latitude: float | None = None
    longitude: float | None = None

    def clock_at(self, start_s: float, *, timespec: str = "milliseconds") -> str:
        """Wall clock at ``start_s`` into the recording as ISO 8601; empty where unknown."""
        if self.datetime is None:
            return ""
        return (self.datetime + timedelta(seconds=start_s)).isoformat(timespec=timespec)

    def updated_with(self, other: Metadata) -> Metadata:
        """A copy, updated with what ``other`` knows."""
        known = {field.name: getattr(other, field.name) for field in fields(other)}
        return replace(self, **{name: value for name, value in known.items() if value is not None})


# our choice: outside, digits that look like a date are something else
_EARLIEST_YEAR, _LATEST_YEAR = 1950, 2099
_FIRST_AUDIOMOTH = datetime(2016, 1, 1, tzinfo=UTC)

# Year-month-day and hour-minute(-second) with the separators people use. Digits may not touch either end, so
# that a serial number is not cut into a date.
_COMPACT = re.compile(
    r"(?<!\d)(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)(?P<between>[_\-T$ ])"
    r"(?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d)?(?!\d)(?P<zone>Z|[+-]\d\d(?:00|15|30|45)(?!\d))?",
)
_SEPARATED = re.compile(
    r"(?<!\d)(?P<year>\d{4})(?P<sep>[-._])(?P<month>\d\d)(?P=sep)(?P<day>\d\d)(?P<between>[T_\- ]{1,3})"
    r"(?P<hour>\d\d)[-:._h ]?(?P<minute>\d\d)(?:[-:._m ]?(?P<second>\d\d))?(?!\d)"
    r"(?P<zone>Z|[+-]\d\d:?(?:00|15|30|45)(?!\d))?",
)
_RUN_TOGETHER = re.compile(
    r"(?<!\d)(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)(?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d)(?!\d)"
)
# SoundTrap hydrophones: serial number, dot, two-digit year
_SOUNDTRAP = re.compile(
    r"^(?P<serial>\d{3,10})\.(?P<year>\d\d)(?P<month>\d\d)(?P<day>\d\d)"
    r"(?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d)(?!\d)"
)
_HEX_TIME = re.compile(r"^[0-9A-F]{8}$")  # AudioMoth firmware before 1.2: seconds since 1970, in capitals
_TIME_ONLY = re.compile(r"^(?P<hour>\d\d)[-_.]?(?P<minute>\d\d)(?:[-_.]?(?P<second>\d\d))?$")
_DATE_FOLDER = re.compile(r"^(?P<year>\d{4})(?P<sep>[-._]?)(?P<month>\d\d)(?P=sep)(?P<day>\d\d)$")

# Channels in Song Meter names are not part of the site: SITE_0+1_…, SITE_0+_… and SITE_+1_…, and card or microphone
# (A, B; AC of the SM5) after the serial number that is the default prefix. "Plot_A" and "Plot_1" are left alone: there
# A or 1 is the plot.
_CHANNELS = re.compile(r"[_-]-?\d?\+\d?-?$")
_SONG_METER_SERIAL = re.compile(
    r"^(?P<serial>(?:S4[AU]|S3B|S5[AU]|SM[2345]|SM[AMU]|2M[MU])[-_]?\d{3,6})(?:[_-](?:[AB]|AC))?$", re.I
)
_AUDIOMOTH_ID = re.compile(r"^[0-9A-F]{16}$")
_XENO_CANTO = re.compile(r"^XC\d+", re.I)

_NO_SITE = re.compile(
    r"^(?:audio|audios|audiomoth|clips?|data|dataset|files?|flac|mp3|raw|rec|recs|record|recordings?|sounds?|wavs?|"
    r"wavefiles|train|val|valid|validation|test|dcim|sd|sd ?card|card ?\w|data ?\d*|\d+media|deployment|zoom|"
    r"(?:19|20)\d\d|(?:19|20)\d\d[-_.]?\d\d)$",
    re.I,
)


def metadata(path: str | Path, root: str | Path | None = None) -> Metadata:
    """When, where and with what a recording was made, as far as it is stated.

    Headers come before names, names before folders. Folders are looked at only below ``root``: the
    nearest one that is not a date or a word like "audio" is the site.

    Args:
        path: the recording.
        root: the folder of the whole dataset.
    """
    path = Path(path)
    notes = header_notes(path)
    when, site = None, None
    for note in notes:
        if when is None and note.datetime is not None and _is_plausible_year(note.datetime):
            when = note.datetime
        if site is None and note.site is not None:
            site = note.site
    folders = _folder_names(path, root)
    if when is None:
        when = time_in_name(path.stem) or _time_in_folder(path.stem, folders)
    if site is None:
        site = site_in_name(path.stem) or _site_in_folders(folders)
    if site is not None:  # a folder's name may hold bytes that are not text
        site = os.fsencode(site).decode("utf-8", errors="backslashreplace")
    located = next((note for note in notes if note.latitude is not None), None)
    return Metadata(
        site=site,
        datetime=when,
        recorder=next((note.recorder for note in notes if note.recorder), _recorder_in_name(path.stem)),
        latitude=located.latitude if located else None,
        longitude=located.longitude if located else None,
    )


def time_in_name(name: str) -> datetime | None:
    """The clock time in a file name without its suffix, or ``None``.

    >>> time_in_name("AM1_20230510_073000")
    datetime.datetime(2023, 5, 10, 7, 30)
    >>> time_in_name("20231310_073000") is None  # there is no month 13
    True
    """
    if _XENO_CANTO.match(name):
        return None  # a collection number and free text
    for _, when in _times(name):
        return when
    soundtrap = _SOUNDTRAP.match(name)
    if soundtrap is not None:
        return _datetime(soundtrap.groupdict(), century=2000)
    if _HEX_TIME.match(name):
        when = datetime.fromtimestamp(int(name, 16), UTC)
        # eight digits and capitals may be anything: only a time when an AudioMoth can have recorded counts
        if _FIRST_AUDIOMOTH <= when <= datetime.now(UTC) + timedelta(days=2):
            return when
    return None


def site_in_name(name: str) -> str | None:
    """The site in a name of the Song Meter kind, ``SITE_20230510_073000``, or ``None``.

    >>> site_in_name("OAK-3_0+1_20230510_073000")
    'OAK-3'
    """
    if _XENO_CANTO.match(name):
        return None
    for match, _ in _times(name):
        prefix = _CHANNELS.sub("", name[: match.start()].strip("_- ")).strip("_- ")
        serial = _SONG_METER_SERIAL.match(prefix)
        if serial is not None:
            return serial["serial"]
        # a 16-digit AudioMoth id names the recorder, not the place
        return None if not prefix or _NO_SITE.match(prefix) or _AUDIOMOTH_ID.match(prefix) else prefix
    return None


def _times(name: str) -> Iterator[tuple[re.Match[str], datetime]]:
    """Every valid date with time in a name."""
    for pattern in (_COMPACT, _SEPARATED, _RUN_TOGETHER):
        for match in pattern.finditer(name):
            when = _datetime(match.groupdict())
            if when is not None:
                yield match, when


def _datetime(fields: Mapping[str, Any], *, century: int = 0) -> datetime | None:
    """The fields of a match as a time; ``None`` where there is no such day or hour, or the year is not plausible."""
    zone_text = fields.get("zone")
    zone = None
    # without the T of ISO 8601 a sign is a separator: 20230510_073000-0100 is more likely a part number
    if zone_text and "T" in fields["between"]:
        zone = UTC if zone_text == "Z" else parse_offset(zone_text)
    try:
        when = datetime(
            century + int(fields["year"]),
            int(fields["month"]),
            int(fields["day"]),
            int(fields["hour"]),
            int(fields["minute"]),
            int(fields["second"] or 0),
            tzinfo=zone,
        )
    except ValueError:
        return None
    return when if _is_plausible_year(when) else None


def _is_plausible_year(when: datetime) -> bool:
    """A year of field recordings; a recorder whose clock was never set says 1970."""
    return _EARLIEST_YEAR <= when.year <= _LATEST_YEAR and when.year != 1970


def _folder_names(path: Path, root: str | Path | None) -> list[str]:
    """Names of the folders between root and file, nearest first."""
    if root is None:
        return []
    try:
        return list(reversed(path.absolute().relative_to(Path(root).absolute()).parts[:-1]))
    except ValueError:
        return []


def _time_in_folder(name: str, folders: list[str]) -> datetime | None:
    """A time in the name and the date in the folder above: ``2023-05-10/073000.wav``."""
    time = _TIME_ONLY.match(name)
    date = _DATE_FOLDER.match(folders[0]) if folders else None
    return None if time is None or date is None else _datetime({**date.groupdict(), **time.groupdict()})


def _site_in_folders(folders: list[str]) -> str | None:
    for folder in folders:
        if not (_DATE_FOLDER.match(folder) or _NO_SITE.match(folder) or any(_times(folder))):
            return folder
    return None


def _recorder_in_name(name: str) -> str | None:
    audiomoth = re.match(r"^([0-9A-F]{16})_", name)
    if audiomoth is not None:
        return f"AudioMoth {audiomoth[1]}"
    soundtrap = _SOUNDTRAP.match(name)
    if soundtrap is not None and _datetime(soundtrap.groupdict(), century=2000) is not None:
        return f"SoundTrap {soundtrap['serial']}"
    return None
