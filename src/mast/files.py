"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write beside, make sure it is on disk, move into place: a kill leaves the old file or the new one."""
    with whole_file(path) as part:
        part.write_bytes(content)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """:func:`write_whole` for what is written by somebody else: yields the path beside, to be written there.

    Where the block raises, the old file stays and what was written beside is removed. Whoever writes, the file ends up
    with the permissions that any new file gets here; some libraries would make it readable by its owner alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # the process number alone is not enough: containers that share a disk often have the same
    part = path.with_name(f"{_prefix(path)}{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        part.touch()
        mode = part.stat().st_mode
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        if part.stat().st_mode != mode:
            part.chmod(mode)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def remove_parts(path: Path) -> None:
    """Remove what killed writes of a file left beside it; only where no other process may be writing it now."""
    prefix = _prefix(path)
    if path.parent.is_dir():
        for left in list(path.parent.iterdir()):
            if left.name.startswith(prefix) and left.name.endswith(".part"):
                left.unlink(missing_ok=True)


def _prefix(path: Path) -> str:
    return f".{path.name[:80]}."  # short enough for any file system, whatever the name
