"""Every mistake a user can make, as one clear sentence.

A message says what was found, where (file, row, field), what was expected, and what to do.
The command line prints it on one line; ``--debug`` shows the traceback.
"""

from __future__ import annotations

import re


class MastError(Exception):
    """A user's mistake or a bad input, never a bug of ours."""


class AudioError(MastError):
    """A recording that cannot be read as sound."""


class AnnotationError(MastError):
    """An annotation file that cannot be understood."""


class ConfigError(MastError):
    """A recipe or an option that makes no sense."""


MOST_SHOWN = 400  # characters of a message: our choice, four lines of a terminal
_LAST_SHOWN = 120  # of them from the end, where a message says what to do


def shortened(text: object) -> str:
    """A message as it is shown to a user or written to a table: one line, printable, a few hundred characters.

    A long one loses its middle. Line breaks become spaces; what cannot be printed (a raw byte of a file name, an
    escape sequence for the terminal) is spelt out.

    >>> shortened("bad\\nname: 'a\\udcff\\x1b[2J.wav'")
    "bad name: 'a\\\\xff\\\\x1b[2J.wav'"
    """
    whole = str(text).strip()
    if len(whole) > 4 * MOST_SHOWN:  # the middle goes anyway: nothing below has to look at it
        whole = f"{whole[: 2 * MOST_SHOWN]} … {whole[-2 * MOST_SHOWN :]}"
    line = "".join(map(_printable, re.sub(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*", " ", whole)))
    if len(line) <= MOST_SHOWN:
        return line
    return f"{line[: MOST_SHOWN - _LAST_SHOWN - 3].rstrip()} … {line[-_LAST_SHOWN:].lstrip()}"


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    if (
        "\udc80" <= character <= "\udcff"
    ):  # a byte of a name on disk that is no text, spelt as tables spell it
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")
