"""`mast search`: more like this one."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.options import Device, LabelFilter, Quiet, StoreArgument, StoreModel, count, hertz, say, score
from mast.wording import counted

if TYPE_CHECKING:
    from mast.inference import Detector
    from mast.retrieval.event_store import EventStore
    from mast.retrieval.filters import Filter
    from mast.retrieval.queries import Query


def search(
    store: StoreArgument,
    event: Annotated[str | None, typer.Option("--event", help="Id of an event in the store.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="A recording, with --box; it need not be in the store.")
    ] = None,
    box: Annotated[
        str | None,
        typer.Option(metavar="START,END,LOW,HIGH", help="Seconds and hertz, as in 12.5,13.1,2000,4500."),
    ] = None,
    clip: Annotated[
        Path | None,
        typer.Option("--clip", help="A clip from elsewhere; searches for the best detection in it."),
    ] = None,
    k: Annotated[int, count("-k", help="How many events to show.")] = 10,
    site: Annotated[
        list[str] | None, typer.Option(help="Only this site; may be given several times.")
    ] = None,
    start: Annotated[str, typer.Option(help="At or after this clock time, such as 2024-05-01T05:30.")] = "",
    end: Annotated[str, typer.Option(help="Before this clock time.")] = "",
    hours: Annotated[
        str, typer.Option(metavar="A-B", help="Hours of the day: 5-9, or 22-4 over midnight.")
    ] = "",
    low: Annotated[float | None, hertz(help="Lowest centre frequency, Hz.")] = None,
    high: Annotated[float | None, hertz(help="Highest centre frequency, Hz.")] = None,
    min_score: Annotated[float | None, score(help="Minimum score of the detection.")] = None,
    label: LabelFilter = None,
    other_recordings: Annotated[
        bool,
        typer.Option("--other-recordings", help="Leave out the recording of the event or file itself."),
    ] = False,
    projection: Annotated[
        bool,
        typer.Option(
            "--projection", help="Compare contrastive projections instead of the encoder's features."
        ),
    ] = False,
    model: StoreModel = None,
    device: Device = None,
    quiet: Quiet = False,
) -> None:
    """Find events that sound most like an event, a box or a clip.

    Prints a table (CSV): rank, id, distance (1 − cosine: 0 is the same), then the event's columns, nearest first. The
    event itself is not among them. Filters are applied before the search, so k events come back if that
    many match; every one of them is compared. With nothing to search for, it lists the first k events that meet the
    filters, with their ids.

    \b
    Examples:
      mast search events --site OAK --min-score 0.8
      mast search events --event e1f0c2a9b3d4e5f60718 -k 20
      mast search events --file dawn.wav --box 12.5,13.1,2000,4500 --site OAK
      mast search events --clip downloaded_call.mp3 --hours 4-9
    """
    from mast.retrieval.event_store import EventStore
    from mast.retrieval.filters import Filter
    from mast.retrieval.queries import find_lookalikes

    opened = EventStore.open(store)
    where = Filter(
        sites=tuple(site or ()),
        start=start,
        end=end,
        hours=_parse_hours(hours),
        low_hz=low,
        high_hz=high,
        min_score=min_score,
        labels=tuple(label or ()),
    )
    if event is None and file is None and clip is None and box is None:
        listed = opened.find(where, k)
        say(f"{len(listed):,} of the {opened.count(where):,} events that meet the conditions", quiet=quiet)
        listed.to_csv(sys.stdout, index=False, lineterminator="\n")
        return
    query = _make_query(opened, event, file, clip, box, model, device)
    if other_recordings:
        where = _without_own_recording(where, opened, query, file or clip)
    found = find_lookalikes(opened, query, k, where, projection=projection)
    say(f"{len(found):,} of {counted(len(opened), 'event')} {query.description}", quiet=quiet)
    found.assign(distance=found["distance"].round(6)).to_csv(sys.stdout, index=False, lineterminator="\n")


def _make_query(
    store: EventStore,
    event: str | None,
    file: Path | None,
    clip: Path | None,
    box: str | None,
    model: str | None,
    device: str | None,
) -> Query:
    from mast.errors import ConfigError
    from mast.retrieval.embedding import BoxEmbedder
    from mast.retrieval.queries import query_box, query_clip, query_event

    given = [
        name for name, value in (("--event", event), ("--file", file), ("--clip", clip)) if value is not None
    ]
    if len(given) != 1:
        raise ConfigError(
            f"{' and '.join(given) or 'nothing'} given to search for; give one of --event, --file with --box, or --clip"
        )
    if event is not None:
        if box is not None:
            raise ConfigError("--box belongs to --file or --clip; an --event has its own")
        return query_event(store, event)
    path = file if file is not None else clip
    assert path is not None
    if file is not None and box is None:
        raise ConfigError(
            f"{file}: say which sound in it with --box START,END,LOW,HIGH; or --clip to take its best detection"
        )
    cells = None if box is None else _parse_box(box)
    detector = load_store_model(store, model, device)
    return query_clip(detector, path) if cells is None else query_box(BoxEmbedder(detector), path, cells)


def load_store_model(store: EventStore, model: str | None, device: str | None) -> Detector:
    """The store's model: as given, where it was when the store was made, or the one that ships with mast."""
    from mast.detect_options import DetectOptions
    from mast.inference import Detector

    options = DetectOptions(device=device, compile=False, band_hz=store.band_hz)
    detector = Detector(model if model is not None else _model_name(store), options)
    store.refuse_other_model(detector.model_id, detector.embedding_width)
    return detector


def _model_name(store: EventStore) -> str:
    from mast.annotations.detections import model_id
    from mast.errors import ConfigError, MastError
    from mast.models.card import load_card
    from mast.models.find import DEFAULT, find_model, is_model_name

    folder = store.model_folder
    if folder and is_model_name(folder):
        return folder
    try:
        if model_id(load_card(find_model(DEFAULT)).weights_sha256) == store.model_id:
            return DEFAULT
    except MastError:
        pass  # none ships with this copy
    raise ConfigError(
        f"{store.uri}: searching by sound needs the store's model, {store.model_id}"
        f"{f' (it is no longer at {folder})' if folder else ''}; say where it is with --model"
    )


def _parse_box(text: str) -> tuple[float, float, float, float]:
    """``START,END,LOW,HIGH`` → start_s, low_hz, end_s, high_hz."""
    from mast.errors import ConfigError

    try:
        start, end, low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"--box {text}: expected four numbers START,END,LOW,HIGH in seconds and hertz, as in 12.5,13.1,2000,4500"
        ) from None
    if not all(map(math.isfinite, (start, end, low, high))):
        raise ConfigError(f"--box {text}: expected four finite numbers, as in 12.5,13.1,2000,4500")
    return start, low, end, high


def _parse_hours(text: str) -> tuple[int, int] | None:
    """Hours of the day, as in 5-9; ``None`` where none are given."""
    import re

    from mast.errors import ConfigError

    match = re.fullmatch(r"(\d{1,2})-(\d{1,2})", text.strip())
    if text and match is None:
        raise ConfigError(f"--hours {text}: expected two hours of the day with a dash, such as 5-9 or 22-4")
    return (int(match[1]), int(match[2])) if match else None


def _without_own_recording(where: Filter, store: EventStore, query: Query, path: Path | None) -> Filter:
    """The filter without the query's own recording; a file is recognised by its name without the folder."""
    from dataclasses import replace

    names = [query.recording] if query.recording else []
    if path is not None:
        names = [name for name in store.recordings() if Path(name).name == path.name]
    return replace(where, not_recordings=tuple(names))
