"""Files of a store that are damaged, half written, written by two at once, on a full disk, or in object storage."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from made_up_events import make_events

from mast.errors import ConfigError, MastError
from mast.events import as_events
from mast.retrieval import event_store as store_module
from mast.retrieval.event_ids import event_ids
from mast.retrieval.event_store import Added, EventBatch, EventStore
from mast.retrieval.filters import Filter

sys.path.insert(0, str(Path(__file__).parents[1] / "archive"))
from small_s3 import small_s3

MODEL = "mast-0123456789ab"
WIDTH = 8


def batch(n: int, *, recordings: int = 5, seed: int = 0) -> EventBatch:
    vectors = np.random.default_rng(seed).normal(size=(n, WIDTH)).astype(np.float32)
    return EventBatch(make_events(n, recordings=recordings, seed=seed), vectors)


def renamed(given: EventBatch, prefix: str) -> EventBatch:
    return given._replace(events=given.events.assign(recording=prefix + given.events["recording"]))


def first_half(given: EventBatch) -> EventBatch:
    """Of ten events in five recordings, one of each."""
    half = len(given.events) // 2
    return EventBatch(given.events.iloc[:half], given.vectors[:half])


def parts_of(store: EventStore) -> list[Path]:
    return sorted(Path(store.uri).glob("events-*.arrow"))


@pytest.fixture
def store(tmp_path: Path) -> EventStore:
    return EventStore.create(tmp_path / "s", WIDTH, MODEL)


@pytest.fixture
def memory() -> Iterator[str]:
    yield "memory://stores/s"
    fsspec.filesystem("memory").store.clear()


def test_small_additions_fill_one_part(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_PART_ROWS", 100)
    for number in range(12):
        store.add([renamed(batch(10), f"{number:02d}-")])
    assert len(store) == 120
    assert len(parts_of(store)) == 2
    store.add(
        [renamed(first_half(batch(10)), f"{number:02d}-") for number in range(8)], whole_recordings=True
    )
    assert len(store) == 80
    store.add([renamed(batch(35), "later-")])  # into the room that this has made
    assert len(store) == 115
    assert len(parts_of(store)) == 2


def test_a_damaged_part_is_named_and_can_be_built_again(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_PART_ROWS", 1)  # a part for each batch
    given = [renamed(batch(30, seed=number), f"{number}-") for number in range(3)]
    store.add(given)
    whole = store.search(np.ones(WIDTH), 90)
    second = parts_of(store)[1]
    content = second.read_bytes()
    for broken in (b"", content[:100], content[: len(content) // 2], content[:-1], b"x" * len(content)):
        second.write_bytes(broken)
        for use in (lambda: len(store), lambda: store.search(np.ones(WIDTH)), lambda: list(store.batches())):
            with pytest.raises(
                MastError, match=f"{second.name}: is damaged .* run the same mast embed again"
            ):
                use()
    second.unlink()
    assert store.add(given, whole_recordings=True) == Added(30, 0, 0, 60)
    again = store.search(np.ones(WIDTH), 90)
    assert again.equals(whole)


FLIPPED = """
import sys
import numpy as np
from pathlib import Path
from mast.errors import MastError
from mast.retrieval.filters import Filter
from mast.retrieval.event_store import EventStore
folder = Path(sys.argv[1])
part, = folder.glob("events-*.arrow")
content = part.read_bytes()
rng = np.random.default_rng(int(sys.argv[2]))
refused = 0
for at in rng.integers(len(content), size=150).tolist():
    bad = bytearray(content)
    bad[at] ^= 1 << int(rng.integers(8))
    part.write_bytes(bad)
    try:
        store = EventStore.open(folder)
        store.search(np.ones(8), 5, Filter(sites=("OAK",), hours=(3, 9)))
        found = store.search(np.ones(8), 50)
        store.get(found["id"].tolist())
        list(store.batches(projection=True))
        store.recordings()
    except MastError as error:
        refused += 1
print(refused)
"""


@pytest.mark.parametrize("seed", [0, 1])
def test_no_flipped_bit_ends_the_process(tmp_path: Path, seed: int) -> None:
    store = EventStore.create(tmp_path / "s", WIDTH, MODEL, projection_width=4)
    given = batch(40)
    store.add([given._replace(projections=given.vectors[:, :4])])
    done = subprocess.run(
        [sys.executable, "-c", FLIPPED, str(tmp_path / "s"), str(seed)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5  # the others hit a number or a letter


def test_a_part_of_another_store_is_refused(store: EventStore, tmp_path: Path) -> None:
    other = EventStore.create(tmp_path / "other", WIDTH + 1, MODEL)
    other.add([EventBatch(make_events(5), np.ones((5, WIDTH + 1), dtype=np.float32))])
    shutil.copy(parts_of(other)[0], store.uri)
    with pytest.raises(MastError, match="its columns are those of another store"):
        store.search(np.ones(WIDTH))
    parts_of(store)[0].unlink()
    table = pa.table({"a": [1]})
    with pa.ipc.new_file(Path(store.uri) / "events-000001-00000000.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(MastError, match="another store"):
        len(store)


def test_what_a_killed_process_left_half_written_is_not_seen_and_goes(
    store: EventStore, tmp_path: Path
) -> None:
    store.add([batch(20)])
    killed = """
import os, signal, sys
from pathlib import Path
from mast.files import atomic_file
with atomic_file(Path(sys.argv[1]) / "events-000002-00000000.arrow") as part:
    part.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", killed, store.uri])
    left = [name for name in os.listdir(store.uri) if name.endswith(".part")]
    assert len(left) == 1
    assert len(store) == len(store.search(np.ones(WIDTH), 50)) == 20
    store.add([])
    assert sorted(os.listdir(store.uri)) == ["event_store.json", parts_of(store)[0].name]


@pytest.mark.parametrize("change", ["append", "new part", "replace", "remove"])
def test_a_full_disk_leaves_the_store_as_it_was(
    store: EventStore, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    given = batch(20)
    store.add([given])
    before, names = store.search(np.ones(WIDTH), 50), sorted(os.listdir(store.uri))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def do() -> None:
        if change == "remove":
            store.add([first_half(given)], whole_recordings=True)
        elif change == "replace":
            store.add([given._replace(events=given.events.assign(label="new"))])
        else:
            store.add([renamed(given, "new-")])

    if change == "new part":
        monkeypatch.setattr(store_module, "_PART_ROWS", 10)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match=r"events-\d+-[0-9a-f]+\.arrow") as told:
            do()
    assert told.value.errno == errno.ENOSPC
    assert sorted(os.listdir(store.uri)) == names
    assert store.search(np.ones(WIDTH), 50).equals(before)
    do()
    assert not store.search(np.ones(WIDTH), 50).equals(before)


def test_a_second_writer_is_refused_and_readers_see_every_event_once(store: EventStore) -> None:
    given = batch(200, recordings=20)
    store.add([given])
    refused, stop = [], threading.Event()

    def write() -> None:
        """Change every event, again and again."""
        mine = EventStore.open(store.uri)
        number = 0
        while not stop.is_set():
            number += 1
            try:
                mine.add([given._replace(events=given.events.assign(label=f"label {number}"))])
            except ConfigError as error:
                refused.append(str(error))

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        wanted = sorted(event_ids(as_events(given.events)))
        for _ in range(10):
            assert sorted(store.search(np.ones(WIDTH), 300)["id"]) == wanted
            assert sorted(store.search(np.ones(WIDTH), 300, Filter(min_score=0.0))["id"]) == wanted
            assert [name for some in store.batches(64) for name in sorted(some.events["id"])] != []
            assert len(store) == 200
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert all("is being written by another process" in text for text in refused)


def test_object_storage(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not EventStore.exists(memory)
    with pytest.raises(MastError, match="holds no event store"):
        EventStore.open(memory)
    EventStore.create(memory, WIDTH, MODEL, model_folder="default")
    with pytest.raises(ConfigError, match="already exists"):
        EventStore.create(memory, WIDTH, MODEL)
    store = EventStore.open(memory)
    assert (store.model_id, store.width, store.model_folder) == (MODEL, WIDTH, "default")
    assert EventStore.exists(memory)
    given = batch(60)
    assert store.add([given], whole_recordings=True) == Added(60, 0, 0, 0)
    moved = given.events.assign(label=["now"] * 3 + given.events["label"].tolist()[3:])
    changed = EventBatch(moved[:-1], given.vectors[:-1])
    assert store.add([changed], whole_recordings=True).removed == 1
    assert len(store) == store.count() == 59
    assert store.holds(moved[:-1])
    ids = event_ids(as_events(moved))
    assert store.get(ids[:3])["label"].tolist() == ["now"] * 3
    unit = given.vectors[:-1] / np.linalg.norm(given.vectors[:-1], axis=1, keepdims=True)
    np.testing.assert_allclose(store.vectors(ids[:-1]), unit, atol=5e-5)
    nearest = [ids[row] for row in np.argsort(-unit @ unit[7])[:10]]
    assert EventStore.open(memory).search(unit[7], 10)["id"].tolist() == nearest
    assert sum(len(some.events) for some in store.batches(7)) == 59


def test_a_store_is_read_from_s3(tmp_path: Path) -> None:
    near = EventStore.create(tmp_path / "bucket" / "s", WIDTH, MODEL)
    near.add([batch(60)])
    with small_s3(tmp_path) as options:
        far = EventStore.open(f"s3://bucket/s{options}")
        assert len(far) == 60
        where = Filter(min_score=0.4)
        assert far.search(np.ones(WIDTH), 10, where).equals(near.search(np.ones(WIDTH), 10, where))
        ids = near.find(k=3)["id"].tolist()
        np.testing.assert_array_equal(far.vectors(ids), near.vectors(ids))
        with pytest.raises(MastError, match="holds no event store"):
            EventStore.open(f"s3://bucket/none{options}")


def test_two_writers_in_object_storage_lose_nothing_of_each_other(memory: str) -> None:
    EventStore.create(memory, WIDTH, MODEL)
    # fsspec's memory gives two readers of one file one position: stores are opened one after the other
    opened = [EventStore.open(memory) for _ in range(2)]

    def write(number: int) -> None:
        mine = opened[number]
        for again in range(4):
            mine.add([renamed(batch(10, seed=number), f"{number}-{again}-")], whole_recordings=True)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(2)))
    store = EventStore.open(memory)
    assert len(store) == 80
    assert store.search(np.ones(WIDTH), 100)["id"].is_unique


def test_a_store_of_an_earlier_mast_has_to_be_rebuilt(tmp_path: Path) -> None:
    old = tmp_path / "old"
    (old / "events.lance" / "data").mkdir(parents=True)
    assert EventStore.exists(old)
    with pytest.raises(MastError, match=r"is a store of an earlier mast, .* rebuild it with mast embed"):
        EventStore.open(old)


def test_facts_that_make_no_sense(tmp_path: Path) -> None:
    for content in ("", "{", "[]", '{"model": "m"}', '{"model": "m", "width": "x", "projection_width": 0}'):
        folder = tmp_path / "s"
        folder.mkdir(exist_ok=True)
        (folder / "event_store.json").write_text(content)
        with pytest.raises(MastError, match="cannot be opened"):
            EventStore.open(folder)
