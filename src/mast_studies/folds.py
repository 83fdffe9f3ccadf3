"""Leave one recording out: a dataset's tables again, in which one recording tests and the others train."""

from __future__ import annotations

import os
from pathlib import Path

from mast.data.recordings import load_dataset
from mast.errors import MastError
from mast.files import write_whole

_COLUMNS = ("file", "site", "datetime", "duration_s", "sample_rate", "split")


def write_fold(data: Path, out: Path, number: int) -> Path:
    """A dataset in ``out`` that lists the recordings of ``data`` where they are; returns ``out``.

    Args:
        data: the labelled dataset.
        out: for its tables; replaced if it is there.
        number: of the fold. The recordings with boxes test in turn, by name; after the last the first tests again.
    """
    dataset = load_dataset(data)
    boxed = sorted(set(dataset.annotations.events["recording"]))
    if len(boxed) < 3:
        raise MastError(
            f"{data}: {len(boxed)} of its recordings have boxes; to leave one out takes at least three, one to train "
            "on, one to validate on and one to test on"
        )
    tested = boxed[number % len(boxed)]
    table = dataset.recordings
    files = [os.path.relpath(dataset.path(str(name)), out) for name in table["file"]]
    parts = ["test" if name == tested else "train" for name in table["file"]]
    listing = table.assign(file=files, split=parts)[list(_COLUMNS)]
    write_whole(out / "recordings.csv", listing.to_csv(index=False).encode())
    for name in ("boxes.csv", "reviewed.csv"):
        if (data / name).is_file():
            write_whole(out / name, (data / name).read_bytes())
    return out
