"""`mast scan`: what is in a folder of recordings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.options import EXIT_SOME_FAILED, Quiet, progress_bar
from mast.wording import counted

if TYPE_CHECKING:
    from mast.data.folder_survey import RecordingRow

_USERS_COLUMNS = ("site", "datetime", "recorder", "latitude", "longitude")  # a person's entries here stay
_MIN_HOURS = 0.1  # less sound is reported in minutes
_NAMED = 10  # failures, warnings and sites named one by one in the summary; the tables hold them all


def scan(
    folder: Annotated[Path, typer.Argument(help="Folder of recordings; searched with all its subfolders.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Table to write, one row per recording; none by default."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Show what is in a folder: hours, sites, days, unreadable files.

    Only headers and names are read. Site and clock time come from AudioMoth, GUANO and Song Meter headers,
    file names and folder names; what is not stated stays empty. A table that already exists keeps its other columns
    and the sites and times filled in by hand, and those in the folder's own recordings.csv count as well. Unreadable
    files, and folders that cannot be listed, are listed in failures.csv next to the table.

    Exit code: 0 when all could be read, 4 when some could not, 2 when none could.

    \b
    Example:
      mast scan recordings/ --out recordings/recordings.csv
    """
    from mast.data.folder_survey import COLUMNS, survey

    previous = _previous_rows(out) if out is not None and out.exists() else {}
    bar = progress_bar(quiet, unit="files")
    with ExitStack() as shown:

        def show(done: int, total: int) -> None:
            if not bar.task_ids:  # not before there is something to count, so that an error is one line
                shown.enter_context(bar)
                bar.add_task("scan", total=total)
            bar.update(bar.task_ids[0], completed=done)

        found = survey(folder, progress=show)
    rows, failures = found.rows, found.failures
    kept = _carry_over(rows, previous)

    for line in _summary_lines(rows, failures):
        _echo(line)
    boxes = _box_summary(folder)
    if boxes is not None:
        _echo(boxes)
    closing = [counted(len(rows), "recording"), f"{len(failures):,} unreadable"]
    if out is not None:
        failures_path = out.parent / "failures.csv"
        if rows:
            extra = [column for row in previous.values() for column in row if column not in COLUMNS]
            _write_table(out, [*rows, *kept], [*COLUMNS, *dict.fromkeys(extra)])
            closing[0] += f" in {out}"
        if failures or failures_path.exists():
            _write_table(failures_path, failures, ["file", "reason"])
            closing[1] += f" in {failures_path}"
        if previous and rows:
            closing.append(f"columns and values of the earlier {out.name} kept")
            if kept:
                closing.append(f"{len(kept):,} of its rows name files that are not readable here")
    if not rows:
        raise found.unreadable_error(folder)
    _echo("; ".join(closing) + ".")
    if failures:
        raise typer.Exit(EXIT_SOME_FAILED)


def _previous_rows(table: Path) -> dict[str, RecordingRow]:
    """The rows of an existing table by file name, so that nothing written by hand is lost."""
    import csv

    from mast.annotations.tables import delimiter_of
    from mast.errors import ConfigError

    try:
        with open(table, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            delimiter = delimiter_of(file.readline())
            file.seek(0)
            reader = csv.DictReader(file, restval="", delimiter=delimiter)
            columns = list(reader.fieldnames or [])
            rows = [{name: value for name, value in row.items() if name is not None} for row in reader]
    except (OSError, csv.Error) as error:
        raise ConfigError(f"{table}: exists but cannot be read ({error}); choose another --out") from error
    if "file" not in columns:
        raise ConfigError(
            f"{table}: exists and has no column 'file' (found {', '.join(columns) or 'none'}), so it is not a "
            "table of recordings and was left alone; choose another --out"
        )
    # earlier versions wrote names that are not text as raw bytes
    names = [os.fsencode(row["file"]).decode("utf-8", errors="backslashreplace") for row in rows]
    return {name: {**row, "file": name} for name, row in zip(names, rows, strict=True)}


def _carry_over(rows: list[RecordingRow], previous: Mapping[str, RecordingRow]) -> list[RecordingRow]:
    """Carry values of an earlier table over into new rows; returns its rows that no new row matches."""
    from mast.data.folder_survey import COLUMNS

    unmatched = dict(previous)
    for row in rows:
        # tables may name files relative to audio/; the spelling of the table wins
        name = next((n for n in (row["file"], row["file"].removeprefix("audio/")) if n in unmatched), None)
        if name is None:
            continue
        for column, value in unmatched.pop(name).items():
            if column not in COLUMNS or column == "file" or (column in _USERS_COLUMNS and value):
                row[column] = value
    return list(unmatched.values())


def _summary_lines(found: list[RecordingRow], failures: list[RecordingRow]) -> Iterable[str]:
    """The summary of what is there, line by line."""
    from mast.data.folder_survey import add_up

    totals = add_up(found)
    yield f"recordings    {len(found):,}"
    yield (
        f"hours         {totals.hours:,.2f}"
        if totals.hours >= _MIN_HOURS
        else f"minutes       {60 * totals.hours:.2f}"
    )
    yield f"formats       {_format_counts(totals.formats)}"
    yield f"sample rates  {_format_counts(Counter({f'{rate} Hz': n for rate, n in totals.sample_rates.items()}))}"
    yield f"channels      {_format_counts(totals.channels)}"
    sites = Counter({site or "unknown": n for site, n in totals.sites.items()})
    known = len(sites) - ("unknown" in sites)
    yield f"sites         {known:,}" + (f": {_format_counts(sites)}" if found else "")
    span = ", " + " to ".join(dict.fromkeys((totals.days[0], totals.days[-1]))) if totals.days else ""
    yield f"days          {len(totals.days):,}{span}" + (
        f"; {counted(totals.undated, 'recording')} without clock time" if totals.undated else ""
    )
    warned = [f"{row['file']}: {row['warning']}" for row in found if row["warning"]]
    yield from _list_lines("warnings", warned)
    yield from _list_lines("unreadable", [f"{row['file']}: {row['reason']}" for row in failures])


def _format_counts(counter: Counter[str]) -> str:
    """``WAV PCM_16 (20), FLAC PCM_16 (3)``, most frequent first."""
    counts = counter.most_common()
    text = ", ".join(f"{value} ({count:,})" for value, count in counts[:_NAMED])
    return text + (f", and {len(counts) - _NAMED:,} more" if len(counts) > _NAMED else "")


def _list_lines(title: str, lines: list[str]) -> Iterable[str]:
    yield f"{title:<13} {len(lines):,}"
    yield from (f"  {line}" for line in lines[:_NAMED])
    if len(lines) > _NAMED:
        yield f"  … and {len(lines) - _NAMED:,} more"


def _box_summary(folder: Path) -> str | None:
    """A line on the boxes in the folder; ``None`` where there are none."""
    if not (folder / "boxes.csv").is_file():
        return None
    from mast.data import load_dataset
    from mast.errors import MastError

    try:
        dataset = load_dataset(folder)
    except MastError as error:
        return f"boxes         not readable: {error}"
    events = dataset.annotations.events
    if events.empty:
        return "boxes         0"
    length_s = (events["end_s"] - events["start_s"]).median()
    bandwidth_hz = (events["high_hz"] - events["low_hz"]).median()
    return f"boxes         {len(events):,}, median {length_s:.3g} s long and {bandwidth_hz:,.0f} Hz wide"


def _write_table(path: Path, rows: list[RecordingRow], columns: list[str]) -> None:
    """Write a table whole or not at all: an interrupted scan leaves the earlier one as it was."""
    import csv

    from mast.files import atomic_file, remove_orphans

    remove_orphans(path.parent)
    with (
        atomic_file(path) as part,
        open(part, "w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _echo(line: str) -> None:
    """Print a line, even where a file name in it holds bytes that are not text."""
    typer.echo(line.encode("utf-8", errors="replace").decode("utf-8"))
