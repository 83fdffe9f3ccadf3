"""What the nearest neighbours of every chunk and box are like, and where each lies on a plane.

Neighbours never come from the same recording: one animal calls many times in a minute, and two chunks of one minute
share site, hour and weather.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mast.arrays import FloatArray, IntArray, Vectors
from mast.errors import MastError
from mast.evaluation.metrics import ratio
from mast.events import BOX_COLUMNS
from mast.grid import FrontEnd, grid_to_events
from mast.retrieval.clusters import MIN_EVENTS, centre_vectors, principal_components
from mast.retrieval.nearest import nearest
from mast_studies.embedding_tables import NEIGHBOURS, Way
from mast_studies.found import NOT_TESTS
from mast_studies.mel_statistics import standardise
from mast_studies.ranks import LabelledVectors, rank_queries

POINTS = 4_000  # maximum on a plane, our choice: more would hide one another
_UMAP_NEIGHBOURS = 15  # UMAP's own default
_DRAW = 53  # first word of the seed of the points shown


@dataclass(frozen=True, eq=False)
class EmbeddedPart:
    """One part of a dataset: chunks that do not overlap, and boxes in them.

    Attributes:
        chunks: one row per chunk.
        boxes: ``chunk`` (its row), ``recording``, ``kind`` (``truth`` or ``detected``), ``label``, ``iou``, ``matched``
            and the box in cells of the chunk; chunk by chunk.
        chunk_vectors: by way, (chunks, D).
        box_vectors: by way, (boxes, D).
    """

    chunks: pd.DataFrame
    boxes: pd.DataFrame
    chunk_vectors: Mapping[Way, Vectors]
    box_vectors: Mapping[Way, Vectors]


def project_to_plane(vectors: Vectors, *, seed: int) -> Vectors:
    """(N, D) embeddings → (N, 2) by UMAP; fewer than 30 by the two directions in which they differ most."""
    around = centre_vectors(vectors, vectors.mean(axis=0) if len(vectors) else np.zeros(vectors.shape[1]))
    if len(around) < MIN_EVENTS:
        return principal_components(around, 2)
    try:
        from umap import UMAP
    except ImportError:
        raise MastError(
            "the planes of embeddings need UMAP: run `pip install -e .[studies]` in the clone"
        ) from None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a seed forcing a single thread
        model = UMAP(n_neighbors=_UMAP_NEIGHBOURS, min_dist=0.1, metric="cosine", random_state=seed)
        return np.asarray(model.fit_transform(around), dtype=np.float32)


def chunk_neighbours(parts: Mapping[str, EmbeddedPart], *, seed: int) -> pd.DataFrame:
    """One row per chunk: where and when, its events, its place on the plane, and how its neighbours differ."""
    tables = []
    for name, part in parts.items():
        truth = part.boxes[part.boxes["kind"] == "truth"]
        counts = np.bincount(truth["chunk"].to_numpy(dtype=np.int64), minlength=len(part.chunks))
        own = part.chunks[["recording", "start_s", "site", "datetime", "hour"]]
        tables.append(own.assign(part=name, events=counts, hour=own["hour"].astype("Float64").astype(float)))
    table = pd.concat(tables, ignore_index=True)
    vectors = _concatenate([part.chunk_vectors for part in parts.values()])
    vectors["mel"] = standardise(vectors["mel"])
    recording, everyone = table["recording"].to_numpy(dtype=object), np.arange(len(table))
    apart = {
        way: _differences(
            table, everyone, nearest(own, own, NEIGHBOURS, exclude=((recording, recording),)).index
        )
        for way, own in vectors.items()
    }
    made: dict[str, NDArray[Any]] = {
        f"{measure}_{way}": values for way, own in apart.items() for measure, values in own.items()
    }
    made |= {f"{measure}_random": values for measure, values in _differences_to_all(table).items()}
    made |= _plane_coordinates(vectors["pretrained"], seed)
    return pd.concat([table, pd.DataFrame(made, index=table.index)], axis=1)


def _differences(table: pd.DataFrame, rows: IntArray, near: IntArray) -> dict[str, FloatArray]:
    """How each of some chunks differs from its neighbours, (n, k) rows or −1; NaN where nothing is known.

    ``same_site``: share of them at its own site; ``hours_apart`` of the day, at most 12; ``events_apart``.
    """
    site = pd.factorize(table["site"].replace("", None))[0]
    there = near >= 0
    known = there & (site[rows, None] >= 0) & (site[near] >= 0)
    hour, events = table["hour"].to_numpy(dtype=np.float64), table["events"].to_numpy(dtype=np.float64)
    return {
        "same_site": _mean(np.where(known, site[rows, None] == site[near], np.nan)),
        "hours_apart": _mean(np.where(there, _hours_apart(hour[rows, None], hour[near]), np.nan)),
        "events_apart": _mean(np.where(there, np.abs(events[rows, None] - events[near]), np.nan)),
    }


def _differences_to_all(table: pd.DataFrame) -> dict[str, FloatArray]:
    """The same with all chunks of other recordings as neighbours: chance level."""
    found = {name: np.full(len(table), np.nan) for name in ("same_site", "hours_apart", "events_apart")}
    recording = pd.factorize(table["recording"])[0]
    for code in range(recording.max(initial=-1) + 1):
        own, others = np.flatnonzero(recording == code), np.flatnonzero(recording != code)
        for name, values in _differences(table, own, np.tile(others, (len(own), 1))).items():
            found[name][own] = values
    return found


def box_neighbours(parts: Mapping[str, EmbeddedPart], front_end: FrontEnd, *, seed: int) -> pd.DataFrame:
    """One row per box: where, of what kind, its place on the plane, and how well its neighbours name it."""
    tables = []
    for name, part in parts.items():
        starts = part.chunks["start_s"].to_numpy(dtype=np.float64)[
            part.boxes["chunk"].to_numpy(dtype=np.int64)
        ]
        real = grid_to_events(part.boxes[list(BOX_COLUMNS)].to_numpy(dtype=np.float64), front_end)
        real[:, [0, 2]] += starts[:, None]
        tables.append(
            part.boxes.drop(columns="chunk").assign(part=name, **dict(zip(BOX_COLUMNS, real.T, strict=True)))
        )
    table = pd.concat(tables, ignore_index=True)
    vectors = _concatenate([part.box_vectors for part in parts.values()])
    labelled = (table["label"] != "").to_numpy()
    truth = (table["kind"] == "truth").to_numpy()
    learnt = (table["part"] == "train").to_numpy()
    queries = np.flatnonzero(labelled & ~table["part"].isin(NOT_TESTS).to_numpy())
    gallery, named = np.flatnonzero(labelled & truth & learnt), np.flatnonzero(labelled & truth)
    if len(gallery):
        vectors["mel"] = standardise(vectors["mel"], vectors["mel"][gallery])
    made: dict[str, NDArray[Any]] = {}
    for way, own in vectors.items():
        ask, answer = (_select(table, own, rows) for rows in (queries, gallery))
        ranks = rank_queries(ask, answer)
        rank, label_rank = np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
        rank[queries[ranks.row]], label_rank[queries[ranks.row]] = ranks.rank, ranks.label_rank
        share, chance = np.full(len(table), np.nan), np.full(len(table), np.nan)
        chance[queries[ranks.row]] = ranks.chance
        near = nearest(
            ask.vectors,
            own[named],
            NEIGHBOURS,
            exclude=((ask.recordings, table["recording"].to_numpy(dtype=object)[named]),),
        ).index
        names = table["label"].to_numpy(dtype=object)
        same = np.asarray(
            names[queries][:, None] == names[named][near] if len(named) else near > 0, dtype=float
        )
        share[queries] = _mean(np.where(near >= 0, same, np.nan))
        made |= {f"rank_{way}": rank, f"label_rank_{way}": label_rank, f"share_{way}": share}
        made["chance"] = chance  # the same for every way
    made["share_random"] = _share_of_all(table, queries, named)
    shown = ~table["part"].isin(NOT_TESTS).to_numpy()
    made |= _plane_coordinates(vectors["pretrained"], seed, shown)
    return pd.concat([table, pd.DataFrame(made, index=table.index)], axis=1)


def _share_of_all(table: pd.DataFrame, queries: IntArray, named: IntArray) -> FloatArray:
    """For each query, the share of labelled boxes in other recordings with its label; NaN where there are none."""
    known = table.iloc[named]
    of_label, everything = known.groupby("label").size(), len(known)
    of_recording = known.groupby("recording").size()
    of_both = known.groupby(["recording", "label"]).size()
    share = np.full(len(table), np.nan)
    for row in queries.tolist():
        name, label = table["recording"].iloc[row], table["label"].iloc[row]
        others = everything - of_recording.get(name, 0)
        if others:
            share[row] = (of_label.get(label, 0) - of_both.get((name, label), 0)) / others
    return share


def _plane_coordinates(
    vectors: Vectors, seed: int, shown: NDArray[np.bool_] | None = None
) -> dict[str, Vectors]:
    """``x`` and ``y`` of at most :data:`POINTS` of those shown, drawn at random; NaN for the others."""
    rows = np.arange(len(vectors)) if shown is None else np.flatnonzero(shown)
    if len(rows) > POINTS:
        rows = np.sort(np.random.default_rng([_DRAW, seed]).permutation(rows)[:POINTS])
    place = np.full((len(vectors), 2), np.nan, dtype=np.float32)
    place[rows] = project_to_plane(vectors[rows], seed=seed)
    return {"x": place[:, 0], "y": place[:, 1]}


def _select(table: pd.DataFrame, vectors: Vectors, rows: IntArray) -> LabelledVectors:
    some = table.iloc[rows]
    return LabelledVectors(
        vectors[rows], some["label"].astype(str).tolist(), some["recording"].astype(str).tolist()
    )


def _concatenate(parts: Sequence[Mapping[Way, Vectors]]) -> dict[Way, Vectors]:
    return {way: np.concatenate([part[way] for part in parts]) for way in parts[0]}


def _mean(values: FloatArray) -> FloatArray:
    """The mean of each row, ignoring NaN; NaN where there is nothing else."""
    known = np.isfinite(values)
    count = known.sum(axis=1)
    total = np.where(known, values, 0.0).sum(axis=1)
    return ratio(total, count)


def _hours_apart(a: FloatArray, b: FloatArray) -> FloatArray:
    """Difference between hours of the day: 23 and 1 are two apart."""
    apart = np.abs(a - b) % 24
    return np.asarray(np.minimum(apart, 24 - apart))
