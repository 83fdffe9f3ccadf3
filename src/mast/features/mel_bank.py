"""Kaldi's mel filter bank: triangles, each of which sums the power of some frequencies."""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import NDArray

from mast.arrays import IntArray
from mast.errors import ConfigError
from mast.grid import FrontEnd

PREEMPHASIS = 0.97  # Kaldi's default, unchanged by the paper
FLOOR = float(np.finfo(np.float32).eps)  # Kaldi's floor under the logarithm
_KALDI_MEL = 1127.0  # Kaldi's natural-logarithm form of 2595 log10; the factor cancels but for rounding

_BLOCK_BINS = 16  # mel bins per small matrix product: fastest of 16, 32, 64, 128
# The paper's own front end leaves 1 of 128 triangles between two FFT bins. That much is accepted in silence.
_EMPTY_SILENT = 1 / 128
_EMPTY_LIMIT = 1 / 8  # our choice: beyond this the picture has visible stripes


def fft_size(front_end: FrontEnd) -> int:
    """Samples of the FFT: the window rounded up to a power of two (512 at the paper's values)."""
    return 1 << (front_end.window_samples - 1).bit_length()


def mel_bank(front_end: FrontEnd) -> NDArray[np.float32]:
    """Kaldi's triangles, linear in mel, peak 1 at the bin centres.

    Done in float32, as Kaldi does: a triangle that barely reaches an FFT bin has a weight that is mostly
    rounding, and a bank computed more exactly would differ from Kaldi's log-mel by more than 1e-4.

    Args:
        front_end: band, bins, sample rate and window.

    Returns:
        (fft_size // 2 + 1, n_bins) weights; the Nyquist row is zero, as in Kaldi.
    """
    size = fft_size(front_end)
    single = np.float32
    hz = np.arange(size // 2) * (front_end.sample_rate / size)
    warped = single(1.0) + (hz / front_end.mel_corner_hz).astype(single)
    mel = single(_KALDI_MEL) * np.log(warped.astype(np.float64)).astype(single)[:, None]  # rounded once
    low, high = (
        _KALDI_MEL * math.log(1.0 + edge / front_end.mel_corner_hz)
        for edge in (front_end.low_hz, front_end.high_hz)
    )
    step = single((high - low) / (front_end.n_bins + 1))
    bins = np.arange(front_end.n_bins, dtype=single)
    left, centre, right = (single(low) + (bins + single(k)) * step for k in (0.0, 1.0, 2.0))  # (F,) each
    bank = np.minimum((mel - left) / (centre - left), (right - mel) / (right - centre)).clip(min=0.0)
    return np.pad(bank, ((0, 1), (0, 0)))


def narrow_blocks(bank: NDArray[np.float32]) -> list[tuple[slice, slice]]:
    """The bank as small products, each of some bins and the rows that have weight in them. Triangles are narrow."""
    first, width = support(bank)
    blocks = []
    for start in range(0, bank.shape[1], _BLOCK_BINS):
        bins = slice(start, min(start + _BLOCK_BINS, bank.shape[1]))
        blocks.append((slice(int(first[bins].min()), int((first[bins] + width[bins]).max())), bins))
    return blocks


def support(bank: NDArray[np.float32]) -> tuple[IntArray, IntArray]:
    """First row and number of rows with weight, per mel bin; an empty bin has one row of zero weight."""
    filled = bank > 0
    first = np.argmax(filled, axis=0)
    last = bank.shape[0] - 1 - np.argmax(filled[::-1], axis=0)
    return first, np.where(filled.any(axis=0), last - first + 1, 1)


def check_bank(front_end: FrontEnd, n_empty: int) -> None:
    """Warn of a bank with empty bins, and refuse one with many."""
    if n_empty <= _EMPTY_SILENT * front_end.n_bins:
        return
    message = (
        f"front end: {n_empty} of {front_end.n_bins} mel bins lie between two FFT bins and would always "
        f"be empty, because that many bins over {front_end.low_hz:g}–{front_end.high_hz:g} Hz are finer "
        f"than the {front_end.sample_rate / fft_size(front_end):g} Hz that a window of "
        f"{front_end.window_samples} samples resolves; use fewer bins, a longer window_samples, or "
        f"FrontEnd.for_band({front_end.high_hz:g}), which resamples to the band"
    )
    if n_empty > _EMPTY_LIMIT * front_end.n_bins:
        raise ConfigError(message)
    warnings.warn(message, stacklevel=3)
