"""Delimited text as people write it: any encoding, delimiter and column order; errors name line and field."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mast.errors import AnnotationError
from mast.events import EVENT_COLUMNS, check_events
from mast.files import write_atomic

Where = Callable[[int], str]  # a row's place in words, for error messages
_EXACT = Context(prec=400)  # enough digits for the sum of any two float64 a recording can have

csv.field_size_limit(2**30)  # a label or a note may be long, and the error at the default limit names no line


def read_text(path: Path) -> str:
    """The text of a file: UTF-8, UTF-16 (with or without byte-order mark), else Windows Latin."""
    try:
        raw = path.read_bytes()
    except IsADirectoryError:
        raise AnnotationError(f"{path}: is a folder, expected an annotation file") from None
    except FileNotFoundError:
        raise AnnotationError(f"{path}: no such file") from None
    except OSError as error:
        raise AnnotationError(f"{path}: cannot be read ({error.strerror})") from None
    for mark, encoding in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if raw.startswith(mark):
            return _decode(raw, encoding, path)
    zeros = raw[:200].count(0)
    if zeros > len(raw[:200]) / 4:  # in UTF-16, every other byte of ASCII is zero
        return _decode(raw, "utf-16-le" if raw[1:2] == b"\x00" else "utf-16-be", path)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        return raw.decode("cp1252")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _decode(raw: bytes, encoding: str, path: Path) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        raise AnnotationError(
            f"{path}: starts like {encoding} text, but the rest is not; save it again as UTF-8"
        ) from None


def read_json(path: Path) -> object:
    """What a JSON file holds; whatever is wrong with it is reported in one sentence."""
    text = read_text(path)
    try:
        content = json.loads(text)
        if "\\ud" in text.lower():  # half a character, which no file can hold
            json.dumps(content, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise AnnotationError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from None
    except RecursionError:
        raise AnnotationError(f"{path}: nested too deeply to be annotations") from None
    except UnicodeEncodeError as error:
        raise AnnotationError(
            f"{path}: holds an incomplete character ({error.object[error.start]!r}); save it again"
        ) from None
    except ValueError:  # Python's limit on the digits of an integer
        raise AnnotationError(
            f"{path}: a number has thousands of digits; expected seconds, Hz or an id"
        ) from None
    return content


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 so that the file is there whole or not at all."""
    write_atomic(path, text.encode("utf-8"))


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; ``lines[i]`` is the line of the file where row ``i`` ends."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    def __len__(self) -> int:
        return len(self.rows)

    def find(self, *names: str) -> str | None:
        """The first of ``names`` that is a column, ignoring case and spacing."""
        have = {_normalised(column): column for column in reversed(self.header)}
        return next((have[_normalised(name)] for name in names if _normalised(name) in have), None)

    def require(self, wanted: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Column names for each of ``wanted`` (meaning → names it may have); one error names all that are missing."""
        found = {meaning: self.find(*names) for meaning, names in wanted.items()}
        missing = [wanted[meaning][0] for meaning, column in found.items() if column is None]
        if missing:
            raise AnnotationError(
                f"{self.path}: column{'s' if len(missing) > 1 else ''} {', '.join(missing)} missing; "
                f"found {', '.join(self.header)}"
            )
        return {meaning: column for meaning, column in found.items() if column is not None}

    def texts(self, column: str) -> list[str]:
        """A column as it stands in the file."""
        i = self.header.index(column)
        return [row[i] for row in self.rows]

    def where(self, row: int) -> str:
        """A row in words, for error messages."""
        return f"{self.path}, line {self.lines[row]}"

    def numbers(self, column: str, *, blank_is_nan: bool = False) -> NDArray[np.float64]:
        """A column as finite numbers (N,); blanks are an error unless ``blank_is_nan``."""
        texts, found = self.number_texts(column), self.texts(column)
        return parse_numbers(texts, self.where, column, blank_is_nan=blank_is_nan, found=found)

    def number_texts(self, column: str) -> list[str]:
        """A column of numbers as it stands in the file, with decimal points where the file has decimal commas."""
        texts = self.texts(column)
        if any("," in text for text in texts) and self._has_decimal_commas:
            return [text.replace(",", ".") for text in texts]
        return texts

    @cached_property
    def _has_decimal_commas(self) -> bool:
        """Whether 1,5 is one and a half here: no number has a point, and not all commas could be those of thousands."""
        cells = [cell.strip() for row in self.rows for cell in row]
        commas = [cell for cell in cells if re.fullmatch(r"-?\d+,\d+", cell)]
        if all(re.fullmatch(r"-?[1-9]\d{0,2},\d{3}", cell) for cell in commas):
            return False
        return not any(re.fullmatch(r"-?\d*\.\d+", cell) for cell in cells)

    def extra_columns(
        self, used: Iterable[str]
    ) -> dict[str, pd.Series[str] | pd.Series[float] | pd.Series[int]]:
        """All columns but those used, as numbers where the whole column can be converted without loss."""
        skip = set(used)
        return {c: typed_column(self.texts(c)) for c in dict.fromkeys(self.header) if c and c not in skip}


def with_extra_columns(
    boxes: Mapping[str, Any], table: Table, column_of: Callable[[str], str | None], used: Iterable[str]
) -> pd.DataFrame:
    """Boxes as events, checked, with whatever else their table holds: columns of the event schema, then all others.

    Args:
        boxes: columns of the event schema that are known.
        table: one row per box.
        column_of: the table's name for another column of the schema; None where it has none.
        used: columns of the table that say nothing more.
    """
    events, taken = pd.DataFrame(boxes), [*used]
    for name, dtype in EVENT_COLUMNS.items():
        found = column_of(name)
        if name not in events and found is not None:
            events[name] = table.texts(found) if dtype == "str" else table.numbers(found, blank_is_nan=True)
            taken.append(found)
    for name, values in table.extra_columns([*taken, *EVENT_COLUMNS]).items():
        events[name] = values
    check_events(events, table.where)
    return events


def _normalised(name: str) -> str:
    return " ".join(name.split()).casefold()


def parse_numbers(
    texts: Sequence[str],
    where: Where,
    column: str,
    *,
    blank_is_nan: bool = False,
    found: Sequence[str] | None = None,
) -> NDArray[np.float64]:
    """Text as finite float64 (N,); the error names ``where(row)`` and the column, and quotes ``found``."""
    try:
        values = np.array([float(t) if t else math.nan for t in texts], dtype=np.float64)
        if not (
            np.isinf(values).any()
            or (np.isnan(values).any() and not (blank_is_nan and _only_blank(texts, values)))
        ):
            return values
    except ValueError:
        pass
    values = np.empty(len(texts))
    for row, text in enumerate(texts):
        as_written = text if found is None else found[row]
        values[row] = _parse_number(text.strip(), as_written.strip(), f"{where(row)}, {column}", blank_is_nan)
    return values


def _only_blank(texts: Sequence[str], values: NDArray[np.float64]) -> bool:
    return all(not texts[i] for i in np.flatnonzero(np.isnan(values)).tolist())


def _parse_number(text: str, found: str, where: str, blank_is_nan: bool) -> float:
    if not text:
        if blank_is_nan:
            return math.nan
        raise AnnotationError(f"{where}: blank, expected a number")
    try:
        value = float(text)
    except ValueError:
        raise AnnotationError(f"{where}: found {found!r}, expected a number{_number_hint(found)}") from None
    if not math.isfinite(value):
        raise AnnotationError(f"{where}: found {found!r}, expected a finite number")
    return value


def _number_hint(found: str) -> str:
    """A hint on how to write a number that has a comma."""
    if re.fullmatch(r"-?\d{1,3}(\.\d{3})+,\d+", found):
        return f" (write {found.replace('.', '')})"
    if re.fullmatch(r"-?[\d.]*,\d+", found):
        return " (a comma can mark decimals or thousands; write numbers as in 1234.5)"
    return ""


def typed_column(texts: list[str]) -> pd.Series[str] | pd.Series[float] | pd.Series[int]:
    """Text as int64 or float64 where writing it again gives the same text, else as text.

    >>> [typed_column(texts).tolist() for texts in (["1", "20"], ["0.5", ""], ["007", "8"])]
    [[1, 20], [0.5, nan], ['007', '8']]
    """
    if not any(texts):
        return pd.Series(texts, dtype="object")
    if all(re.fullmatch(r"-?(0|[1-9]\d{0,17})", t) for t in texts) and "-0" not in texts:
        return pd.Series([int(t) for t in texts], dtype="int64")
    try:
        values = [float(t) if t else math.nan for t in texts]
    except ValueError:
        return pd.Series(texts, dtype="object")
    same = all(t in ("", repr(v)) or (repr(v) == t + ".0") for t, v in zip(texts, values, strict=True))
    return pd.Series(values, dtype="float64") if same else pd.Series(texts, dtype="object")


def delimiter_of(header: str) -> str:
    """Tab, comma or semicolon, whichever of them a header line holds most of."""
    return max("\t,;", key=header.count)


def first_fields(path: Path) -> list[str]:
    """The fields of the first line that is not blank, mostly a header; none for an empty file."""
    first = next((line for line in read_text(path).splitlines() if line.strip()), "")
    return [field.strip().strip('"') for field in first.split(delimiter_of(first))] if first else []


def read_table(path: Path) -> Table:
    """Rows of text between tabs, commas or semicolons, whichever of them the header holds most of.

    Short rows are filled with blanks; blank rows are left out.
    """
    text = read_text(path)
    if not text.strip():
        raise AnnotationError(f"{path}: the file is empty; a table without rows still needs its header line")
    first = text.lstrip("\r\n").split("\n", 1)[0]
    delimiter = delimiter_of(first)
    # Raven writes quotation marks as they are; only tables that quote their header use them as quotes
    plain = delimiter == "\t" and not first.startswith('"')
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL,
    )
    header: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):  # spreadsheets leave rows of nothing but delimiters
                continue
            if not header:
                header = [name.strip() for name in row]
                continue
            if len(row) > len(header):
                if any(cell.strip() for cell in row[len(header) :]):
                    raise AnnotationError(
                        f"{path}, line {reader.line_num}: {len(row)} fields, the header has {len(header)}"
                    )
                row = row[: len(header)]
            rows.append(row + [""] * (len(header) - len(row)))
            lines.append(reader.line_num)
    except csv.Error as error:
        raise AnnotationError(f"{path}, line {reader.line_num}: not delimited text ({error})") from None
    return Table(path, header, rows, lines)


def cell_text(value: object) -> str:
    """A value as text that reads back as the same value; NaN and None are blank."""
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(float(value))
    return "" if value is None or value is pd.NA else str(value)


def format_table(header: Sequence[str], columns: Sequence[Iterable[object]], *, delimiter: str = ",") -> str:
    """Delimited text with a header. Tab-separated text quotes nothing, so its cells must hold no tabs."""
    out = io.StringIO(newline="")
    if delimiter == "\t":
        out.write("\t".join(header) + "\n")
        out.writelines(
            "\t".join(row) + "\n" for row in zip(*([cell_text(v) for v in c] for c in columns), strict=True)
        )
        return out.getvalue()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*([cell_text(v) for v in c] for c in columns), strict=True))
    return out.getvalue()


def one_line(text: str) -> str:
    """Text without tabs and line breaks, for formats that separate by them."""
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]", " ", text)


def decimal_sum(*terms: float | str) -> float:
    """The sum of numbers as written, so that 0.1 + 0.2 is 0.3 and an end survives start + duration."""
    total = Decimal(0)
    for term in terms:
        total = _EXACT.add(total, Decimal(str(term)))
    return float(total)


def decimal_difference(a: float, b: float) -> str:
    """a − b of the numbers as written, as text without loss."""
    return str(_EXACT.subtract(Decimal(repr(float(a))), Decimal(repr(float(b)))))
