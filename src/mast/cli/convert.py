"""`mast convert`: annotations from one format to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.options import Debug, Quiet, Seed, progress, say

if TYPE_CHECKING:
    import pandas as pd

    from mast.annotations import AnnotationSet

_FORMATS = "csv, raven, audacity, coco, yolo, aoef, kaleidoscope, birdeep"  # a test compares with FORMATS


def convert(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help="Annotation file, folder of annotation files, or dataset folder."),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File or folder to write.")],
    to: Annotated[str, typer.Option("--to", "-t", help=f"Format to write: {_FORMATS}.")],
    from_: Annotated[
        str | None,
        typer.Option("--from", "-f", help="Format to read; found out from the content by default."),
    ] = None,
    audio: Annotated[
        Path | None,
        typer.Option(
            "--audio", help="Folder of the recordings: gives durations, sample rates and full names."
        ),
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
    seed: Seed = 0,
) -> None:
    """Convert annotations between formats, without loss where both can hold the fact.

    Boxes, labels and what was listened to survive in every format; what a format has no place for (scores
    in Audacity labels, say) is named. Frequencies above Nyquist are cut to it where the sample rate is known.
    raven, audacity and yolo write a folder with one file per recording; csv writes a table, or a dataset
    folder where OUT has no ending. coco, yolo and aoef need to know durations and sample rates: from
    recordings.csv in IN, or from --audio.

    \b
    Example:
      mast convert boxes.csv raven_tables/ --to raven --audio recordings/
    """
    from mast.annotations import FORMATS, read_annotations, write_annotations
    from mast.errors import AnnotationError

    for option, name in (("--to", to), ("--from", from_)):
        if name is not None and name not in FORMATS:
            raise AnnotationError(f"{option} {name}: no such format; choose one of {', '.join(FORMATS)}")
    _check_out(source, out, folder=FORMATS[to].is_folder(out))
    known = _probe(audio, quiet) if audio is not None else None
    annotations = read_annotations(source, from_, recordings=known)
    if known is not None:
        annotations = _without_strangers(annotations, known, source)
    above = annotations.above_nyquist()
    write_annotations(annotations, out, to)

    if above:
        say(
            f"{above} of {len(annotations.events)} events reached above Nyquist and were cut to it",
            quiet=quiet,
        )
    lost = FORMATS[to].lost(annotations, out)
    if lost:
        typer.echo(f"dropped, {to} cannot hold it: {', '.join(lost)}", err=True)
    typer.echo(
        f"{len(annotations.annotated())} recordings, {len(annotations.events)} events, "
        f"{len(annotations.reviewed_empty())} recordings heard and empty → {out} ({to})"
    )


def _check_out(source: Path, out: Path, *, folder: bool) -> None:
    from mast.errors import AnnotationError

    if out.exists() and source.exists() and out.samefile(source):
        raise AnnotationError(f"{out}: is also what is read; choose another place to write to")
    if folder and out.is_dir() and any(out.iterdir()):
        raise AnnotationError(
            f"{out}: is not empty, and old files would mix with new ones; choose a new folder"
        )


def _probe(folder: Path, quiet: bool) -> pd.DataFrame:
    """Names relative to ``folder``, durations and sample rates of all recordings in it that can be read."""
    import pandas as pd

    from mast.audio import find_recordings, metadata, probe
    from mast.errors import AudioError

    paths = find_recordings(folder)
    if not paths:
        raise AudioError(f"{folder}: no recordings in this folder")
    rows, failed = [], []
    with progress(quiet, unit="recordings") as bar:
        task = bar.add_task("probe", total=len(paths))
        for path in paths:
            try:
                info = probe(path)
                clock = metadata(path, folder)
                rows.append(
                    {
                        "recording": path.relative_to(folder).as_posix(),
                        "duration_s": info.duration_s,
                        "sample_rate": float(info.sample_rate),
                        "site": clock.site or "",
                        "datetime": clock.datetime.isoformat() if clock.datetime else "",
                    }
                )
            except AudioError as error:
                failed.append(error)
            bar.advance(task)
    if failed:
        typer.echo(f"{len(failed)} recordings cannot be read, the first: {failed[0]}", err=True)
    return pd.DataFrame(rows, columns=["recording", "duration_s", "sample_rate", "site", "datetime"])


def _without_strangers(annotations: AnnotationSet, probed: pd.DataFrame, source: Path) -> AnnotationSet:
    """Forget recordings that lie in the audio folder and that IN never mentions."""
    from dataclasses import replace

    from mast.annotations.sidecars import read_recordings

    listing = source / "recordings.csv"
    listed = set(read_recordings(listing)["recording"]) if listing.is_file() else set()
    strangers = set(probed["recording"]) - set(annotations.annotated()) - listed
    table = annotations.recordings
    return replace(annotations, recordings=table[~table["recording"].isin(strangers)])
