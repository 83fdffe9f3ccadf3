"""`mast convert`: annotations from one format to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.event_files import check_table, cut_to_nyquist
from mast.cli.options import Join, Quiet, count, progress_counter, say
from mast.cli.unusable_recordings import unusable_recordings
from mast.wording import counted

if TYPE_CHECKING:
    import pandas as pd

    from mast.annotations import AnnotationSet

# public datasets that --to dataset turns into dataset folders
_LAYOUTS = ("birdeep", "birdset", "rainforest")
_SCALED = ("coco", "yolo", "aoef")  # cannot be written without durations and sample rates
_FORMATS = "csv, raven, audacity, coco, yolo, aoef, kaleidoscope, birdeep"  # a test compares with FORMATS


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN",
            help="Annotation file, folder of them, dataset folder, or the output folder of mast detect.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File or folder to write.")],
    to: Annotated[
        str,
        typer.Option("--to", "-t", help=f"Format to write: {_FORMATS}; or dataset, see above."),
    ],
    from_: Annotated[
        str | None,
        typer.Option("--from", "-f", help="Format to read; by default detected from the content."),
    ] = None,
    audio: Annotated[
        Path | None,
        typer.Option(
            "--audio",
            help="Folder of the recordings, or of the whole dataset, for durations, sample rates and full names.",
        ),
    ] = None,
    home: Annotated[
        str | None,
        typer.Option(
            "--home", help="rainforest: the labelled SITE/DATE; the one with the most boxes by default."
        ),
    ] = None,
    ood_dates: Annotated[
        str | None,
        typer.Option("--ood-dates", help="birdeep: dates to hold out, as in 2023-05-14,2023-05-30."),
    ] = None,
    subset: Annotated[str, typer.Option("--subset", help="birdset: subset on the hub.")] = "XCM",
    part: Annotated[
        str | None,
        typer.Option("--part", help="birdset: train, test or test_5s; train on the hub by default."),
    ] = None,
    limit: Annotated[
        int | None, count("--limit", high=10**9, help="birdset: stop after this many recordings.")
    ] = None,
    all_done: Annotated[
        bool,
        typer.Option("--all-done", help="tasks: every clip was listened to, even where nothing changed."),
    ] = False,
    add_to: Annotated[
        Path | None,
        typer.Option("--add-to", help="tasks: earlier annotations, in any format, to be written with these."),
    ] = None,
    join: Join = None,
    quiet: Quiet = False,
) -> None:
    """Convert annotations between formats, without loss where both formats allow it.

    Boxes, labels and what was listened to survive in every format; what a format cannot store (scores in Audacity
    labels, say) is reported. Boxes are cut to half the sample rate of their recording, where that is known. raven,
    audacity and yolo write a folder with one file per recording; csv writes a table, or a dataset folder where OUT
    has no file extension. coco, yolo and aoef need to know durations and sample rates: from recordings.csv in IN,
    from the folder of mast detect, or from --audio.

    --to dataset turns a public dataset, as downloaded, into a dataset folder: --from birdeep, birdset or
    rainforest (site and date folders with Raven tables). For birdset, IN may be a name on the Hugging Face hub.

    --join 0.5 merges events that follow each other closely: same recording and label, at most half a second
    apart, and bands that overlap by a quarter or more. The merged box encloses all of them and has the highest of their
    scores; the column notes counts them.

    --from tasks reads back a folder of mast plan, finished or not: boxes go to the original recordings, and the clips
    that were listened to become reviewed spans; --add-to keeps what was annotated before.

    \b
    Example:
      mast convert boxes.csv raven_tables/ --to raven --audio recordings/
      mast convert detections/ songs.csv --to csv --join 0.5
      mast convert tasks/ recordings/boxes.csv --from tasks --to csv
      mast convert BIRDeep_AudioAnnotations/ birdeep/ --from birdeep --to dataset
    """
    if to == "dataset":
        _make_dataset(source, out, from_, home, ood_dates, (subset, part, limit), quiet)
        return
    from dataclasses import replace

    from mast.annotations import FORMATS, guess_format, read_annotations, write_annotations
    from mast.annotations.earlier import keep_earlier
    from mast.annotations.songs import join_events
    from mast.errors import AnnotationError

    tasks = from_ == "tasks" or (from_ is None and _holds_tasks(source))
    for option, name in (("--to", to), ("--from", None if tasks else from_)):
        if name is not None and name not in FORMATS:
            raise AnnotationError(f"{option} {name}: no such format; choose one of {', '.join(FORMATS)}")
    if not tasks and (all_done or add_to is not None):
        raise AnnotationError(
            f"{source}: --all-done and --add-to are for tasks of mast plan; add --from tasks"
        )
    folder = FORMATS[to].is_folder(out)
    _check_output(source, out, folder=folder)
    if to == "csv" and not folder:
        check_table(out)
    known = (
        _scan_audio(audio, quiet)
        if audio is not None
        else _searched_recordings(source)
        if to in _SCALED
        else None
    )
    annotations = (
        _read_tasks(source, all_done, add_to) if tasks else read_annotations(source, from_, recordings=known)
    )
    if audio is not None and known is not None and not tasks:
        named, format = annotations.annotated(), from_ or guess_format(source)
        for sentence in unusable_recordings(named, known, audio, source, format):
            say(f"mast: warning: {sentence}", quiet=quiet)
        annotations = _drop_unmentioned(annotations, known, source)
    if late := annotations.after_the_end():
        say(f"mast: warning: {_late_events_warning(late, len(annotations.events))}", quiet=quiet)
    annotations = cut_to_nyquist(annotations, "events", source, quiet=quiet)
    if join is not None:
        annotations = replace(annotations, events=join_events(annotations.events, join))
    if earlier := keep_earlier(out, annotations, heard_since=tasks):
        hint = "; with --add-to they stay in the table itself" if tasks and add_to is None else ""
        say(
            f"mast: warning: {out} {earlier.why}, so the old one is kept as {earlier.path}{hint}",
            quiet=False,
        )
    write_annotations(annotations, out, to)

    # what the recordings themselves say is not lost
    kept = set() if audio is None or known is None else {f"recordings' {column}" for column in known}
    lost = [what for what in FORMATS[to].lost(annotations, out) if what not in kept]
    if lost:
        say(f"dropped, because {to} cannot store it: {', '.join(lost)}", quiet=False)
    typer.echo(
        f"{counted(len(annotations.annotated()), 'recording')}, {counted(len(annotations.events), 'event')}, "
        f"{counted(len(annotations.reviewed_empty()), 'recording')} heard and empty → {out} ({to})"
    )


def _late_events_warning(late: int, events: int) -> str:
    """What is doubtful about events that start after their recording has ended."""
    if late == 1:
        which = "the only event" if events == 1 else f"1 of {events:,} events"
        return f"{which} starts after its recording has ended; does it belong to another recording?"
    return f"{late:,} of {events:,} events start after their recording has ended; do they belong to another recording?"


def _holds_tasks(source: Path) -> bool:
    if not (source / "plan.csv").is_file():
        return False
    from mast.planning.returned_tasks import is_tasks_folder

    return is_tasks_folder(source)


def _read_tasks(tasks: Path, all_done: bool, add_to: Path | None) -> AnnotationSet:
    """The finished tasks of a plan, with what was annotated before; reports which clips were not listened to."""
    from mast.annotations import read_annotations
    from mast.errors import AnnotationError
    from mast.planning.returned_tasks import merge_returned, read_tasks

    returned = read_tasks(tasks, all_done=all_done)
    typer.echo(f"{returned.done} of {returned.clips} clips were listened to", err=True)
    if returned.untouched:
        some = ", ".join(returned.untouched[:3]) + (" …" if len(returned.untouched) > 3 else "")
        typer.echo(
            f"{len(returned.untouched)} are unchanged and count as not heard ({some}); write yes in their done column "
            "in plan.csv, or give --all-done if all were listened to",
            err=True,
        )
    if not returned.done:
        raise AnnotationError(f"{tasks}: no clip was listened to, so there is nothing to read back")
    if add_to is None:
        return returned.annotations
    # a dataset's table alone does not say what was listened to; its folder does
    before = add_to.parent if add_to.name in ("boxes.csv", "boxes.parquet") else add_to
    return merge_returned(read_annotations(before), returned.annotations)


def _make_dataset(
    source: Path,
    out: Path,
    layout: str | None,
    home: str | None,
    ood_dates: str | None,
    wanted: tuple[str, str | None, int | None],
    quiet: bool,
) -> None:
    """A public dataset as a dataset folder."""
    from mast.data.layouts.birdeep import read_birdeep
    from mast.data.layouts.folder import write_dataset_folder
    from mast.data.layouts.rainforest import read_rainforest
    from mast.errors import AnnotationError, not_a_folder

    if layout not in _LAYOUTS:
        raise AnnotationError(
            f"--from {layout or '(not given)'}: --to dataset needs to know which dataset IN is; "
            f"choose one of {', '.join(_LAYOUTS)}"
        )
    if layout == "birdset":
        _make_birdset(source, out, *wanted, quiet)
        return
    if not source.is_dir():
        raise AnnotationError(f"{source}: {not_a_folder(source)}; expected the folder of the dataset")
    if layout == "birdeep":
        data = read_birdeep(source, ood_dates=None if ood_dates is None else ood_dates.split(","))
    else:
        data = read_rainforest(source, home=None if home is None else _site_and_date(home))
    write_dataset_folder(data, out)
    parts = data.annotations.recordings["split"].replace("", "to be split").value_counts()
    typer.echo(
        f"{counted(len(data.sources), 'recording')} ({', '.join(f'{n} {name}' for name, n in parts.items())}), "
        f"{counted(len(data.annotations.events), 'box')} → {out}"
    )


def _make_birdset(
    source: Path, out: Path, subset: str, part: str | None, limit: int | None, quiet: bool
) -> None:
    from mast.data.layouts.birdset import hub_rows, parquet_rows, write_birdset

    # a name on the hub is two words with a slash, and not a folder here
    rows = (
        parquet_rows(source, split=part)
        if source.is_dir()
        else hub_rows(source.as_posix(), subset, part or "train")
    )
    with progress_counter(quiet, "convert", "recordings", limit) as advance:
        counts = write_birdset(rows, out, limit=limit, on_recording=advance)
    typer.echo(
        f"{counted(counts.recordings, 'recording')}, {counted(counts.boxes, 'box')}, "
        f"{counted(counts.detected, 'detected event')}, {counted(counts.failures, 'failure')} → {out}"
    )


def _site_and_date(text: str) -> tuple[str, str]:
    from mast.errors import ConfigError

    site, _, date = text.rpartition("/")
    if not site or not date:
        raise ConfigError(f"--home {text}: expected SITE/DATE, as in 13A/2018-07-10")
    return site, date


def _check_output(source: Path, out: Path, *, folder: bool) -> None:
    from mast.errors import AnnotationError
    from mast.files import holds_files

    if out.exists() and source.exists() and out.samefile(source):
        raise AnnotationError(f"{out}: is also the input; choose another place to write to")
    if folder and out.is_dir() and holds_files(out):
        raise AnnotationError(
            f"{out}: is not empty, and old files would mix with new ones; choose a new folder"
        )


def _scan_audio(folder: Path, quiet: bool) -> pd.DataFrame:
    """All recordings in a folder, or in its ``audio/``; only the names of those that cannot be read."""
    import pandas as pd

    from mast.audio import Unlisted
    from mast.data.header_scan import scan_headers
    from mast.data.recordings import recordings_in
    from mast.errors import AudioError, shorten

    unlisted: list[Unlisted] = []
    paths = recordings_in(folder, unlisted)
    if not paths:
        raise AudioError(f"{folder}: no recordings in this folder")
    with progress_counter(quiet, "probe", "recordings", len(paths)) as advance:
        found = scan_headers(paths, folder, advance=advance)
    rows = [
        {
            "recording": name,
            "duration_s": info.duration_s,
            "sample_rate": float(info.sample_rate),
            "site": about.site or "",
            "datetime": about.datetime.isoformat() if about.datetime else "",
        }
        for name, info, about in found.recordings
    ]
    if failed := found.unreadable:
        first = shorten(failed[0].error)
        typer.echo(f"{counted(len(failed), 'recording')} cannot be read, the first: {first}", err=True)
        rows += [{"recording": one.name} for one in failed]
    if unlisted:
        typer.echo(
            f"{counted(len(unlisted), 'folder')} cannot be listed, the first: {shorten(unlisted[0])}",
            err=True,
        )
    return pd.DataFrame(rows, columns=["recording", "duration_s", "sample_rate", "site", "datetime"])


def _searched_recordings(source: Path) -> pd.DataFrame | None:
    """Names, durations and sample rates of the recordings that `mast detect` searched, where IN is its folder."""
    import pandas as pd

    from mast.annotations.detections import DONE, mark_facts, marks, read_run

    if read_run(source) is None:
        return None
    columns = ["recording", "duration_s", "sample_rate", "site", "datetime"]
    facts = [known for _, mark in marks(source, DONE) if (known := mark_facts(mark)) is not None]
    return pd.DataFrame([{column: one.get(column) for column in columns} for one in facts], columns=columns)


def _drop_unmentioned(annotations: AnnotationSet, probed: pd.DataFrame, source: Path) -> AnnotationSet:
    """Drop recordings in the audio folder that IN never mentions."""
    from dataclasses import replace

    from mast.annotations.sidecars import read_recordings

    listing = source / "recordings.csv"
    listed = set(read_recordings(listing)["recording"]) if listing.is_file() else set()
    unmentioned = set(probed["recording"]) - set(annotations.annotated()) - listed
    table = annotations.recordings
    return replace(annotations, recordings=table[~table["recording"].isin(unmentioned)])
