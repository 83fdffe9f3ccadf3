"""An .xlsx file that spreadsheets open: checked as XML, part by part."""

from __future__ import annotations

import zipfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from mast.reports import workbook
from mast.reports.workbook import write_workbook

MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def cells(archive: zipfile.ZipFile, sheet: int) -> list[list[str | float | None]]:
    rows = []
    for row in ElementTree.fromstring(archive.read(f"xl/worksheets/sheet{sheet}.xml")).iter(f"{MAIN}row"):
        found: list[str | float | None] = []
        for cell in row:
            number, text = cell.find(f"{MAIN}v"), cell.find(f"{MAIN}is/{MAIN}t")
            found.append(
                float(number.text or "") if number is not None else None if text is None else text.text
            )
        rows.append(found)
    return rows


def test_every_part_is_xml_and_listed_and_the_cells_are_those_of_the_tables(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"site": ['<A> & "B"', "=1+1", "bell\x07"], "n": [1, 2, 3], "rate": [0.5, np.nan, 1e-7]}
    ).assign(hour=pd.array([4, None, 6], dtype="Int64"))
    assert write_workbook(tmp_path / "a.xlsx", {"counts": table, "days": table[:0]}) == []
    with zipfile.ZipFile(tmp_path / "a.xlsx") as archive:
        for name in archive.namelist():
            ElementTree.fromstring(archive.read(name))
        types = archive.read("[Content_Types].xml").decode()
        assert all(
            f"/{name}" in types
            for name in archive.namelist()
            if name.startswith("xl/") and "_rels" not in name
        )
        assert [
            s.get("name")
            for s in ElementTree.fromstring(archive.read("xl/workbook.xml")).iter(f"{MAIN}sheet")
        ] == [
            "counts",
            "days",
        ]
        assert cells(archive, 1) == [
            ["site", "n", "rate", "hour"],
            ['<A> & "B"', 1, 0.5, 4],
            ["=1+1", 2, None, None],
            ["bell�", 3, 1e-7, 6],
        ]
        assert cells(archive, 2) == [["site", "n", "rate", "hour"]]


def test_the_same_tables_make_the_same_file(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [1]})
    for name in ("a.xlsx", "b.xlsx"):
        write_workbook(tmp_path / name, {"t": table})
    assert (tmp_path / "a.xlsx").read_bytes() == (tmp_path / "b.xlsx").read_bytes()


def test_a_table_too_long_for_a_sheet_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbook, "MAX_ROWS", 3)
    left = write_workbook(
        tmp_path / "a.xlsx", {"long": pd.DataFrame({"a": [1, 2, 3]}), "short": pd.DataFrame({"a": [1]})}
    )
    assert left == ["long"]
