"""What one recording is, for commands that read many: any error becomes that recording's own failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mast.audio.clock import Metadata, metadata
from mast.audio.probe import AudioInfo, probe
from mast.errors import AudioError, MastError, shorten


def describe(path: str | Path, root: str | Path | None = None) -> tuple[AudioInfo, Metadata]:
    """What a recording is, when and where it was made.

    Args:
        path: the recording.
        root: the folder of the whole dataset, whose folders may name sites.

    Raises:
        AudioError: any part of it cannot be read.
    """
    with as_audio_errors(path):
        return probe(path), metadata(path, root)


@contextmanager
def as_audio_errors(path: str | Path) -> Iterator[None]:
    """Turn whatever is raised while a recording is read into an :class:`AudioError` that names the recording."""
    try:
        yield
    except MastError:
        raise
    except OSError as error:
        reason = shorten(error.strerror or error)
        raise AudioError(f"{path}: cannot be read ({reason}); check the disk or card") from error
    except Exception as error:
        reason = shorten(f"{type(error).__name__}: {error}")
        raise AudioError(f"{path}: cannot be read ({reason}); copy it again or convert it") from error
