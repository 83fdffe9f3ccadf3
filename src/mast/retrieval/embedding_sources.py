"""Where embedded events come from: a folder that `mast detect` wrote, or a dataset with boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mast.annotations.detections import DETECTIONS, EMBEDDINGS, DetectionRun, found_batches, read_run
from mast.data import Dataset
from mast.errors import AudioError, MastError
from mast.events import as_events, boxes_of
from mast.retrieval.embedding import BoxEmbedder
from mast.retrieval.event_table import EventBatch


@dataclass(frozen=True)
class DetectionsFolder:
    """Results of `mast detect`.

    Attributes:
        folder: where they lie.
        run: how they were made.
    """

    folder: Path
    run: DetectionRun

    @classmethod
    def open(cls, folder: Path) -> DetectionsFolder | None:
        """The results there; ``None`` where the folder is something else.

        Raises:
            MastError: a run that has not written its table yet, or a damaged ``run.json``.
        """
        run = read_run(folder)
        if run is None:
            return None
        found = cls(folder, run)
        if not found.table.is_file():
            raise MastError(f"{folder}: holds no {DETECTIONS} yet; let `mast detect` finish first")
        return found

    @property
    def band_hz(self) -> float | None:
        """Upper edge of the band that was searched; None where an older version wrote the folder."""
        return None if self.run.band_hz is None else self.run.band_hz[1]

    @property
    def table(self) -> Path:
        """All events."""
        return self.folder / DETECTIONS

    @property
    def has_embeddings(self) -> bool:
        """Whether `mast detect --embed` wrote them."""
        return (self.folder / EMBEDDINGS).is_file()

    def recordings(self) -> Iterator[tuple[slice, pd.DataFrame]]:
        """Rows and events of one recording after the other, in constant memory."""
        held: list[pd.DataFrame] = []
        first = 0
        for part in found_batches(self.folder):
            for _, events in part.to_pandas().groupby("recording", sort=False):
                if held and held[0]["recording"].iloc[0] != events["recording"].iloc[0]:
                    whole = pd.concat(held, ignore_index=True)
                    yield slice(first, first + len(whole)), as_events(whole)
                    first, held = first + len(whole), []
                held.append(events)
        if held:
            whole = pd.concat(held, ignore_index=True)
            yield slice(first, first + len(whole)), as_events(whole)

    def embedding_width(self) -> int:
        """D of the embeddings that are there."""
        return int(self._embeddings().shape[1])

    def batches(self) -> Iterator[EventBatch]:
        """Each recording's events with the embeddings that `mast detect --embed` wrote.

        Raises:
            MastError: the two files do not belong together.
        """
        vectors = self._embeddings()
        for rows, events in self.recordings():
            yield EventBatch(events, np.asarray(vectors[rows], dtype=np.float32))

    def _embeddings(self) -> NDArray[np.float16]:
        path = self.folder / EMBEDDINGS
        try:
            vectors: NDArray[np.float16] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError) as error:
            raise MastError(
                f"{path}: cannot be read ({error}); run the same `mast detect --embed` again"
            ) from None
        events = pq.read_metadata(self.table).num_rows
        if vectors.ndim != 2 or len(vectors) != events:
            raise MastError(
                f"{path}: has {len(vectors):,} rows for {events:,} events in {self.table.name}; run the same "
                "`mast detect --embed` again"
            )
        return vectors


OnFailure = Callable[[str, str], None]  # a recording's name, and why it could not be embedded


def embed_recording(
    embedder: BoxEmbedder, path: Path, events: pd.DataFrame, on_failure: OnFailure
) -> EventBatch | None:
    """The events of one recording with vectors made from its sound; ``None`` where none could be made.

    Events outside the recording or the model's band are left out, and reported as a failure.
    """
    name = str(events["recording"].iloc[0])
    try:
        made = embedder.embed_boxes(path, boxes_of(events))
    except (AudioError, OSError) as error:
        on_failure(name, str(error).removeprefix(f"{path}: "))
        return None
    if not made.seen.all():
        band = embedder.front_end
        on_failure(
            name,
            f"{int((~made.seen).sum())} of {len(events)} boxes lie outside the recording or the model's band "
            f"({band.low_hz:g}–{band.high_hz:g} Hz) and are left out",
        )
    if not made.seen.any():
        return None
    projections = None if made.projections is None else made.projections[made.seen]
    return EventBatch(events[made.seen].reset_index(drop=True), made.vectors[made.seen], projections)


def dataset_recordings(dataset: Dataset) -> Iterator[tuple[Path, pd.DataFrame]]:
    """Where each boxed recording of a dataset lies, and its events."""
    by_name = dict(list(dataset.annotations.events.groupby("recording", sort=False)))
    for name in dataset.boxed_recordings:
        yield dataset.path(name), by_name[name].reset_index(drop=True)


def labelled_batches(embedder: BoxEmbedder, dataset: Dataset, on_failure: OnFailure) -> Iterator[EventBatch]:
    """All boxes of a dataset with their embeddings, a recording at a time."""
    for path, events in dataset_recordings(dataset):
        made = embed_recording(embedder, path, events, on_failure)
        if made is not None:
            yield made
