"""The windows in which boxes are heard. They lie on one grid, so boxes that are close share them.

A box is heard in every window that holds it whole, or whose middle it covers; there is always at least one. Windows
begin every half window (results/naming.json says why), and the last ends where the recording does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mast.arrays import Samples
from mast.audio import read

HOPS = 2  # windows that begin within one window's length
_READ_S = 30.0  # of sound in memory at once


@dataclass(frozen=True)
class WindowGrid:
    """Where the windows of a recording lie.

    Attributes:
        duration_s: of the recording.
        window_s: of a window.
        hops: windows that begin within one window's length.
    """

    duration_s: float
    window_s: float
    hops: int = HOPS

    @property
    def last_window(self) -> int:
        """The window that ends with the recording; a recording shorter than a window has only this one."""
        return math.ceil(max(0.0, self.duration_s - self.window_s) / (self.window_s / self.hops) - 1e-9)

    def start_s(self, window: int) -> float:
        """Where a window begins."""
        return max(0.0, min(window * self.window_s / self.hops, self.duration_s - self.window_s))

    def windows_for(self, start_s: float, end_s: float) -> list[int]:
        """The windows that a box is heard in; none where the recording ends before it begins."""
        if start_s >= self.duration_s:
            return []
        hop_s = self.window_s / self.hops
        first = min(max(math.floor((start_s - self.window_s) / hop_s), 0), self.last_window)
        final = min(max(math.ceil(end_s / hop_s), 0), self.last_window)
        begins = {window: self.start_s(window) for window in range(first, final + 1)}
        middles = {window: begin + self.window_s / 2 for window, begin in begins.items()}
        found = [
            window
            for window, begin in begins.items()
            if begin <= start_s <= end_s <= begin + self.window_s or start_s <= middles[window] <= end_s
        ]
        return found or [min(middles, key=lambda window: abs(middles[window] - (start_s + end_s) / 2))]


def read_windows(
    path: Path, grid: WindowGrid, windows: Sequence[int], sample_rate: int, samples: int
) -> Iterator[tuple[int, Samples]]:
    """The sound of windows in order, each filled up with silence where the recording is shorter.

    Windows that are near each other are read together, half a minute of sound at a time.

    Raises:
        AudioError: the recording cannot be read.
    """
    waiting = sorted(windows)
    while waiting:
        begin = grid.start_s(waiting[0])
        run = [w for w in waiting if grid.start_s(w) + grid.window_s - begin <= max(_READ_S, grid.window_s)]
        run = run or waiting[:1]
        waiting = waiting[len(run) :]
        first = round(begin * sample_rate)
        end_s = min(grid.duration_s, grid.start_s(run[-1]) + grid.window_s)
        sound = read(path, start_s=begin, end_s=max(end_s, begin), sample_rate=sample_rate)
        for window in run:
            piece = sound[round(grid.start_s(window) * sample_rate) - first :][:samples]
            yield window, np.pad(piece, (0, samples - len(piece)))


def isolate_band(sound: Samples, sample_rate: int, low_hz: float, high_hz: float) -> Samples:
    """A window reduced to a band with soft edges, widened by a quarter of its width plus 200 Hz on either side."""
    margin = 0.25 * (high_hz - low_hz) + 200.0
    hertz = np.fft.rfftfreq(len(sound), 1 / sample_rate)
    edge = 200.0
    rise = np.clip((hertz - (low_hz - margin)) / edge + 1, 0, 1)
    fall = np.clip(((high_hz + margin) - hertz) / edge + 1, 0, 1)
    return np.fft.irfft(np.fft.rfft(sound) * rise * fall, len(sound)).astype(np.float32)
