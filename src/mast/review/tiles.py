"""Spectrogram tiles: a picture of any span and band, made from just the samples it shows.

The window suits the picture: its length relates to its frequency resolution as a pixel's width does to its height, so
zooming in on time sharpens time. Where a column spans many windows it shows the loudest, so that a short call in an
hour's view is not lost; where a row spans many bins it shows the loudest of them, too. Levels are in dB below a
full-scale sine. A tile depends only on its own span, so neighbours fit together. Neither length nor zoom affects memory
use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mast.audio import AudioInfo, probe, read
from mast.review.colours import encode_png

MAX_WIDTH, MAX_HEIGHT, MAX_SPAN_S = 2_048, 1_024, 3_600.0

# our choices, by looking at birds at 48 kHz, bats at 384 kHz and fish at 4 kHz
_MIN_WINDOW, _MAX_WINDOW = 64, 2_048  # samples
_OVERLAP = 2  # windows that cover each sample, in columns that hold many
# samples transformed for one tile with overlap, twice that without; beyond that, only each column's middle is seen
_BUDGET = 1 << 26
_BLOCK = 1 << 21  # samples transformed at once: 8 MB, and 8 more for the spectra


@dataclass(frozen=True)
class View:
    """What a tile shows.

    Attributes:
        start_s: left edge.
        end_s: right edge; beyond the recording the tile is silent.
        low_hz: lower edge.
        high_hz: upper edge.
        width: pixels.
        height: pixels.
        floor_db: level of the first colour, relative to a full-scale sine.
        range_db: dB from the first colour to the last.
        colours: name of the colour table.
    """

    start_s: float
    end_s: float
    low_hz: float
    high_hz: float
    width: int = 512
    height: int = 256
    floor_db: float = -90.0
    range_db: float = 60.0
    colours: str = "magma"


@dataclass(frozen=True)
class Layout:
    """Where the windows of a view lie.

    Attributes:
        window: samples per window.
        per_column: windows per column.
        column: samples per column, not a whole number.
    """

    window: int
    per_column: int
    column: float


def choose_layout(view: View, sample_rate: int) -> Layout:
    """Choose the windows of a view."""
    column_s = (view.end_s - view.start_s) / view.width
    row_hz = (view.high_hz - view.low_hz) / view.height
    ideal = sample_rate * math.sqrt(column_s / row_hz)
    window = 2 ** round(math.log2(min(max(ideal, _MIN_WINDOW), _MAX_WINDOW)))
    column = column_s * sample_rate
    wanted = math.ceil(column * _OVERLAP / window)
    whole = math.ceil(column / window)  # side by side: all sound is seen, though faint where two windows meet
    affordable = _BUDGET // (window * view.width)
    return Layout(window, max(1, min(wanted, max(affordable, min(whole, 2 * affordable)))), column)


def render_tile(path: Path, view: View) -> bytes:
    """A PNG of a view.

    Raises:
        AudioError: the recording cannot be read.
    """
    return encode_png(to_levels(levels_db(path, view), view), view.colours)


def to_levels(picture: NDArray[np.float32], view: View) -> NDArray[np.uint8]:
    """dB as grey levels 0–255."""
    scaled = (picture - view.floor_db) * (255.0 / view.range_db)
    levels: NDArray[np.uint8] = np.clip(scaled + 0.5, 0, 255).astype(np.uint8)
    return levels


def levels_db(path: Path, view: View) -> NDArray[np.float32]:
    """(height, width) dB of a view, highest frequency first."""
    info = probe(path)
    rate = info.sample_rate
    plan = choose_layout(view, rate)
    centres = _window_centres(view, plan, rate)  # (W, m) in samples of the recording, not whole numbers
    starts = np.rint(centres - plan.window / 2).astype(np.int64)
    power = np.zeros((view.width, plan.window // 2 + 1), np.float32)
    # only columns that touch sound
    alive = np.flatnonzero((starts[:, -1] + plan.window > 0) & (starts[:, 0] < info.frames))
    group = max(1, _BLOCK // (plan.window * plan.per_column))
    taper = np.hanning(plan.window + 1)[:-1].astype(np.float32)
    scale = np.float32((2.0 / taper.sum()) ** 2)
    step = max(1, _BLOCK // plan.window)
    for at in range(0, len(alive), group):
        columns = alive[at : at + group]
        flat = starts[columns].reshape(-1)
        loudest = np.zeros((len(flat), plan.window // 2 + 1), np.float32) if plan.per_column <= step else None
        for begin in range(0, len(flat), step):
            some = flat[begin : begin + step]
            spectra = _spectra(info, some, taper)  # (n, bins)
            if loudest is not None:
                loudest[begin : begin + step] = spectra
            else:  # a single column of more windows than fit at once
                np.maximum(power[columns[0]], spectra.max(axis=0), out=power[columns[0]])
        if loudest is not None:
            power[columns] = loudest.reshape(len(columns), plan.per_column, -1).max(axis=1)
    power *= scale
    decibels = np.float32(10.0) * np.log10(np.maximum(power, np.float32(1e-20)))
    return _bins_to_rows(decibels, view, plan.window, rate)


def _window_centres(view: View, plan: Layout, rate: int) -> NDArray[np.float64]:
    """(W, m) middles of the windows of each column: spread evenly, or side by side if they are too few to cover it.

    Side by side they are read at once; scattered over an hour at 384 kHz, each would cost a seek.
    """
    share = min(1.0, plan.per_column * plan.window / plan.column)
    within = 0.5 + ((np.arange(plan.per_column) + 0.5) / plan.per_column - 0.5) * share
    return view.start_s * rate + (np.arange(view.width)[:, None] + within[None, :]) * plan.column


def _spectra(info: AudioInfo, starts: NDArray[np.int64], taper: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, bins) power of the windows that begin at ``starts``, ascending; silence where there is no sound."""
    from scipy.fft import rfft

    window = len(taper)
    frames = np.empty((len(starts), window), np.float32)
    begin = 0
    while begin < len(starts):
        # one read for windows that lie close together; a new one where there is a long gap
        gaps = np.flatnonzero(np.diff(starts[begin:]) > 2 * window)
        end = begin + (int(gaps[0]) + 1 if len(gaps) else len(starts) - begin)
        first, stop = int(starts[begin]), int(starts[end - 1]) + window
        sound = _read_padded(info, first, stop)
        views = np.lib.stride_tricks.sliding_window_view(sound, window)
        np.multiply(views[starts[begin:end] - first], taper, out=frames[begin:end])
        begin = end
    spectra = rfft(frames, axis=1)
    return np.square(spectra.real) + np.square(spectra.imag)  # type: ignore[no-any-return]


def _read_padded(info: AudioInfo, first: int, stop: int) -> NDArray[np.float32]:
    """Samples ``first`` up to ``stop`` of a recording, zeros before its start and after its end."""
    sound = np.zeros(stop - first, np.float32)
    begin, end = max(first, 0), min(stop, info.frames)
    if end > begin:
        found = read(info.path, start_s=begin / info.sample_rate, end_s=end / info.sample_rate)
        sound[begin - first : begin - first + len(found)] = found
    return sound


def _bins_to_rows(columns: NDArray[np.float32], view: View, window: int, rate: int) -> NDArray[np.float32]:
    """(W, bins) dB → (height, W), highest frequency first: the loudest bin of a row, or between two bins."""
    bins = columns.shape[1]
    edges = np.linspace(view.low_hz, view.high_hz, view.height + 1) * window / rate  # in bins
    if edges[1] - edges[0] > 1:
        begin = np.clip(np.rint(edges[:-1]).astype(np.int64), 0, bins - 1)
        picture = np.maximum.reduceat(columns, begin, axis=1)
        # reduceat reduces from each begin to the next; the last must not run to the end
        last = max(int(np.rint(edges[-1])), int(begin[-1]) + 1)
        picture[:, -1] = columns[:, begin[-1] : last].max(axis=1)
    else:
        at = np.clip((edges[:-1] + edges[1:]) / 2, 0, bins - 1)
        below = np.minimum(at.astype(np.int64), bins - 2)
        share = (at - below).astype(np.float32)
        picture = columns[:, below] * (1 - share) + columns[:, below + 1] * share
    beyond = edges[:-1] > bins - 1 + 0.5
    picture[:, beyond] = -200.0  # above half the sample rate there is nothing
    return np.ascontiguousarray(picture.T[::-1], dtype=np.float32)
