"""A dataset as the chunks a detector is trained on, with the boxes of each.

Chunks follow the rule of :mod:`mast.audio.windows` (10.24 s every 5.12 s; less than half a chunk of sound is
dropped, more is padded), but as a table made from durations alone, so that a chunk can be drawn at random
and read by seeking. A chunk counts as labelled only if all of it was listened to.

The paper's recordings are all longer than that. For users who label short clips, ``keep_short`` makes one padded chunk
of each recording that is shorter than half a chunk, as inference does.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import numpy as np
import pandas as pd

from mast.arrays import BoolArray, FloatArray, IntArray
from mast.data.recordings import SLACK_S, Dataset, parse_clock
from mast.data.splits import Split, SplitConfig, default_split, split_recordings
from mast.errors import ConfigError
from mast.events import boxes_of
from mast.grid import FrontEnd, events_to_grid
from mast.spans import TimeSpan


def chunk_table(
    dataset: Dataset, front_end: FrontEnd, *, hop_s: float | None = None, keep_short: bool = False
) -> pd.DataFrame:
    """All chunks of a dataset, in the order of its recordings.

    Args:
        dataset: its recordings' durations decide.
        front_end: length of a chunk.
        hop_s: seconds from chunk to chunk; half a chunk by default (App. "Data Processing").
        keep_short: a recording shorter than half a chunk is one chunk, instead of none.

    Returns:
        One row per chunk: ``recording``, ``start_s``, ``valid_s`` (seconds of sound, the rest is padding),
        ``site``, ``datetime`` (ISO 8601 start of the chunk, empty where unknown), ``hour`` (of the day, 0–23,
        missing where unknown), ``labelled`` (all of it was listened to).
    """
    table = dataset.recordings
    reviewed = dataset.heard_spans()
    placed = [
        chunk_starts(float(d), front_end, hop_s=hop_s, keep_short=keep_short) for d in table["duration_s"]
    ]
    counts = [len(starts) for starts, _ in placed]
    starts = np.concatenate([np.empty(0), *(starts for starts, _ in placed)])
    valid = np.concatenate([np.empty(0), *(valid for _, valid in placed)])
    labelled = [
        _lie_inside(own, own + sound, reviewed.get(name, []))
        for name, (own, sound) in zip(table["file"], placed, strict=True)
    ]
    began = [c for clock, n in zip(table["datetime"], counts, strict=True) for c in [parse_clock(clock)] * n]
    times = [None if t is None else t + timedelta(seconds=s) for t, s in zip(began, starts, strict=True)]
    return pd.DataFrame(
        {
            "recording": np.repeat(table["file"].to_numpy(dtype=object), counts),
            "start_s": starts,
            "valid_s": valid,
            "site": np.repeat(table["site"].to_numpy(dtype=object), counts),
            "datetime": ["" if t is None else t.isoformat(timespec="milliseconds") for t in times],
            "hour": pd.Series([None if t is None else t.hour for t in times], dtype="Int64"),
            "labelled": np.concatenate([np.empty(0, dtype=bool), *labelled]),
        }
    )


def chunk_starts(
    duration_s: float, front_end: FrontEnd, *, hop_s: float | None = None, keep_short: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Where the chunks of a recording begin and how much sound each holds, both (N,) in seconds.

    These are the chunks that :func:`mast.audio.windows` gives; a test checks this. ``keep_short`` does less here: what
    is left after the last chunk of a longer recording is still dropped, as in the paper.
    """
    size = front_end.chunk_samples
    hop = size // 2 if hop_s is None else round(hop_s * front_end.sample_rate)
    if hop < 1:
        raise ConfigError(
            f"chunks: a hop of {hop_s} s is less than one sample; expected, for example, {front_end.chunk_s / 2:g} s"
        )
    end = round(duration_s * front_end.sample_rate)
    n_full = 0 if end < size else (end - size) // hop + 1
    starts = np.arange(n_full, dtype=np.int64) * hop
    valid = np.full(n_full, size, dtype=np.int64)
    rest = n_full * hop  # where one more would begin
    reached = rest - hop + size if n_full else 0
    if reached < end and (2 * (end - rest) >= size or (keep_short and n_full == 0)):
        starts, valid = np.append(starts, rest), np.append(valid, end - rest)
    return starts / front_end.sample_rate, valid / front_end.sample_rate


def default_split_of(dataset: Dataset) -> SplitConfig:
    """How a dataset is divided by default."""
    return default_split(dataset.recordings, dataset.annotations.events["recording"])


def split_chunks(
    dataset: Dataset, chunks: pd.DataFrame, config: SplitConfig | None = None, *, seed: int = 0
) -> tuple[Split, pd.DataFrame]:
    """Divide a dataset, and its chunks with it; by default, as :func:`default_split_of` says.

    Returns:
        The split, and ``chunks`` with a column ``split``: the part that wholly holds the chunk, or empty for
        chunks that reach into a guard gap.
    """
    split = split_recordings(
        dataset.recordings,
        config or default_split_of(dataset),
        seed=seed,
        boxed=dataset.boxed_recordings,
        reviewed=dataset.reviewed_recordings,
        boxes=dataset.annotations.events[["recording", "start_s", "end_s"]],
        chunks=chunks,
    )
    length = chunks["recording"].map(dataset.recordings.set_index("file")["duration_s"])
    # a whole number of samples may be a little longer than the duration, which is rounded in files
    ends = np.minimum(chunks["start_s"] + chunks["valid_s"], length.astype("float64"))
    return split, chunks.assign(
        split=split.assign(list(chunks["recording"]), list(chunks["start_s"]), list(ends))
    )


def chunk_boxes(dataset: Dataset, chunks: pd.DataFrame, front_end: FrontEnd) -> list[IntArray]:
    """The boxes of each chunk in cells: a list of (M, 4), rows ``t1, f1, t2, f2``.

    A box across chunks appears in each; see :func:`mast.grid.events_to_grid` for what is clipped and dropped.
    """
    by_recording: dict[str, _Events] = {
        str(name): _Events.of(boxes_of(own)) for name, own in dataset.annotations.events.groupby("recording")
    }
    found: list[IntArray] = []
    for name, start, valid in zip(chunks["recording"], chunks["start_s"], chunks["valid_s"], strict=True):
        events = by_recording.get(name)
        if events is None:
            found.append(np.empty((0, 4), dtype=np.int64))
            continue
        # no box reaches into the padding
        frames = min(front_end.chunk_frames, int(np.ceil(valid / front_end.hop_s - 1e-6)))
        near = events.between(start, start + valid)
        found.append(events_to_grid(near, front_end, chunk_start_s=start, n_frames=frames).boxes)
    return found


class _Events(NamedTuple):
    """The boxes of a recording in order of start, so that those near a chunk are found quickly."""

    boxes: FloatArray  # (N, 4) start_s, low_hz, end_s, high_hz
    latest_end: FloatArray  # (N,) of this and all earlier boxes

    @classmethod
    def of(cls, boxes: FloatArray) -> _Events:
        ordered = boxes[np.argsort(boxes[:, 0], kind="stable")].reshape(-1, 4)
        return cls(ordered, np.maximum.accumulate(ordered[:, 2]))

    def between(self, start_s: float, end_s: float) -> FloatArray:
        first = int(np.searchsorted(self.latest_end, start_s, side="right"))
        stop = int(np.searchsorted(self.boxes[:, 0], end_s, side="left"))
        return self.boxes[first:stop]


def _lie_inside(starts: FloatArray, ends: FloatArray, spans: list[TimeSpan]) -> BoolArray:
    """Which stretches lie wholly inside one of the joined spans."""
    inside = np.zeros(len(starts), dtype=bool)
    for start, end in spans:
        inside |= (starts >= start - SLACK_S) & (ends <= end + SLACK_S)
    return inside
