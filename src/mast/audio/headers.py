"""What recorders write about a recording inside the file: AudioMoth comments, GUANO, Wildlife Acoustics."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import guano

from mast.audio.libsndfile import open_sound
from mast.audio.riff import RiffChunks, read_chunks
from mast.errors import AudioError

# "Recorded at 19:17:30 24/02/2019 (UTC+5:30) by AudioMoth 24F319055FDF2C94 at medium gain …"; the words after
# the time changed with the firmware (deployment, gain, battery, temperature), the first ones did not.
_AUDIOMOTH_TIME = re.compile(
    r"Recorded at (?P<hour>\d{1,2}):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?"
    r" (?P<day>\d{1,2})/(?P<month>\d{1,2})/(?P<year>\d{4})"
    r"(?: \((?P<utc>UTC)(?P<offset>[^)]*)\))?"
)
_AUDIOMOTH_DEVICE = re.compile(r"\b(?P<kind>AudioMoth|HydroMoth)\s+(?P<serial>[0-9A-Fa-f]{16})\b")
_LARGEST_OFFSET = timedelta(hours=14)  # of a clock on Earth
_OFFSET = re.compile(r"^(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d\d))?$")
_GUANO_SITE_KEYS = ("site", "site name", "site id", "location", "location name", "loc name", "prefix")
# ids of the fields of a Wildlife Acoustics "wamd" chunk that matter here
_WAMD_FIELDS = {0x01: "model", 0x02: "serial", 0x04: "prefix", 0x05: "timestamp"}


@dataclass(frozen=True)
class HeaderNotes:
    """What one kind of note says; ``None`` is unknown."""

    kind: str
    datetime: datetime | None = None
    site: str | None = None
    recorder: str | None = None
    latitude: float | None = None
    longitude: float | None = None


def header_notes(path: Path) -> list[HeaderNotes]:
    """Every note found in a recording's header, most trustworthy first; empty where there is none.

    The sound is not read. A file that cannot be opened has no notes: :func:`mast.audio.probe` says why.
    """
    try:
        chunks = read_chunks(path)
    except OSError:
        return []
    found: list[HeaderNotes | None] = []
    if chunks is not None:
        found.append(_from_guano(chunks))
        found.append(_from_wamd(chunks))
        found.append(_from_audiomoth(chunks.text(b"ICMT"), chunks.text(b"IART")))
    else:
        # converted to flac or ogg, an AudioMoth comment lives on in the COMMENT tag
        found.append(_from_audiomoth(*_tags(path)))
    return [notes for notes in found if notes is not None]


def parse_audiomoth_comment(comment: str) -> datetime | None:
    """The clock time in an AudioMoth comment.

    With a time zone where the comment names one (``(UTC)``, ``(UTC-3)``, ``(UTC+5:30)``), without one
    where it does not; ``None`` where there is no valid time.
    """
    match = _AUDIOMOTH_TIME.search(comment)
    if match is None:
        return None
    zone = None
    if match["utc"]:
        zone = parse_offset(match["offset"].strip()) if match["offset"].strip() else UTC
        if zone is None:
            return None  # an offset we cannot read: hours off is worse than unknown
    try:
        return datetime(
            int(match["year"]),
            int(match["month"]),
            int(match["day"]),
            int(match["hour"]),
            int(match["minute"]),
            int(match["second"]),
            int((match["fraction"] or "0").ljust(6, "0")),
            zone,
        )
    except ValueError:
        return None


def parse_offset(text: str) -> timezone | None:
    """``+2``, ``-03``, ``+0530`` or ``+5:30`` as a time zone; ``None`` where it is not an offset."""
    match = _OFFSET.match(text)
    if match is None:
        return None
    offset = timedelta(hours=int(match["hours"]), minutes=int(match["minutes"] or 0))
    if offset > _LARGEST_OFFSET:
        return None
    return timezone(-offset if match["sign"] == "-" else offset)


def _from_audiomoth(comment: str | None, artist: str | None) -> HeaderNotes | None:
    when = parse_audiomoth_comment(comment or "")
    device = _AUDIOMOTH_DEVICE.search(f"{artist or ''} {comment or ''}")
    if when is None and device is None:
        return None
    recorder = f"{device['kind']} {device['serial'].upper()}" if device else "AudioMoth"
    return HeaderNotes("AudioMoth comment", datetime=when, recorder=recorder)


def _from_guano(chunks: RiffChunks) -> HeaderNotes | None:
    content = chunks.notes.get(b"guan")
    if content is None:
        return None
    try:
        fields = guano.GuanoFile.from_string(content)
    except Exception:  # a line without a colon, words for numbers, …: the rest of the chunk cannot be trusted
        return None
    when = fields.get("Timestamp")
    latitude, longitude = _checked_position(fields.get("Loc Position"))
    maker = " ".join(str(fields[key]) for key in ("Make", "Model", "Serial") if key in fields)
    site = None
    for key, value in fields.items():
        if key.rsplit("|", 1)[-1].strip().lower() in _GUANO_SITE_KEYS and str(value).strip():
            site = str(value).strip()
            break
    return HeaderNotes(
        "GUANO",
        datetime=_standard_zone(when) if isinstance(when, datetime) else None,
        site=site,
        recorder=maker or None,
        latitude=latitude,
        longitude=longitude,
    )


def _checked_position(position: object) -> tuple[float | None, float | None]:
    """Latitude and longitude; unknown where there is no such place on Earth."""
    if isinstance(position, tuple) and len(position) == 2:
        latitude, longitude = position
        if abs(latitude) <= 90 and abs(longitude) <= 180:
            return latitude, longitude
    return None, None


def _standard_zone(when: datetime) -> datetime | None:
    """The guano library has its own time zones; the standard library's compare and print as expected.

    ``None`` where there is no such zone: hours off is worse than unknown.
    """
    if when.tzinfo is None:
        return when
    try:
        offset = when.utcoffset()
    except ValueError:  # a day or more
        return None
    if offset is None or abs(offset) > _LARGEST_OFFSET:
        return None
    return when.replace(tzinfo=timezone(offset) if offset else UTC)


def _from_wamd(chunks: RiffChunks) -> HeaderNotes | None:
    content = chunks.notes.get(b"wamd")
    if content is None:
        return None
    fields: dict[str, str] = {}
    position = 0
    while position + 6 <= len(content):
        field_id, size = struct.unpack_from("<HI", content, position)
        value = content[position + 6 : position + 6 + size]
        position += 6 + size
        if field_id in _WAMD_FIELDS:
            fields[_WAMD_FIELDS[field_id]] = value.decode("utf-8", errors="replace").strip("\0 ")
    try:
        when = _standard_zone(datetime.fromisoformat(fields.get("timestamp", "")))
    except ValueError:
        when = None
    recorder = " ".join(fields[name] for name in ("model", "serial") if fields.get(name))
    notes = HeaderNotes("Wildlife Acoustics", when, fields.get("prefix") or None, recorder or None)
    return notes if notes != HeaderNotes("Wildlife Acoustics") else None


def _tags(path: Path) -> tuple[str | None, str | None]:
    """The comment and artist tags of a flac, ogg or mp3 file."""
    try:
        with open_sound(path) as file:
            return file.comment, file.artist
    except AudioError:
        return None, None
