"""The formats by name; reading and writing in any of them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pandas as pd

from mast.annotations import aoef, audacity, birdeep_csv, coco, events_csv, kaleidoscope, raven, yolo
from mast.annotations.base import ALL, BOX_AND_LABEL, AnnotationSet, Format, check_set
from mast.annotations.tables import read_json, read_text
from mast.errors import AnnotationError
from mast.events import clip_at_zero
from mast.wording import counted

FORMATS: dict[str, Format] = {
    "csv": Format(events_csv.read, events_csv.write, ".csv", folder=True),
    "raven": Format(raven.read, raven.write, ".txt", folder=True, control_characters=False),
    "audacity": Format(
        audacity.read, audacity.write, ".txt", BOX_AND_LABEL, folder=True, control_characters=False
    ),
    "coco": Format(coco.read, coco.write, ".json", recording_columns=ALL),
    "yolo": Format(
        yolo.read, yolo.write, "", BOX_AND_LABEL | {"score"}, folder=True, control_characters=False
    ),
    "aoef": Format(
        aoef.read,
        aoef.write,
        ".json",
        recording_columns=frozenset({"duration_s", "sample_rate", "site", "datetime"}),
    ),
    "kaleidoscope": Format(kaleidoscope.read, kaleidoscope.write, ".csv"),
    "birdeep": Format(
        birdeep_csv.read,
        birdeep_csv.write,
        ".csv",
        BOX_AND_LABEL | {"annotator"},
        frozenset({"duration_s", "site", "datetime"}),
    ),
}
_WORKBOOKS = (".xlsx", ".xls", ".ods")
_SAVE_AS_TEXT = "is a spreadsheet; save it as text (*.txt, tab-delimited) or CSV"
_TABLES = ("kaleidoscope", "birdeep")  # one table, which mast detect writes into a folder of its own
_KNOWN = f"{', '.join(FORMATS)} (mast convert --from sets it)"  # for messages


def read_annotations(
    path: Path | str, format: str | None = None, *, recordings: pd.DataFrame | None = None
) -> AnnotationSet:
    """Read annotations in any format; ``format`` is guessed from names and content where not given.

    ``recordings`` (columns ``recording`` or ``file``, ``duration_s``, ``sample_rate`` …) is what the caller
    knows: it resolves file names that lack their ending, gives COCO and YOLO from elsewhere their scale, and
    fills upper frequencies that a file leaves open. Boxes that reach below 0 Hz are cut there, with a warning.

    >>> from mast.annotations import read_annotations
    >>> read_annotations("sim/boxes.csv").events[["recording", "start_s", "end_s", "label"]].head(2)
                      recording  start_s   end_s     label
    0  S01_20240512_055800.flac   0.5775  1.4875  trill-06
    1  S01_20240512_055800.flac   3.8475  4.7275  trill-06
    """
    path = Path(path)
    if not path.exists():
        raise AnnotationError(f"{path}: no such file or folder")
    format = format or guess_format(path)
    chosen = _find_format(format)
    path = _table_of_folder(path) if format in _TABLES else path
    known = AnnotationSet() if recordings is None else AnnotationSet(recordings=recordings)
    try:
        found = chosen.read(path, known.recordings)
    except AnnotationError as error:
        if not str(error).startswith(("event table: ", "recordings table: ", "reviewed table: ")):
            raise
        raise AnnotationError(f"{path}: {error}") from None
    check_set(found, path)
    if below := int((found.events["low_hz"] < 0).sum()):
        warnings.warn(
            f"{path}: {below:,} of {counted(len(found.events), 'box')} "
            f"{'reaches' if below == 1 else 'reach'} below 0 Hz and {'is' if below == 1 else 'are'} cut there",
            stacklevel=2,
        )
        found = replace(found, events=clip_at_zero(found.events))
    return found


def write_annotations(annotations: AnnotationSet, path: Path | str, format: str) -> None:
    """Write annotations, each file whole or not at all.

    Boxes are cut at 0 Hz, and at the Nyquist frequency where the sample rate is known. `raven`, `audacity` and `yolo`
    write a folder with one file per recording; see the package for what each format can hold.

    >>> from pathlib import Path
    >>> from mast.annotations import read_annotations, write_annotations
    >>> write_annotations(read_annotations("sim/boxes.csv"), "as_raven", "raven")
    >>> len(list(Path("as_raven").glob("*.selections.txt")))
    2
    """
    chosen, path = _find_format(format), Path(path)
    if path.is_dir() and not chosen.folder:
        file = path / f"annotations{chosen.suffix}"
        raise AnnotationError(f"{path}: is a folder, and {format} is a single file; write to {file}")
    possible = replace(annotations, events=clip_at_zero(annotations.events))
    chosen.write(possible.clipped_to_nyquist(), path)


def _find_format(name: str) -> Format:
    if name not in FORMATS:
        raise AnnotationError(f"unknown annotation format {name!r}; choose one of {', '.join(FORMATS)}")
    return FORMATS[name]


def guess_format(path: Path) -> str:
    """The format of a file or folder, from what is in it."""
    from mast.audio import find_recordings

    if not path.is_dir():
        found = _guess_file(path)
        if found:
            return found
        raise AnnotationError(f"{path}: cannot tell the annotation format; expected {_KNOWN}")
    if (table := events_csv.table_in(path)) is not None:
        found = _guess_file(table)
        return found if found in _TABLES else "csv"
    if any((path / name).is_file() for name in ("pictures.csv", "classes.txt")):
        return "yolo"
    files = raven.tables_in(path)
    for file in [f for f in files if f.stat().st_size] or files:
        found = _guess_file(file)
        if found in ("raven", "audacity", "yolo"):
            return found
        if found is not None:
            break  # one look: the folder should hold one kind of annotations
    if workbook := next((f for f in sorted(path.rglob("*")) if f.suffix.lower() in _WORKBOOKS), None):
        raise AnnotationError(f"{workbook}: {_SAVE_AS_TEXT}")
    if find_recordings(path):
        raise AnnotationError(
            f"{path}: holds recordings but no boxes; expected boxes.csv, a folder of Raven tables, or the folder of "
            "mast detect"
        )
    raise AnnotationError(
        f"{path}: cannot tell which annotation format this folder holds; expected {_KNOWN}, or give the annotation "
        "file itself"
    )


def _table_of_folder(path: Path) -> Path:
    """The table in a folder; a path that is not such a folder stays as it is."""
    return (events_csv.table_in(path) or path) if path.is_dir() else path


def _guess_file(path: Path) -> str | None:
    if path.suffix.lower() == ".parquet":
        return "csv"
    if path.suffix.lower() in (".json", ".aoef"):
        return _guess_json(path)
    if path.suffix.lower() in _WORKBOOKS:
        raise AnnotationError(f"{path}: {_SAVE_AS_TEXT}")
    if raven.TABLE_NAME.search(path.name):  # also without its header: reading it says what is missing
        return "raven"
    text = read_text(path)
    lines = [line for line in text[:20_000].split("\n") if line.strip()]
    if not lines:
        return None
    if lines[0].lstrip().startswith("{"):
        return _guess_json(path)
    header = {name.strip().strip('"').casefold() for d in "\t,;" for name in lines[0].split(d)}
    if "begin time (s)" in header or {name.casefold() for name in raven.BIRDNET} <= header:
        return "raven"
    if "in file" in header:
        return "kaleidoscope"
    if {"specie", "start_time"} <= header:
        return "birdeep"
    if {"start_s", "end_s"} <= header:
        return "csv"
    if _are_numbers(lines[0].split("\t")[:2]) and lines[0].count("\t") >= 1:
        return "audacity"
    if len(lines[0].split()) in (5, 6) and _are_numbers(lines[0].split()):
        return "yolo"
    return None


def _are_numbers(fields: list[str]) -> bool:
    try:
        return bool([float(field) for field in fields])
    except ValueError:
        return False


def _guess_json(path: Path) -> str | None:
    content = read_json(path)
    if not isinstance(content, dict):
        return None
    if "images" in content and "annotations" in content:
        return "coco"
    data = content.get("data")
    return "aoef" if isinstance(data, dict) and "collection_type" in data else None
