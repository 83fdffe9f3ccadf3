"""What is in a folder of recordings, from headers and names alone: for `mast scan`, and for the page of `mast app`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mast.audio import Unlisted, find_recordings, no_recordings_error, text_names
from mast.data.header_scan import Scanned, scan_headers
from mast.errors import AudioError, shorten

RecordingRow = dict[str, str]

COLUMNS = (
    "file",
    "site",
    "datetime",
    "duration_s",
    "sample_rate",
    "channels",
    "format",
    "recorder",
    "latitude",
    "longitude",
    "warning",
)


@dataclass(frozen=True)
class FolderSurvey:
    """What was found.

    Attributes:
        rows: one for every readable recording, by :data:`COLUMNS`.
        failures: ``file`` and ``reason`` of what cannot be read, and of folders that cannot be listed.
        files: recordings in all, readable or not.
    """

    rows: list[RecordingRow]
    failures: list[RecordingRow]
    files: int

    def unreadable_error(self, folder: Path) -> AudioError:
        """The error where no recording can be read."""
        first = self.failures[0]
        return AudioError(
            f"{folder}: no recording can be read ({self.files:,} tried); {first['file']}: {first['reason']}"
        )


@dataclass(frozen=True)
class SurveyTotals:
    """Totals over rows; each counter holds the number of recordings for each value.

    Attributes:
        hours: of sound.
        days: dates on which recordings begin, sorted.
        undated: recordings without clock time.
    """

    hours: float
    formats: Counter[str]
    sample_rates: Counter[int]
    channels: Counter[str]
    sites: Counter[str]
    days: list[str]
    undated: int


def survey(folder: Path, *, progress: Callable[[int, int], None] = lambda done, total: None) -> FolderSurvey:
    """Read the headers of all recordings below a folder.

    Args:
        folder: searched with all its subfolders.
        progress: called with the number of files read and the number in all.

    Raises:
        AudioError: there is no such folder, it cannot be listed, or it holds no recordings.
    """
    unlisted: list[Unlisted] = []
    paths = find_recordings(folder, unlisted=unlisted)
    if not paths:
        raise no_recordings_error(folder, map(str, unlisted))
    names = {name: path for path, name in text_names(paths, folder).items()}
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        progress(done, len(paths))

    found = scan_headers(names, folder, advance=advance)
    failures = [
        {"file": name, "reason": shorten(str(error).removeprefix(f"{path}: "))}
        for name, path, error in found.unreadable
    ]
    reasons = {some.folder: some.reason for some in unlisted}
    failures += [
        {"file": f"{name}/", "reason": reasons[path]} for path, name in text_names(reasons, folder).items()
    ]
    return FolderSurvey([_row(recording) for recording in found.recordings], failures, len(paths))


def add_up(rows: Sequence[RecordingRow]) -> SurveyTotals:
    """The totals over rows."""
    return SurveyTotals(
        hours=sum(float(row["duration_s"]) for row in rows) / 3600,
        formats=Counter(row["format"] for row in rows),
        sample_rates=Counter(int(row["sample_rate"]) for row in rows),
        channels=Counter(row["channels"] for row in rows),
        sites=Counter(row["site"] for row in rows),
        days=sorted({row["datetime"][:10] for row in rows if row["datetime"]}),
        undated=sum(not row["datetime"] for row in rows),
    )


def _row(recording: Scanned) -> RecordingRow:
    file, info, about = recording
    return {
        "file": file,
        "site": about.site or "",
        "datetime": about.datetime.isoformat() if about.datetime else "",
        "duration_s": f"{info.duration_s:.6f}".rstrip("0").rstrip("."),
        "sample_rate": str(info.sample_rate),
        "channels": str(info.channels),
        "format": f"{info.format} {info.subtype}",
        "recorder": about.recorder or "",
        "latitude": "" if about.latitude is None else str(about.latitude),
        "longitude": "" if about.longitude is None else str(about.longitude),
        "warning": "no sound" if info.frames == 0 else "truncated" if info.truncated else "",
    }
