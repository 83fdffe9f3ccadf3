"""Names from examples: the right neighbours, the right threshold, and unknown where it should be."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.errors import ConfigError
from mast.retrieval.naming import UNKNOWN, Namer, choose_distance
from mast.retrieval.nearest import nearest


def slow_nearest(
    queries: np.ndarray, examples: np.ndarray, k: int, apart: list[list[object]]
) -> list[list[int]]:
    """Row by row, with a sort."""
    found = []
    for i, query in enumerate(queries):
        distance = []
        for j, example in enumerate(examples):
            if not any(a[i] == b[j] for a, b in apart):
                cosine = float(query @ example) / math.hypot(*query) / math.hypot(*example)
                distance.append((1 - cosine, j))
        found.append([j for _, j in sorted(distance)[:k]])
    return found


def test_nearest_is_that_of_a_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.retrieval.nearest._BLOCK_VALUES", 100)  # several blocks
    rng = np.random.default_rng(0)
    queries, examples = rng.normal(size=(23, 5)), rng.normal(size=(31, 5))
    names = rng.choice(list("abcd"), 23), rng.choice(list("abcd"), 31)
    ids = np.arange(23), np.arange(31) * 2
    found = nearest(queries, examples, 4, exclude=(names, ids))
    assert found.index.tolist() == slow_nearest(queries, examples, 4, [list(names), list(ids)])
    assert (np.diff(found.distance, axis=1) >= 0).all()
    few = nearest(queries, examples[:2], 4)
    assert (few.index[:, 2:] == -1).all()
    assert np.isinf(few.distance[:, 2:]).all()
    assert nearest(queries, examples[:0], 4).index.tolist() == [[-1] * 4] * 23
    assert nearest(queries[:0], examples, 4).index.shape == (0, 4)
    alone = nearest(queries[:1], examples[:1], 1, exclude=((["x"], ["x"]),))
    assert alone.index.tolist() == [[-1]]


@given(
    rows=st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=40),
    target=st.sampled_from([0.5, 0.8, 0.9, 1.0]),
)
def test_the_distance_is_the_largest_that_is_good_enough(rows: list[tuple[int, bool]], target: float) -> None:
    distance, right = [row[0] / 10 for row in rows], [row[1] for row in rows]
    best = -1.0
    for limit in sorted(set(distance)):
        within = [good for away, good in zip(distance, right, strict=True) if away <= limit]
        if len(within) >= 10 and sum(within) / len(within) >= target:
            best = limit
    assert choose_distance(distance, right, target) == pytest.approx(best)
    unknown = [*distance, math.inf], [*right, False]  # an event without any neighbour changes nothing
    assert choose_distance(*unknown, target) == pytest.approx(best)


class World:
    """Labels as directions; recordings with some noise of their own."""

    def __init__(self, seed: int = 0, labels: int = 4, width: int = 12) -> None:
        self.rng = np.random.default_rng(seed)
        self.centres = np.linalg.qr(self.rng.normal(size=(width, width)))[0][:labels]

    def draw(self, n: int, labels: list[int], *, noise: float = 0.15) -> tuple[np.ndarray, list[str]]:
        chosen = self.rng.choice(labels, n)
        vectors = self.centres[chosen] + noise * self.rng.normal(size=(n, self.centres.shape[1]))
        return vectors.astype(np.float32), [f"label {c}" for c in chosen]


def events_of(n: int) -> pd.DataFrame:
    return pd.DataFrame({"id": [f"q{i}" for i in range(n)], "label": ""})


def test_known_sounds_are_named_and_new_ones_are_not() -> None:
    world = World()
    vectors, labels = world.draw(300, [0, 1, 2])
    namer = Namer(vectors, labels, [f"r{i % 10}" for i in range(300)], [f"x{i}" for i in range(300)])
    calibration = namer.calibrate(0.95)
    assert calibration.held_out is not None
    assert calibration.held_out.right_share >= 0.95
    assert calibration.held_out.named_share > 0.9
    assert calibration.held_out.unknown_found_share > 0.9
    queries, truth = world.draw(200, [0, 1, 2])
    named = namer.name(events_of(200), queries, calibration)
    is_named = (named["label"] != UNKNOWN).to_numpy()
    assert is_named.mean() > 0.9
    assert (named["label"][is_named] == np.array(truth)[is_named]).mean() > 0.95
    strangers, _ = world.draw(100, [3])
    new = namer.name(events_of(100), strangers, calibration)
    assert (new["label"] == UNKNOWN).mean() > 0.9
    assert set(new["nearest_label"]) <= {"label 0", "label 1", "label 2"}
    text = calibration.sentence()
    assert f"{calibration.held_out.right_share:.0%} of them correctly" in text


def test_labels_without_meaning_stay_unknown() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 6)).astype(np.float32)
    labels = [str(c) for c in rng.choice(list("abcdefgh"), 200)]
    namer = Namer(vectors, labels, [f"r{i % 8}" for i in range(200)], [str(i) for i in range(200)])
    calibration = namer.calibrate(0.9)
    assert calibration.max_distance == -1
    said = calibration.sentence()
    assert "everything is unknown; give more examples, or --precision 0." in said
    reached = float(re.search(r"--precision (0\.\d+), the highest that is reached", said)[1])  # type: ignore[index]
    assert namer.calibrate(reached).max_distance > 0
    assert namer.calibrate(reached + 0.01).max_distance == -1
    named = namer.name(events_of(50), rng.normal(size=(50, 6)), calibration)
    assert (named["label"] == UNKNOWN).all()
    assert (named["nearest_label"] != "").all()


def test_a_recording_does_not_vouch_for_itself() -> None:
    """Each label in one recording only: other recordings can never be right about it."""
    world = World()
    vectors, labels = world.draw(120, [0, 1, 2])
    calibration = Namer(vectors, labels, labels, [str(i) for i in range(120)]).calibrate(0.9)
    assert calibration.single_recording_labels == 3
    assert calibration.held_out is not None
    assert calibration.held_out.right == 0
    assert calibration.max_distance == -1
    assert calibration.sentence() == (
        "on held-out recordings no distance made 90% of the names right, so everything is unknown (3 of 3 labels come "
        "from one recording only); give more examples from other recordings"
    )


def test_votes_shares_and_distances_by_hand() -> None:
    examples = np.array([[1, 0], [1, 0.1], [1, 0.3], [0, 1]], dtype=np.float32)
    namer = Namer(examples, ["a", "b", "b", "c"], ["r"] * 4, ["x0", "x1", "x2", "x3"], k=3)
    calibration = namer.calibrate(max_distance=0.05)
    assert calibration.held_out is None
    events = pd.DataFrame({"id": ["q", "x0", "far"], "label": ["", "old", ""]})
    named = namer.name(events, np.array([[1, 0], [1, 0], [-1, 0.2]]), calibration)
    # a is nearest, but two of three are b; the nearest b counts
    assert named["label"].tolist() == ["b", "b", UNKNOWN]
    assert named["label_share"].tolist() == pytest.approx([2 / 3] * 3, abs=1e-5)
    assert named["distance"][0] == pytest.approx(1 - 1 / math.hypot(1, 0.1), abs=1e-5)
    assert named["nearest_id"].tolist()[:2] == ["x1", "x1"]
    assert named["given_label"].tolist() == ["", "old", ""]
    one = Namer(examples[:1], ["a"], ["r"], ["x0"]).name(events[1:2], [[1, 0]], calibration)
    assert one["label"].tolist() == [UNKNOWN]  # an event is not its own example
    assert one["nearest_label"].tolist() == [""]


def test_ties_go_to_the_nearest() -> None:
    examples = np.array([[1, 0.2], [1, 0.1]], dtype=np.float32)
    namer = Namer(examples, ["far", "near"], ["r", "s"], ["x0", "x1"], k=2)
    named = namer.name(events_of(1), [[1, 0]], namer.calibrate(max_distance=1))
    assert named["label"].tolist() == ["near"]
    assert named["label_share"].tolist() == [0.5]


def test_examples_that_do_not_do() -> None:
    with pytest.raises(ConfigError, match="no labelled examples"):
        Namer(np.zeros((0, 3), np.float32), [], [], [])
    one = Namer(np.ones((3, 2), np.float32), ["a", "b", "a"], ["r"] * 3, ["0", "1", "2"])
    with pytest.raises(ConfigError, match="come from one recording"):
        one.calibrate()
    with pytest.raises(ConfigError, match=r"precision 1\.5"):
        one.calibrate(1.5)
