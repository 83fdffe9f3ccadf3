"""What to search for: a known event, a box in a recording, an outside clip."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mast.arrays import Vectors
from mast.audio import probe
from mast.errors import ConfigError, MastError
from mast.events import boxes_of
from mast.inference import Detector
from mast.retrieval.embedding import BoxEmbedder
from mast.retrieval.event_store import EventStore
from mast.retrieval.filters import Filter


class Query(NamedTuple):
    """What to search for."""

    vector: Vectors  # (D,)
    projection: Vectors | None  # (P,)
    description: str  # one sentence: which sound this is
    event_id: str = ""  # if it is an event of the store
    recording: str = ""


def query_event(store: EventStore, event_id: str) -> Query:
    """Search for what sounds like an event of the store."""
    event = store.get([event_id]).iloc[0]
    projection = store.vectors([event_id], projection=True)[0] if store.projection_width else None
    if projection is not None and not np.isfinite(projection).all():
        projection = None
    where = f"{event['recording']} at {event['start_s']:.2f} s"
    return Query(
        store.vectors([event_id])[0],
        projection,
        f"like {event_id} ({where})",
        event_id,
        str(event["recording"]),
    )


def query_box(embedder: BoxEmbedder, path: Path, box: ArrayLike) -> Query:
    """Search for what sounds like a box in a recording.

    Args:
        embedder: of the store's model.
        path: the recording; it need not be in the store.
        box: ``start_s, low_hz, end_s, high_hz``.

    Raises:
        ConfigError: the box is empty, or outside the recording or the model's band.
    """
    given = np.asarray(box, dtype=np.float64).reshape(4)
    start, low, end, high = given.tolist()
    if not (end > start >= 0 and high > low >= 0):
        raise ConfigError(
            f"box {start:g}–{end:g} s, {low:g}–{high:g} Hz: holds nothing; expected start < end and low < high, not "
            "negative"
        )
    made = embedder.embed_boxes(path, given[None])
    if not made.seen[0]:
        band, duration_s = embedder.front_end, probe(path).duration_s
        raise ConfigError(
            f"{path}: box {start:g}–{end:g} s, {low:g}–{high:g} Hz lies outside the recording ({duration_s:.2f} s) or "
            f"the model's band ({band.low_hz:g}–{band.high_hz:g} Hz)"
        )
    projection = None if made.projections is None else made.projections[0]
    description = f"like {path.name}, {start:.2f}–{end:.2f} s, {low:.0f}–{high:.0f} Hz"
    return Query(made.vectors[0], projection, description)


def query_clip(detector: Detector, path: Path) -> Query:
    """Search for what sounds like an outside clip: its best detection, or all of it where nothing is detected."""
    embedder = BoxEmbedder(detector)
    found = detector.detect(path)
    if len(found):
        best = boxes_of(found)[int(found["score"].to_numpy().argmax())]
        query = query_box(embedder, path, best)
        return query._replace(description=f"{query.description}, the best of {len(found)} detections in it")
    band = embedder.front_end
    query = query_box(embedder, path, (0.0, band.low_hz, probe(path).duration_s, band.high_hz))
    return query._replace(description=f"like all of {path.name} (nothing was detected in it)")


def find_lookalikes(
    store: EventStore,
    query: Query,
    k: int = 10,
    where: Filter | None = None,
    *,
    projection: bool = False,
) -> pd.DataFrame:
    """The events most like the query, nearest first, with ``rank``; the query itself is not among them.

    Raises:
        MastError: projections are requested, but the query has none.
    """
    vector = query.projection if projection else query.vector
    if vector is None:
        raise MastError(
            f"{store.uri}: there is no contrastive projection of the sound {query.description}; search by the "
            "encoder's vectors"
        )
    found = store.search(vector, k + bool(query.event_id), where, projection=projection)
    found = found[found["id"] != query.event_id].head(k).reset_index(drop=True)
    found.insert(0, "rank", np.arange(1, len(found) + 1))
    return found
