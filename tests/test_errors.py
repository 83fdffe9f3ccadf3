from __future__ import annotations

import errno
import os
import pickle
import sqlite3
from pathlib import Path

import pytest

from mast.errors import MAX_SHOWN, ConfigError, machine_fault, not_a_folder, shorten


def test_a_short_message_stays_as_it_is() -> None:
    sentence = "a  b.wav, line 3: found “×”, expected a number; see mast convert --help"
    assert shorten(sentence) == sentence
    assert shorten("") == ""
    assert shorten(ValueError("x" * MAX_SHOWN)) == "x" * MAX_SHOWN


@pytest.mark.parametrize("length", [MAX_SHOWN + 1, 4 * MAX_SHOWN + 1, 200_000, 3_000_000])
def test_a_long_message_keeps_its_beginning_and_its_end(length: int) -> None:
    cut = shorten("boxes.csv, line 2: found " + "9" * length + "; expected a number")
    assert len(cut) <= MAX_SHOWN
    assert cut.startswith("boxes.csv, line 2: found 99")
    assert " … " in cut
    assert cut.endswith("99; expected a number")


def test_it_is_one_line_that_can_be_printed_and_written_anywhere() -> None:
    hostile = "a\r\n  b\x00\x1b[2J\u2028c\udcff\ud800\t" + "\x07" * 300_000
    cut = shorten(hostile)
    assert cut.isprintable()
    assert len(cut) <= MAX_SHOWN
    assert cut.startswith("a b\\x00\\x1b[2J c\\xff\\ud800\\t\\x07")
    cut.encode("utf-8")


def test_a_path_that_is_not_a_folder_is_called_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "rec.wav").touch()
    assert not_a_folder(tmp_path / "rec.wav") == "is a file"
    assert not_a_folder(tmp_path / "none") == "no such folder"


def test_of_a_worker_s_traceback_only_the_message_counts() -> None:
    text = "Caught ConfigError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
    text += '  File "/lib/fetch.py", line 50, in fetch\n' * 30
    assert (
        shorten(ConfigError(f"{text}mast.errors.ConfigError: a.wav: too short: 1 s"))
        == "a.wav: too short: 1 s"
    )


def refused(number: int, *more: str) -> OSError:
    return OSError(number, os.strerror(number), *more)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EMFILE, "too many files are open"),
        (errno.ENAMETOOLONG, "name is too long"),
        (errno.ENOTDIR, "is a file, not a folder"),
        (errno.EIO, "reports an error"),
        (errno.ESTALE, "stale"),  # any other number: as the system calls it
    ],
)
def test_what_the_machine_refuses_is_one_sentence_with_the_file(number: int, words: str) -> None:
    of_file = refused(number, "out/a.csv")
    for error in (
        of_file,
        pickle.loads(pickle.dumps(of_file)),  # from a worker process
        OSError(
            f'Caught OSError in DataLoader worker process 0.\nOriginal Traceback\n File "/x.py"\n{of_file}'
        ),
    ):
        sentence = machine_fault(error)
        assert sentence is not None
        assert words in sentence
    assert machine_fault(of_file) == f"out/a.csv: {machine_fault(refused(number))}"
    moved = refused(number, "/tmp/a", None, "/out/b")  # type: ignore[arg-type]
    assert str(machine_fault(moved)).startswith("/out/b: ")


def test_libraries_that_tell_of_it_in_words() -> None:
    full = "No space left on device"
    for error in (
        RuntimeError(f"IoError: {full} (os error 28), /cargo/writer.rs:191:9"),
        RuntimeError(f"[enforce fail at inline_container.cc:747] . open file failed with strerror: {full}"),
        OSError(f"Error writing bytes to file. Detail: [errno 28] {full}"),
    ):
        assert machine_fault(error) == machine_fault(refused(errno.ENOSPC))
    wrapped = ValueError("cannot save")
    wrapped.__cause__ = refused(errno.ENOSPC, "a.bin")
    assert "the disk is full" in str(machine_fault(wrapped))
    assert "not enough memory" in str(machine_fault(MemoryError()))
    assert "not enough memory" in str(
        machine_fault(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
    )


def test_a_database_that_cannot_be_written(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "a.sqlite", isolation_level=None)
    db.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError) as full:
        db.execute("CREATE TABLE a AS SELECT zeroblob(100000)")
    assert "the disk is full" in str(machine_fault(full.value))
    with pytest.raises(sqlite3.OperationalError) as missing:
        sqlite3.connect(tmp_path / "none" / "a.sqlite")
    assert machine_fault(missing.value) is not None
    with pytest.raises(sqlite3.OperationalError) as bug:
        db.execute("SELECT nothing")
    assert machine_fault(bug.value) is None
    db.close()


def test_bugs_and_mistakes_are_not_the_machine_s_fault() -> None:
    for error in (
        ValueError("bad"),
        KeyError("a"),
        ConfigError("a: permission denied"),
        OSError("bad header"),
    ):
        assert machine_fault(error) is None
