"""Files that are written whole or not at all, and folders that only one process writes at a time."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mast.errors import ConfigError, MastError, errno_of

_MAX_NAME_BYTES = 160  # of a name that is used unchanged; file systems allow 255, and we add about 40
_PART = re.compile(r"^\..*\.(?P<process>\d+)-(?P<machine>[0-9a-f]{8})-[0-9a-f]{8}\.part$", re.DOTALL)
_LOCK = ".lock"
_PROBE_BYTES = 1 << 20  # more than fits on a disk that has just refused something


def write_atomic(path: Path, content: bytes) -> None:
    """Write a temporary file, make sure it is on disk, then move it: a kill leaves the old file or the new one."""
    with atomic_file(path) as part:
        part.write_bytes(content)


def write_json(path: Path, content: Any) -> None:
    """Write JSON that people can read, too; undecodable bytes of file names survive. See :func:`write_atomic`."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_atomic(path, text.encode(errors="backslashreplace"))


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """:func:`write_atomic` for other writers: yields the path of a temporary file, which they write.

    If the block raises, the old file stays and the temporary one is removed. Whoever writes, the file ends up with the
    permissions that any new file gets here; some libraries would make it readable by its owner alone.

    Raises:
        OSError: with the file's name, if the disk refuses it, even if a library only reported that it failed.
    """
    with name_in_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _part_path(path)
        try:
            part.touch()
            mode = part.stat().st_mode
            yield part
            with open(part, "rb+") as file:
                os.fsync(file.fileno())
            if part.stat().st_mode != mode:
                part.chmod(mode)
            os.replace(part, path)
        except Exception as error:
            refused = None if errno_of(error) or isinstance(error, MastError) else _disk_error(part)
            part.unlink(missing_ok=True)
            if refused is not None:
                raise refused from error
            raise
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def check_writable(path: Path) -> None:
    """Check before hours of work that :func:`atomic_file` can write after them; leaves nothing behind.

    Raises:
        OSError: with the file's name, if no file can be written there.
    """
    with name_in_errors(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        there = next((folder for folder in path.parents if folder.exists()), path.parent)
        probe = there / _part_path(path).name
        probe.touch()
        probe.unlink()


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder to fill, which then replaces what was there; processes and threads take turns.

    If the block raises, the old folder stays and the new one is removed.
    """
    with name_in_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part, old = _part_path(path), _part_path(path)
        try:
            part.mkdir()
            yield part
            with locked(path.with_name(f"{_prefix(path)}lock")):
                if path.is_symlink() or path.exists():
                    os.replace(path, old)
                try:
                    os.replace(part, path)
                except BaseException:
                    with suppress(FileNotFoundError):
                        os.replace(old, path)
                    raise
        finally:
            for left in (part, old):
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink(missing_ok=True)


def holds_files(path: Path) -> bool:
    """Whether something is there that a command must not overwrite: a file, or a folder with visible files."""
    return path.is_file() or (path.is_dir() and any(inside.name[0] != "." for inside in path.iterdir()))


def replace_folder(source: Path, target: Path) -> None:
    """Copy a folder over another; a kill leaves the old one, none, or the new one, never half of one."""
    remove_orphans(target.parent)
    with atomic_folder(target) as part:
        shutil.copytree(source, part, dirs_exist_ok=True)


@contextmanager
def name_in_errors(path: Path) -> Iterator[None]:
    """Turn faults of the machine in the block into an ``OSError`` that names this file, whatever a library raises."""
    try:
        yield
    except Exception as error:
        number = errno_of(error)
        if number is None or _names_other_file(error, path):
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def _names_other_file(error: Exception, path: Path) -> bool:
    """Whether an error names a file other than the temporary one for ``path``."""
    named = (error.filename2 or error.filename) if isinstance(error, OSError) else None
    if not isinstance(named, str | bytes):
        return False
    return _prefix(path) not in os.fsdecode(named)


@contextmanager
def locked(path: Path, *, busy: Callable[[], None] = lambda: None, patience_s: float = 0.0) -> Iterator[None]:
    """Hold a lock file for the duration of the block; it is released with the process, however that ends.

    Args:
        path: of the lock; its folder is created.
        busy: called once if another process or thread holds the lock; may raise. Then the lock is waited for.
        patience_s: how long another may hold it before ``busy`` is called.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=patience_s)
    except Timeout:
        busy()
        lock.acquire()
    try:
        yield
    finally:
        with suppress(OSError):  # Windows does not delete an open file
            path.unlink()  # waiting processes notice, and make another
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds this lock now. Checking takes a free lock for an instant."""
    if not path.exists():
        return False
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:  # we are not allowed to take it
        return False
    lock.release()
    return False


@contextmanager
def sole_writer(folder: Path, name: str = _LOCK) -> Iterator[None]:
    """Let only one process at a time write a folder, or that part of it which ``name`` stands for.

    Raises:
        ConfigError: another process is writing it.
    """

    def refuse() -> None:
        raise ConfigError(
            f"{folder}: is being written by another process; wait until it has finished, or choose another --out"
        )

    if folder.is_file():
        raise ConfigError(f"{folder}: is a file; expected a new folder, or one from an earlier run")
    lock, is_new = folder / name, not folder.exists()
    with locked(lock, busy=refuse):
        try:
            yield
        finally:
            with suppress(OSError):
                if is_new and os.listdir(folder) == [name]:  # nothing was written
                    shutil.rmtree(folder)


def remove_partial_files(path: Path) -> None:
    """Remove what killed writes of a file left next to it; only where no other process may be writing it now."""
    prefix = _prefix(path)
    if path.parent.is_dir():
        for left in list(path.parent.iterdir()):
            if left.name.startswith(prefix) and left.name.endswith(".part"):
                left.unlink(missing_ok=True)


def remove_orphans(folder: Path, *, below: bool = False) -> None:
    """Remove what killed processes on this machine left half written; what others are writing now stays.

    Args:
        folder: where to look; it need not exist.
        below: also in all folders below it.
    """
    for where, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            match = _PART.search(name)
            if (
                match is not None
                and match["machine"] == machine_id()
                and not _is_running(int(match["process"]))
            ):
                if name in folders:
                    folders.remove(name)
                    shutil.rmtree(Path(where, name), ignore_errors=True)
                else:
                    with suppress(OSError):
                        os.unlink(Path(where, name))
        if not below:
            return


@cache
def machine_id() -> str:
    """Differs wherever process numbers mean other processes: on another machine, after a reboot, in a container."""
    known = [platform.node()]
    with suppress(OSError):
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        known.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:8]


def _is_running(process: int) -> bool:
    if os.name != "posix":
        return True  # on Windows, os.kill would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _disk_error(part: Path) -> OSError | None:
    """The disk's error when a file that a library could not write is made a little longer; often None."""
    try:
        with open(part, "ab") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None


def _part_path(path: Path) -> Path:
    return path.with_name(f"{_prefix(path)}{os.getpid()}-{machine_id()}-{secrets.token_hex(4)}.part")


def _prefix(path: Path) -> str:
    """The prefix of a file's hidden files: short enough for any file system, whatever the name."""
    raw = os.fsencode(path.name)
    if len(raw) <= _MAX_NAME_BYTES:
        return f".{path.name}."
    return f".{path.name[:20]}~{hashlib.sha256(raw).hexdigest()[:16]}."
