"""The event store: everything once, found again, and nothing of another model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up_events import make_events

from mast.errors import ConfigError, MastError
from mast.events import EVENT_COLUMNS, as_events
from mast.retrieval import event_store as store_module
from mast.retrieval.event_ids import event_ids
from mast.retrieval.event_store import Added, EventBatch, EventStore
from mast.retrieval.filters import Filter

MODEL = "mast-0123456789ab"
WIDTH = 8
KEPT = 5e-5  # numbers are kept to 1/32767


def random_vectors(n: int, width: int = WIDTH, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


def parts_of(store: EventStore) -> list[Path]:
    """The files of a store's events."""
    return sorted(Path(store.uri).glob("events-*.arrow"))


@pytest.fixture
def store(tmp_path: Path) -> EventStore:
    return EventStore.create(tmp_path / "events", WIDTH, MODEL)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[EventStore, pd.DataFrame, np.ndarray]:
    """Three hundred events; the table in the order given, and unit vectors."""
    made = EventStore.create(tmp_path_factory.mktemp("full") / "events", WIDTH, MODEL)
    events, vectors = as_events(make_events(300)), random_vectors(300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "_PART_ROWS", 40)  # several parts
        made.add([EventBatch(events[i : i + 50], vectors[i : i + 50]) for i in range(0, 300, 50)])
    assert len(parts_of(made)) == 6
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return made, events.assign(id=event_ids(events)), unit


def test_a_store_says_what_it_is(tmp_path: Path) -> None:
    made = EventStore.create(tmp_path / "s", 5, MODEL, projection_width=3, model_folder="/models/birds")
    for some in (made, EventStore.open(tmp_path / "s"), EventStore.open(f"file://{tmp_path / 's'}")):
        assert (some.model_id, some.width, some.projection_width, some.model_folder) == (
            MODEL,
            5,
            3,
            "/models/birds",
        )
        assert len(some) == 0


def test_an_empty_store(store: EventStore) -> None:
    assert store.search(np.ones(WIDTH)).empty
    assert list(store.batches()) == []
    assert store.get([]).empty
    assert store.recordings() == []
    assert store.find().empty
    assert store.add([]) == Added(0, 0, 0, 0)
    assert store.add([EventBatch(as_events(make_events(0)), np.zeros((0, WIDTH)))]) == Added(0, 0, 0, 0)


def test_what_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(MastError, match="no such folder"):
        EventStore.open(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(MastError, match="is a file; expected an event store"):
        EventStore.open(tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(MastError, match="holds no event store"):
        EventStore.open(tmp_path / "other")
    with pytest.raises(ConfigError, match="already exists"):
        EventStore.create(tmp_path / "other", 4, MODEL)
    assert not EventStore.exists(tmp_path / "other")
    EventStore.create(tmp_path / "s", 4, MODEL)
    with pytest.raises(ConfigError, match="already exists"):
        EventStore.create(tmp_path / "s", 4, MODEL)


FILTERS: list[tuple[Filter, Callable[[pd.DataFrame], pd.Series]]] = [
    (Filter(), lambda e: e["score"] >= -1),
    (Filter(sites=("OAK", "Ufer-Süd")), lambda e: e["site"].isin(["OAK", "Ufer-Süd"])),
    (Filter(start="2024-05-02"), lambda e: e["datetime"] >= "2024-05-02"),
    (Filter(end="2024-05-02T12:00"), lambda e: (e["datetime"] != "") & (e["datetime"] < "2024-05-02T12")),
    (Filter(hours=(5, 9)), lambda e: e["datetime"].str[11:13].isin(["05", "06", "07", "08"])),
    (Filter(hours=(22, 2)), lambda e: e["datetime"].str[11:13].isin(["22", "23", "00", "01"])),
    (
        Filter(low_hz=1_000, high_hz=3_000),
        lambda e: ((e["low_hz"] + e["high_hz"]) / 2).between(1_000, 3_000),
    ),
    (Filter(min_score=0.5), lambda e: e["score"] >= 0.5),
    (Filter(labels=("O'Brien's \"frog\"",)), lambda e: e["label"].str.startswith("O'B")),
    (Filter(labels=("",)), lambda e: e["label"] == ""),
    (Filter(recordings=("r1.wav", "none.wav")), lambda e: e["recording"] == "r1.wav"),
    (Filter(not_recordings=("r1.wav",)), lambda e: e["recording"] != "r1.wav"),
    (
        Filter(sites=("ELM",), hours=(0, 12), min_score=0.2, not_recordings=("r0.wav",)),
        lambda e: (
            (
                (e["site"] == "ELM")
                & (e["datetime"].str[11:13] < "12")
                & (e["datetime"] != "")
                & (e["score"] >= 0.2)
            )
            & (e["recording"] != "r0.wav")
        ),
    ),
    (Filter(sites=("nowhere",)), lambda e: e["site"] == "nowhere"),
]


@pytest.mark.parametrize(("where", "meets"), FILTERS)
def test_search_is_that_of_all_distances(
    full: tuple[EventStore, pd.DataFrame, np.ndarray],
    where: Filter,
    meets: Callable[[pd.DataFrame], pd.Series],
) -> None:
    store, events, unit = full
    wanted = random_vectors(1, seed=9)[0] * 7  # its length does not matter
    distance = 1 - unit @ (wanted / np.linalg.norm(wanted))
    allowed = meets(events).to_numpy(dtype=bool)
    order = [i for i in np.argsort(distance, kind="stable") if allowed[i]][:12]
    found = store.search(wanted, 12, where)
    assert found["id"].tolist() == events["id"].iloc[order].tolist()
    np.testing.assert_allclose(found["distance"], distance[order], atol=KEPT)
    expected = events.iloc[order][list(EVENT_COLUMNS)].reset_index(drop=True)
    pd.testing.assert_frame_equal(found[list(EVENT_COLUMNS)], expected, check_dtype=False)
    assert store.count(where) == allowed.sum()
    assert len(store.find(where, 500)) == allowed.sum()
    given = [name for batch in store.batches(17, where) for name in batch.events["id"]]
    assert sorted(given) == sorted(events["id"][allowed])


def test_filters_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="filter start 'yesterday': not a valid time"):
        Filter(start="yesterday")
    with pytest.raises(ConfigError, match="filter end 'spring': not a valid time"):
        Filter(end="spring")
    with pytest.raises(ConfigError, match="hours of the day"):
        Filter(hours=(5, 30))


def test_rows_come_in_the_order_asked_for(full: tuple[EventStore, pd.DataFrame, np.ndarray]) -> None:
    store, events, unit = full
    rows = [7, 290, 7, 0]
    ids = events["id"].iloc[rows].tolist()
    assert store.get(ids)["id"].tolist() == ids
    np.testing.assert_allclose(store.vectors(ids), unit[rows], atol=KEPT)
    with pytest.raises(MastError, match="no event e0'; DROP"):
        store.get(["e0'; DROP TABLE events"])
    batches = list(store.batches(64))
    assert max(len(batch.events) for batch in batches) <= 64
    row_of = {name: row for row, name in enumerate(events["id"])}
    for some, vectors, _ in batches:
        np.testing.assert_allclose(vectors, unit[[row_of[name] for name in some["id"]]], atol=KEPT)
    assert store.recordings() == [f"r{i}.wav" for i in range(5)]


def test_adding_again_doubles_nothing(store: EventStore) -> None:
    events, vectors = make_events(60), random_vectors(60)
    assert store.add([EventBatch(events, vectors)]) == Added(60, 0, 0, 0)
    assert store.add([EventBatch(events, 3 * vectors)]) == Added(0, 0, 0, 60)
    assert store.holds(events)
    assert store.holds(events[events["recording"] == "r1.wav"])
    assert not store.holds(events.iloc[1:])  # the store has one more of that recording
    assert not store.holds(events.assign(label="other"))

    renamed = events.copy()
    renamed.loc[3, "label"] = "named now"
    moved = vectors.copy()
    moved[5] *= -1
    assert store.add([EventBatch(renamed, moved)]) == Added(0, 2, 0, 58)
    ids = event_ids(as_events(renamed))
    assert store.get(ids)["label"][3] == "named now"
    assert store.vectors([ids[5]])[0] @ vectors[5] < 0
    assert len(store) == 60


def test_recordings_given_whole_lose_what_is_no_longer_there(store: EventStore) -> None:
    events, vectors = make_events(60), random_vectors(60)
    store.add([EventBatch(events, vectors)])
    kept = events.index[(events["recording"] == "r2.wav")][2:]
    added = store.add([EventBatch(events.loc[kept], vectors[kept])], whole_recordings=True)
    assert added == Added(0, 0, 2, len(kept))
    assert len(store) == 58


def test_equal_boxes_of_two_labels_are_two_events(store: EventStore) -> None:
    events = make_events(2)
    events.iloc[1] = events.iloc[0]
    events["label"] = ["wren", "robin"]
    assert store.add([EventBatch(events, random_vectors(2))]).new == 2
    assert store.add([EventBatch(events, random_vectors(2))]).unchanged == 2


def test_ids_do_not_change() -> None:
    events = as_events(make_events(3))
    assert event_ids(events) == event_ids(events.assign(label="x", score=0.0))
    assert len(set(event_ids(events)) | set(event_ids(events.assign(source="expert")))) == 6
    fixed = pd.DataFrame(
        {
            "file": ["a.wav"],
            "start_s": [0.1],
            "end_s": [1],
            "low_hz": [0],
            "high_hz": [9.5],
            "source": ["expert"],
        }
    )
    assert event_ids(as_events(fixed)) == ["e40ad97ad361c5323b547"]


def test_hostile_names(store: EventStore) -> None:
    names = ["it's.wav", 'a"b.wav', "x\\'y.wav", "tab\tline\n.wav", "鳥 %_.wav", "'); DROP TABLE events; --"]
    events = make_events(len(names)).assign(recording=names, site=names, label=names)
    vectors = random_vectors(len(names))
    store.add([EventBatch(events, vectors)])
    assert store.add([EventBatch(events, vectors)], whole_recordings=True).unchanged == len(names)
    for row, name in enumerate(names):
        where = Filter(sites=(name,), labels=(name,), recordings=(name,))
        assert store.search(vectors[row], 5, where)["recording"].tolist() == [name]


def test_vectors_that_do_not_belong(store: EventStore) -> None:
    events = make_events(3)
    with pytest.raises(ConfigError, match="cannot be compared with those of mast-other"):
        store.refuse_other_model("mast-other")
    with pytest.raises(ConfigError, match="width 9 given where 8"):
        store.add([EventBatch(events, random_vectors(3, 9))])
    for value in (np.nan, np.inf, 0.0):
        vectors = random_vectors(3)
        vectors[1] = value
        with pytest.raises(ConfigError, match="vector 1"):
            store.add([EventBatch(events, vectors)])
    with pytest.raises(ConfigError, match="3 events given with 2 vectors"):
        store.add([EventBatch(events, random_vectors(2))])
    with pytest.raises(ConfigError, match="no contrastive projections"):
        store.search(np.ones(4), projection=True)
    with pytest.raises(ConfigError, match="width 3"):
        store.search(np.ones(3))
    with pytest.raises(ConfigError, match="at least 1"):
        store.search(np.ones(WIDTH), 0)
    assert len(store) == 0


def test_vectors_made_another_way_are_refused(store: EventStore) -> None:
    store.refuse_other_model(MODEL, WIDTH)
    with pytest.raises(ConfigError, match=r"holds vectors of 8 numbers.*makes 9; rebuild the store"):
        store.refuse_other_model(MODEL, WIDTH + 1)


def test_projections_where_there_are_some(tmp_path: Path) -> None:
    store = EventStore.create(tmp_path / "s", WIDTH, MODEL, projection_width=4)
    events, vectors, projections = make_events(40), random_vectors(40), random_vectors(40, 4, seed=3)
    store.add([EventBatch(events[:30], vectors[:30])])
    store.add([EventBatch(events[30:], vectors[30:], projections[30:])])
    ids = event_ids(as_events(events))
    found = store.search(projections[35], 40, projection=True)
    assert found["id"].iloc[0] == ids[35]
    assert set(found["id"]) == set(ids[30:])  # the others have none
    known = store.vectors([ids[0], ids[35]], projection=True)
    assert np.isnan(known[0]).all()
    np.testing.assert_allclose(known[1], projections[35] / np.linalg.norm(projections[35]), atol=KEPT)
    again = store.add([EventBatch(events, vectors, projections)])
    assert again == Added(0, 30, 0, 10)  # those that had none have one now
    assert np.isfinite(next(store.batches(projection=True)).projections).all()


def test_two_writers_at_once(tmp_path: Path) -> None:
    first = EventStore.create(tmp_path / "s", WIDTH, MODEL)
    second = EventStore.open(tmp_path / "s")
    events, vectors = make_events(80, recordings=8), random_vectors(80)
    for name in range(8):
        mine = (events["recording"] == f"r{name}.wav").to_numpy()
        (first, second)[name % 2].add([EventBatch(events[mine], vectors[mine])], whole_recordings=True)
    assert len(first) == len(second) == 80


KILLED = """
import sys
import numpy as np
from made_up_events import make_events
from mast.retrieval import event_store as module
from mast.retrieval.event_store import EventBatch, EventStore
module._COMMIT_S = -1.0
store = EventStore.open(sys.argv[1])
events = make_events(400, recordings=40)
vectors = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
print("ready", flush=True)
def batches():
    for name in range(40):
        mine = (events["recording"] == f"r{name}.wav").to_numpy()
        yield EventBatch(events[mine], vectors[mine])
store.add(batches(), whole_recordings=True)
"""


def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    store = EventStore.create(tmp_path / "s", WIDTH, MODEL)
    places = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    sizes = []
    for wait_s in (0.1, 0.6):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path / "s")], stdout=subprocess.PIPE, env=environment
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(wait_s)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        sizes.append(len(store))
        ids = [name for batch in store.batches() for name in batch.events["id"]]
        assert len(ids) == len(set(ids)) == sizes[-1]
        assert sizes[-1] % 10 == 0  # recordings are there whole
    assert sizes == sorted(sizes)
    events, vectors = make_events(400, recordings=40), random_vectors(400)
    added = store.add([EventBatch(events, vectors)], whole_recordings=True)
    assert added == Added(400 - sizes[-1], 0, 0, sizes[-1])
    assert store.holds(events)


def test_small_commits_give_the_same_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events, vectors = make_events(90), random_vectors(90)
    parts = [EventBatch(events[i : i + 7], vectors[i : i + 7]) for i in range(0, 90, 7)]
    large = EventStore.create(tmp_path / "large", WIDTH, MODEL)
    large.add(parts)
    monkeypatch.setattr(store_module, "_PART_ROWS", 10)
    small = EventStore.create(tmp_path / "small", WIDTH, MODEL)
    small.add(iter(parts))
    wanted = random_vectors(1, seed=4)[0]
    pd.testing.assert_frame_equal(small.search(wanted, 90), large.search(wanted, 90))


def test_the_nearest_are_those_of_a_plain_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_PART_ROWS", 128)
    events, vectors = make_events(700), random_vectors(700, 33)
    vectors[300:310] = vectors[290]  # equals, in two parts
    store = EventStore.create(tmp_path / "s", 33, MODEL)
    store.add([EventBatch(events[i : i + 100], vectors[i : i + 100]) for i in range(0, 700, 100)])
    ids = event_ids(as_events(events))
    kept = store.vectors(ids).astype(np.float64)
    for seed, k in ((1, 1), (2, 10), (3, 128), (4, 699), (5, 700), (6, 5_000), (290, 11)):
        wanted = vectors[290] if seed == 290 else random_vectors(1, 33, seed)[0]
        wanted = wanted.astype(np.float64) / np.linalg.norm(wanted.astype(np.float64))
        distance = {}
        for name, vector in zip(ids, kept, strict=True):
            cosine = 0.0
            for a, b in zip(vector, wanted, strict=True):
                cosine += a * b
            distance[name] = 1.0 - cosine
        found = store.search(wanted, k)
        np.testing.assert_allclose(found["distance"], sorted(distance.values())[:k], atol=2e-6)
        np.testing.assert_allclose(found["distance"], [distance[name] for name in found["id"]], atol=2e-6)
        assert found["id"].is_unique
