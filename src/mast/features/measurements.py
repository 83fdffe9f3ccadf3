"""What people measure of a box: peak and centre frequency, where its energy lies, how far it stands out from the noise.

All of it is read off the power spectrogram of the recording at its own sample rate: a Hann window of 512 samples every
128. A cell belongs to a box where the middle of its frame and of its bin lie inside; a box between cells gets the
nearest one. The energy of a box is the sum over its cells.

| column | what it is |
|---|---|
| ``peak_hz`` | the bin with the most energy |
| ``center_hz`` | half of the energy lies below it |
| ``low_5_hz``, ``high_95_hz`` | 5 % of the energy lies below the one, 5 % above the other |
| ``start_5_s``, ``end_95_s`` | 5 % of the energy comes before the one, 5 % after the other; seconds of the recording |
| ``duration_90_s``, ``bandwidth_90_hz`` | their differences |
| ``snr_db`` | mean power of the box over the median power of its band just before and after it, in dB |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mast.arrays import FloatArray, IntArray
from mast.audio import probe, read

MEASUREMENTS = (
    "peak_hz",
    "center_hz",
    "low_5_hz",
    "high_95_hz",
    "start_5_s",
    "end_95_s",
    "duration_90_s",
    "bandwidth_90_hz",
    "snr_db",
)
WINDOW, HOP = 512, 128  # samples
_MARGIN_S = 0.5  # of noise before and after a box, and at least as much as the box lasts
_AT_ONCE_S = 30.0  # of sound in memory


def measure_events(path: str | Path, events: pd.DataFrame) -> pd.DataFrame:
    """The measurements of a recording's events, row by row; NaN where the recording ends before the event begins.

    Args:
        path: the recording.
        events: its events, in any order; columns ``start_s``, ``end_s``, ``low_hz``, ``high_hz``.

    Raises:
        AudioError: the recording cannot be read.
    """
    info = probe(path)
    boxes = events[["start_s", "end_s", "low_hz", "high_hz"]].to_numpy(dtype=np.float64)
    measured = np.full((len(boxes), len(MEASUREMENTS)), np.nan)
    frame_s = HOP / info.sample_rate
    margin_s = np.maximum(_MARGIN_S, boxes[:, 1] - boxes[:, 0])
    first, last = np.maximum(boxes[:, 0] - margin_s, 0.0), np.minimum(boxes[:, 1] + margin_s, info.duration_s)
    inside = np.flatnonzero(boxes[:, 0] < info.duration_s)
    for some, first_s, last_s in group_spans(first[inside], last[inside], at_once_s=_AT_ONCE_S):
        # frames lie where those of the whole recording do, and none that counts sees the edge of the piece
        first_frame = max(0, int(first_s / frame_s) - WINDOW // HOP)
        sound = read(path, start_s=first_frame * frame_s, end_s=last_s + WINDOW / info.sample_rate)
        power = power_spectrogram(sound)
        for row in inside[some]:
            measured[row] = measure_box(power, info.sample_rate, boxes[row], first_frame=first_frame)
    return pd.DataFrame(measured, columns=list(MEASUREMENTS), index=events.index)


def group_spans(
    first_s: FloatArray, last_s: FloatArray, *, at_once_s: float
) -> Iterator[tuple[IntArray, float, float]]:
    """Rows of spans that are near each other, and the span of sound that all of them need.

    Args:
        first_s: (N,) where each span begins, in any order.
        last_s: (N,) where it ends.
        at_once_s: longest span of several together.
    """
    rows: list[int] = []
    for row in np.argsort(first_s, kind="stable").tolist():
        if rows and max(last_s[row], last_s[rows].max()) - first_s[rows[0]] > at_once_s:
            yield np.array(rows), float(first_s[rows[0]]), float(last_s[rows].max())
            rows = []
        rows.append(row)
    if rows:
        yield np.array(rows), float(first_s[rows[0]]), float(last_s[rows].max())


def power_spectrogram(sound: NDArray[np.float32], *, window: int = WINDOW, hop: int = HOP) -> FloatArray:
    """(frames, bins) power; the middle of frame k is sample ``hop × k``."""
    padded = np.pad(sound.astype(np.float64), window // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[: len(sound) + 1 : hop]
    taper = np.hanning(window + 1)[:-1]
    power = np.empty((len(frames), window // 2 + 1))
    for at in range(0, len(frames), 1_024):
        power[at : at + 1_024] = np.abs(np.fft.rfft(frames[at : at + 1_024] * taper)) ** 2
    return power


def measure_box(
    power: FloatArray, sample_rate: int, box: Sequence[float] | FloatArray, *, first_frame: int = 0
) -> FloatArray:
    """The measurements of one box, in the order of :data:`MEASUREMENTS`.

    Args:
        power: (frames, bins) of the sound around it, as :func:`power_spectrogram` gives it.
        sample_rate: of that sound, Hz.
        box: start_s, end_s, low_hz, high_hz.
        first_frame: of ``power``, counted from the start of the recording, as the box's times are.
    """
    start_s, end_s, low_hz, high_hz = (float(edge) for edge in box)
    frame_s, bin_hz = HOP / sample_rate, sample_rate / WINDOW
    t1, t2 = cells_between(start_s / frame_s, end_s / frame_s, first_frame, len(power))
    f1, f2 = cells_between(low_hz / bin_hz, high_hz / bin_hz, 0, power.shape[1])
    cells = power[t1:t2, f1:f2]
    spectrum, envelope = cells.sum(axis=0), cells.sum(axis=1)
    if not spectrum.sum() > 0:
        return np.full(len(MEASUREMENTS), np.nan)  # digital silence has no peak
    low, center, high = (
        bin_hz * (f1 - 0.5 + _energy_quantile(spectrum, share)) for share in (0.05, 0.5, 0.95)
    )
    begin, end = (
        frame_s * (first_frame + t1 - 0.5 + _energy_quantile(envelope, share)) for share in (0.05, 0.95)
    )
    margin = max(1, round(max(_MARGIN_S, end_s - start_s) / frame_s))
    around = np.concatenate([power[max(0, t1 - margin) : t1, f1:f2], power[t2 : t2 + margin, f1:f2]])
    noise = float(np.median(around.mean(axis=1))) if len(around) else 0.0
    snr_db = 10 * np.log10(cells.mean() / noise) if noise > 0 else np.nan
    peak = bin_hz * (f1 + int(spectrum.argmax()))
    return np.array([peak, center, low, high, begin, end, end - begin, high - low, snr_db])


def cells_between(low: float, high: float, offset: int, n_cells: int) -> tuple[int, int]:
    """Cells whose middle lies between two edges, as a slice that begins at ``offset``; else the nearest one."""
    first, stop = int(np.ceil(low)) - offset, int(np.floor(high)) + 1 - offset
    if first >= stop or first >= n_cells or stop <= 0:
        first = min(max(round((low + high) / 2) - offset, 0), n_cells - 1)
        return first, first + 1
    return max(first, 0), min(stop, n_cells)


def _energy_quantile(energy: FloatArray, share: float) -> float:
    """Where this share of the energy lies to the left, in cells from the left edge of the first; even within a cell."""
    total = np.concatenate([[0.0], np.cumsum(energy)])
    return float(np.interp(share * total[-1], total, np.arange(len(total))))
