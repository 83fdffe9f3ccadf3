"""Tables as one ``.xlsx`` file, for spreadsheets: texts and numbers on sheets, a bold header that stays in view."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

import pandas as pd

from mast.files import atomic_file

MAX_ROWS = 1_048_576  # that a sheet can hold
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_DATE = (2020, 1, 1, 0, 0, 0)  # the same tables make the same file
_PLAIN = 'numFmtId="0" fillId="0" borderId="0"'
_STYLES = (
    f'<styleSheet xmlns="{_MAIN}"><fonts count="2"><font><sz val="11"/><name val="Calibri"/></font>'
    '<font><b/><sz val="11"/><name val="Calibri"/></font></fonts><fills count="2">'
    '<fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill></fills>'
    '<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
    f'<cellStyleXfs count="1"><xf {_PLAIN} fontId="0"/></cellStyleXfs><cellXfs count="2">'
    f'<xf {_PLAIN} fontId="0" xfId="0"/><xf {_PLAIN} fontId="1" xfId="0" applyFont="1"/></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
)


def write_workbook(path: Path, sheets: Mapping[str, pd.DataFrame]) -> list[str]:
    """Write tables, one per sheet; gives the names of those that are too long for a sheet and were left out."""
    fits = {name: table for name, table in sheets.items() if len(table) < MAX_ROWS}
    with (
        atomic_file(path) as part,
        zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=4) as archive,
    ):

        def put(name: str, text: str) -> None:
            archive.writestr(_info(name), _HEAD + text)

        put("[Content_Types].xml", _content_types(len(fits)))
        put("_rels/.rels", _relations({"rId1": ("officeDocument", "xl/workbook.xml")}))
        entries = "".join(
            f'<sheet name="{_text(name)}" sheetId="{k}" r:id="rId{k}"/>'
            for k, name in enumerate(fits, start=1)
        )
        put(
            "xl/workbook.xml",
            f'<workbook xmlns="{_MAIN}" xmlns:r="{_RELATIONS}"><sheets>{entries}</sheets></workbook>',
        )
        targets = {f"rId{k}": ("worksheet", f"worksheets/sheet{k}.xml") for k in range(1, len(fits) + 1)}
        put("xl/_rels/workbook.xml.rels", _relations({**targets, "rId0": ("styles", "styles.xml")}))
        put("xl/styles.xml", _STYLES)
        for k, table in enumerate(fits.values(), start=1):
            with archive.open(_info(f"xl/worksheets/sheet{k}.xml"), "w") as file:
                for piece in _sheet(table):
                    file.write(piece.encode())
    return [name for name in sheets if name not in fits]


def _sheet(table: pd.DataFrame) -> Iterator[str]:
    widths = [
        max([len(str(name)), *(len(str(v)) for v in table[name].head(200))]) + 2 for name in table.columns
    ]
    columns = "".join(
        f'<col min="{k}" max="{k}" width="{min(w, 60)}"/>' for k, w in enumerate(widths, start=1)
    )
    yield (
        f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0"><pane ySplit="1" '
        f'topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><cols>{columns}</cols>'
        "<sheetData>"
    )
    yield f"<row>{''.join(_cell(str(name), bold=True) for name in table.columns)}</row>"
    for row in table.astype(object).itertuples(index=False, name=None):
        yield f"<row>{''.join(map(_cell, row))}</row>"
    yield "</sheetData></worksheet>"


def _cell(value: object, *, bold: bool = False) -> str:
    if pd.isna(value):  # type: ignore[call-overload]
        return "<c/>"
    if isinstance(value, str):
        style = ' s="1"' if bold else ""
        return (
            f'<c{style} t="inlineStr"><is><t xml:space="preserve">{_text(value)}</t></is></c>'
            if value
            else "<c/>"
        )
    return f"<c><v>{value}</v></c>"


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("�", text), quote=True)


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=_DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _content_types(sheets: int) -> str:
    parts = {"workbook": f"{_KIND}.sheet.main+xml", "styles": f"{_KIND}.styles+xml"}
    parts |= {f"worksheets/sheet{k}": f"{_KIND}.worksheet+xml" for k in range(1, sheets + 1)}
    listed = "".join(
        f'<Override PartName="/xl/{name}.xml" ContentType="{kind}"/>' for name, kind in parts.items()
    )
    return (
        f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{listed}</Types>'
    )


def _relations(targets: Mapping[str, tuple[str, str]]) -> str:
    listed = "".join(
        f'<Relationship Id="{name}" Type="{_RELATIONS}/{kind}" Target="{target}"/>'
        for name, (kind, target) in targets.items()
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{listed}</Relationships>'
