"""Lists of possible species."""

from __future__ import annotations

from pathlib import Path

import pytest

from mast.classifiers.species_lists import common_name, read_species, same_spelling, scientific_name
from mast.errors import ConfigError

LABELS = ("Parus major_Great Tit", "Engine_Engine", "Turdus merula_Eurasian Blackbird", "plain")


def test_names_of_a_label() -> None:
    assert [scientific_name(label) for label in LABELS] == ["Parus major", "Engine", "Turdus merula", "plain"]
    assert [common_name(label) for label in LABELS] == ["Great Tit", "Engine", "Eurasian Blackbird", "plain"]
    assert same_spelling(["PARUS MAJOR", "plain", "Wren"], LABELS, common=True) == [
        "Great Tit",
        "plain",
        "Wren",
    ]


def test_a_list_may_name_species_either_way(tmp_path: Path) -> None:
    path = tmp_path / "species.txt"
    path.write_text("great tit\n\nTurdus merula_Amsel\nplain\nPica pica\n", encoding="utf-8")
    rows, strangers = read_species(path, LABELS)
    assert rows.tolist() == [0, 2, 3]
    assert strangers == ["Pica pica"]


def test_a_list_of_strangers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "species.txt"
    path.write_text("Parus majro\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"knows none of its 1 names.*perhaps Parus major_Great Tit"):
        read_species(path, LABELS)
