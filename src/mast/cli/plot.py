"""`mast plot`: a spectrogram with boxes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.event_files import front_end_of, read_event_file
from mast.cli.options import Quiet, say, score, seconds, upper_edge

if TYPE_CHECKING:
    import pandas as pd


def plot(
    recording: Annotated[Path, typer.Argument(help="The audio file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Picture to write; its name ends in .png.")],
    boxes: Annotated[
        Path | None,
        typer.Option(
            "--boxes", help="Boxes in any annotation format, a dataset or detect folder; solid green."
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option("--predictions", help="A detector's boxes, likewise; dashed blue with scores."),
    ] = None,
    start: Annotated[float, seconds("--start", help="Where to begin, in seconds.")] = 0.0,
    end: Annotated[
        float | None, seconds("--end", help="Where to stop, in seconds; the end by default.")
    ] = None,
    band: Annotated[
        float | None,
        upper_edge(
            help="Upper edge of the picture; by default the one that detect searched, else 8000 or half "
            "the sample rate where that is lower.",
        ),
    ] = None,
    threshold: Annotated[
        float | None, score("--threshold", help="Minimum score of a detection that is drawn.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Draw a recording's spectrogram with boxes, as the model sees it: mel scale, axes in s and kHz.

    For bats or fish choose the band: --band bats, --band fish.

    \b
    Example:
      mast plot dawn.wav --boxes boxes.csv --predictions detections.csv --end 60 --out dawn.png
    """
    from mast.audio import probe
    from mast.errors import ConfigError
    from mast.grid import FrontEnd
    from mast.reports.spectrogram import draw_spectrogram

    if out.suffix.lower() != ".png" or out.is_dir():
        raise ConfigError(f"--out {out}: expected the name of a picture, ending in .png")
    info = probe(recording)
    front_end = front_end_of(band, predictions, boxes)
    if front_end is None:
        front_end = FrontEnd.for_band(min(FrontEnd().high_hz, info.sample_rate / 2))
    truth = None if boxes is None else _read_events(boxes, recording, quiet)
    predicted = None if predictions is None else _read_events(predictions, recording, quiet)
    if threshold is not None:  # an expert's boxes have score 1
        truth, predicted = (
            None if events is None else events[~(events["score"] < threshold)]
            for events in (truth, predicted)
        )
    draw_spectrogram(
        recording, out, truth=truth, predictions=predicted, start_s=start, end_s=end, front_end=front_end
    )
    typer.echo(f"Wrote {out} ({front_end.low_hz:g}–{front_end.high_hz:g} Hz).")


def _read_events(path: Path, recording: Path, quiet: bool) -> pd.DataFrame:
    """The events that an annotation file has for this recording."""
    import pandas as pd

    from mast.audio import probe
    from mast.evaluation.scene import align_recordings

    info = probe(recording)
    known = pd.DataFrame(
        {"recording": [recording.name], "duration_s": [info.duration_s], "sample_rate": [info.sample_rate]}
    )
    annotations = read_event_file(path, known)
    names = {*annotations.events["recording"], *annotations.reviewed["recording"]}
    # the whole path, to tell `site1/a.wav` from `site2/a.wav`
    aligned = align_recordings([recording.resolve().as_posix()], names)
    if names and not aligned:
        say(
            f"mast: warning: {path} names {len(names)} recordings, and {recording.name} is not one of them: "
            "none of its boxes are drawn",
            quiet=quiet,
        )
    return annotations.events[annotations.events["recording"].isin(set(aligned.values()))]
