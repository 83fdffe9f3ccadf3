"""Lists of possible species."""

from __future__ import annotations

from pathlib import Path

import pytest

from mast.classifiers.species_lists import common_name, match_spelling, read_species, scientific_name
from mast.errors import ConfigError, MastError

LABELS = ("Parus major_Great Tit", "Engine_Engine", "Turdus merula_Eurasian Blackbird", "plain")


def test_names_of_a_label() -> None:
    assert [scientific_name(label) for label in LABELS] == ["Parus major", "Engine", "Turdus merula", "plain"]
    assert [common_name(label) for label in LABELS] == ["Great Tit", "Engine", "Eurasian Blackbird", "plain"]
    assert match_spelling(["PARUS MAJOR", "plain", "Wren"], LABELS, common=True) == [
        "Great Tit",
        "plain",
        "Wren",
    ]


def test_a_list_may_name_species_either_way(tmp_path: Path) -> None:
    path = tmp_path / "species.txt"
    path.write_text("great tit\n\nTurdus merula_Amsel\nplain\nPica pica\n", encoding="utf-8")
    possible = read_species(path, LABELS)
    assert possible.rows().tolist() == possible.rows("S01", "05-14").tolist() == [0, 2, 3]
    assert possible.unknown_names == ["Pica pica"]


def test_a_list_of_unknown_names_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "species.txt"
    path.write_text("Parus majro\n", encoding="utf-8")
    with pytest.raises(
        ConfigError,
        match=r"does not know the only name in it, 'Parus majro' \(did you mean Parus major_Great Tit",
    ):
        read_species(path, LABELS)


def test_a_table_may_say_where_and_when(tmp_path: Path) -> None:
    path = tmp_path / "species.csv"
    path.write_text(
        "species,site,first_day,last_day,remark\n"
        "Great Tit,,,,everywhere\n"
        "Turdus merula,S01,2024-04-01,07-31,in spring at one site\n"
        "plain,,11-01,02-28,in winter\n"
        ",,,,\n",
        encoding="utf-8",
    )
    possible = read_species(path, LABELS)
    expected = {
        ("S01", "05-14"): [0, 2],
        ("S01", "07-31"): [0, 2],
        ("S01", "08-01"): [0],
        ("S02", "05-14"): [0],
        ("S02", "12-24"): [0, 3],
        ("S02", "02-28"): [0, 3],
        ("", "05-14"): [0, 2],  # what is not known forbids nothing
        ("S02", ""): [0, 3],
    }
    assert {where: possible.rows(*where).tolist() for where in expected} == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "species,first_day\nplain,30-05\n",
            "line 2: '30-05' is not a day; expected month and day, such as 05-01",
        ),
        ("name\nplain\n", "has no column species"),
        ("species\n", "names no species"),
        ("", "the file is empty"),
        ("species,sites\nplain,S01\n", "unknown column sites; did you mean site[?]"),
        ("species\tFirst dya\nplain\t05-01\n", "unknown column First dya; did you mean first_day[?]"),
    ],
)
def test_a_table_that_makes_no_sense_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "species.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MastError, match=sentence):
        read_species(path, LABELS)


def test_columns_may_be_separated_by_semicolons(tmp_path: Path) -> None:
    """As Excel saves them where commas are decimal."""
    path = tmp_path / "species.csv"
    path.write_text("Species;Site;species_de\nGreat Tit;S01;Kohlmeise\nplain;;\n", encoding="utf-8-sig")
    possible = read_species(path, LABELS)
    assert possible.rows("S02").tolist() == [3]
    assert possible.rows("S01").tolist() == [0, 3]
    assert possible.unused == ["species_de"]
    assert possible.sites == ["S01"]
