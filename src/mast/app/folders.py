"""Choosing a folder on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from mast.annotations.detections import RUN
from mast.audio import AUDIO_SUFFIXES
from mast.errors import ConfigError, not_a_folder

_MAX_FOLDERS = 2_000  # folders listed (our choice): more than anybody reads
# where systems mount cards and disks
_DRIVES = ("/media/{user}", "/run/media/{user}", "/media", "/mnt", "/Volumes")


@dataclass(frozen=True)
class FolderListing:
    """What a folder holds, for choosing one.

    Attributes:
        path: of the folder.
        parent: path of the folder above; empty at the top.
        folders: names of the folders below, without hidden ones.
        recordings: number of recordings in this folder itself.
        is_results: it is one of `mast detect`.
    """

    path: str
    parent: str
    folders: list[str]
    recordings: int
    is_results: bool


def parse_folder(text: str) -> Path:
    """The folder that was typed, pasted or dropped: a path, one that begins with ``~``, or a ``file:`` address.

    Raises:
        ConfigError: there is no such folder.
    """
    plain = text.strip().strip("\"'")
    if plain.lower().startswith("file:"):
        plain = url2pathname(unquote(urlsplit(plain).path))
    if not plain or "\0" in plain:
        raise ConfigError("no folder was given; type its path, or choose one from the list")
    path = Path(plain).expanduser()
    if not path.is_absolute():
        raise ConfigError(
            f"{plain}: expected the full path of a folder, such as {Path.home() / 'recordings'}"
        )
    path = Path(os.path.normpath(path))
    if not os.access(path.parent, os.X_OK) and path.parent.exists():
        raise ConfigError(f"{path}: permission denied; change the permissions, or choose another folder")
    if not path.is_dir():
        raise ConfigError(f"{path}: {not_a_folder(path)}; expected a folder of recordings")
    return path


def list_folder(path: Path) -> FolderListing:
    """The folders below one, and how many recordings lie in it.

    Raises:
        ConfigError: it may not be listed.
    """
    folders, recordings = [], 0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if _is_folder(entry):
                    folders.append(entry.name)
                elif os.path.splitext(entry.name)[1].lower() in AUDIO_SUFFIXES:
                    recordings += 1
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be listed ({error.strerror or error}); change its permissions, or choose another folder"
        ) from None
    parent = "" if path.parent == path else str(path.parent)
    shown = sorted(folders, key=str.casefold)[:_MAX_FOLDERS]
    return FolderListing(str(path), parent, shown, recordings, (path / RUN).is_file())


def starting_places() -> list[tuple[str, str]]:
    """Where to begin: names and paths of the home folder, and of cards and disks."""
    home = Path.home()
    found = [("Home", str(home))]
    if os.name == "nt":
        return found + [
            (f"{letter}:", f"{letter}:\\") for letter in "CDEFGHIJKL" if Path(f"{letter}:\\").is_dir()
        ]
    for pattern in _DRIVES:
        above = Path(pattern.format(user=home.name))
        try:
            drives = sorted(path for path in above.iterdir() if path.is_dir() and path.name != home.name)
        except OSError:
            continue
        found += [(path.name, str(path)) for path in drives if not path.name.startswith(".")]
    return [*found, ("This machine", "/")]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
