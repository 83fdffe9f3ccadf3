"""Recordings wherever they are stored: on a disk, on a network drive, in object storage.

A recording at a URI (``s3://``, ``gs://``, or anything fsspec knows) is copied to a temporary file while the ones
before it are searched, and the copy is removed once its events are saved: a few copies exist at a time, however
large the archive. Folders below the common root keep their names, so that site and clock time are found as on a disk.
"""

from __future__ import annotations

import errno
import os
import posixpath
import queue
import shutil
import tempfile
import time
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pyarrow import fs as arrow_fs
from pyarrow.lib import ArrowException

from mast.audio import AUDIO_SUFFIXES, Metadata, Unlisted, find_recordings, no_recordings_error, text_names
from mast.data.recordings import listed_places, stated_places
from mast.errors import AudioError, ConfigError, MastError, first_line, machine_fault
from mast.events import empty_events
from mast.files import sole_writer
from mast.inference import Detector, Searched, Source
from mast.inference.results import file_size
from mast.uris import is_uri, open_uri

_TRIES, _PAUSE_S = 3, 1.0  # of a copy; the pause doubles. Our choice: networks hiccup for seconds
_COPIES, _ALIVE = "mast-copies-", ".alive"  # folders of copies, and the lock in each that its owner holds
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class NoRoomError(MastError):
    """The disk for temporary copies is full."""


class Recording(NamedTuple):
    """A recording to search.

    Attributes:
        path: on a disk; or inside the store.
        name: what it is called in the results: its path below the root.
        root: folder that all names are relative to.
        store: the URI that opens the store it lies in; empty for a disk.
        size_bytes: as listed in the store; for a file on a disk, which may still change, it is read when needed.
        stated: what the dataset's ``recordings.csv`` says about it.
    """

    path: str
    name: str
    root: str
    store: str = ""
    size_bytes: int | None = None
    stated: Metadata = Metadata()

    @property
    def source(self) -> Source:
        """The recording as the detector and the results name it."""
        return Source(Path(self.path), self.name, Path(self.root), self.stated)


class Listing(NamedTuple):
    """Recordings by name, the folder or URI that the names are relative to, and folders that cannot be listed."""

    recordings: list[Recording]
    root: str
    unlisted: dict[str, str] = {}  # noqa: RUF012 (never changed): name of a folder → why

    def size_of(self) -> Callable[[Source], int | None]:
        """How large a recording is: as listed, or as it is on the disk now."""
        listed = {r.name: r.size_bytes for r in self.recordings if r.store}
        return lambda source: listed[source.recording] if source.recording in listed else file_size(source)


def list_recordings(arguments: Sequence[str]) -> Listing:
    """Every recording in these files, folders and URIs once, sorted by name.

    Args:
        arguments: paths, or URIs of one store; folders are searched with all subfolders.

    Raises:
        AudioError: something is not there, cannot be listed, or holds no recordings.
        ConfigError: paths and URIs, or several stores, are mixed.
    """
    given = [unquote(urlsplit(a).path) if a.lower().startswith("file://") else a for a in arguments]
    remote = [is_uri(argument) for argument in given]
    if any(remote) and not all(remote):
        raise ConfigError(
            f"{', '.join(arguments)}: local folders and URIs cannot be searched in one run; run them separately, "
            "each with its own --out"
        )
    listing = _list_store(given) if any(remote) else _list_disk([Path(argument) for argument in given])
    if not listing.recordings:
        unlisted = (f"{name} {reason}" for name, reason in listing.unlisted.items())
        raise no_recordings_error(", ".join(arguments), unlisted)
    return listing


def _list_disk(arguments: list[Path]) -> Listing:
    for argument in arguments:
        if not argument.exists():
            raise AudioError(f"{argument}: no such file or folder; check the name")
    given = [Path(os.path.abspath(argument)) for argument in arguments]
    root = Path(os.path.commonpath([path if path.is_dir() else path.parent for path in given]))
    unlisted: list[Unlisted] = []
    folders = [path for path in given if path.is_dir()]
    paths = {path for path in given if not path.is_dir()}
    paths |= {path for folder in folders for path in find_recordings(folder, unlisted=unlisted)}
    stated = {
        recording: about
        for dataset in dict.fromkeys(
            path.parent if path.name == "audio" else path for path in [root, *folders]
        )
        for recording, about in listed_places(dataset).items()
    }
    found = [
        Recording(str(path), name, str(root), stated=stated.get(path, Metadata()))
        for path, name in text_names(sorted(paths), root).items()
    ]
    reasons = {some.folder: some.reason for some in unlisted}
    failed = {f"{name}/": reasons[path] for path, name in text_names(reasons, root).items()}
    return Listing(sorted(found, key=lambda recording: recording.name), str(root), failed)


def _list_store(uris: list[str]) -> Listing:
    if len({(urlsplit(uri).scheme, urlsplit(uri).query) for uri in uris}) > 1:
        raise ConfigError(
            f"{', '.join(uris)}: these URIs are on different stores; run them separately, each with its own --out"
        )
    files: dict[str, int | None] = {}
    folders = []
    for uri in uris:
        store, path = open_uri(uri)
        try:
            info = store.get_file_info(path)
            if info.type == arrow_fs.FileType.Directory:
                folders.append(path)
                selector = arrow_fs.FileSelector(path, recursive=True)
                files |= {
                    found.path: found.size
                    for found in store.get_file_info(selector)
                    if _is_visible_recording(found, path)
                }
            elif info.type == arrow_fs.FileType.File:
                folders.append(posixpath.dirname(path))
                files[path] = info.size
            else:
                raise AudioError(f"{uri}: no such file or folder; check the name")
        except (OSError, ArrowException) as error:
            raise AudioError(
                f"{uri}: cannot be listed ({first_line(error)}); check the name, access rights and network"
            ) from error
    root = posixpath.commonpath(folders) if len(folders) > 1 else folders[0]
    stated = _metadata_in_store(uris[0], [root, *folders], files)
    found = [
        Recording(
            path,
            _safe_name(path.removeprefix(root).lstrip("/")),
            root,
            uris[0],
            size,
            stated.get(path, Metadata()),
        )
        for path, size in files.items()
    ]
    scheme = urlsplit(uris[0]).scheme
    return Listing(sorted(found, key=lambda recording: recording.name), f"{scheme}://{root.lstrip('/')}")


def _metadata_in_store(uri: str, folders: list[str], files: Container[str]) -> dict[str, Metadata]:
    """What ``recordings.csv`` of datasets in a store says about these files, by path."""
    store, _ = open_uri(uri)
    stated: dict[str, Metadata] = {}
    for folder in dict.fromkeys(
        posixpath.dirname(path) if posixpath.basename(path) == "audio" else path for path in folders
    ):
        listing = posixpath.join(folder, "recordings.csv")
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch, "recordings.csv")
            try:
                if store.get_file_info(listing).type != arrow_fs.FileType.File:
                    continue
                with store.open_input_stream(listing) as far:
                    copy.write_bytes(far.read())
                places = stated_places(copy)
            except (OSError, ArrowException) as error:
                raise AudioError(f"{listing}: cannot be fetched ({first_line(error)})") from error
            except MastError as error:
                raise type(error)(str(error).replace(str(copy), listing)) from None
        for name, about in places.items():
            for path in (posixpath.join(folder, name), posixpath.join(folder, "audio", name)):
                if path in files:
                    stated.setdefault(path, about)
    return stated


def _is_visible_recording(found: Any, folder: str) -> bool:
    """Whether it is a recording that is not hidden, as in :func:`mast.audio.find_recordings`."""
    parts = PurePosixPath(found.path.removeprefix(folder)).parts
    return (
        found.type == arrow_fs.FileType.File
        and PurePosixPath(found.path).suffix.lower() in AUDIO_SUFFIXES
        and not any(part.startswith(".") and part not in ("..", ".") for part in parts)
    )


def _safe_name(name: str) -> str:
    """Escape ``..`` and ``//`` in a key, which on a disk would lead out of the results' folder or to another name."""
    return "/".join({"": "%2F", ".": "%2E", "..": "%2E%2E"}.get(part, part) for part in name.split("/"))


class Copies:
    """Temporary copies of recordings that lie in a store; use as a context manager, which removes them all."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._alive = ExitStack()
        self._count = 0

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._alive.close()

    def fetch(self, recording: Recording) -> Source:
        """The recording as a file on this machine's disk.

        Raises:
            AudioError: it could not be copied, even after several attempts.
            NoRoomError: this machine has no room for copies, so the next would fail, too.
        """
        if not recording.store:
            return recording.source
        root = self._ensure_folder() / str(self._count)
        self._count += 1
        path = root / recording.name
        store, _ = open_uri(recording.store)
        for attempt in range(_TRIES):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with store.open_input_stream(recording.path) as far, open(path, "wb") as near:
                    shutil.copyfileobj(far, near, 2**20)
                return Source(path, recording.name, root, recording.stated)
            except Exception as error:  # each kind of store has its own; all mean the same here
                shutil.rmtree(root, ignore_errors=True)
                if isinstance(error, OSError) and error.errno in _NO_ROOM:
                    refused = OSError(error.errno, os.strerror(error.errno), tempfile.gettempdir())
                    raise NoRoomError(machine_fault(refused)) from error
                if attempt == _TRIES - 1 or isinstance(error, FileNotFoundError):
                    raise AudioError(
                        f"{recording.name}: cannot be fetched ({first_line(error)}); check access rights and network"
                    ) from error
                time.sleep(_PAUSE_S * 2**attempt)
        raise AssertionError("unreachable")

    def discard(self, source: Source) -> None:
        """Remove a copy; what lies on a user's disk is never touched."""
        if self._folder is not None and source.root is not None and self._folder in source.root.parents:
            shutil.rmtree(source.root, ignore_errors=True)

    def _ensure_folder(self) -> Path:
        if self._folder is None:
            _remove_orphans()
            self._folder = Path(tempfile.mkdtemp(prefix=_COPIES))
            self._alive.enter_context(sole_writer(self._folder, _ALIVE))
        return self._folder


def search(
    detector: Detector, recordings: Iterable[Recording], *, progress: Callable[[float], None] | None = None
) -> Iterator[Searched]:
    """The outcome of each recording, fetched where it is not on a disk; see :meth:`Detector.outcomes`.

    Outcomes come in the order of the recordings, except for those that could not be fetched.
    """
    unfetched: queue.SimpleQueue[Searched] = queue.SimpleQueue()
    fetched: dict[str, Recording] = {}

    def sources(copies: Copies) -> Iterator[Source]:
        for recording in recordings:
            try:
                source = copies.fetch(recording)
            except AudioError as error:
                unfetched.put(Searched(recording.source, empty_events(), error=str(error)))
            else:
                fetched[recording.name] = recording
                yield source

    with ExitStack() as stack:
        copies = stack.enter_context(Copies())
        outcomes = detector.outcomes(sources(copies), progress=progress)
        assert isinstance(outcomes, Generator)
        stack.enter_context(closing(outcomes))  # the thread that copies ends before the copies are removed
        for outcome in outcomes:
            yield from _drain(unfetched)
            copy, recording = outcome.source, fetched.pop(outcome.source.recording)
            if recording.store:
                error = outcome.error.replace(str(copy.path), recording.name)
                outcome = replace(outcome, source=recording.source, error=error)
            yield outcome
            copies.discard(copy)
        yield from _drain(unfetched)


def _drain(outcomes: queue.SimpleQueue[Searched]) -> Iterator[Searched]:
    while not outcomes.empty():
        yield outcomes.get()


def _remove_orphans() -> None:
    """Remove the copies of workers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_COPIES}*"):
        # others are somebody else's, or just being made
        with suppress(OSError, ConfigError):
            if (folder / _ALIVE).exists():
                with sole_writer(folder, _ALIVE):
                    shutil.rmtree(folder, ignore_errors=True)
