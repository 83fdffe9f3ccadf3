"""Groups of events that sound alike, and how new each is compared with everything annotated.

t-SNE lays the events on a plane on which neighbours stay neighbours, and HDBSCAN finds dense groups there. Both see a
sample of a large store; the other events take the group and the place of their nearest neighbours in the sample. The
seed is constant: the same events give the same groups.

Embeddings are centred on their common mean: what all sounds share says nothing, and would hide their differences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from mast.arrays import FloatArray, IntArray, Vectors
from mast.errors import ConfigError
from mast.retrieval.nearest import nearest, to_unit_length

NOISE = -1  # the group of events that belong to none
MIN_CLUSTER = 10  # events; our choice: a person would not name a smaller group
MIN_EVENTS = 30  # below this, t-SNE has no neighbourhoods to keep, and plain distances are enough
# scikit-learn's default. Adjusted mutual information of groups and labels, and with UMAP to 5 dimensions in its place:
# 0.58 and 0.56 on the boxes of nbm_xc, 0.39 and 0.36 on tagus_fish, 0.58 and 0.63 on hard simulated species; one seed
_PERPLEXITY = 30.0
_COMPONENTS = 50  # principal components given to t-SNE, as many as its authors used
_VOTERS = 5  # neighbours in the sample that place an event outside it
_BLOCK = 512  # events whose neighbours vote at once


class Grouping(NamedTuple):
    """A group and a place on the plane for each event."""

    cluster: IntArray  # (N,) from 0, the largest group first; −1 for none
    place: NDArray[np.float32]  # (N, 2)


@dataclass(frozen=True, eq=False)
class ClusterModel:
    """Groups of a sample, and where any event stands among them.

    Attributes:
        middle: (D,) the mean on which embeddings are centred.
        sample: (S, D) unit vectors.
        grouping: of the sample.
        clusters: how many groups there are.
    """

    middle: Vectors
    sample: Vectors
    grouping: Grouping
    clusters: int

    def assign(self, vectors: ArrayLike) -> Grouping:
        """(N, D) embeddings → group and place by a vote of the nearest in the sample, nearer ones counting more.

        An event of the sample gets its own group and place.
        """
        given = centre_vectors(vectors, self.middle)
        cluster = np.full(len(given), NOISE, dtype=np.int64)
        place = np.zeros((len(given), 2), dtype=np.float32)
        voters = min(_VOTERS, len(self.sample))
        if not voters:
            return Grouping(cluster, place)
        neighbours = nearest(given, self.sample, voters)
        for begin in range(0, len(given), _BLOCK):
            rows = slice(begin, begin + _BLOCK)
            near = neighbours.index[rows]
            weight = 1.0 / (
                neighbours.distance[rows].astype(np.float64) + 1e-4
            )  # (n, V); the same sound outvotes all
            weight /= weight.sum(axis=1, keepdims=True)
            place[rows] = (self.grouping.place[near] * weight[:, :, None]).sum(axis=1)
            votes = np.zeros((len(near), self.clusters + 1))
            np.add.at(votes, (np.arange(len(near))[:, None], self.grouping.cluster[near] + 1), weight)
            cluster[rows] = votes.argmax(axis=1) - 1
        return Grouping(cluster, place)


def fit_clusters(sample: ArrayLike, *, min_cluster: int = MIN_CLUSTER, seed: int = 0) -> ClusterModel:
    """Find groups in a sample of embeddings.

    Args:
        sample: (S, D) embeddings of any length.
        min_cluster: minimum number of events in a group.
        seed: of t-SNE.

    Returns:
        The groups. With fewer than 30 events, plain distances are used, and the plane is that of the two directions in
        which the events differ most.
    """
    if min_cluster < 2:
        raise ConfigError(f"groups of {min_cluster} events make no sense; expected at least 2")
    given = np.asarray(sample, dtype=np.float32)
    if given.ndim != 2:
        raise ConfigError(f"embeddings of shape {given.shape} given; expected a row for each event")
    middle = given.mean(axis=0) if len(given) else np.zeros(given.shape[1], dtype=np.float32)
    around = centre_vectors(given, middle)
    if len(around) < MIN_EVENTS:
        grouped, place = around, principal_components(around, 2)
    else:
        grouped = place = _tsne_plane(around, seed)
    cluster = _renumber_by_size(_hdbscan(grouped, min_cluster))
    return ClusterModel(
        middle, around, Grouping(cluster, place.astype(np.float32)), int(cluster.max(initial=NOISE)) + 1
    )


def centre_vectors(vectors: ArrayLike, middle: ArrayLike) -> Vectors:
    """(N, D) unit vectors around a mean; one that equals the mean stays zero."""
    return to_unit_length(np.asarray(vectors, dtype=np.float32) - np.asarray(middle, dtype=np.float32))


def distance_from_middle(grouping: Grouping) -> FloatArray:
    """(N,) distance of each event from the middle of its group on the plane: the most typical have the smallest."""
    away = np.zeros(len(grouping.cluster))
    for one in np.unique(grouping.cluster):
        own = grouping.cluster == one
        place = grouping.place[own].astype(np.float64)
        away[own] = np.linalg.norm(place - np.median(place, axis=0), axis=1)
    return away


class Novelty(NamedTuple):
    """How far events are from everything annotated."""

    distance: FloatArray  # (N,) cosine distance to the nearest annotated event, 0–2; NaN where there is none
    beyond: FloatArray  # (N,) share of annotated events that are nearer to another annotated one than this event is
    label: list[str]  # of the nearest annotated event


class AnnotatedEvents:
    """Everything annotated, to compare events with.

    Args:
        vectors: (K, D) embeddings of annotated events.
        labels: of each.
        middle: (D,) the mean on which embeddings are centred.
    """

    def __init__(self, vectors: ArrayLike, labels: Iterable[str], middle: ArrayLike) -> None:
        self.labels = [str(label) for label in labels]
        self.middle = np.asarray(middle, dtype=np.float32)
        given = np.asarray(vectors, dtype=np.float32).reshape(len(self.labels), len(self.middle))
        self.vectors = centre_vectors(given, self.middle)
        self._nearest_distances = np.sort(self._nearest_other()) if len(self.labels) > 1 else np.zeros(0)

    def __len__(self) -> int:
        return len(self.labels)

    def novelty(self, vectors: ArrayLike) -> Novelty:
        """(N, D) embeddings → how new each is. An annotated event is at distance 0 from itself."""
        given = (
            centre_vectors(vectors, self.middle)
            if len(self)
            else np.zeros((len(np.asarray(vectors)), 0), np.float32)
        )
        if not len(self):
            return Novelty(np.full(len(given), np.nan), np.full(len(given), np.nan), [""] * len(given))
        near = nearest(given, self.vectors, 1)
        distance = near.distance[:, 0].astype(np.float64)
        distance[distance < 1e-6] = 0.0  # rounding
        n = len(self._nearest_distances)
        beyond = (
            np.searchsorted(self._nearest_distances, distance, side="left") / n
            if n
            else np.full(len(given), np.nan)
        )
        return Novelty(distance, beyond, [self.labels[k] for k in near.index[:, 0]])

    def _nearest_other(self) -> FloatArray:
        """(K,) distance of each annotated event to the nearest other one."""
        own = np.arange(len(self.vectors))
        return nearest(self.vectors, self.vectors, 1, exclude=((own, own),)).distance[:, 0].astype(np.float64)


def summarise_clusters(events: pd.DataFrame) -> pd.DataFrame:
    """One row per group, the most novel first; where nothing is annotated, the largest first.

    Args:
        events: with ``cluster``, ``novelty`` (NaN where nothing is annotated), ``beyond``, ``nearest_label``,
            ``label``, ``site`` and ``recording``.

    Returns:
        ``cluster``, ``events``, ``annotated`` (how many have a label), ``label`` (the commonest) and ``label_share``
        (its share of those), ``novelty`` and ``beyond`` (medians), ``nearest_label`` (the commonest), ``recordings``,
        ``sites``. Events without a group form one row at the end, with cluster −1.
    """
    rows: list[dict[str, Any]] = []
    for cluster, own in events.groupby("cluster"):
        labels = own.loc[own["label"] != "", "label"]
        counts, near = (
            labels.value_counts(),
            own.loc[own["nearest_label"] != "", "nearest_label"].value_counts(),
        )
        rows.append(
            {
                "cluster": int(str(cluster)),
                "events": len(own),
                "annotated": len(labels),
                "label": str(counts.index[0]) if len(counts) else "",
                "label_share": float(counts.iloc[0] / len(labels)) if len(counts) else np.nan,
                "novelty": float(own["novelty"].median()),
                "beyond": float(own["beyond"].median()),
                "nearest_label": str(near.index[0]) if len(near) else "",
                "recordings": int(own["recording"].nunique()),
                "sites": int(own.loc[own["site"] != "", "site"].nunique()),
            }
        )
    columns = ["cluster", "events", "annotated", "label", "label_share", "novelty", "beyond", "nearest_label"]
    table = pd.DataFrame(rows, columns=[*columns, "recordings", "sites"])
    key = -table["novelty"] if table["novelty"].notna().any() else -table["events"].astype(float)
    order = np.lexsort((table["cluster"], key.fillna(np.inf), table["cluster"] == NOISE))
    return table.iloc[order].reset_index(drop=True)


def _tsne_plane(vectors: Vectors, seed: int) -> Vectors:
    """(N, 2) by t-SNE: neighbours stay neighbours."""
    from sklearn.manifold import TSNE

    given = principal_components(vectors, _COMPONENTS)
    start = given[:, :2] * (1e-4 / max(float(given[:, 0].std()), 1e-12))  # as small as scikit-learn's own
    perplexity = min(_PERPLEXITY, (len(vectors) - 1) / 3)
    model = TSNE(perplexity=perplexity, init=start, random_state=seed)
    return np.asarray(model.fit_transform(given), dtype=np.float32)


def _hdbscan(points: Vectors, min_cluster: int) -> IntArray:
    from sklearn.cluster import HDBSCAN

    if len(points) < min_cluster:
        return np.full(len(points), NOISE, dtype=np.int64)
    found = HDBSCAN(min_cluster_size=min_cluster, min_samples=min(5, min_cluster), copy=True).fit_predict(
        points
    )
    return np.asarray(found, dtype=np.int64)


def _renumber_by_size(cluster: IntArray) -> IntArray:
    """Numbers from 0, the largest group first, so that they do not depend on the order of the events."""
    names, first, counts = np.unique(cluster[cluster >= 0], return_index=True, return_counts=True)
    order = names[np.lexsort((first, -counts))]
    renamed = cluster.copy()
    for new, old in enumerate(order.tolist()):
        renamed[cluster == old] = new
    return renamed


def principal_components(vectors: Vectors, width: int) -> Vectors:
    """(N, width) along the directions in which vectors differ most; zeros where there are fewer."""
    place = np.zeros((len(vectors), width), dtype=np.float32)
    if len(vectors) > 1:
        _, _, directions = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
        signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])
        main = vectors @ (directions * signs[:, None])[:width].T
        place[:, : main.shape[1]] = main
    return place
