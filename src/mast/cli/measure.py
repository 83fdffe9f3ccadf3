"""`mast measure`: frequencies, durations and signal to noise of boxes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.event_files import end_with, find_recordings_of
from mast.cli.options import Quiet, progress
from mast.wording import counted

if TYPE_CHECKING:
    import pandas as pd


def measure(
    boxes: Annotated[
        Path, typer.Argument(help="Folder of mast detect, or boxes in any format that mast reads.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Table to write, ending in .csv or .parquet.")],
    audio: Annotated[
        Path | None, typer.Option(help="Folder of the recordings; by default where detect found them.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Measure every box: frequencies, where its energy lies, signal to noise.

    Writes the table of boxes again with the columns peak_hz, center_hz, low_5_hz, high_95_hz, start_5_s, end_95_s,
    duration_90_s, bandwidth_90_hz and snr_db; docs/checking.md defines them. Cells stay empty where a recording is
    missing or cannot be read, and the last line says how many. Only the sound around each box is read.

    Exit code: 0 when all were measured, 4 when some could not be, 2 when none could.

    \b
    Examples:
      mast measure detections/ --out measured.csv
      mast measure raven_tables/ --audio recordings/ --out measured.csv
    """
    from mast.annotations import read_annotations
    from mast.errors import AnnotationError, AudioError, ConfigError
    from mast.files import whole_file

    if out.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"--out {out}: expected the name of a table, ending in .csv or .parquet")
    events = read_annotations(boxes).events
    if events.empty:
        raise AnnotationError(f"{boxes}: holds no boxes; there is nothing to measure")
    measured, failures = _measured(events, boxes, audio, quiet)
    missed = int(events["recording"].isin(failures).sum())
    if missed == len(events):
        raise AudioError(
            f"none of the {len(events):,} boxes could be measured; {next(iter(failures.values()))}"
        )
    with whole_file(out) as part:
        if out.suffix == ".csv":
            measured.to_csv(part, index=False, lineterminator="\n")
        else:
            measured.to_parquet(part, index=False)
    end_with(
        f"{len(events) - missed:,} of {counted(len(events), 'box')} measured → {out}", failures, quiet=quiet
    )


def _measured(
    events: pd.DataFrame, boxes: Path, audio: Path | None, quiet: bool
) -> tuple[pd.DataFrame, dict[str, str]]:
    """The events with their measurements, and why some recordings have none."""
    from mast.errors import AudioError
    from mast.features.measurements import MEASUREMENTS, measure_events

    locate = find_recordings_of(boxes, audio)
    found, failures = [], {}
    with progress(quiet, unit="recordings") as bar:
        task = bar.add_task("measure", total=events["recording"].nunique())
        for name, own in events.groupby("recording", sort=False):
            path = locate(str(name))
            try:
                if path is None:
                    raise AudioError(f"{name}: no such recording here")
                found.append(measure_events(path, own))
            except AudioError as error:
                failures[str(name)] = str(error)
            bar.advance(task)
    import pandas as pd

    rows = pd.concat(found) if found else pd.DataFrame(columns=list(MEASUREMENTS))
    return events.join(rows.round(6)), failures
