"""Names of species: two in one label, as BirdNET writes them, and lists of those that are possible at a place."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mast.arrays import IntArray
from mast.classifiers.classifier import read_labels
from mast.errors import ConfigError


class Possible(NamedTuple):
    """The labels that a list of species allows."""

    rows: IntArray  # among the classifier's labels, in their order
    strangers: list[str]  # lines of the list that the classifier does not know


def scientific_name(label: str) -> str:
    """The first part of ``Parus major_Great Tit``; other labels as they are."""
    return label.partition("_")[0] if "_" in label else label


def common_name(label: str) -> str:
    """The second part of ``Parus major_Great Tit``; other labels as they are."""
    return label.partition("_")[2] or label


def read_species(path: str | Path, labels: Sequence[str]) -> Possible:
    """The labels that a list allows, one name per line: scientific, common, or both as BirdNET's lists have them.

    Raises:
        ConfigError: the list cannot be read, or the classifier knows none of its names.
    """
    known = _rows_by_name(labels)
    rows: set[int] = set()
    strangers = []
    for name in filter(None, read_labels(path)):
        found = known.get(name.casefold()) or known.get(scientific_name(name).casefold())
        if found:
            rows.update(found)
        else:
            strangers.append(name)
    if not rows:
        near = difflib.get_close_matches(strangers[0].casefold(), known, n=1)
        meant = f", perhaps {labels[known[near[0]][0]]}" if near else ""
        raise ConfigError(
            f"{path}: the classifier knows none of its {len(strangers):,} names, the first is "
            f"{strangers[0][:60]!r}{meant}; expected one species per line, as the classifier's labels spell it"
        )
    return Possible(np.array(sorted(rows), dtype=np.int64), strangers)


def same_spelling(names: Sequence[str], labels: Sequence[str], *, common: bool) -> list[str]:
    """Names as the classifier's labels spell them, all scientific or all common; names it does not know stay.

    >>> same_spelling(["great tit", "Wren"], ["Parus major_Great Tit"], common=False)
    ['Parus major', 'Wren']
    """
    known, spell = _rows_by_name(labels), common_name if common else scientific_name
    found = {name: known.get(name.casefold()) for name in set(names)}
    return [spell(labels[rows[0]]) if (rows := found[name]) else name for name in names]


def _rows_by_name(labels: Sequence[str]) -> dict[str, list[int]]:
    """Rows of the labels that a name can mean, whatever its case."""
    known: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        for name in {label, scientific_name(label), common_name(label)}:
            known.setdefault(name.casefold(), []).append(row)
    return known
