"""Recordings on disks and in stores: found, named and copied alike."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import fsspec
import pandas as pd
import pytest
from random_detector import write_sound
from same_results import assert_same_results
from small_s3 import small_s3
from typer.testing import Result

from mast.archive import locations as module
from mast.archive.locations import Copies, Recording, list_recordings
from mast.errors import AudioError, ConfigError, MastError
from mast.uris import open_uri

Run = Callable[..., Result]


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary copies are made, empty at first."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def names(arguments: list[str]) -> list[str]:
    return [recording.name for recording in list_recordings(arguments).recordings]


def put(store: fsspec.AbstractFileSystem, *keys: str) -> None:
    for key in keys:
        store.pipe_file(key, b"RIFF")


def test_a_store_is_listed_as_a_disk_is(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    keys = [
        "OAK/20230510_010000.wav",
        "OAK/notes.txt",
        "ELM/day 1/b.FLAC",
        ".trash/c.wav",
        "OAK/._d.wav",
        "a.mp3",
    ]
    for key in keys:
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(b"RIFF")
        memory.pipe_file(f"/survey/{key}", b"RIFF")
    assert names([str(tmp_path)]) == names(["memory://survey"]) == names([f"file://{tmp_path}"])
    assert names(["memory://survey"]) == ["ELM/day 1/b.FLAC", "OAK/20230510_010000.wav", "a.mp3"]
    listing = list_recordings(["memory://survey"])
    assert listing.root == "memory://survey"
    assert {listing.size_of()(recording.source) for recording in listing.recordings} == {4}


@pytest.mark.parametrize("given", ["memory://survey", "memory://survey/audio"])
def test_sites_and_times_of_a_dataset_in_a_store_are_those_of_its_listing(
    memory: fsspec.AbstractFileSystem, given: str
) -> None:
    put(memory, "/survey/audio/a.wav", "/survey/audio/deep/b.wav", "/survey/audio/c.wav")
    memory.pipe_file(
        "/survey/recordings.csv", b"file,site,datetime\na.wav,OAK,2023-05-10T06:00:00\ndeep/b.wav,ELM,\n"
    )
    stated = {r.name.rpartition("/")[2]: r.stated for r in list_recordings([given]).recordings}
    assert {name: about.site for name, about in stated.items()} == {
        "a.wav": "OAK",
        "b.wav": "ELM",
        "c.wav": None,
    }
    assert stated["a.wav"].datetime == datetime(2023, 5, 10, 6)


def test_a_damaged_listing_in_a_store_is_one_sentence(memory: fsspec.AbstractFileSystem) -> None:
    put(memory, "/survey/a.wav")
    memory.pipe_file("/survey/recordings.csv", b"file,datetime\na.wav,dawn\n")
    with pytest.raises(MastError, match=r"survey/recordings\.csv, line 2, datetime: 'dawn' is not"):
        list_recordings(["memory://survey"])


def test_a_full_disk_of_copies_stops_the_run_with_one_sentence(
    memory: fsspec.AbstractFileSystem,
    scratch: Path,
    run: Run,
    survey: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory.put(str(survey / "ELM"), "/elm", recursive=True)

    def full(far: object, near: object, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    result = run("memory://elm", "--model", model, "--out", tmp_path / "out")
    assert str(result.exception) == (
        f"{scratch}: the disk is full; free some space, then run the same command again"
    )
    assert not list((tmp_path / "out").rglob("*.failed.json"))
    assert list(scratch.iterdir()) == []


def test_several_places_of_a_store_each_recording_once(memory: fsspec.AbstractFileSystem) -> None:
    put(memory, "/s/OAK/a.wav", "/s/OAK/b.wav", "/s/ELM/c.wav")
    assert names(["memory://s/OAK", "memory://s/OAK/b.wav"]) == ["a.wav", "b.wav"]
    assert names(["memory://s/OAK/b.wav", "memory://s/ELM"]) == ["ELM/c.wav", "OAK/b.wav"]
    assert names(["memory://s/ELM/c.wav"]) == ["c.wav"]


def test_hostile_keys_stay_inside_the_results(
    monkeypatch: pytest.MonkeyPatch, memory: fsspec.AbstractFileSystem
) -> None:
    assert module._safe_name("../../etc/a.wav") == "%2E%2E/%2E%2E/etc/a.wav"
    assert module._safe_name("a//./b.wav") == "a/%2F/%2E/b.wav"
    assert module._safe_name("a..b/..c.wav") == "a..b/..c.wav"


def test_mistakes(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    put(memory, "/s/notes.txt")
    for arguments, kind, message in (
        (["memory://s"], AudioError, "no recordings found"),
        (["memory://typo"], AudioError, "no such file or folder"),
        ([str(tmp_path), "memory://s"], ConfigError, "local folders and URIs"),
        (["memory://s", "s3://s"], ConfigError, "different stores"),
        (["nosuch://s"], ConfigError, "cannot be opened here"),
    ):
        with pytest.raises(kind, match=message):
            list_recordings(arguments)


def test_results_go_to_a_disk(run: Run, survey: Path, model: Path) -> None:
    result = run(survey, "--model", model, "--out", "s3://bucket/results")
    assert isinstance(result.exception, ConfigError)
    assert "must be on a local or shared disk" in str(result.exception)
    assert not Path("s3:").exists()


def test_detect_from_a_store_finds_what_it_finds_on_a_disk(
    memory: fsspec.AbstractFileSystem,
    scratch: Path,
    run: Run,
    whole: Path,
    survey: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory.put(str(survey), "/archive", recursive=True)
    arguments = ("memory://archive", "--model", model, "--out", tmp_path / "out")
    peak = 0
    fetch = Copies.fetch

    def counted(self: Copies, recording: Recording):  # type: ignore[no-untyped-def]
        nonlocal peak
        source = fetch(self, recording)
        peak = max(peak, len(list(scratch.rglob("*.wav"))))
        return source

    monkeypatch.setattr(Copies, "fetch", counted)
    assert run(*arguments).exit_code == 4
    assert_same_results(tmp_path / "out", whole)
    assert 1 <= peak <= 6  # decoding runs a little ahead; copies do not pile up
    assert list(scratch.iterdir()) == []
    found = pd.read_parquet(tmp_path / "out" / "detections.parquet")
    assert set(found["site"]) == {"OAK", "ELM"}
    assert set(found["datetime"].str[:10]) == {"2023-05-10"}

    # a second time nothing is fetched but what failed and what has changed
    fetched: list[str] = []
    monkeypatch.setattr(Copies, "fetch", lambda self, r: fetched.append(r.name) or fetch(self, r))
    memory.pipe_file("/archive/OAK/20230510_000000.wav", write_sound(tmp_path / "x.wav", 3).read_bytes())
    assert run(*arguments).exit_code == 4
    assert fetched == ["OAK/20230510_000000.wav", "OAK/broken.wav"]


def test_what_cannot_be_fetched_is_a_failure_and_is_tried_three_times(
    memory: fsspec.AbstractFileSystem,
    scratch: Path,
    run: Run,
    survey: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory.put(str(survey / "ELM"), "/elm", recursive=True)
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    tries: dict[str, int] = {}
    store, _ = open_uri("memory://elm")

    class Flaky:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        def open_input_stream(self, path: str) -> object:
            tries[path] = tries.get(path, 0) + 1
            hour = path[-10:-8]
            if hour == "03" or (hour == "05" and tries[path] < 3):
                raise OSError(f"slow down\n{path}")
            return store.open_input_stream(path)

    monkeypatch.setattr(module, "open_uri", lambda uri: (Flaky(), open_uri(uri)[1]))
    result = run("memory://elm", "--model", model, "--out", tmp_path / "out")
    assert result.exit_code == 4, result.output
    failures = pd.read_csv(tmp_path / "out" / "failures.csv")
    assert failures["file"].tolist() == ["20230510_030000.wav"]
    assert failures["reason"][0].startswith("cannot be fetched (slow down)")
    assert sorted(tries.values()) == [1, 1, 1, 1, 3, 3]
    assert pd.read_csv(tmp_path / "out" / "detections.csv")["recording"].nunique() == 5
    assert list(scratch.iterdir()) == []


def test_copies_of_the_dead_are_removed_those_of_the_living_are_not(
    memory: fsspec.AbstractFileSystem, scratch: Path
) -> None:
    if os.name == "nt":
        pytest.skip("no locks to tell them apart there")
    put(memory, "/s/a.wav")
    (recording,) = list_recordings(["memory://s"]).recordings
    with Copies() as living:
        copy = living.fetch(recording).path
        orphan = scratch / "mast-copies-dead"
        orphan.mkdir()
        (orphan / ".alive").touch()
        with Copies() as other:
            assert other.fetch(recording).path.read_bytes() == b"RIFF"
        assert copy.exists()
        assert not orphan.exists()
    assert not copy.exists()


def test_s3_without_further_packages(tmp_path: Path) -> None:
    for key in ("2023/OAK/20230510_010000.wav", "2023/ELM/b.wav", "2023/notes.txt", "2024/c.wav"):
        (tmp_path / "forest" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "forest" / key).write_bytes(b"RIFF" * 1000)
    with small_s3(tmp_path) as server:
        listing = list_recordings([f"s3://someone:secret@forest/2023{server}"])
        assert [recording.name for recording in listing.recordings] == [
            "ELM/b.wav",
            "OAK/20230510_010000.wav",
        ]
        assert listing.root == "s3://forest/2023"
        with Copies() as copies:
            assert copies.fetch(listing.recordings[1]).path.read_bytes() == b"RIFF" * 1000
        with pytest.raises(AudioError, match="no such file or folder"):
            list_recordings([f"s3://someone:secret@forest/1999{server}"])
