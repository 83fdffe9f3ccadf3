"""Names of recordings as tables hold them: text, and no two alike.

On POSIX a file's name is bytes, and old cards hold some that are not UTF-8. Tables need text, so such bytes are
escaped: ``caf\\xe9.wav``. Where another file really has that name, they are escaped as in Python, ``caf\\udce9.wav``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

_SPELT = re.compile(rb"\\x([0-9a-f]{2})"), re.compile(rb"\\udc([0-9a-f]{2})")


def text_names(paths: Iterable[Path], root: Path) -> dict[Path, str]:
    """What each file below ``root`` is called in tables: its path relative to ``root``, as text; no two alike."""
    relative = {path: path.relative_to(root).as_posix() for path in paths}
    names = {path: name for path, name in relative.items() if _is_text(name)}
    taken = set(names.values())
    for path, name in relative.items():
        if path not in names:
            spelt = [
                os.fsencode(name).decode("utf-8", errors="backslashreplace"),
                name.encode("utf-8", errors="backslashreplace").decode(),
            ]
            numbered = (f"{spelt[1]}#{k}" for k in range(2, len(relative) + 3))  # more than there are files
            names[path] = next(one for one in (*spelt, *numbered) if one not in taken)
            taken.add(names[path])
    return {path: names[path] for path in relative}


def names_on_disk(name: str) -> list[str]:
    """What a file with this name in a table may really be called, most likely first."""
    found = [name]
    if "\\" in name:
        raw = name.encode("utf-8", errors="surrogateescape")
        for spelt in _SPELT:
            found.append(os.fsdecode(spelt.sub(lambda match: bytes([int(match[1], 16)]), raw)))
    return list(dict.fromkeys(found))


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
