"""The headers of many recordings: what each is, when and where it was made, and which cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mast.audio import AudioInfo, Metadata, describe
from mast.data.recordings import listed_places
from mast.errors import AudioError

# our choice: a few threads wait for a slow card or network drive together; with them, a fast disk is a quarter slower
_THREADS = 4


class Scanned(NamedTuple):
    """A recording that can be read."""

    name: str
    info: AudioInfo
    about: Metadata


class Unreadable(NamedTuple):
    """A recording that cannot be read."""

    name: str
    path: Path
    error: AudioError


@dataclass(frozen=True)
class Scan:
    """What was found; both lists are in the order given."""

    recordings: list[Scanned] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)


def scan_headers(
    paths: Mapping[str, Path], root: Path, *, advance: Callable[[], None] = lambda: None
) -> Scan:
    """Read the headers of recordings.

    Sites and times in the folder's ``recordings.csv`` take precedence over those in headers and names.

    Args:
        paths: of the recordings, by name.
        root: the folder of the whole dataset, whose folders may name sites.
        advance: called once per recording.
    """
    stated = listed_places(root)

    def read(name: str) -> Scanned | Unreadable:
        path = paths[name]
        try:
            info, about = describe(path, root)
        except AudioError as error:
            return Unreadable(name, path, error)
        return Scanned(name, info, about.updated_with(stated.get(path, Metadata())))

    scan = Scan()
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        for found in pool.map(read, paths):
            if isinstance(found, Scanned):
                scan.recordings.append(found)
            else:
                scan.unreadable.append(found)
            advance()
    return scan
