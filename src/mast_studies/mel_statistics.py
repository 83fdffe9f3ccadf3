"""What a box looks like, without any learning: the baseline that embeddings are compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mast.arrays import FloatArray
from mast.retrieval.embedding import BoxEmbedder


def mel_statistics(spectrogram: ArrayLike, cells: ArrayLike) -> NDArray[np.float32]:
    """Mean and deviation over time of each mel bin inside a box, then its length and its band.

    Bins outside the box are 0, as they are on average in a normalised spectrogram.

    Args:
        spectrogram: (T, F), normalised.
        cells: (M, 4) boxes in cells.

    Returns:
        (M, 2 F + 3): F means, F deviations, logarithm of the frames, lower and upper bin.
    """
    picture = np.asarray(spectrogram, dtype=np.float32)
    boxes: FloatArray = np.asarray(cells, dtype=np.float64).reshape(-1, 4)
    n_frames, n_bins = picture.shape
    out = np.zeros((len(boxes), 2 * n_bins + 3), dtype=np.float32)
    for row, (t1, f1, t2, f2) in zip(out, boxes, strict=True):
        first, low = min(int(t1), n_frames - 1), min(int(f1), n_bins - 1)
        last, high = max(int(np.ceil(t2)), first + 1), max(int(np.ceil(f2)), low + 1)
        inside = picture[first:last, low:high]
        row[low : min(high, n_bins)] = inside.mean(axis=0)
        row[n_bins + low : n_bins + min(high, n_bins)] = inside.std(axis=0)
        row[-3:] = np.log(max(t2 - t1, 1.0)), f1, f2
    return out


def box_statistics(embedder: BoxEmbedder, path: str | Path, boxes: ArrayLike) -> NDArray[np.float32]:
    """:func:`mel_statistics` of boxes of a recording, from the windows their embeddings come from; NaN if unseen.

    Args:
        embedder: decides the windows and how they are normalised; its weights are not used.
        path: the recording.
        boxes: (M, 4) rows ``start_s, low_hz, end_s, high_hz``.
    """
    given = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    out = np.full((len(given), 2 * embedder.front_end.n_bins + 3), np.nan, dtype=np.float32)
    for batch in embedder.iter_windows(path, given):
        for picture, cells, rows in zip(batch.spectrograms, batch.cells, batch.rows, strict=True):
            out[rows] = mel_statistics(picture[0].cpu().numpy(), cells)
    return out


def standardise(features: ArrayLike, reference: ArrayLike | None = None) -> NDArray[np.float32]:
    """Subtract the mean of ``reference`` (itself by default) from each column, and divide by its deviation.

    Constant columns are 0.
    """
    given = np.asarray(features, dtype=np.float64)
    base = given if reference is None else np.asarray(reference, dtype=np.float64)
    deviation = base.std(axis=0)
    scaled = (given - base.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return np.asarray(np.where(deviation > 0, scaled, 0.0), dtype=np.float32)
