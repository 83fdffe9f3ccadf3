"""Everything that can go wrong without a bug in mast, reported in one clear sentence.

A user's mistake is a :class:`MastError`: its message says what was found, where (file, row, field), what was expected,
and what to do. Faults of the machine (a full disk, a missing permission) may surface anywhere, as an ``OSError`` or
wrapped in a library's own error; :func:`machine_fault` makes the sentence, wherever it is shown in the end.
The command line prints either on one line; ``--debug`` shows the traceback.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path


class MastError(Exception):
    """A user's mistake or a bad input, never a bug of ours.

    >>> import mast
    >>> from mast.errors import MastError
    >>> try:
    ...     mast.load(precision=2.0)
    ... except MastError as error:
    ...     print(error)
    precision to reach is 2; expected above 0 and at most 1
    """


class AudioError(MastError):
    """A recording that cannot be read as sound."""


class AnnotationError(MastError):
    """An annotation file that cannot be understood."""


class ConfigError(MastError):
    """A recipe or an option that makes no sense."""


MAX_SHOWN = 400  # characters of a message; our choice: four lines of a terminal
_FROM_WORKER = "Original Traceback (most recent call last)"
_LAST_SHOWN = 120  # this many of them from the end, where a message says what to do


def first_line(error: BaseException) -> str:
    """What a library says about an error, without the stack that some append.

    >>> first_line(ValueError("no header\\n  in line 3 of 7"))
    'no header'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def not_a_folder(path: Path) -> str:
    """Why a path is not the folder it should be, in the words of a message.

    >>> not_a_folder(Path("nowhere"))
    'no such folder'
    """
    return "is a file" if path.exists() else "no such folder"


def shorten(text: object) -> str:
    """A message as it is shown to a user or written to a table: one line, printable, a few hundred characters.

    A long one loses its middle. Line breaks become spaces; what cannot be printed (a raw byte of a file name, an
    escape sequence for the terminal) is spelt out.

    >>> shorten("bad\\nname: 'a\\udcff\\x1b[2J.wav'")
    "bad name: 'a\\\\xff\\\\x1b[2J.wav'"
    """
    message = str(text).strip()
    # torch passes on the traceback of a data loader's worker as the message
    if _FROM_WORKER in message[:MAX_SHOWN]:
        message = message.rpartition("\n")[2].partition(": ")[2]
    if len(message) > 4 * MAX_SHOWN:  # the middle is dropped anyway: do not process it below
        message = f"{message[: 2 * MAX_SHOWN]} … {message[-2 * MAX_SHOWN :]}"
    line = "".join(map(_printable, re.sub(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*", " ", message)))
    if len(line) <= MAX_SHOWN:
        return line
    return f"{line[: MAX_SHOWN - _LAST_SHOWN - 3].rstrip()} … {line[-_LAST_SHOWN:].lstrip()}"


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    # a byte of a file name that is not valid text, spelt as in tables
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


RUN_AGAIN = ", then run the same command again"
# what the machine can refuse, by the system's error number, and what to do about it
_REFUSALS = {
    errno.ENOSPC: f"the disk is full; free some space{RUN_AGAIN}",
    errno.EDQUOT: f"your quota on this disk is used up; free some space{RUN_AGAIN}",
    errno.EFBIG: "the file would be larger than the disk or a limit (ulimit -f) allows; choose another disk",
    errno.EROFS: "the disk is read-only; choose another folder",
    errno.EACCES: "permission denied; change the permissions, or choose another file or folder",
    errno.EPERM: "not permitted; change the permissions, or choose another file or folder",
    errno.ENOENT: "no such file or folder; check the path, and that nothing moved or deleted it meanwhile",
    errno.ENOTDIR: "a part of this path is a file, not a folder; check the path",
    errno.EISDIR: "is a folder; expected a file",
    errno.EEXIST: "exists already; choose another name, or remove it",
    errno.ENOTEMPTY: "the folder is not empty, perhaps because another process is writing into it; try again",
    errno.ENAMETOOLONG: "the name is too long for this disk; choose a shorter one",
    errno.ELOOP: "its symbolic links form a loop; check the path",
    errno.EMFILE: f"too many files are open; raise the limit (ulimit -n 4096) or use fewer workers{RUN_AGAIN}",
    errno.ENFILE: f"too many files are open on this machine; close other programs{RUN_AGAIN}",
    errno.EBUSY: f"in use by another program; wait for it to finish{RUN_AGAIN}",
    errno.EIO: f"the disk reports an error; check that it is connected and healthy{RUN_AGAIN}",
    errno.ENOMEM: f"not enough memory; close other programs, or use smaller batches or fewer workers{RUN_AGAIN}",
}
_NUMBERS = re.compile(r"\[errno (\d+)\]|\(os error (\d+)\)", re.IGNORECASE)
_PHRASES = {
    **{os.strerror(number).lower(): number for number in _REFUSALS},
    "cuda out of memory": errno.ENOMEM,
}
_QUOTED_PATH = re.compile(r"""(['"])((?:/|[A-Za-z]:\\).+?)\1""")
# SQLite's primary result codes
_SQLITE = {3: errno.EACCES, 5: errno.EBUSY, 6: errno.EBUSY, 8: errno.EROFS, 10: errno.EIO, 13: errno.ENOSPC,
           14: errno.EACCES}  # fmt: skip


def machine_fault(error: BaseException) -> str | None:
    """One sentence where the machine is at fault (disk, permissions, memory); ``None`` where it is not.

    >>> machine_fault(OSError(errno.ENOSPC, "No space left on device", "out/run.json"))
    'out/run.json: the disk is full; free some space, then run the same command again'
    """
    number = errno_of(error)
    if number is None:
        return None
    sentence = _REFUSALS.get(number) or os.strerror(number).lower()
    place = _path_in_error(error)
    if number == errno.EEXIST and os.path.isfile(place):  # where a folder was to be made
        sentence = "is a file; expected a folder, so choose another path"
    return f"{place}: {sentence}" if place else sentence


def errno_of(error: BaseException) -> int | None:
    """The system's error number, even if a library reports the error only in words; ``None`` without one.

    >>> errno_of(RuntimeError("write failed: No space left on device")) == errno.ENOSPC
    True
    """
    if isinstance(error, MastError):
        return None
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return error.errno
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return _SQLITE.get(code & 0xFF)
    text = str(error)
    found = _NUMBERS.search(text)
    if found is not None:
        return int(found[1] or found[2])
    number = next((number for phrase, number in _PHRASES.items() if phrase in text.lower()), None)
    return number if number is not None or error.__cause__ is None else errno_of(error.__cause__)


def _path_in_error(error: BaseException) -> str:
    """The file or folder that an error is about; empty if it does not say."""
    if isinstance(error, OSError):
        for name in (error.filename2, error.filename):  # the target of a move or copy first
            if isinstance(name, str | bytes):
                return os.fsdecode(name)
    quoted = _QUOTED_PATH.findall(str(error).strip().rpartition("\n")[2])  # not the files of a traceback
    return str(quoted[-1][1]) if quoted else ""
