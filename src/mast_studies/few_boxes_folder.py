"""A folder as a user has it who drew a few boxes: recordings with some chunks listened to, and others to test on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from mast.data.recordings import Dataset
from mast.errors import ConfigError
from mast_studies.few_boxes_chunks import boxes_of_pieces, nested, pieces

LEAST_RECORDINGS = 3  # with boxes, which `mast fit` needs to divide short recordings into parts


def drawn_for_fit(learn: Dataset, chunk_s: float, boxes: int, *, seed: int) -> pd.DataFrame:
    """The chunks that a budget pays for: in a random order, but one of each recording before a second of any.

    `mast fit` asks for three recordings with boxes where they are short, so drawing goes on until there are three.

    Args:
        learn: recordings to draw from.
        chunk_s: length of a chunk.
        boxes: at least this many, in three recordings.
        seed: of the order.

    Returns:
        Chunks as in :func:`pieces`, with ``boxes``.
    """
    table = pieces(learn, chunk_s)
    # what training would drop
    table = table[(table["valid_s"] >= chunk_s / 2) | (table["start_s"] == 0)].reset_index(drop=True)
    counts = boxes_of_pieces(learn, table)
    order = np.array(nested(table, counts, int(counts.sum()), seed=seed))
    turn = table.iloc[order].groupby("recording").cumcount().to_numpy()
    order = order[np.argsort(turn, kind="stable")]
    for n in range(1, len(order) + 1):
        rows = table.iloc[order[:n]].assign(boxes=counts[order[:n]])
        boxed = rows.loc[rows["boxes"] > 0, "recording"].nunique()
        if rows["boxes"].sum() >= boxes and boxed >= LEAST_RECORDINGS:
            return rows.reset_index(drop=True)
    raise ConfigError(
        f"{learn.root}: {boxes} boxes in {LEAST_RECORDINGS} recordings asked for, but there are "
        f"{int(counts.sum())} in {len(learn.boxed_recordings)}; ask for fewer, or add recordings"
    )


def write_folder(dataset: Dataset, drawn: pd.DataFrame, tests: Mapping[str, str], folder: Path) -> Path:
    """Write what such a user has; sound is linked, not copied.

    Args:
        dataset: all recordings and boxes.
        drawn: chunks that were listened to.
        tests: further recordings, listened to as they are in the dataset, and the part that each belongs to.
        folder: new.
    """
    (folder / "audio").mkdir(parents=True)
    heard = drawn.assign(end_s=drawn["start_s"] + drawn["valid_s"])[["recording", "start_s", "end_s"]]
    events, spans = dataset.annotations.events, dataset.annotations.reviewed
    kept = [within(events, heard), events[events["recording"].isin(list(tests))]]
    spans = spans.loc[spans["recording"].isin(list(tests)), ["recording", "start_s", "end_s"]]
    names = [*dict.fromkeys(drawn["recording"]), *tests]
    about = dataset.recordings.set_index("file").loc[names, ["site", "datetime", "duration_s", "sample_rate"]]
    for name in names:
        link = folder / "audio" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(dataset.path(name).resolve())
    about.assign(split=[tests.get(name, "") for name in names]).reset_index().to_csv(
        folder / "recordings.csv", index=False
    )
    boxes = pd.concat(kept)[["recording", "start_s", "end_s", "low_hz", "high_hz", "label"]]
    for table, name in ((boxes, "boxes.csv"), (pd.concat([heard, spans]), "reviewed.csv")):
        table.rename(columns={"recording": "file"}).to_csv(folder / name, index=False)
    return folder


def within(events: pd.DataFrame, heard: pd.DataFrame) -> pd.DataFrame:
    """Events whose middle lies in one of the spans."""
    middle = (events["start_s"] + events["end_s"]) / 2
    kept = np.zeros(len(events), dtype=bool)
    for name, start_s, end_s in zip(heard["recording"], heard["start_s"], heard["end_s"], strict=True):
        kept |= ((events["recording"] == name) & (middle >= start_s) & (middle < end_s)).to_numpy()
    return events[kept].reset_index(drop=True)
