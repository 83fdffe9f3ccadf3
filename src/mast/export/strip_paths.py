"""A model card for other people: without the folders of the machine it was trained on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from mast.models.card import ModelCard

_PATH_FIELDS = ("data", "init", "unlabelled")  # fields of provenance whose relative paths are places, too
# an absolute path somewhere in a sentence; not the slashes of a URL or of "and/or"
_ABSOLUTE = re.compile(r"""(?<![\w.:/\\~])(?:~|[A-Za-z]:)?[/\\][^\s'",;()]+""")


def strip_paths(card: ModelCard) -> ModelCard:
    """The card with every path in its provenance cut down to its last part, also inside sentences.

    Paths mean nothing to others, and sometimes say more than their owner would like.
    """
    paths = sorted(set(_paths(card.provenance)), key=len, reverse=True)
    return card.model_copy(update={"provenance": _strip(card.provenance, paths)})


def _paths(value: Any, *, place: bool = False) -> Iterator[str]:
    """Every text that is a path: absolute, or relative where a path is expected."""
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from _paths(inside, place=place or key in _PATH_FIELDS)
    elif isinstance(value, list | tuple):
        for inside in value:
            yield from _paths(inside, place=place)
    elif isinstance(value, str):
        absolute = any(kind(value).is_absolute() for kind in (PurePosixPath, PureWindowsPath))
        if absolute or (place and re.search(r"[/\\]", value) and not re.search(r"\s", value)):
            yield value


def _strip(value: Any, paths: list[str]) -> Any:
    if isinstance(value, dict):
        return {key: _strip(inside, paths) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_strip(inside, paths) for inside in value]
    if not isinstance(value, str):
        return value
    for path in paths:
        value = value.replace(path, _last_part(path))
    return _ABSOLUTE.sub(lambda found: _last_part(found[0]), value)


def _last_part(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]
