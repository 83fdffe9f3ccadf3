"""Files and folders that a command writes again: if somebody changed them in between, that version is kept.

A small file next to them, ``.written.json``, holds a fingerprint of each as it was last written. Whatever differs from
that is somebody's work, and is renamed before it is replaced: ``raven`` to ``raven.earlier``, ``raven.earlier-2``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

from mast.files import locked, write_json

_RECORD = ".written.json"
_CLUTTER = (".DS_Store", "Thumbs.db", "desktop.ini")  # left by file managers in folders that are opened


class EarlierVersion(NamedTuple):
    """A file or folder that was not as it had been written, and where it is now."""

    path: Path
    kept: Path
    known: bool  # whether we know what had been written

    def __str__(self) -> str:
        changed = "was changed" if self.known else "may have been changed"
        return f"{self.path} {changed} after mast wrote it; that version is kept as {self.kept}"


@contextmanager
def replacing(
    whole: Callable[[Path], AbstractContextManager[Path]],
    path: Path,
    kept: list[EarlierVersion],
    *,
    form: str = "",
) -> Iterator[Path]:
    """:func:`mast.files.atomic_file` or ``atomic_folder`` that keeps a version changed since it was last written.

    Args:
        whole: one of these two.
        path: what is written; yields the temporary path, as ``whole`` does.
        kept: a list that kept versions are added to.
        form: the format that is written; a version in another format is kept, too.
    """
    name = f"{path.name}/{form}" if form else path.name
    with ExitStack() as until_recorded:
        earlier = None
        try:
            with whole(path) as part:
                yield part
                until_recorded.enter_context(locked(path.with_name(f"{_RECORD}.lock")))
                new, last = _fingerprint(part), _record(path.parent).get(name)
                earlier = _set_aside(path, new, last)
        except BaseException:
            if earlier is not None and not os.path.lexists(path):
                os.rename(earlier.kept, path)
            raise
        kept.extend([earlier] if earlier else [])
        if new != last:
            write_json(path.with_name(_RECORD), {**_record(path.parent), name: new})


def unused_name(path: Path) -> Path:
    """Where the earlier version of a file or folder can be kept: ``boxes.earlier.csv``, ``boxes.earlier-2.csv``."""
    stem, suffix = (path.name, "") if path.is_dir() else (path.stem, path.suffix)
    names = (path.with_name(f"{stem}.earlier{'' if n == 1 else f'-{n}'}{suffix}") for n in count(1))
    return next(name for name in names if not os.path.lexists(name))


def _set_aside(path: Path, new: str, last: str | None) -> EarlierVersion | None:
    if _fingerprint(path) in ("", new, last):
        return None
    kept = unused_name(path)
    os.rename(path, kept)
    return EarlierVersion(path, kept, known=last is not None)


def _record(folder: Path) -> dict[str, str]:
    try:
        found = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _fingerprint(path: Path) -> str:
    """A hash of all names and contents; empty where there is nothing."""
    contents = sorted((str(file.relative_to(path)), _content(file)) for file in _files(path))
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest() if contents else ""


def _files(path: Path) -> Iterator[Path]:
    if path.is_symlink() or path.is_file():
        yield path
        return
    for where, folders, files in os.walk(path):
        for name in [*files, *folders]:
            inside = Path(where, name)
            if name not in _CLUTTER and (name in files or inside.is_symlink()):
                yield inside


def _content(path: Path) -> str:
    """The hash of a file, or where a link leads."""
    if path.is_symlink():
        return f"link to {os.readlink(path)}"
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "unreadable"
