"""`mast embed`: events and what they sound like, in a store that can be searched."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.options import EXIT_SOME_FAILED, BatchSize, Device, Quiet, progress_counter, upper_edge
from mast.wording import counted

if TYPE_CHECKING:
    import pandas as pd

    from mast.retrieval.embedding import BoxEmbedder
    from mast.retrieval.embedding_sources import DetectionsFolder
    from mast.retrieval.event_store import EventStore
    from mast.retrieval.event_table import EventBatch


def embed(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="A folder that mast detect wrote, or a dataset (recordings and boxes)."
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", help="The store to add to: a folder, or a URI such as s3://bucket/events."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A run of mast fit or mast train, a model folder, default or hf://owner/name; not needed after "
            "mast detect --embed.",
        ),
    ] = None,
    boxes: Annotated[
        Path | None, typer.Option(help="Boxes of the dataset in any format; its boxes.csv by default.")
    ] = None,
    audio: Annotated[
        Path | None, typer.Option(help="Where the recordings are now, if they have moved.")
    ] = None,
    band: Annotated[
        float | None,
        upper_edge(
            help="Upper edge of the band to embed in; by default the one that detect searched, else the model's own."
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Embed from the sound, even where embeddings or events exist: adds projections."
        ),
    ] = False,
    batch: BatchSize = None,
    device: Device = None,
    quiet: Quiet = False,
) -> None:
    """Put events and their embeddings into a store for mast search, classify and cluster.

    DATA is a folder that mast detect wrote: with --embed its embeddings are reused, in seconds; otherwise they are
    made from the sound, in the band that was searched. Or it is a dataset with boxes that people drew: each is embedded
    by the given model, from a window that holds all of it where possible.

    The store holds vectors of one model in one band and refuses others. Adding the same data again duplicates nothing:
    events that have changed are replaced, and those no longer among the events of a recording are removed. After a
    stop the same command resumes.

    Recordings that cannot be read, and boxes outside the model's band, are listed and left out (exit code 4).

    \b
    Examples:
      mast embed detections --out events
      mast embed recordings/ --model runs/birds --out examples
      mast embed bats/ --model default --band bats --out bats
    """
    from mast.detect_options import DetectOptions
    from mast.errors import ConfigError, MastError, not_a_folder
    from mast.retrieval.embedding_sources import DetectionsFolder

    if not data.is_dir():
        raise MastError(
            f"{data}: {not_a_folder(data)}; expected what mast detect wrote, or a dataset of recordings and boxes"
        )
    detections = DetectionsFolder.open(data)
    failures: list[tuple[str, str]] = []

    def report_failure(name: str, reason: str) -> None:
        failures.append((name, reason))
        typer.echo(f"mast: {name}: {reason}", err=True)

    if detections is not None and detections.has_embeddings and not again:
        if boxes is not None:
            raise ConfigError("--boxes is for datasets; a folder of mast detect has its own events")
        _check_model_and_band(detections, model, band)
        store = _open_store(
            out, detections.embedding_width(), detections.run.model_id, 0, model, detections.band_hz
        )
        with progress_counter(quiet, "embed", "recordings") as advance:
            added = store.add(_with_progress(detections.batches(), advance), whole_recordings=True)
    else:
        if model is None:
            raise ConfigError(
                f"{data}: its events have no embeddings yet; give --model, whose encoder makes them from the sound"
            )
        options = DetectOptions() if detections is None else detections.run.options
        band = band or (None if detections is None else detections.band_hz)
        embedder = _make_embedder(model, options.hop, band, device, batch)
        store = _open_store(
            out,
            embedder.width,
            embedder.model_id,
            embedder.projection_width,
            model,
            embedder.front_end.high_hz,
        )
        recordings = _recordings_to_embed(data, detections, boxes, audio)
        known = not again and len(store) > 0
        with progress_counter(quiet, "embed", "recordings") as advance:
            batches = _embed_recordings(
                embedder, store if known else None, recordings, report_failure, advance
            )
            added = store.add(batches, whole_recordings=True)
    changes = [
        f"{count:,} {what}"
        for count, what in ((added.new, "new"), (added.changed, "changed"), (added.removed, "removed"))
        if count
    ]
    closing = f"{counted(len(store), 'event')} ({', '.join(changes) or 'nothing new'}) → {out}"
    if failures:
        failed = counted(len({name for name, _ in failures}), "recording")
        closing += f"; {failed} could not be embedded, or not in full, as listed above"
    typer.echo(f"{closing}; next: mast search {shlex.quote(str(out))}")
    if failures:
        raise typer.Exit(EXIT_SOME_FAILED)


def _recordings_to_embed(
    data: Path, detections: DetectionsFolder | None, boxes: Path | None, audio: Path | None
) -> Iterator[tuple[Path, pd.DataFrame]]:
    """Each recording that has events, with its events."""
    from mast.data import load_dataset
    from mast.errors import MastError, not_a_folder
    from mast.retrieval.embedding_sources import dataset_recordings

    if detections is None:
        dataset = load_dataset(data, annotations=boxes)
        if not len(dataset.annotations.events):
            raise MastError(
                f"{data}: holds no boxes to embed; give them with --boxes, or run mast detect on it first"
            )
        return dataset_recordings(dataset)
    root = audio if audio is not None else Path(detections.run.root)
    if not root.is_dir():
        raise MastError(f"{root}: {not_a_folder(root)}; give the folder of the recordings with --audio")
    return ((root / str(events["recording"].iloc[0]), events) for _, events in detections.recordings())


def _embed_recordings(
    embedder: BoxEmbedder,
    store: EventStore | None,
    recordings: Iterator[tuple[Path, pd.DataFrame]],
    report_failure: Callable[[str, str], None],
    advance: Callable[[], None],
) -> Iterator[EventBatch]:
    """Each recording's events with vectors; those that ``store`` holds already are skipped."""
    import warnings

    from mast.audio import DamagedAudioWarning
    from mast.retrieval.embedding_sources import embed_recording

    for path, events in recordings:
        if store is None or not store.holds(events):
            with warnings.catch_warnings():
                # boxes beyond the end are listed instead
                warnings.simplefilter("ignore", DamagedAudioWarning)
                batch = embed_recording(embedder, path, events, report_failure)
            if batch is not None:
                yield batch
        advance()


def _with_progress(batches: Iterator[EventBatch], advance: Callable[[], None]) -> Iterator[EventBatch]:
    for batch in batches:
        yield batch
        advance()


def _make_embedder(
    model: str, hop: float, band_hz: float | None, device: str | None, batch: int | None
) -> BoxEmbedder:
    from mast.detect_options import DetectOptions
    from mast.inference import Detector
    from mast.retrieval.embedding import BoxEmbedder

    options = DetectOptions(device=device, batch_size=batch, compile=False, hop=hop, band_hz=band_hz)
    return BoxEmbedder(Detector(model, options))


def _check_model_and_band(detections: DetectionsFolder, model: str | None, band_hz: float | None) -> None:
    """Refuse a model or a band other than the one that the embeddings were made with."""
    from mast.annotations.detections import model_id
    from mast.errors import ConfigError
    from mast.models.card import load_card
    from mast.models.find import find_model

    own = detections.run.model_id
    found = own if model is None else model_id(load_card(find_model(model)).weights_sha256)
    if found != own:
        raise ConfigError(
            f"{detections.folder}: its embeddings are from {own}, but {model} is {found}; leave --model out, or add "
            "--again to embed these events with it"
        )
    if band_hz is not None and detections.band_hz is not None and abs(band_hz - detections.band_hz) > 1:
        raise ConfigError(
            f"{detections.folder}: its embeddings cover sounds up to {detections.band_hz:g} Hz; leave --band out, or "
            "add --again to embed these events in another band"
        )


def _open_store(
    uri: str, width: int, model_id: str, projection_width: int, model: str | None, band_hz: float | None
) -> EventStore:
    """The store at ``uri``, or a new one."""
    from mast.models.find import absolute_name
    from mast.retrieval.event_store import EventStore

    if EventStore.exists(uri):
        store = EventStore.open(uri)
        store.refuse_other_model(model_id, width, band_hz)
        return store
    folder = "" if model is None else absolute_name(model)
    return EventStore.create(
        uri,
        width,
        model_id,
        projection_width=projection_width,
        model_folder=folder,
        band_hz=band_hz,
    )
