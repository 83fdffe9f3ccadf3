"""The cache against direct computation, and against processes killed while writing."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from mast.audio import windows
from mast.errors import AudioError, MastError
from mast.features import FeatureCache, LogMel, cache, content_digest, running_stats, shards
from mast.grid import FrontEnd

SMALL = FrontEnd(n_bins=16, chunk_frames=50)  # half-second chunks of 8,000 samples


def recording(path: Path, seconds: float = 2.1, seed: int = 0, rate: int = 16_000) -> Path:
    soundfile.write(path, np.random.default_rng(seed).normal(0, 0.1, int(rate * seconds)), rate)
    return path


def test_features_are_those_of_the_windows(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav")
    expected = list(windows(path, SMALL))
    with FeatureCache(tmp_path / "cache", SMALL, dtype="float32") as store:
        found = store.features(path)
    sound = torch.from_numpy(np.stack([window.samples for window in expected]))
    direct = LogMel(SMALL).chunk_features(sound)
    assert torch.equal(found.tensor(), direct)
    assert found.start_s.tolist() == [window.start_s for window in expected]
    # windows every 0.25 s; the last one begins at 1.75 s and holds 0.35 s of sound
    assert found.start_s[-1] == 1.75
    assert found.valid_frames.tolist() == [50] * 7 + [35]


def test_float16_is_within_its_stated_rounding(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav", seconds=11)
    exact = FeatureCache(tmp_path / "cache", dtype="float32").features(path).features
    half = FeatureCache(tmp_path / "cache").features(path).features
    assert half.dtype == np.float16
    assert 0 < np.abs(half.astype(np.float32) - exact).max() <= 2**-8


def test_second_time_comes_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recording(tmp_path / "a.wav")
    with FeatureCache(tmp_path / "cache", SMALL) as store:
        first = store.features(path)

    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(cache, "windows", fail)
    again = FeatureCache(tmp_path / "cache", SMALL).features(path)
    np.testing.assert_array_equal(again.features, first.features)
    np.testing.assert_array_equal(again.start_s, first.start_s)
    np.testing.assert_array_equal(again.valid_frames, first.valid_frames)


def test_same_sound_under_another_name_is_found_and_changed_sound_is_not(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav", seed=1)
    os.utime(path, ns=(10**18, 10**18))
    with FeatureCache(tmp_path / "cache", SMALL) as store:
        first = store.features(path).features.copy()
        copy = tmp_path / "copy.wav"
        copy.write_bytes(path.read_bytes())
        assert np.shares_memory(store.features(copy).features, store.features(path).features)
        recording(path, seed=2)  # same name, same size
        second = store.features(path).features
        assert not np.array_equal(first, second)
        np.testing.assert_array_equal(store.features(copy).features, first)


def test_a_file_still_being_changed_is_read_each_time(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav", seed=1)
    memo = cache.DigestMemo(tmp_path / "digests")
    now = time.time_ns()
    os.utime(path, ns=(now, now))
    first = memo.of(path)
    recording(path, seed=2)
    os.utime(path, ns=(now, now))  # as a clock that ticks in seconds would have it
    assert memo.of(path) != first


def test_digests_are_remembered_across_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recording(tmp_path / "a.wav")
    os.utime(path, ns=(10**18, 10**18))
    digest = cache.DigestMemo(tmp_path / "digests").of(path)
    assert digest == content_digest(path)
    monkeypatch.setattr(cache, "content_digest", lambda path: "read again")
    assert cache.DigestMemo(tmp_path / "digests").of(path) == digest
    os.utime(path, ns=(10**18 + 1, 10**18 + 1))
    assert cache.DigestMemo(tmp_path / "digests").of(path) == "read again"


def test_front_ends_types_hops_and_channels_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "stereo.wav"
    soundfile.write(path, np.random.default_rng(0).normal(0, 0.1, (16_000, 2)), 16_000)
    other = SMALL.model_copy(update={"n_bins": 12})
    shapes = set()
    sounds = []
    for front_end, dtype in ((SMALL, "float16"), (other, "float16"), (SMALL, "float32")):
        with FeatureCache(tmp_path / "cache", front_end, dtype=dtype) as store:
            for hop_s in (None, 0.5):
                for channel in ("mix", 0, 1):
                    found = store.features(path, hop_s=hop_s, channel=channel).features
                    shapes.add((found.shape, str(found.dtype)))
                    sounds.append(found.astype(np.float64).sum())
    assert len(shapes) == 6
    assert len(set(sounds)) == len(sounds)
    about = [json.loads(file.read_text()) for file in (tmp_path / "cache").glob("*/about.json")]
    assert sorted(item["front_end"]["n_bins"] for item in about) == [12, 16, 16]


def test_get_and_put(tmp_path: Path) -> None:
    arrays = {
        f"key {i}": np.random.default_rng(i).normal(size=(i, 3, 2)).astype(np.float16) for i in range(5)
    }
    with FeatureCache(tmp_path, SMALL, shard_bytes=60, commit_bytes=20) as store:
        assert store.get("key 3") is None
        for key, array in arrays.items():
            store.put(key, array)
            np.testing.assert_array_equal(store.get(key), array)
        store.put("key 3", arrays["key 4"])  # there already
    assert len(list(store.folder.glob("*.data"))) > 1
    reopened = FeatureCache(tmp_path, SMALL)
    for key, array in arrays.items():
        found = reopened.get(key)
        assert found is not None
        assert found.shape == array.shape
        np.testing.assert_array_equal(found, array)
    assert isinstance(reopened.get("key 3"), np.memmap)


def test_put_takes_tensors(tmp_path: Path) -> None:
    store = FeatureCache(tmp_path, SMALL, dtype="float32")
    store.put("t", torch.arange(6.0).view(2, 3).T)
    np.testing.assert_array_equal(store.get("t"), [[0, 3], [1, 4], [2, 5]])


def test_tensors_share_the_map_and_cannot_harm_it(tmp_path: Path) -> None:
    with FeatureCache(tmp_path, SMALL) as store:
        store.put("a", np.ones((2, 50, 16)))
        array = store.get("a")
        assert array is not None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tensor = torch.from_numpy(array)
        assert tensor.data_ptr() == array.ctypes.data
        tensor.fill_(7)
    assert (FeatureCache(tmp_path, SMALL).get("a") == 1).all()


def test_recording_too_short_for_a_window_is_remembered_as_empty(tmp_path: Path) -> None:
    path = recording(tmp_path / "short.wav", seconds=0.1)
    with FeatureCache(tmp_path / "cache", SMALL) as store:
        assert store.features(path).tensor().shape == (0, 1, 50, 16)
        assert store.features(path, keep_short=True).valid_frames.tolist() == [10]
    again = FeatureCache(tmp_path / "cache", SMALL).features(path)
    assert again.start_s.shape == again.valid_frames.shape == (0,)


def test_unreadable_recordings_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = recording(tmp_path / "good.wav"), recording(tmp_path / "bad.wav", seed=1)

    def breaks_off(path: Path, *args: object, **kwargs: object):
        for i, window in enumerate(windows(path, *args, **kwargs)):
            if Path(path) == bad and i == 5:
                raise AudioError("bad.wav: breaks off")
            yield window

    monkeypatch.setattr(cache, "windows", breaks_off)
    monkeypatch.setattr(cache, "_BATCH_CHUNKS", 2)
    with FeatureCache(tmp_path / "cache", SMALL) as store:
        with pytest.raises(AudioError, match="breaks off"):
            store.features(bad)
        expected = store.features(good)
        (data,) = store.folder.glob("*.data")
        assert data.stat().st_size == expected.features.nbytes
        with pytest.raises(AudioError, match=r"absent.wav: cannot be read"):
            store.features(tmp_path / "absent.wav")
    monkeypatch.undo()
    np.testing.assert_array_equal(
        FeatureCache(tmp_path / "cache", SMALL).features(good).features, expected.features
    )


def test_half_written_lines_and_missing_bytes_are_as_good_as_absent(tmp_path: Path) -> None:
    with FeatureCache(tmp_path, SMALL) as store:
        store.put("whole", np.ones((1, 2)))
        store.put("cut", np.ones((1, 200)))
    (data,) = store.folder.glob("*.data")
    (index,) = store.folder.glob("*.index.jsonl")
    with index.open("ab") as file:
        file.write(b'{"key": "never finished", "offset": 0, "sh')
    with data.open("r+b") as file:
        file.truncate(100)
    found = FeatureCache(tmp_path, SMALL)
    assert found.get("whole") is not None
    assert found.get("cut") is None
    assert found.get("never finished") is None
    with found:
        found.put("cut", np.full((1, 200), 2.0))
    assert (FeatureCache(tmp_path, SMALL).get("cut") == 2).all()


def test_an_index_whose_last_line_was_cut_can_be_continued(tmp_path: Path) -> None:
    """A full disk leaves half a line, and the writer lives on."""
    journal = cache.Journal(tmp_path, ".jsonl")
    journal.append("me", [{"a": 1}], durable=True)
    with (tmp_path / "me.jsonl").open("ab") as file:
        file.write(b'{"a": ')
    journal.append("me", [{"a": 2}], durable=True)
    assert [record for _, record in journal.news()] == [{"a": 1}, {"a": 2}]
    journal.append("me", [{"a": 3}], durable=False)
    assert [record for _, record in journal.news()] == [{"a": 3}]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(MastError, match=r"cannot write to .*taken.*choose another"):
        FeatureCache(tmp_path / "taken", SMALL).put("a", np.ones((1, 1)))
    path = recording(tmp_path / "a.wav")
    os.utime(path, ns=(10**18, 10**18))
    with pytest.raises(MastError, match=r"cannot write to .*taken"):
        FeatureCache(tmp_path / "taken", SMALL).features(path)


def test_a_folder_that_may_only_be_read_serves_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recording(tmp_path / "a.wav")
    with FeatureCache(tmp_path / "cache", SMALL) as store:
        expected = store.features(path).features
    os.utime(path, ns=(10**18, 10**18))  # so that the digest would be noted, and cannot be

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache.Journal, "append", refuse)
    np.testing.assert_array_equal(FeatureCache(tmp_path / "cache", SMALL).features(path).features, expected)


def test_many_recordings_need_few_open_files(tmp_path: Path) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs /proc to count open files")
    with FeatureCache(tmp_path, SMALL, commit_bytes=1 << 20) as store:
        for i in range(2_000):
            store.put(str(i), np.full((1, 4), i))
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    store = FeatureCache(tmp_path, SMALL)
    held = [store.get(str(i)) for i in range(2_000)]
    assert [int(array[0, 0]) for array in held] == list(range(2_000))
    assert len(os.listdir("/proc/self/fd")) - before <= 2
    assert len(list(store.folder.iterdir())) <= 4


def test_another_process_sees_what_is_committed(tmp_path: Path) -> None:
    reader = FeatureCache(tmp_path, SMALL)
    writer = FeatureCache(tmp_path, SMALL)
    assert reader.get("a") is None
    writer.put("a", np.ones((1, 4)))
    assert reader.get("a") is None  # not yet certain to outlive its writer
    writer.close()
    writer.put("b", np.full((1, 4), 2.0))
    writer.close()
    assert (reader.get("a") == 1).all()
    assert (reader.get("b") == 2).all()


def test_threads_share_one_cache(tmp_path: Path) -> None:
    with FeatureCache(tmp_path, SMALL, shard_bytes=2_000, commit_bytes=500) as store:

        def work(worker: int) -> None:
            for i in range(40):
                store.put(f"{worker}/{i}", np.full((1, 8), worker * 40 + i))
                assert (store.get(f"{i % 4}/0") is None) in (True, False)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = FeatureCache(tmp_path, SMALL)
    for n in range(160):
        assert (found.get(f"{n // 40}/{n % 40}") == n).all()


def put_in_child(store: FeatureCache, worker: int) -> None:
    for i in range(20):
        store.put(f"{worker}/{i}", np.full((2, 100), worker * 20 + i))
    store.close()


def test_forked_workers_that_inherit_a_cache_in_use(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with FeatureCache(tmp_path, SMALL) as store:
        store.put("mine", np.full((1, 100), -1.0))
        workers = [context.Process(target=put_in_child, args=(store, worker)) for worker in range(2)]
        for worker in workers:
            worker.start()
        store.put("mine too", np.full((1, 100), -2.0))
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        assert (store.get("1/19") == 39).all()
    found = FeatureCache(tmp_path, SMALL)
    assert (found.get("mine") == -1).all()
    assert (found.get("mine too") == -2).all()
    for n in range(40):
        assert (found.get(f"{n // 20}/{n % 20}") == n).all()


def put_and_leave(store: FeatureCache) -> None:
    store.put("left", np.full((1, 100), 7.0))


def test_a_worker_that_just_ends_has_committed(tmp_path: Path) -> None:
    store = FeatureCache(tmp_path, SMALL)
    worker = multiprocessing.get_context("fork").Process(target=put_and_leave, args=(store,))
    worker.start()
    worker.join()
    assert (store.get("left") == 7).all()


def test_nothing_waits_long_for_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_COMMIT_S", 0.0)
    store = FeatureCache(tmp_path, SMALL)
    store.put("a", np.ones((1, 4)))
    assert FeatureCache(tmp_path, SMALL).get("a") is not None


def test_a_pickled_cache_is_small_and_writes_files_of_its_own(tmp_path: Path) -> None:
    """What a spawned worker gets."""
    with FeatureCache(tmp_path, SMALL) as store:
        store.put("a", np.ones((5, 1_000)))
        store.close()
        store.put("b", np.full((5, 1_000), 2.0))
        text = pickle.dumps(store)
        assert len(text) < 50_000
        with pickle.loads(text) as other:
            assert (other.get("a") == 1).all()
            assert other.get("b") is None  # not committed yet
            other.put("c", np.full((5, 1_000), 3.0))
        assert (store.get("c") == 3).all()
    assert (FeatureCache(tmp_path, SMALL).get("b") == 2).all()


def write_until_killed(folder: Path, first: int) -> None:
    store = FeatureCache(folder, SMALL, shard_bytes=300_000, commit_bytes=20_000)
    for i in range(first, first + 100_000):
        store.put(str(i), np.full((1 + i % 4, 50, 16), i % 1000))


def test_writers_killed_at_any_moment_leave_a_sound_cache(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    chance = random.Random(0)
    seen_before = 0
    trial = 0
    while (
        trial < 12 or seen_before <= 100
    ):  # a busy machine needs more tries until there is something to lose
        trial += 1
        assert trial < 500, "the writers never got anywhere"
        writers = [context.Process(target=write_until_killed, args=(tmp_path, first)) for first in (0, 10**6)]
        for writer in writers:
            writer.start()
        for writer in writers:
            time.sleep(chance.uniform(0.0, 0.15))
            writer.kill()
            writer.join()
            assert writer.exitcode == -signal.SIGKILL
        store = FeatureCache(tmp_path, SMALL)
        seen = 0
        for first in (0, 10**6):
            i = first
            while (found := store.get(str(i))) is not None:
                assert found.shape == (1 + i % 4, 50, 16)
                assert (found == i % 1000).all()
                i += 1
            seen += i - first
        assert seen >= seen_before  # what was there stays there
        seen_before = seen
        with store:  # and it can be continued
            store.put(f"after {trial}", np.full((1, 50, 16), trial))
    found_after = FeatureCache(tmp_path, SMALL)
    assert all((found_after.get(f"after {trial}") == trial).all() for trial in range(1, 13))


def test_building_takes_constant_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recording(tmp_path / "long.wav", seconds=60)
    sizes: list[int] = []
    compute = LogMel.chunk_features

    def counted(self: LogMel, sound: torch.Tensor) -> torch.Tensor:
        sizes.append(len(sound))
        return compute(self, sound)

    monkeypatch.setattr(LogMel, "chunk_features", counted)
    with FeatureCache(tmp_path / "cache", SMALL) as store:
        n_chunks = len(store.features(path).features)
    assert n_chunks == sum(sizes) == 239
    assert max(sizes) == cache._BATCH_CHUNKS


def test_statistics_of_cached_recordings(tmp_path: Path) -> None:
    paths = [recording(tmp_path / f"{i}.wav", seed=i, seconds=1.6) for i in range(3)]
    with FeatureCache(tmp_path / "cache", SMALL, dtype="float32") as store:
        recordings = [store.features(path) for path in paths]
        stats = running_stats((item.tensor(), item.valid_frames) for item in recordings)
    real = np.concatenate(
        [chunk[:n] for item in recordings for chunk, n in zip(item.features, item.valid_frames, strict=True)]
    ).astype(np.float64)
    assert stats.count == real.size < sum(item.features.size for item in recordings)
    assert stats.mean == pytest.approx(real.mean())
    assert stats.std == pytest.approx(real.std())
