"""Top-1, Top-5 and mean rank against a sort that anybody can read."""

from __future__ import annotations

import numpy as np
import pytest

from mast.errors import ConfigError
from mast_studies.ranks import LabelledVectors, paired_difference, rank_queries


def slow_ranks(
    queries: LabelledVectors, gallery: LabelledVectors | None, other_recordings: bool
) -> list[tuple[int, int, int, float]]:
    """Query row, rank in boxes, rank in labels, chance; queries that cannot be answered are left out."""
    answers = queries if gallery is None else gallery
    out = []
    for i, vector in enumerate(queries.vectors):
        allowed = []
        for j, other in enumerate(answers.vectors):
            if gallery is None and i == j:
                continue
            if other_recordings and queries.recordings[i] == answers.recordings[j]:
                continue
            cosine = float(vector @ other / np.linalg.norm(vector) / np.linalg.norm(other))
            right = answers.labels[j] == queries.labels[i]
            allowed.append((-cosine, right, answers.labels[j]))  # of equals the wrong one first
        order = [(right, label) for _, right, label in sorted(allowed)]
        rights = [right for right, _ in order]
        if not any(rights):
            continue
        first = rights.index(True)
        labels = list(dict.fromkeys(label for _, label in order[: first + 1]))
        out.append((i, first + 1, len(labels), sum(rights) / len(rights)))
    return out


def made_up(
    n: int, seed: int, *, labels: int = 5, recordings: int = 6, signal: float = 1.0
) -> LabelledVectors:
    rng = np.random.default_rng(seed)
    label = rng.integers(labels, size=n)
    centres = np.random.default_rng(99).normal(size=(labels, 6))
    vectors = signal * centres[label] + rng.normal(size=(n, 6))
    names = [f"r{i}" for i in rng.integers(recordings, size=n)]
    return LabelledVectors(vectors.astype(np.float32), [f"s{i}" for i in label], names)


@pytest.mark.parametrize("other_recordings", [True, False])
@pytest.mark.parametrize("with_gallery", [True, False])
def test_ranks_are_those_of_a_sort(
    other_recordings: bool, with_gallery: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mast_studies.ranks._BLOCK_VALUES", 200)  # several blocks
    queries = made_up(40, 0)
    queries.labels[7] = "heard once"
    gallery = made_up(70, 1) if with_gallery else None
    found = rank_queries(queries, gallery, other_recordings=other_recordings)
    expected = slow_ranks(queries, gallery, other_recordings)
    assert [*zip(found.row.tolist(), found.rank.tolist(), found.label_rank.tolist(), strict=True)] == [
        row[:3] for row in expected
    ]
    np.testing.assert_allclose(found.chance, [row[3] for row in expected])
    assert found.n_unanswerable == 40 - len(expected) >= 1
    summary = found.summary(resamples=50)
    ranks = np.array([row[1] for row in expected])
    assert summary["top1"] == pytest.approx((ranks == 1).mean())
    assert summary["top5"] == pytest.approx((ranks <= 5).mean())
    assert summary["mean_rank"] == pytest.approx(ranks.mean())
    assert summary["n_queries"] == len(ranks)
    assert summary["other_recordings_only"] is other_recordings


def test_by_hand() -> None:
    vectors = np.array([[1, 0], [1, 0.1], [1, 0.2], [0, 1]], dtype=np.float32)
    labels, recordings = ["a", "b", "a", "a"], ["r", "s", "s", "t"]
    found = rank_queries(LabelledVectors(vectors, labels, recordings))
    # a in r: b in s is nearer than a in s → 2. b: no other b. a in s: a in r → 1. a in t: of s, r first b? no: a in s.
    assert found.row.tolist() == [0, 2, 3]
    assert found.rank.tolist() == [2, 1, 1]
    assert found.n_unanswerable == 1
    assert found.n_labels == 1


def test_ties_count_against() -> None:
    vectors = np.ones((4, 2), dtype=np.float32)
    found = rank_queries(LabelledVectors(vectors, ["a", "b", "c", "a"], list("rstu")))
    assert found.rank.tolist() == [3, 3]
    assert found.label_rank.tolist() == [3, 3]


def test_signal_is_found_and_noise_is_chance() -> None:
    random = made_up(600, 3, signal=0.0, recordings=30)
    found = rank_queries(random).summary(resamples=200)
    low, high = found["intervals"]["top1"]
    assert low < found["top1_of_a_random_order"] < high
    clear = made_up(600, 3, signal=5.0, recordings=30)
    assert rank_queries(clear).summary()["top1"] > 0.95


def test_intervals_draw_recordings() -> None:
    """One recording is all right and another all wrong: what holds of any draw is anything between."""
    gallery = LabelledVectors(np.eye(2, dtype=np.float32), ["a", "b"], ["g", "h"])
    vectors = np.array([[1, 0]] * 10 + [[0, 1]] * 10, dtype=np.float32)
    found = rank_queries(LabelledVectors(vectors, ["a"] * 20, ["r"] * 10 + ["s"] * 10), gallery).summary()
    assert found["top1"] == 0.5
    assert found["intervals"]["top1"] == (0.0, 1.0)
    one = rank_queries(LabelledVectors(vectors, ["a"] * 20, ["r"] * 20), gallery).summary()
    assert np.isnan(one["intervals"]["top1"]).all()


def test_pairs() -> None:
    queries, worse = made_up(80, 4, signal=3.0), made_up(80, 4, signal=0.1)
    a = rank_queries(worse)
    b = rank_queries(LabelledVectors(queries.vectors, worse.labels, worse.recordings))
    found = paired_difference(a, b)
    assert found["top1"]["difference"] == pytest.approx((b.rank == 1).mean() - (a.rank == 1).mean())
    low, high = found["top1"]["interval"]
    assert 0 < low <= found["top1"]["difference"] <= high
    with pytest.raises(ConfigError, match="same queries"):
        paired_difference(a, rank_queries(made_up(70, 4)))


def test_empty_and_wrong() -> None:
    nothing = LabelledVectors(np.zeros((0, 6), np.float32), [], [])
    assert rank_queries(nothing).summary()["n_queries"] == 0
    assert rank_queries(made_up(5, 0), nothing).n_unanswerable == 5
    with pytest.raises(ConfigError, match="do not belong together"):
        rank_queries(LabelledVectors(np.zeros((2, 3), np.float32), ["a"], ["r", "s"]))
    with pytest.raises(ConfigError, match="width 6 do not compare"):
        rank_queries(made_up(5, 0), LabelledVectors(np.ones((2, 3), np.float32), ["a", "b"], ["r", "s"]))
