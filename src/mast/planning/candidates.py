"""The clips a person could listen to next: all sound that nobody has listened to, cut into equal pieces.

Clips begin where the detector's training chunks begin (every half chunk from the start of a recording), because a
chunk counts as labelled only where all of it was heard: a clip that began elsewhere would waste its edges.
"""

from __future__ import annotations

import math
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pandas as pd

from mast.data.recordings import SLACK_S, Dataset, parse_clock
from mast.errors import ConfigError
from mast.grid import FrontEnd
from mast.spans import TimeSpan

UNKNOWN_HOUR = -1  # of recordings without a clock: an hour of its own
CHUNKS_PER_CLIP = 3  # default length, our choice: half a minute is enough context and five training chunks


def default_clip_s(front_end: FrontEnd) -> float:
    """Seconds of a clip where no length is given: three chunks, 30.72 s for the paper's front end."""
    return CHUNKS_PER_CLIP * front_end.chunk_s


def candidate_clips(dataset: Dataset, front_end: FrontEnd, clip_s: float) -> pd.DataFrame:
    """Every clip of sound that nobody has listened to, none overlapping another.

    What is left of a stretch after its last whole clip is a clip, too, where it holds at least half a chunk; so a
    recording shorter than a clip is one clip.

    Args:
        dataset: recordings, and which parts were listened to.
        front_end: its chunks say where clips begin.
        clip_s: seconds of a clip.

    Returns:
        One row per clip, by recording and time: ``recording``, ``start_s``, ``end_s``, ``site``, ``datetime`` (ISO 8601
        of the clip's start, empty where unknown) and ``hour`` (0–23, or −1 where unknown).
    """
    if not clip_s > 0:
        raise ConfigError(f"clips of {clip_s:g} s make no sense; expected a length above 0")
    heard = dataset.heard_spans()
    rows: list[tuple[str, float, float]] = []
    for name, duration in zip(dataset.recordings["file"], dataset.recordings["duration_s"], strict=True):
        for start, end in _unheard_spans(float(duration), heard.get(str(name), [])):
            cut = _cut_clips(start, end, front_end, clip_s)
            if not cut and end - start >= float(duration) - SLACK_S:
                cut = [(start, end)]  # a recording shorter than half a chunk is still a sound to look at
            rows += [(str(name), a, b) for a, b in cut]
    return with_site_and_time(pd.DataFrame(rows, columns=["recording", "start_s", "end_s"]), dataset)


def heard_clips(dataset: Dataset, clip_s: float) -> pd.DataFrame:
    """What was listened to already, in pieces of at most a clip, with the same columns as the candidates."""
    rows: list[tuple[str, float, float]] = []
    for name, spans in dataset.heard_spans().items():
        for start, end in spans:
            pieces = max(1, math.ceil((end - start) / clip_s - 1e-6))
            edges = [min(start + k * clip_s, end) for k in range(pieces + 1)]
            rows += [(name, a, b) for a, b in pairwise(edges)]
    return with_site_and_time(pd.DataFrame(rows, columns=["recording", "start_s", "end_s"]), dataset)


def training_chunks(clip_s: float, front_end: FrontEnd) -> int:
    """How many training chunks, every half chunk, lie wholly inside a clip."""
    return max(0, math.floor((clip_s - front_end.chunk_s + SLACK_S) / (front_end.chunk_s / 2)) + 1)


def with_site_and_time(clips: pd.DataFrame, dataset: Dataset) -> pd.DataFrame:
    """Clips with the site, wall-clock time and hour of where they begin."""
    known = dataset.recordings.set_index("file")
    began = {str(name): parse_clock(str(text)) for name, text in known["datetime"].items()}
    times = [
        None if (clock := began[name]) is None else clock + timedelta(seconds=float(start))
        for name, start in zip(clips["recording"], clips["start_s"], strict=True)
    ]
    return pd.DataFrame(
        {
            "recording": clips["recording"].astype(object),
            "start_s": clips["start_s"].astype("float64"),
            "end_s": clips["end_s"].astype("float64"),
            "site": clips["recording"].map(known["site"]).fillna("").astype(object),
            "datetime": ["" if t is None else t.isoformat(timespec="milliseconds") for t in times],
            "hour": np.array([UNKNOWN_HOUR if t is None else t.hour for t in times], dtype=np.int64),
        }
    )


def _unheard_spans(duration_s: float, heard: list[TimeSpan]) -> list[TimeSpan]:
    """The parts of a recording that are in none of the joined spans."""
    edges = [0.0, *(edge for span in heard for edge in span), duration_s]
    stretches = zip(edges[::2], edges[1::2], strict=True)
    return [(a, min(b, duration_s)) for a, b in stretches if min(b, duration_s) - a > SLACK_S]


def _cut_clips(start_s: float, end_s: float, front_end: FrontEnd, clip_s: float) -> list[TimeSpan]:
    """A stretch as clips that begin on the grid of half chunks and end inside it."""
    half_s = front_end.chunk_s / 2
    step = max(1, math.ceil(clip_s / half_s - 1e-6))  # clips begin this many half chunks apart
    first = math.ceil(start_s / half_s - 1e-6)
    clips = []
    for k in range(first, math.ceil(end_s / half_s), step):
        begin, end = k * half_s, min(k * half_s + clip_s, end_s)
        # what training can use: half a chunk at the end of a recording; or a short clip that was requested
        if end - begin >= min(half_s, clip_s) - SLACK_S:
            clips.append((begin, end))
    return clips
