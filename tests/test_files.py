from __future__ import annotations

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mast.errors import ConfigError
from mast.files import (
    atomic_file,
    atomic_folder,
    check_writable,
    remove_orphans,
    remove_partial_files,
    replace_folder,
    sole_writer,
    write_atomic,
)


def test_the_new_content_replaces_the_old_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "a.json"
    for content in (b"old", b"", b"new"):
        write_atomic(path, content)
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_somebody_else_writes(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with atomic_file(path) as part:
        part.write_bytes(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"

    def half() -> None:
        with atomic_file(path) as part:
            part.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_only_the_parts_of_that_file_are_removed(tmp_path: Path) -> None:
    for name in (".a.json.12.part", ".a.json.345.part", ".b.json.12.part", "a.json"):
        (tmp_path / name).touch()
    remove_partial_files(tmp_path / "a.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".b.json.12.part", "a.json"]
    remove_partial_files(tmp_path / "nowhere" / "a.json")


def test_a_new_file_has_ordinary_permissions_whoever_writes_it(tmp_path: Path) -> None:
    (tmp_path / "ordinary").touch()
    (tmp_path / "private").touch(mode=0o600)
    with atomic_file(tmp_path / "a") as part:
        (tmp_path / "private").replace(part)  # as safetensors does
    write_atomic(tmp_path / "b", b"")
    modes = {path.name: path.stat().st_mode for path in tmp_path.iterdir()}
    assert modes["a"] == modes["b"] == modes["ordinary"]


def test_what_cannot_be_written_is_known_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "a.csv", tmp_path / "new" / "folder" / "a.csv", tmp_path / "file"):
        check_writable(path)
    for path, number in (
        (tmp_path / "file" / "a.csv", errno.ENOTDIR),
        (tmp_path / "file" / "new" / "a.csv", errno.ENOTDIR),
        (tmp_path / "folder", errno.EISDIR),
        (tmp_path / ("x" * 300), errno.ENAMETOOLONG),
    ):
        with pytest.raises(OSError, match=os.strerror(number)) as told:
            check_writable(path)
        assert (told.value.errno, told.value.filename) == (number, str(path))

    def refuses(path: Path) -> None:  # root may write anywhere
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "touch", refuses)
    with pytest.raises(PermissionError) as denied:
        check_writable(tmp_path / "a.csv")
    assert denied.value.filename == str(tmp_path / "a.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_an_error_of_the_disk_names_the_file_that_was_to_be_written(tmp_path: Path, number: int) -> None:
    path = tmp_path / "a.json"

    def fails(error: Exception) -> OSError:
        with pytest.raises(OSError, match=os.strerror(number)) as told, atomic_file(path):
            raise error
        return told.value

    words = os.strerror(number)
    nameless, of_part = OSError(number, words), OSError(number, words, f"{tmp_path}/.a.json.1-2.part")
    library = RuntimeError(f"IoError: {words} (os error {number}), src/writer.rs:191:9")
    for error in (nameless, of_part, library):
        told = fails(error)
        assert (told.errno, told.filename) == (number, str(path))
    other = OSError(number, words, "input.wav")  # what is read while it is written keeps its own name
    assert fails(other) is other
    assert list(tmp_path.iterdir()) == []


def test_where_a_library_only_says_that_it_failed_the_disk_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.wav"
    failed = RuntimeError("Unspecified internal error.")
    with pytest.raises(RuntimeError) as told, atomic_file(path):
        raise failed
    assert told.value is failed  # there is space: the library's own fault

    def full_disk(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as full, atomic_file(path):
        raise failed
    assert full.value.filename == str(path)
    assert full.value.__cause__ is not None


def test_names_of_any_length_have_short_and_different_names_beside_them(tmp_path: Path) -> None:
    for name in ("é" * 120 + ".a", "é" * 120 + ".b", "🦜" * 60, "x" * 255):
        write_atomic(tmp_path / name, name.encode())
        with atomic_file(tmp_path / name) as part:
            part.write_bytes(b"beside")
            remove_partial_files(tmp_path / f"{name[:100]}z")
            assert part.exists()
        assert (tmp_path / name).read_bytes() == b"beside"


def test_a_folder_takes_the_place_of_another_or_leaves_it(tmp_path: Path) -> None:
    place = tmp_path / "out"
    for content in ("old", "new"):
        with atomic_folder(place) as part:
            (part / "a.txt").write_text(content)
        assert (place / "a.txt").read_text() == content
    with pytest.raises(ZeroDivisionError), atomic_folder(place) as part:  # noqa: PT012
        (part / "a.txt").write_text("half")
        raise ZeroDivisionError
    assert (place / "a.txt").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_many_may_replace_one_folder_at_once(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for turn in range(20):
            with atomic_folder(tmp_path / "out") as part:
                for name in ("a", "b"):
                    (part / name).write_text(f"{number} {turn}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    a, b = ((tmp_path / "out" / name).read_text() for name in ("a", "b"))
    assert a == b


_HOLD = """
import sys, time
from pathlib import Path
from mast.files import sole_writer
with sole_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_told_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = subprocess.Popen([sys.executable, "-c", _HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with (
            pytest.raises(ConfigError, match=r"run: is being written by another process"),
            sole_writer(folder),
        ):
            pytest.fail("two hold it")
        with sole_writer(folder, ".other.lock"):
            pass  # another part of the same folder
    finally:
        first.kill()
        first.communicate()
    with sole_writer(folder):
        (folder / "a").touch()
    with sole_writer(folder):
        pass  # and again by the same process


def test_a_folder_of_which_nothing_came_is_not_left_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError), sole_writer(tmp_path / "a" / "run"):
        raise ConfigError("no such dataset")
    assert not (tmp_path / "a" / "run").exists()


_KILLED = """
import os, signal, sys
from pathlib import Path
from mast.files import atomic_file, atomic_folder
with atomic_folder(Path(sys.argv[1], "deep", "raven")) as folder, atomic_file(Path(sys.argv[1], "a.json")) as part:
    part.write_text("half")
    (folder / "b.txt").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="whether a process runs can be asked on POSIX only")
def test_what_a_killed_process_left_goes_and_what_is_being_written_stays(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    left = list(tmp_path.rglob("*.part"))
    assert len(left) == 2
    other = left[0].with_name(".a.json.1-00000000-12345678.part")  # of another machine
    other.touch()
    with atomic_file(tmp_path / "b.json") as mine:
        mine.write_text("now")
        remove_orphans(tmp_path)
        assert sum(path.exists() for path in left) == 1  # one lies deeper
        remove_orphans(tmp_path, below=True)
        assert [path for path in left if path.exists()] == []
        assert mine.exists()
        assert other.exists()
    remove_orphans(tmp_path / "nowhere", below=True)


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    for name, files in (("new", ["a"]), ("old", ["a", "b"])):
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_text(name)
    replace_folder(tmp_path / "new", tmp_path / "old")
    assert [(p.name, p.read_text()) for p in (tmp_path / "old").iterdir()] == [("a", "new")]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "old"]
