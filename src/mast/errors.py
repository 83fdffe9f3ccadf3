"""Every mistake a user can make, as one clear sentence.

A message says what was found, where (file, row, field), what was expected, and what to do.
The command line prints it on one line; ``--debug`` shows the traceback.
"""

from __future__ import annotations


class MastError(Exception):
    """A user's mistake or a bad input, never a bug of ours."""


class AudioError(MastError):
    """A recording that cannot be read as sound."""


class AnnotationError(MastError):
    """An annotation file that cannot be understood."""


class ConfigError(MastError):
    """A recipe or an option that makes no sense."""
