"""Groups, places and novelty of embeddings."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mast.errors import ConfigError
from mast.retrieval import clusters
from mast.retrieval.clusters import (
    NOISE,
    AnnotatedEvents,
    ClusterModel,
    centre_vectors,
    fit_clusters,
    summarise_clusters,
)


def groups(
    sizes: list[int], *, spread: float = 0.05, seed: int = 0, width: int = 12
) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings around orthogonal centres far from the origin, and the group of each."""
    rng = np.random.default_rng(seed)
    centres = np.linalg.qr(rng.normal(size=(width, width)))[0][: len(sizes)]
    group = np.repeat(np.arange(len(sizes)), sizes)
    shuffled = rng.permutation(len(group))
    vectors = centres[group] + spread * rng.normal(size=(len(group), width)) + 3.0
    return vectors[shuffled].astype(np.float32), group[shuffled]


def test_groups_are_found_and_the_largest_is_the_first() -> None:
    vectors, truth = groups([30, 60, 45])
    found = fit_clusters(vectors)
    assert found.clusters == 3
    cluster = found.grouping.cluster
    for number, true in enumerate((1, 2, 0)):  # by size
        members = truth[cluster == number]
        assert (members == true).all()
        assert len(members) >= 0.8 * (truth == true).sum()
    assert found.grouping.place.shape == (135, 2)


def test_the_order_of_the_events_changes_nothing() -> None:
    vectors, _ = groups([30, 60, 45])
    order = np.random.default_rng(1).permutation(len(vectors))
    first, second = fit_clusters(vectors), fit_clusters(vectors[order])
    assert first.grouping.cluster[order].tolist() == second.grouping.cluster.tolist()


def test_a_sample_gets_its_own_groups_back_and_new_events_join_their_neighbours() -> None:
    vectors, _ = groups([40, 40, 40])
    model = fit_clusters(vectors)
    again = model.assign(vectors)
    assert again.cluster.tolist() == model.grouping.cluster.tolist()
    assert np.abs(again.place - model.grouping.place).max() < 0.02
    new, truth = groups([20, 20, 20], seed=0)
    joined = model.assign(new)
    for true in range(3):
        assert len(set(joined.cluster[truth == true].tolist()) - {NOISE}) == 1
    assert len(set(joined.cluster.tolist()) - {NOISE}) == 3


def naive_assign(model: ClusterModel, vectors: np.ndarray) -> list[int]:
    """One event at a time, with a dictionary of votes."""
    found = []
    for row in centre_vectors(vectors, model.middle).astype(np.float64):
        distance = np.maximum(1 - model.sample.astype(np.float64) @ row, 0)
        votes: dict[int, float] = {}
        for near in np.argsort(distance)[:5]:
            cluster = int(model.grouping.cluster[near])
            votes[cluster] = votes.get(cluster, 0.0) + 1 / (distance[near] + 1e-4)
        found.append(max(votes, key=votes.__getitem__))
    return found


def test_votes_agree_with_counting_them_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_BLOCK", 7)  # blocks must not show
    vectors, _ = groups([30, 30], spread=0.4)
    model = fit_clusters(vectors, min_cluster=5)
    new, _ = groups([25, 25], spread=0.6, seed=0)
    assert model.assign(new).cluster.tolist() == naive_assign(model, new)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 12])
def test_few_events_need_no_t_sne(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_tsne_plane", None)
    vectors = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    model = fit_clusters(vectors)
    assert model.grouping.cluster.shape == (n,)
    assert model.grouping.place.shape == (n, 2)
    assert np.isfinite(model.grouping.place).all()
    assert model.assign(vectors[:0]).cluster.tolist() == []
    assert model.assign(np.ones((2, 4))).place.shape == (2, 2)


def test_equal_events_are_fine() -> None:
    model = fit_clusters(np.ones((40, 5), dtype=np.float32))
    assert np.isfinite(model.grouping.place).all()
    assert np.isfinite(model.assign(np.ones((3, 5))).place).all()


def test_senseless_wishes_are_refused() -> None:
    with pytest.raises(ConfigError, match="groups of 1 events"):
        fit_clusters(np.ones((40, 5)), min_cluster=1)
    with pytest.raises(ConfigError, match="expected a row for each event"):
        fit_clusters(np.ones(40))


def naive_novelty(vectors: np.ndarray, known: np.ndarray) -> tuple[list[float], list[float]]:
    own = [min(1 - float(a @ b) for j, b in enumerate(known) if j != i) for i, a in enumerate(known)]
    distances, beyond = [], []
    for row in vectors:
        distance = min(1 - float(row @ b) for b in known)
        distances.append(distance)
        beyond.append(sum(o < distance for o in own) / len(own))
    return distances, beyond


def test_novelty_is_the_distance_to_what_is_annotated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_BLOCK", 5)
    rng = np.random.default_rng(3)
    known, vectors, middle = rng.normal(size=(13, 6)), rng.normal(size=(17, 6)), rng.normal(size=6)
    found = AnnotatedEvents(known, [f"l{k}" for k in range(13)], middle).novelty(vectors)
    around = [centre_vectors(part, middle).astype(np.float64) for part in (vectors, known)]
    distances, beyond = naive_novelty(*around)
    assert found.distance == pytest.approx(distances, abs=1e-6)
    assert found.beyond == pytest.approx(beyond)
    assert found.label == [f"l{int(np.argmax(around[1] @ row))}" for row in around[0]]


def test_an_annotated_event_is_not_new_and_a_stranger_is() -> None:
    vectors, truth = groups([30, 30, 30])
    known = AnnotatedEvents(vectors[truth < 2], ["a"] * 60, vectors.mean(axis=0))
    found = known.novelty(vectors)
    assert (found.distance[truth < 2] == 0).all()
    assert (found.beyond[truth == 2] == 1).all()


def test_nothing_annotated_is_not_known_rather_than_new() -> None:
    found = AnnotatedEvents(np.zeros((0, 4)), [], np.zeros(4)).novelty(np.ones((3, 4)))
    assert np.isnan(found.distance).all()
    assert np.isnan(found.beyond).all()
    assert found.label == ["", "", ""]
    single = AnnotatedEvents(np.ones((1, 4)), ["a"], np.zeros(4)).novelty(np.ones((2, 4)))
    assert single.distance.tolist() == [0.0, 0.0]
    assert np.isnan(single.beyond).all()


def table(rows: list[tuple[int, str, float]]) -> pd.DataFrame:
    events = pd.DataFrame(rows, columns=["cluster", "label", "novelty"])
    return events.assign(beyond=events["novelty"], nearest_label="wren", site="S1", recording="a.wav")


def test_the_summary_ranks_groups_by_novelty() -> None:
    rows = [(0, "wren", 0.0), (0, "wren", 0.0), (0, "", 0.1), (1, "", 0.7), (1, "", 0.9), (-1, "", 2.0)]
    found = summarise_clusters(table(rows))
    assert found["cluster"].tolist() == [1, 0, -1]
    assert found["novelty"].tolist() == pytest.approx([0.8, 0.0, 2.0])
    assert found["label"].tolist() == ["", "wren", ""]
    assert found["annotated"].tolist() == [0, 2, 0]
    assert found["label_share"].tolist()[1] == 1.0
    assert found["nearest_label"].tolist() == ["wren"] * 3


def test_without_annotations_the_largest_group_comes_first() -> None:
    rows = [(1, "", np.nan)] * 3 + [(0, "", np.nan)] * 5 + [(-1, "", np.nan)] * 9
    assert summarise_clusters(table(rows))["cluster"].tolist() == [0, 1, -1]
    assert summarise_clusters(table([])).empty
