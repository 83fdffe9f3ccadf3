"""The strongest harmonic of a call, without the others and without its echo.

Inside a box, with the noise floor of each frequency taken off: the band around the strongest frequency down to
``band_db`` below it, then, in that band, the time around the strongest moment down to ``time_db`` below it.

The spectrogram has windows of 256 samples and steps of 64 at the rate of the front end. So a window is 16 ms for birds
up to 8 kHz, 1 ms for bats up to 128 kHz and 64 ms for fish up to 2 kHz: the same picture at another speed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mast.arrays import FloatArray
from mast.audio import probe, read
from mast.features.measurements import cells_between, group_spans, power_spectrogram
from mast.grid import FrontEnd

WINDOW, HOP = 256, 64  # samples at the front end's rate
_AT_ONCE = 4  # chunks of sound in memory


def strongest_parts(
    path: str | Path, boxes: FloatArray, front_end: FrontEnd, *, band_db: float, time_db: float
) -> FloatArray:
    """Each box cut down to its strongest part, row by row.

    A box longer than a chunk of the front end stays as it is, as it is not a single call; so does one of silence.

    Args:
        path: the recording.
        boxes: (N, 4) rows ``start_s, low_hz, end_s, high_hz``, in any order; those after its end stay as they are.
        front_end: that the boxes were found with.
        band_db: how far below its strongest frequency the band ends.
        time_db: how far below its strongest moment the call ends.

    Raises:
        AudioError: the recording cannot be read.
    """
    found, frame_s, duration_s = boxes.copy(), HOP / front_end.sample_rate, probe(path).duration_s
    rows = np.flatnonzero((boxes[:, 2] - boxes[:, 0] <= front_end.chunk_s) & (boxes[:, 0] < duration_s))
    if not len(rows):
        return found
    # the noise floor is taken from as much sound as a chunk, around the middle of the box
    beside_s = (front_end.chunk_s - (boxes[rows, 2] - boxes[rows, 0])) / 2
    first_s = np.maximum(boxes[rows, 0] - beside_s, 0.0)
    last_s = np.minimum(boxes[rows, 2] + beside_s, duration_s)
    for some, begin_s, end_s in group_spans(first_s, last_s, at_once_s=_AT_ONCE * front_end.chunk_s):
        # no frame that counts sees the edge of the piece
        first_frame = max(0, int(begin_s / frame_s) - WINDOW // HOP)
        sound = read(
            path,
            start_s=first_frame * frame_s,
            end_s=end_s + WINDOW / front_end.sample_rate,
            sample_rate=front_end.sample_rate,
        )
        power = power_spectrogram(sound, window=WINDOW, hop=HOP)
        for k in some:
            own = slice(int(first_s[k] / frame_s) - first_frame, int(last_s[k] / frame_s) + 1 - first_frame)
            if own.start >= len(power):
                continue  # damaged sound may end here
            found[rows[k]] = strongest_part(
                power[own],
                front_end.sample_rate,
                boxes[rows[k]],
                first_frame=first_frame + own.start,
                band_db=band_db,
                time_db=time_db,
            )
    return found


def strongest_part(
    power: FloatArray,
    sample_rate: int,
    box: FloatArray,
    *,
    first_frame: int = 0,
    band_db: float,
    time_db: float,
) -> FloatArray:
    """One box cut down; see :func:`strongest_parts`.

    Args:
        power: (frames, bins) of the sound around the box, with :data:`WINDOW` and :data:`HOP`.
        sample_rate: of that sound, Hz.
        box: (4,) start_s, low_hz, end_s, high_hz.
        first_frame: of ``power``, counted from the start of the recording, as the box's times are.
        band_db: as above.
        time_db: as above.
    """
    frame_s, bin_hz = HOP / sample_rate, sample_rate / WINDOW
    t1, t2 = cells_between(box[0] / frame_s, box[2] / frame_s, first_frame, len(power))
    f1, f2 = cells_between(box[1] / bin_hz, box[3] / bin_hz, 0, power.shape[1])
    floor = np.median(power[:, f1:f2], axis=0)
    above = np.maximum(power[t1:t2, f1:f2] - floor, 0.0)
    low, high = _around_peak(above.max(axis=0), band_db)
    begin, end = _around_peak(above[:, low:high].max(axis=1), time_db)
    if not above.max() > 0:
        return box
    edges = [
        (first_frame + t1 + begin - 0.5) * frame_s,
        (f1 + low - 0.5) * bin_hz,
        (first_frame + t1 + end - 0.5) * frame_s,
        (f1 + high - 0.5) * bin_hz,
    ]
    return np.concatenate([np.maximum(edges[:2], box[:2]), np.minimum(edges[2:], box[2:])])


def _around_peak(level: NDArray[np.float64], db: float) -> tuple[int, int]:
    """The cells around the highest one that stay within ``db`` of it, as a slice."""
    peak = int(level.argmax())
    below = np.flatnonzero(level < level[peak] * 10 ** (-db / 10))
    after = np.searchsorted(below, peak)
    return (
        int(below[after - 1]) + 1 if after > 0 else 0,
        int(below[after]) if after < len(below) else len(level),
    )
