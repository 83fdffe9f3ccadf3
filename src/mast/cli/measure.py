"""`mast measure`: frequencies, durations and signal to noise of boxes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.event_files import check_table, locate_recordings, process_recordings, report_outcome
from mast.cli.options import AudioFolder, BoxesArgument, Quiet, progress_counter
from mast.wording import counted

if TYPE_CHECKING:
    import pandas as pd


def measure(
    boxes: BoxesArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="Table to write, ending in .csv or .parquet.")],
    audio: AudioFolder = None,
    quiet: Quiet = False,
) -> None:
    """Measure every box: frequencies, where its energy lies, signal to noise.

    Writes the table of boxes again with the columns peak_hz, center_hz, low_5_hz, high_95_hz, start_5_s, end_95_s,
    duration_90_s, bandwidth_90_hz and snr_db; docs/checking.md defines them. Columns with these names that the table
    already has are replaced. Cells stay empty where a recording is missing or cannot be read, and the last line says
    how many. Only the sound around each box is read.

    Exit code: 0 when all were measured, 4 when some could not be, 2 when none could.

    \b
    Examples:
      mast measure detections/ --out measured.csv
      mast measure raven_tables/ --audio recordings/ --out measured.csv
    """
    from mast.annotations import read_annotations
    from mast.errors import AnnotationError, AudioError
    from mast.table_files import write_table

    check_table(out)
    events = read_annotations(boxes).events
    if events.empty:
        raise AnnotationError(f"{boxes}: holds no boxes; there is nothing to measure")
    measured, failures = _measure_events(events, boxes, audio, quiet)
    missed = int(events["recording"].isin(failures).sum())
    if missed == len(events):
        raise AudioError(f"no box could be measured ({len(events):,} tried); {next(iter(failures.values()))}")
    write_table(out, measured)
    report_outcome(
        f"{len(events) - missed:,} of {counted(len(events), 'box')} measured → {out}", failures, quiet=quiet
    )


def _measure_events(
    events: pd.DataFrame, boxes: Path, audio: Path | None, quiet: bool
) -> tuple[pd.DataFrame, dict[str, str]]:
    """The events with their measurements, and why some recordings have none."""
    import pandas as pd

    from mast.features.measurements import MEASUREMENTS, measure_events

    locate = locate_recordings(boxes, audio)
    with progress_counter(quiet, "measure", "recordings", events["recording"].nunique()) as advance:
        found, failures = process_recordings(events, locate, measure_events, lambda n: advance())
    rows = pd.concat(found) if found else pd.DataFrame(columns=list(MEASUREMENTS))
    return events.drop(columns=list(MEASUREMENTS), errors="ignore").join(rows.round(6)), failures
