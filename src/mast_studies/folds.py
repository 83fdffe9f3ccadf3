"""A dataset's recordings, divided in another way: sound is linked, tables are rewritten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd

from mast.data.recordings import Dataset, load_dataset
from mast.errors import MastError
from mast.files import write_atomic

_FACTS = ["site", "datetime", "duration_s", "sample_rate"]
_BOX = ["recording", "start_s", "end_s", "low_hz", "high_hz", "label"]


def write_fold(data: Path, folder: Path, number: int) -> Path:
    """Write a dataset in which one recording is the test part and the others train; returns its folder.

    Args:
        data: the labelled dataset.
        folder: where to write it; several processes may write the same one.
        number: of the fold. Recordings with boxes are the test part in turn, by name; after the last comes the first
            again.
    """
    dataset = load_dataset(data)
    boxed = sorted(set(dataset.annotations.events["recording"]))
    if len(boxed) < 3:
        raise MastError(
            f"{data}: {len(boxed)} of its recordings have boxes; to leave one out takes at least three, one to train "
            "on, one to validate on and one to test on"
        )
    tested = boxed[number % len(boxed)]
    parts = {str(name): "test" if name == tested else "train" for name in dataset.recordings["file"]}
    return write_parts(dataset, dataset.annotations.reviewed, parts, folder)


def write_parts(dataset: Dataset, heard: pd.DataFrame, parts: Mapping[str, str], folder: Path) -> Path:
    """Some recordings of a dataset as a dataset of their own; returns its folder.

    Args:
        dataset: all recordings and boxes.
        heard: ``recording, start_s, end_s`` of what counts as listened to; boxes elsewhere are left out.
        parts: the part of each recording to take; empty where the default division decides.
        folder: where to write it.
    """
    link_recordings(dataset, parts, folder)
    spans = heard.loc[heard["recording"].isin(list(parts)), ["recording", "start_s", "end_s"]]
    recordings = (
        dataset.recordings.set_index("file").loc[list(parts), _FACTS].assign(split=list(parts.values()))
    )
    boxes = events_in_spans(dataset.annotations.events, spans)[_BOX]
    _write(spans.rename(columns={"recording": "file"}), folder / "reviewed.csv")
    _write(boxes.rename(columns={"recording": "file"}), folder / "boxes.csv")
    _write(recordings.reset_index(), folder / "recordings.csv")
    return folder


def link_recordings(dataset: Dataset, names: Iterable[str], folder: Path) -> Path:
    """Some recordings of a dataset, and nothing else of it, as links in a folder; returns the folder."""
    for name in names:
        link = folder / "audio" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            link.symlink_to(dataset.path(name).resolve())
    return folder


def events_in_spans(events: pd.DataFrame, heard: pd.DataFrame) -> pd.DataFrame:
    """Events whose middle lies in one of the spans."""
    middle = (events["start_s"] + events["end_s"]) / 2
    kept = np.zeros(len(events), dtype=bool)
    for name, start_s, end_s in zip(heard["recording"], heard["start_s"], heard["end_s"], strict=True):
        kept |= ((events["recording"] == name) & (middle >= start_s) & (middle < end_s)).to_numpy()
    return events[kept].reset_index(drop=True)


def _write(table: pd.DataFrame, path: Path) -> None:
    write_atomic(path, table.to_csv(index=False).encode())
