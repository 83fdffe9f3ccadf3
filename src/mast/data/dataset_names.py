"""Recordings that the tables of a dataset name and that cannot be used: one rule for all tables and commands.

A few are left out, with a warning that names them. If they are more than half of a table, the folder is probably the
wrong one, and the table is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path

import pandas as pd

from mast.annotations.recording_names import RecordingNames
from mast.errors import AnnotationError
from mast.wording import counted, format_names

_NAMED = 3  # recordings that a message names; the others are counted


class _Unusable(Enum):
    """Why a recording cannot be used, and what to do about it."""

    MISSING = (
        "{is_} not in {root}",
        "{was} {it} moved or renamed?",
        "give the folder that holds {them}, or correct {its} name{s}",
    )
    UNLISTED = (
        "{is_} not listed in recordings.csv",
        "list {them}, or correct {its} name{s}",
        "list {them}, or correct {its} name{s}",
    )
    UNREADABLE = (
        "cannot be read as sound",
        "repair {them}, or remove {its} rows",
        "repair {them}, or remove {its} rows",
    )

    def __init__(self, what: str, hint: str, remedy: str) -> None:
        self.what = what  # in words
        self.hint = hint  # where the others are used
        self.remedy = remedy  # where the table is refused


class DatasetNames:
    """Finds the dataset's own names for the recordings that a table names, and which of these cannot be used.

    Args:
        root: the folder of the dataset.
        present: recordings that can be used.
        missing: recordings that ``recordings.csv`` lists and that are not in the folder.
        unreadable: recordings that cannot be read as sound.
        is_listed: whether there is a ``recordings.csv``.
    """

    def __init__(
        self,
        root: Path,
        *,
        present: Sequence[str],
        missing: Sequence[str],
        unreadable: Sequence[str],
        is_listed: bool,
    ) -> None:
        self._root, self.is_listed = root, is_listed
        self._present = frozenset(present)
        self._lookup = RecordingNames([*present, *missing, *unreadable])
        self._reasons = {
            **dict.fromkeys(unreadable, _Unusable.UNREADABLE),
            **dict.fromkeys(missing, _Unusable.MISSING),
        }
        self._reported: set[str] = set()

    @property
    def unlisted(self) -> list[str]:
        """Recordings that a table named so far and that ``recordings.csv`` does not list."""
        return [name for name, why in self._reasons.items() if why is _Unusable.UNLISTED]

    def failures(self) -> pd.DataFrame:
        """``file`` and ``error`` of the recordings that were named so far and are not there."""
        rows = [
            (name, f"{self._root / name}: no such recording")
            if why is _Unusable.MISSING
            else (name, f"{name}: is not listed in recordings.csv")
            for name, why in self._reasons.items()
            if why is not _Unusable.UNREADABLE
        ]
        return pd.DataFrame(rows, columns=["file", "error"])

    def select_usable(self, table: pd.DataFrame, source: Path, *, boxes: bool = False) -> pd.DataFrame:
        """The rows of recordings that can be used, by the dataset's names; a warning names the other recordings.

        Args:
            table: with a column ``recording``.
            source: where it is from, for messages.
            boxes: whether a row is a box.

        Raises:
            AnnotationError: a name fits several recordings, or most recordings cannot be used.
        """
        meant = {str(name): self._lookup.of_path(str(name)) for name in table["recording"].unique()}
        renamed = table.assign(recording=[meant[str(name)] for name in table["recording"]])
        named = list(dict.fromkeys(meant.values()))
        unusable = [name for name in named if name not in self._present]
        for name in unusable:
            if len(several := self._lookup.all_of(name)) > 1:
                raise AnnotationError(
                    f"{source}: {self._root} holds several recordings {name} ({format_names(several, _NAMED)}); "
                    "name one of them with its folder"
                )
            self._reasons.setdefault(name, _Unusable.UNLISTED if self.is_listed else _Unusable.MISSING)
        _refuse_if_mostly_unusable(
            source, self._root, len(named), {name: self._reasons[name] for name in unusable}
        )
        for why in _Unusable:
            which = [name for name in unusable if self._reasons[name] is why and name not in self._reported]
            n_boxes = int(renamed["recording"].isin(which).sum()) if boxes else 0
            self._warn(
                source, why, which, counted(len(named), "boxed recording" if boxes else "recording"), n_boxes
            )
        return renamed[renamed["recording"].isin(self._present)].reset_index(drop=True)

    def warn_of_other_missing(self, listing: Path, listed: Sequence[str]) -> None:
        """Warn of the recordings that ``recordings.csv`` lists, that are missing, and that no warning has named yet."""
        missing = [
            name
            for name in listed
            if self._reasons.get(name) is _Unusable.MISSING and name not in self._reported
        ]
        self._warn(listing, _Unusable.MISSING, missing, counted(len(listed), "recording"), 0)

    def _warn(self, source: Path, why: _Unusable, which: Sequence[str], of_total: str, n_boxes: int) -> None:
        if not which:
            return
        self._reported.update(which)
        words = _word_forms(which, self._root)
        with_boxes = f" with {words['its']} {counted(n_boxes, 'box')}" if n_boxes else ""
        warnings.warn(
            f"{source}: {len(which):,} of {of_total} {why.what.format(**words)} ({format_names(which, _NAMED)}) and "
            f"{words['is_']} left out{with_boxes}; {why.hint.format(**words)}",
            stacklevel=4,
        )


def check_listing(listing: Path, listed: Sequence[str], missing: Sequence[str]) -> None:
    """Refuse a ``recordings.csv`` if most of its recordings are not in its folder."""
    _refuse_if_mostly_unusable(
        listing, listing.parent, len(listed), dict.fromkeys(missing, _Unusable.MISSING)
    )


def _refuse_if_mostly_unusable(
    source: Path, root: Path, n_named: int, unusable: Mapping[str, _Unusable]
) -> None:
    """Refuse a table if more than half of the recordings that it names cannot be used (our choice)."""
    if 2 * len(unusable) <= n_named:
        return
    reasons = [why for why in _Unusable if why in unusable.values()]
    words = _word_forms(unusable, root)
    what = " or ".join(why.what.format(**words) for why in reasons)
    raise AnnotationError(
        f"{source}: {len(unusable):,} of {counted(n_named, 'recording')} {what} "
        f"({format_names(list(unusable), _NAMED)}); {reasons[0].remedy.format(**words)}"
    )


def _word_forms(which: Collection[str], root: Path) -> dict[str, object]:
    """The words to fill into the sentences of :class:`_Unusable`, for one recording or several."""
    forms = (
        {"is_": "is", "was": "was", "it": "it", "them": "it", "its": "its", "s": ""}
        if len(which) == 1
        else {"is_": "are", "was": "were", "it": "they", "them": "them", "its": "their", "s": "s"}
    )
    return {"root": root, **forms}
