"""What is open: a results folder of ``mast detect`` or a dataset, and where its recordings lie.

Only recordings inside the folder of the recordings can be opened, whatever name a table gives them and wherever a
link points: a name that leads out of the folder is refused.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from mast.annotations.detections import DETECTIONS, RUN, read_run
from mast.annotations.recording_names import RecordingNames
from mast.audio import AUDIO_SUFFIXES, find_recordings, names_on_disk, text_names
from mast.errors import AudioError, ConfigError, not_a_folder

# our choice where none is stated: a calibrated score of 0.5 is a coin's toss
DEFAULT_THRESHOLD = 0.5


@dataclass(frozen=True)
class Workspace:
    """A folder to review.

    Attributes:
        folder: where ``review.sqlite`` and exports go.
        kind: what it holds.
        audio: the folder of the recordings.
        annotations: boxes of a dataset that are not in ``boxes.csv``.
        threshold: minimum score of a detection.
        moved: ``audio`` was given and is not the folder that the results were made from.
    """

    folder: Path
    kind: Literal["detections", "dataset"]
    audio: Path
    annotations: Path | None = None
    threshold: float = DEFAULT_THRESHOLD
    moved: bool = False
    _found: dict[str, Path] = field(default_factory=dict, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def title(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name or str(self.folder)

    @cached_property
    def roots(self) -> list[Path]:
        """The folders that names are relative to, as they really are on disk."""
        real = Path(os.path.realpath(self.audio))
        return [real, *([real / "audio"] if self.kind == "dataset" else [])]

    def path(self, name: str) -> Path:
        """Where a recording lies.

        Raises:
            AudioError: it is not there, or lies outside the folder of the recordings.
        """
        with self._lock:
            if name in self._found:
                return self._found[name]
        found = self._search(name)
        with self._lock:
            self._found[name] = found
        return found

    def _search(self, name: str) -> Path:
        for candidate in names_on_disk(name):
            for root in self.roots:
                path = self._find_inside(root, candidate)
                if path is not None:
                    return path
        if self.moved:
            for meant in names_on_disk(self._moved_names.of_path(name)):
                path = self._find_inside(self.roots[0], meant)
                if path is not None:
                    return path
        raise AudioError(
            f"{name}: not in {self.audio}; where the recordings have moved, start again with --audio FOLDER"
        )

    def _find_inside(self, root: Path, name: str) -> Path | None:
        """The recording of that name below a folder; ``None`` where there is none.

        Raises:
            AudioError: there is one, outside the folder, or something that is not a recording.
        """
        if "\0" in name:
            return None
        try:
            real = Path(os.path.realpath(root / name))
            if not real.is_file():
                return None
        except OSError:  # a name longer than the disk allows, a folder without permission
            return None
        if not real.is_relative_to(self.roots[0]):
            raise AudioError(
                f"{name}: lies outside {self.audio} and is not opened; move it there, or start with --audio and the "
                "folder that really holds it"
            )
        if real.suffix.lower() not in AUDIO_SUFFIXES:
            raise AudioError(f"{name}: not a recording (wav, flac, mp3, ogg, opus), so it is not opened")
        return real

    @cached_property
    def _moved_names(self) -> RecordingNames:
        """Recordings in the folder given, to find those that now lie under other folders."""
        return RecordingNames(text_names(find_recordings(self.audio), self.audio).values())


def open_workspace(
    folder: str | Path, *, audio: str | Path | None = None, annotations: str | Path | None = None
) -> Workspace:
    """Find out what a folder is.

    Args:
        folder: results of ``mast detect``, or a dataset.
        audio: where the recordings are now, if not where they were.
        annotations: boxes of a dataset in any format, if not in ``boxes.csv``.

    Raises:
        ConfigError: the folder is neither, or the recordings cannot be found.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: {not_a_folder(folder)}; expected a results folder of mast detect, or a folder of recordings"
        )
    given = Path(audio) if audio is not None else None
    if given is not None and not given.is_dir():
        raise ConfigError(f"--audio {given}: {not_a_folder(given)}; expected the folder of the recordings")
    if (folder / RUN).is_file():
        if annotations is not None:
            raise ConfigError(
                f"--annotations: {folder} holds detections, which are what is reviewed; leave it out"
            )
        return _open_detections(folder, given)
    return Workspace(
        folder, "dataset", given or folder, annotations=None if annotations is None else Path(annotations)
    )


def _open_detections(folder: Path, given: Path | None) -> Workspace:
    run = read_run(folder)
    assert run is not None  # checked before
    root, threshold = Path(run.root), DEFAULT_THRESHOLD if run.threshold is None else run.threshold
    if not (folder / DETECTIONS).is_file():
        raise ConfigError(
            f"{folder}: {DETECTIONS} is missing, so mast detect has not finished here; run it again to resume "
            "where it stopped"
        )
    if given is None and not root.is_dir():
        raise ConfigError(
            f"{folder}: its recordings were in {root}, which is not there now; say where they are with --audio FOLDER"
        )
    moved = given is not None and os.path.realpath(given) != os.path.realpath(root)
    return Workspace(folder, "detections", given or root, threshold=threshold, moved=moved)
