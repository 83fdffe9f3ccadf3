"""Species names (BirdNET writes two in each label), and lists of the species that are possible at a place."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mast.annotations.tables import read_table
from mast.arrays import IntArray
from mast.classifiers.classifier import read_labels
from mast.errors import ConfigError

_COLUMNS = ("species", "site", "first_day", "last_day")
_TYPO_CUTOFF = 0.8  # similarity of a column's name to one of these; our choice


class PossibleSpecies(NamedTuple):
    """One line of a list: labels that are possible at a site, or anywhere, in a season, or all year."""

    rows: tuple[int, ...]  # among the classifier's labels; two labels may share a name
    site: str = ""  # anywhere by default
    first_day: str = ""  # "05-01", all year by default
    last_day: str = ""

    def is_possible(self, site: str, day: str) -> bool:
        """Whether it is possible at a site on a day such as ``05-14``; an unknown one, "", rules nothing out."""
        here = not self.site or not site or self.site == site
        first, last = self.first_day or "01-01", self.last_day or "12-31"
        # winter spans two years
        in_season = first <= day <= last if first <= last else day >= first or day <= last
        return here and (not day or in_season)


class PossibleLabels(NamedTuple):
    """The labels that a list of species allows."""

    species: list[PossibleSpecies]
    unknown_names: list[str]  # names of the list that the classifier does not know
    unused: list[str]  # columns of the list that are ignored

    @property
    def sites(self) -> list[str]:
        """The sites that the list names, in its order."""
        return list(dict.fromkeys(one.site for one in self.species if one.site))

    def rows(self, site: str = "", day: str = "") -> IntArray:
        """Labels that are possible at a site on a day such as ``05-14``, in their order; all of the list by default."""
        rows = {row for one in self.species if one.is_possible(site, day) for row in one.rows}
        return np.array(sorted(rows), dtype=np.int64)


def scientific_name(label: str) -> str:
    """The first part of ``Parus major_Great Tit``; other labels are unchanged."""
    return label.partition("_")[0] if "_" in label else label


def common_name(label: str) -> str:
    """The second part of ``Parus major_Great Tit``; other labels are unchanged."""
    return label.partition("_")[2] or label


def read_species(path: str | Path, labels: Sequence[str]) -> PossibleLabels:
    """The labels that a list allows. Names are scientific, common, or both as in BirdNET's lists.

    One name per line, or a .csv file with the column ``species`` and, where they matter, ``site``, ``first_day`` and
    ``last_day`` (month and day, such as ``05-01``).

    Raises:
        ConfigError: a column's name is a typo, or the classifier knows none of the names.
        AnnotationError: the table cannot be read.
    """
    known = _rows_by_name(labels)
    species: list[PossibleSpecies] = []
    unknown_names = []
    lines, unused = _read_lines(Path(path))
    for name, *where in lines:
        found = known.get(name.casefold()) or known.get(scientific_name(name).casefold())
        if found:
            species.append(PossibleSpecies(tuple(found), *where))
        else:
            unknown_names.append(name)
    if not species:
        if not unknown_names:
            raise ConfigError(f"{path}: names no species; expected one per line")
        near = difflib.get_close_matches(unknown_names[0].casefold(), known, n=1)
        meant = f" (did you mean {labels[known[near[0]][0]]}?)" if near else ""
        what = (
            "does not know the only name in it,"
            if len(unknown_names) == 1
            else f"knows none of its {len(unknown_names):,} names, such as"
        )
        raise ConfigError(
            f"{path}: the classifier {what} {unknown_names[0][:60]!r}{meant}; expected one species per line, as the "
            "classifier's labels spell it"
        )
    return PossibleLabels(species, unknown_names, unused)


def _read_lines(path: Path) -> tuple[list[tuple[str, ...]], list[str]]:
    """The lines of a list as (name,), of a table as (name, site, first day, last day); and the unused columns."""
    if path.suffix.lower() != ".csv":
        return [(name,) for name in read_labels(path) if name], []
    table = read_table(path)
    used = {name: table.find(name) for name in _COLUMNS}
    unused = [column for column in table.header if column and column not in used.values()]
    missing = [name for name, column in used.items() if column is None]
    for column in unused:
        if near := difflib.get_close_matches(
            column.casefold().replace(" ", "_"), missing, n=1, cutoff=_TYPO_CUTOFF
        ):
            raise ConfigError(f"{path}: unknown column {column}; did you mean {near[0]}?")
    if used["species"] is None:
        raise ConfigError(
            f"{path}: has no column species; expected species, and site, first_day, last_day where needed"
        )
    columns = [[""] * len(table) if column is None else table.texts(column) for column in used.values()]
    found = [
        (name.strip(), site.strip(), *(_parse_day(day.strip(), table.where(row)) for day in days))
        for row, (name, site, *days) in enumerate(zip(*columns, strict=True))
        if name.strip()
    ]
    return found, unused


def _parse_day(given: str, where: str) -> str:
    """Month and day as ``05-01``; a leading year is dropped."""
    try:
        return date.fromisoformat(f"2000-{given[-5:]}").strftime("%m-%d") if given else ""
    except ValueError:
        raise ConfigError(f"{where}: {given!r} is not a day; expected month and day, such as 05-01") from None


def match_spelling(names: Sequence[str], labels: Sequence[str], *, common: bool) -> list[str]:
    """Names as the classifier's labels spell them, all scientific or all common; unknown names stay as they are.

    >>> match_spelling(["great tit", "Wren"], ["Parus major_Great Tit"], common=False)
    ['Parus major', 'Wren']
    """
    known, spell = _rows_by_name(labels), common_name if common else scientific_name
    found = {name: known.get(name.casefold()) for name in set(names)}
    return [spell(labels[rows[0]]) if (rows := found[name]) else name for name in names]


def _rows_by_name(labels: Sequence[str]) -> dict[str, list[int]]:
    """Rows of the labels that each name can mean, ignoring case."""
    known: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        for name in {label, scientific_name(label), common_name(label)}:
            known.setdefault(name.casefold(), []).append(row)
    return known
