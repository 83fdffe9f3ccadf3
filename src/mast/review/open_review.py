"""A review that is open: its folder, its store and what is kept in memory."""

from __future__ import annotations

from pathlib import Path

from mast.errors import AudioError
from mast.review.intake import Intake, take_in
from mast.review.learning import Learning
from mast.review.lookalike_groups import Groups
from mast.review.lookalikes_store import open_lookalikes
from mast.review.records import read_recording
from mast.review.store import STORE, Store
from mast.review.tile_cache import TileCache
from mast.review.workspace import Workspace, open_workspace
from mast.runs import Progress


class Review:
    """What the requests work on.

    Args:
        workspace: the folder.
        seed: of the random order.
        progress: hears how many recordings have been read while the folder is opened.
    """

    def __init__(self, workspace: Workspace, *, seed: int = 0, progress: Progress | None = None) -> None:
        self.workspace = workspace
        self.store = Store(workspace.folder / STORE)
        self.intake: Intake = take_in(self.store, workspace, seed=seed, progress=progress)
        self.lookalikes = open_lookalikes(workspace.folder)
        self.learning = Learning(self.store, self.lookalikes)
        self.groups = Groups(self.store, self.lookalikes)
        self.tiles = TileCache()

    def path_of(self, recording_id: int) -> Path:
        """Where a recording lies, for reading.

        Raises:
            NotFoundError: there is none of that number.
            AudioError: it cannot be opened.
        """
        with self.store.reading() as db:
            row = read_recording(db, recording_id)
        return self.workspace.path(row["name"])

    def plain(self, error: AudioError) -> AudioError:
        """The same mistake without this machine's own paths, which a browser elsewhere need not see."""
        return AudioError(str(error).replace(f"{self.workspace.roots[0]}/", ""))

    def close(self) -> None:
        """Let go of the store."""
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
