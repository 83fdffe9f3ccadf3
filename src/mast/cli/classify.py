"""`mast classify`: tentative names from annotated examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.event_files import check_table
from mast.cli.options import Device, Quiet, StoreModel, count, number, progress_counter, say, score
from mast.wording import counted

if TYPE_CHECKING:
    import pandas as pd

    from mast.retrieval.event_store import EventStore
    from mast.retrieval.event_table import EventBatch
    from mast.retrieval.naming import Namer, UnknownRule


def classify(
    store: Annotated[str, typer.Argument(metavar="STORE", help="Events to name, as mast embed wrote them.")],
    examples: Annotated[
        str,
        typer.Option(help="A store with labelled events, or a dataset with labelled boxes."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The named events: a .csv or .parquet file.")],
    k: Annotated[int, count("-k", high=1_000, help="Number of neighbours that vote.")] = 5,
    precision: Annotated[
        float, score(help="Share of names that should be right; the rest stays unknown.")
    ] = 0.9,
    max_distance: Annotated[
        float | None, number(low=0.0, high=2.0, help="Instead of --precision: unknown beyond this distance.")
    ] = None,
    model: StoreModel = None,
    device: Device = None,
    quiet: Quiet = False,
) -> None:
    """Name events by the annotated examples they sound like, or call them unknown.

    Each event takes the label that most of its k nearest examples have. Where the nearest of these is too far away, it
    is "unknown". How far is too far is measured on the examples: each is named by examples from other recordings, and
    the limit is the largest distance up to which the wanted share of names is right (--precision). The share that was
    right on recordings that were not used to choose the limit is printed, and written next to the table as
    OUT.calibration.json. Events from other sites or recorders than the examples may fare worse.

    The table has the event columns, with the name as label; id; label_share, the share of neighbours with that label;
    distance, to the nearest of them (1 − cosine); nearest_label, the name regardless of distance; nearest_id;
    label_score, 1 − distance, and label_source, "examples", as in tables of mast name; and given_label, the earlier
    label.

    \b
    Examples:
      mast classify events --examples examples --out named.csv
      mast classify events --examples recordings/ --out named.parquet --precision 0.95
    """
    from mast.files import write_json
    from mast.retrieval.event_store import EventStore

    check_table(out)
    opened = EventStore.open(store)
    namer = _load_namer(opened, examples, k, model, device, quiet)
    calibration = namer.calibrate(precision, max_distance=max_distance)
    named, total = _write_names(opened, namer, calibration, out, quiet)
    calibration_file = out.with_name(f"{out.name}.calibration.json")
    content = {"store": store, "examples_from": examples, "model": opened.model_id, **calibration.as_json()}
    write_json(calibration_file, content)
    typer.echo(
        f"{named:,} of {counted(total, 'event')} named by {counted(calibration.examples, 'example')} of "
        f"{counted(calibration.labels, 'label')}, "
        f"the others unknown → {out}; {calibration.sentence()} ({calibration_file.name})."
    )


def _write_names(
    store: EventStore, namer: Namer, calibration: UnknownRule, out: Path, quiet: bool
) -> tuple[int, int]:
    """Name all events in batches, and write the table whole or not at all; returns how many were named, and in all."""
    from mast.errors import MastError
    from mast.files import atomic_file
    from mast.retrieval.naming import UNKNOWN

    if not len(store):
        raise MastError(f"{store.uri}: holds no events to name; add some with mast embed")
    named = total = 0
    with (
        progress_counter(quiet, "classify", "events", len(store)) as advance,
        atomic_file(out) as part,
        _table_writer(part, out.suffix.lower()) as write,
    ):
        for events, vectors, _ in store.batches():
            table = namer.name(events, vectors, calibration)
            write(table[[*(c for c in table.columns if c != "id"), "id"]])
            named += int((table["label"] != UNKNOWN).sum())
            total += len(table)
            advance(len(table))
    return named, total


@contextmanager
def _table_writer(path: Path, suffix: str) -> Iterator[Callable[[pd.DataFrame], None]]:
    """A CSV or Parquet table that is written some rows at a time."""
    if suffix == ".csv":
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield lambda rows: rows.to_csv(file, index=False, header=file.tell() == 0, lineterminator="\n")
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    with ExitStack() as stack:
        writers: list[pq.ParquetWriter] = []

        def write(rows: pd.DataFrame) -> None:
            table = pa.Table.from_pandas(rows, preserve_index=False)
            if not writers:
                writers.append(stack.enter_context(pq.ParquetWriter(path, table.schema)))
            writers[0].write_table(table)

        yield write


def _load_namer(
    store: EventStore, examples: str, k: int, model: str | None, device: str | None, quiet: bool
) -> Namer:
    """Labelled events of another store, or of a dataset, whose boxes are embedded now."""
    import numpy as np
    import pandas as pd

    from mast.errors import MastError
    from mast.retrieval.event_ids import event_ids
    from mast.retrieval.event_store import EventStore
    from mast.retrieval.naming import Namer

    if EventStore.exists(examples):
        known = EventStore.open(examples)
        known.refuse_other_model(store.model_id, store.width, store.band_hz)
        parts = list(known.batches())
    elif Path(examples).is_dir():
        parts = [
            some._replace(events=some.events.assign(id=event_ids(some.events)))
            for some in _embed_dataset(store, Path(examples), model, device, quiet)
        ]
    else:
        raise MastError(
            f"{examples}: no such store or folder; expected labelled events, as mast embed wrote them, or a dataset"
        )
    kept = [
        (part.events[part.events["label"] != ""], part.vectors[part.events["label"] != ""]) for part in parts
    ]
    events = pd.concat([table for table, _ in kept], ignore_index=True) if kept else None
    if events is None or events.empty:
        raise MastError(f"{examples}: none of its events has a label; label some, or give other examples")
    vectors = np.concatenate([rows for _, rows in kept])
    return Namer(vectors, list(events["label"]), list(events["recording"]), list(events["id"]), k=k)


def _embed_dataset(
    store: EventStore, folder: Path, model: str | None, device: str | None, quiet: bool
) -> list[EventBatch]:
    from mast.cli.search import load_store_model
    from mast.data import load_dataset
    from mast.retrieval.embedding import BoxEmbedder
    from mast.retrieval.embedding_sources import labelled_batches

    dataset = load_dataset(folder)
    embedder = BoxEmbedder(load_store_model(store, model, device))

    def failed(name: str, reason: str) -> None:
        typer.echo(f"mast: {name}: {reason}", err=True)

    say(f"embedding the boxes of {counted(len(dataset.boxed_recordings), 'recording')}", quiet=quiet)
    return list(labelled_batches(embedder, dataset, failed))
