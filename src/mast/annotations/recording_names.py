"""Which recording a name in an annotation file means, and what a recording's own file is called."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path, PurePosixPath

from mast.audio.text_names import text_names

# what annotation tools append to the recording's name: Raven, BirdNET, plain selections
_TABLE_ENDING = re.compile(
    r"(\.Table\.\d+)?(\.BirdNET(\.results)?)?([._]selections?)?([._]table)?([._]labels?)?\.(txt|tsv|csv)$",
    re.IGNORECASE,
)
_AUDIO_ENDING = re.compile(
    r"\.(wav|wave|flac|mp3|ogg|oga|opus|aif|aiff|aifc|w64|rf64|m4a|wv|au)$", re.IGNORECASE
)

_LONGEST_NAME = 180  # bytes; file systems allow 255, and formats append theirs


def label_keys(recordings: Iterable[str]) -> dict[str, str]:
    """Recording → relative path, without ending, of its own annotation file.

    The audio ending is left out, except where two recordings differ only in it. Paths never climb out
    of the folder they are written to, no name is too long for a file system, and no folder has a name that
    another recording's file could have.

    >>> label_keys(["site/a.wav", "b.wav", "b.flac", "../c.wav"])
    {'site/a.wav': 'site/a', 'b.wav': 'b.wav', 'b.flac': 'b.flac', '../c.wav': 'c'}
    """
    names = list(dict.fromkeys(recordings))
    inside = {name: _relative_key(name) for name in names}
    bare = {name: _AUDIO_ENDING.sub("", inside[name]) for name in names}
    count = Counter(key.casefold() for key in bare.values())
    keys = {name: bare[name] if count[bare[name].casefold()] == 1 else inside[name] for name in names}
    count = Counter(key.casefold() for key in keys.values())
    seen: Counter[str] = Counter()
    for name, key in keys.items():  # two names that differ only in case or in where they climb to
        if count[key.casefold()] > 1:
            seen[key.casefold()] += 1
            keys[name] = f"{key}~{seen[key.casefold()]}"
    return keys


def _relative_key(name: str) -> str:
    parts = [
        p
        for p in PurePosixPath(name.replace("\\", "/").replace(":", "")).parts
        if p not in ("/", "//", "..", ".")
    ]
    above = [f"{part}~" if _TABLE_ENDING.search(part) else part for part in parts[:-1]]
    return "/".join(map(_shorten, [*above, *parts[-1:]])) or "recording"


def _shorten(part: str) -> str:
    """A name of a file or folder that leaves room for an ending."""
    raw = part.encode("utf-8", errors="surrogateescape")
    if len(raw) <= _LONGEST_NAME:
        return part
    return f"{part[:40]}~{hashlib.sha256(raw).hexdigest()[:16]}"


def key_of(file: Path, folder: Path) -> str:
    """The relative path of an annotation file without what its tool appended.

    >>> key_of(Path("x/AM1_073000.Table.1.selections.txt"), Path("x"))
    'AM1_073000'
    """
    return _TABLE_ENDING.sub("", text_names([file], folder)[file]) or file.stem


class RecordingNames:
    """Finds the recording that a path or a file name in an annotation file means, among those known."""

    def __init__(self, known: Iterable[str]) -> None:
        names = list(dict.fromkeys(known))
        self._exact = set(names)
        self._by_key = {key.casefold(): name for name, key in label_keys(names).items()}
        self._by_stem = _unique((_stem(name), name) for name in names)
        self._by_tail = _unique((tail.casefold(), name) for name in names for tail in _tails(name))
        self._by_tail_stem = _unique((tail, name) for name in names for tail in _tails(_stem(name)))

    def of_path(self, text: str) -> str:
        """The recording at ``text``, which may be absolute, from Windows, or only a file name.

        The known recording whose path is the end of ``text``, or ends in ``text``, wins; then one that differs
        only in case or audio ending (a set resampled to FLAC); for an absolute path, which is from somebody's
        machine, then one with the same file name. Where none is known, a relative path stays as it is and
        an absolute one is cut to its file name.
        """
        if text in self._exact:
            return text
        path = text.replace("\\", "/")
        for tail in _tails(path):
            if tail in self._exact:
                return tail
        if found := self._by_tail.get(path.casefold()):
            return found
        for tail in _tails(_stem(path)):
            if found := self._by_stem.get(tail):
                return found
        if found := self._by_tail_stem.get(_stem(path)):
            return found
        if not re.match(r"/|[A-Za-z]:", path):
            return path
        file = path.rsplit("/", 1)[-1]
        return self._by_tail.get(file.casefold()) or self._by_tail_stem.get(_stem(file)) or file

    def of_table(self, path: str, file: str, table: Path) -> str:
        """The recording that a table names by its path, or else by its file name alone.

        Where several recordings have that file name, the one in a folder called like the table's folder is meant:
        for ``tables/SiteA/x.txt``, ``SiteA/20240514_053000.WAV``. The same holds for a path that leads nowhere.
        """
        found = self.of_path(path or file)
        if re.search(r"[/\\]", found) or (path and found in self._exact):
            return found
        return self.of_path(f"{table.parent.absolute().as_posix()}/{found}")

    def all_of(self, text: str) -> list[str]:
        """Every known recording whose path ends in ``text``, ignoring the case and the audio ending of both."""
        return self._every_tail_stem.get(_stem(text), [])

    @cached_property
    def _every_tail_stem(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in sorted(self._exact):
            for tail in _tails(_stem(name)):
                found.setdefault(tail, []).append(name)
        return found

    def of_key(self, key: str) -> str:
        """The recording whose own annotation file is called ``key`` (see :func:`key_of`)."""
        if key in self._exact:
            return key
        found = self._by_key.get(key.casefold()) or self._by_tail.get(key.casefold())
        return found or self._by_tail_stem.get(_stem(key)) or key


def _stem(name: str) -> str:
    return _AUDIO_ENDING.sub("", name.replace("\\", "/")).casefold()


def _tails(path: str) -> list[str]:
    """``a/b/c``, ``b/c``, ``c``."""
    parts = path.replace("\\", "/").split("/")
    return ["/".join(parts[i:]) for i in range(len(parts))]


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Keys that stand for one name only."""
    found: dict[str, str | None] = {}
    for key, name in pairs:
        found[key] = None if found.get(key, name) != name else name
    return {key: name for key, name in found.items() if name is not None}
