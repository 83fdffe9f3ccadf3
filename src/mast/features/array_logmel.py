"""Log-mel in NumPy, where torch is not needed otherwise: :class:`mast.features.logmel.LogMel` to rounding.

Pre-emphasis is done once for the whole sound instead of frame by frame, and the mean of each frame is taken off
afterwards, where it is the mean times what pre-emphasis leaves of a constant.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from mast.arrays import Samples
from mast.features.mel_bank import FLOOR, PREEMPHASIS, check_bank, fft_size, mel_bank, narrow_blocks
from mast.grid import FrontEnd

_FRAMES = 128  # worked on at a time, our choice: they stay in the caches
# samples below this are silence: their power is far below the floor, and CPUs are slow with numbers so close to zero
_SILENCE = np.float32(1e-9)


class ArrayLogMel:
    """Sound → Kaldi log-mel; may be called from several threads at once.

    Args:
        front_end: the grid.

    Raises:
        ConfigError: if more than an eighth of the mel bins are empty.

    >>> ArrayLogMel(FrontEnd())(np.zeros(16_000, dtype=np.float32)).shape
    (98, 128)
    """

    def __init__(self, front_end: FrontEnd) -> None:
        self.front_end = front_end
        bank = mel_bank(front_end)
        check_bank(front_end, int((~bank.any(axis=0)).sum()))
        n = np.arange(1, front_end.window_samples)
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * n / (front_end.window_samples - 1))
        self._window = hann.astype(np.float32)  # without its first value, which is zero
        # a spectrum as an array of floats has two numbers per frequency, both of which are squared and summed
        self._blocks = [
            (slice(2 * rows.start, 2 * rows.stop), bins, np.repeat(bank[rows, bins], 2, axis=0))
            for rows, bins in narrow_blocks(bank)
        ]

    def __call__(self, sound: Samples) -> NDArray[np.float32]:
        """Log-mel of every whole frame: (samples,) → (T, n_bins), T may be 0, as :meth:`LogMel.forward` gives it."""
        grid = self.front_end
        if len(sound) < grid.window_samples:
            return np.zeros((0, grid.n_bins), dtype=np.float32)
        emphasised = np.zeros_like(sound)
        np.multiply(sound[:-1], np.float32(-PREEMPHASIS), out=emphasised[1:])
        emphasised[1:] += sound[1:]
        frames = sliding_window_view(emphasised, grid.window_samples)[:: grid.hop_samples, 1:]
        means = sliding_window_view(sound, grid.window_samples)[:: grid.hop_samples].mean(axis=1)
        means *= np.float32(1.0 - PREEMPHASIS)
        result = np.empty((len(frames), grid.n_bins), dtype=np.float32)
        # NumPy always transforms in float64, and converting its input takes twice as long as the transform
        windowed = np.empty((_FRAMES, grid.window_samples - 1), dtype=np.float32)
        padded = np.zeros((_FRAMES, fft_size(grid)))
        spectrum = np.empty((_FRAMES, fft_size(grid) // 2 + 1), dtype=np.complex128)
        rounded = np.empty_like(spectrum, dtype=np.complex64)
        for start in range(0, len(frames), _FRAMES):
            stop = min(start + _FRAMES, len(frames))
            count = stop - start
            inside = windowed[:count]
            np.subtract(frames[start:stop], means[start:stop, None], out=inside)
            inside *= self._window
            _silence(inside)
            padded[:count, 1 : grid.window_samples] = inside
            np.fft.rfft(padded[:count], out=spectrum[:count])
            rounded[:count] = spectrum[:count]
            self._mel(rounded[:count], result[start:stop])
        np.maximum(result, np.float32(FLOOR), out=result)
        return np.log(result, out=result)

    def chunk(self, sound: Samples) -> NDArray[np.float32]:
        """Features of a whole chunk: (chunk_samples,) → (chunk_frames, n_bins), as :meth:`LogMel.chunk_features`."""
        grid = self.front_end
        needed = (grid.chunk_frames - 1) * grid.hop_samples + grid.window_samples
        centred = np.zeros(max(needed, len(sound)), dtype=np.float32)
        np.subtract(sound, sound.mean(dtype=np.float64).astype(np.float32), out=centred[: len(sound)])
        return self(centred[:needed])

    def _mel(self, spectrum: NDArray[np.complex64], out: NDArray[np.float32]) -> None:
        power = spectrum.view(np.float32)
        np.square(power, out=power)
        for rows, bins, weights in self._blocks:
            np.matmul(power[:, rows], weights, out=out[:, bins])


def _silence(frames: NDArray[np.float32]) -> None:
    """Set frames of silence to zero. For most frames, the sample in the middle already shows that they are not."""
    perhaps = np.flatnonzero(np.abs(frames[:, frames.shape[1] // 2]) < _SILENCE)
    if len(perhaps):
        frames[perhaps[np.abs(frames[perhaps]).max(axis=1) < _SILENCE]] = 0.0
