"""Measures a saved detector on validation chunks and writes into its card what its scores mean, and its ranges.

Chunks lie end to end, as when the threshold is tuned; in use, windows overlap and their boxes are stitched.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mast.evaluation.operating import store_calibration
from mast.loaded_model import LoadedModel
from mast.models.architecture import DetectorConfig
from mast.models.checkpoint import update_card
from mast.models.onnx_detector import Ranges, can_write, measure_ranges
from mast.probability import StoredCalibration
from mast.training.chosen_chunks import Chunks
from mast.training.chunk_scores import detect_chunks
from mast.training.machine import Machine

MIN_SCORE = 0.05  # as in validation: TrainRecipe.score_threshold
_MEASURED = 32  # chunks on which ranges are measured; our choice


def calibrate_checkpoint(
    folder: Path,
    val_chunks: Chunks,
    machine: Machine,
    *,
    batch_size: int = 8,
    min_score: float = MIN_SCORE,
    data: str = "",
    seed: int = 0,
    kept: StoredCalibration | None = None,
) -> StoredCalibration:
    """Fit how scores become probabilities, and write that into a model folder; an earlier fit is replaced.

    Ranges are measured, too, if the card has none: they belong to the weights, whatever the threshold or the habit.

    A kill leaves the old card or the new one. With several processes, call it in only one.

    Args:
        folder: a detector's model folder, or its run.
        val_chunks: labelled chunks that do not overlap and that the detector was not trained on.
        machine: device, precision and decoding processes.
        batch_size: chunks at a time.
        min_score: predictions scored lower are ignored.
        data: what the chunks are and who boxed them, stated with every precision; by default their datasets' names.
        seed: of the folds among which methods are compared, and of the intervals.
        kept: a calibration to write instead of a fit: that of the detector which training started from.
    """
    model = machine.load(folder)
    ranges = model.card.ranges or ranges_of(model, val_chunks)
    if kept is not None:
        update_card(model.folder, model.card.model_copy(update={"calibration": kept, "ranges": ranges}))
        return kept
    measured = detect_chunks(
        model, val_chunks, batch_size=batch_size, workers=machine.workers, score_threshold=min_score
    )
    named = data or ", ".join(sorted({Path(str(root)).name for root in val_chunks.table["root"]}))
    places = dict(zip(val_chunks.table["recording"], val_chunks.table["site"].astype(str), strict=True))
    found = store_calibration(measured.match(), min_score=min_score, data=named, places=places, seed=seed)
    update_card(model.folder, model.card.model_copy(update={"calibration": found, "ranges": ranges}))
    return found


def ranges_of(model: LoadedModel, chunks: Chunks) -> Ranges | None:
    """The ranges of a detector's maps over some of the chunks; none where it cannot be computed in eight bits.

    See :mod:`mast.models.onnx_detector`.
    """
    config = model.card.architecture
    if not (isinstance(config, DetectorConfig) and can_write(config)) or not len(chunks):
        return None
    rows = np.unique(np.linspace(0, len(chunks) - 1, _MEASURED).astype(int))
    spectrograms = (
        model.spectrograms(chunks.examples[int(row)].waveform[None])[0, 0].cpu().numpy() for row in rows
    )
    weights = {name: value.float().cpu().numpy() for name, value in model.model.state_dict().items()}
    return measure_ranges(config, weights, spectrograms)
