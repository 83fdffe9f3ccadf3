"""A review that is open: its folder, its store and what is kept in memory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from mast.errors import AudioError
from mast.review.intake import Intake, update_store
from mast.review.learning import Learner
from mast.review.lookalike_groups import LookalikeGroups
from mast.review.lookalikes_store import open_lookalikes
from mast.review.records import read_recording
from mast.review.silence import Silence
from mast.review.store import STORE, Store
from mast.review.tile_cache import TileCache
from mast.review.workspace import Workspace, open_workspace
from mast.runs import Progress
from mast.spans import TimeSpan


class Review:
    """What the requests work on.

    Args:
        workspace: the folder.
        seed: of the random order.
        progress: called with how many recordings have been read while the folder is opened.
    """

    def __init__(self, workspace: Workspace, *, seed: int = 0, progress: Progress | None = None) -> None:
        self.workspace = workspace
        self.store = Store(workspace.folder / STORE)
        self.intake: Intake = update_store(self.store, workspace, seed=seed, progress=progress)
        self.lookalikes = open_lookalikes(workspace.folder)
        self.learner = Learner(self.store, self.lookalikes)
        self.groups = LookalikeGroups(self.store, self.lookalikes)
        self.tiles = TileCache()
        self.silence = Silence(workspace.folder, self.store)
        self.silence.all_spans()  # a list that cannot be understood is refused here, before anybody listens

    def path_of(self, recording_id: int) -> Path:
        """Where a recording lies, for reading.

        Raises:
            NotFoundError: there is none of that number.
            AudioError: it cannot be opened.
        """
        with self.store.reading() as db:
            row = read_recording(db, recording_id)
        return self.workspace.path(row["name"])

    def silent_spans(self, recording_id: int) -> tuple[TimeSpan, ...]:
        """Stretches of a recording that the page does not play, because somebody speaks there.

        Raises:
            NotFoundError: there is none of that number.
            ConfigError: the list of speech cannot be understood.
        """
        with self.store.reading() as db:
            row = read_recording(db, recording_id)
        return self.silence.spans(row["name"])

    def readable_recordings(self) -> dict[str, Path]:
        """Recordings that can be opened: name → path."""
        with self.store.reading() as db:
            names = [
                row["name"]
                for row in db.execute("SELECT name FROM recordings WHERE error = '' ORDER BY name")
            ]
        found: dict[str, Path] = {}
        for name in names:
            with suppress(AudioError):
                found[name] = self.workspace.path(name)
        return found

    def hide_root(self, error: AudioError) -> AudioError:
        """The same mistake without this machine's own paths, which a browser elsewhere need not see."""
        return AudioError(str(error).replace(f"{self.workspace.roots[0]}/", ""))

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def open_review(
    folder: str | Path,
    *,
    audio: str | Path | None = None,
    annotations: str | Path | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Review:
    """Open a folder for review; see :func:`mast.review.workspace.open_workspace`."""
    return Review(open_workspace(folder, audio=audio, annotations=annotations), seed=seed, progress=progress)
