"""Scores that mean something: a saved detector on validation chunks → probabilities and thresholds in its card.

Chunks lie end to end, as where the threshold is tuned; in use, windows overlap and their boxes are stitched.
"""

from __future__ import annotations

from pathlib import Path

from mast.errors import MastError
from mast.evaluation.operating import StoredCalibration, store_calibration
from mast.models.checkpoint import load_checkpoint, update_card
from mast.models.interface import BoxDetector
from mast.training.machine import Machine
from mast.training.measure import detect_chunks, match_chunks
from mast.training.sources import Chunks
from mast.training.spectrograms import FrontEndPipeline

LEAST_SCORE = 0.05  # as in validation: TrainRecipe.score_threshold


def calibrate_checkpoint(
    folder: Path,
    held: Chunks,
    machine: Machine,
    *,
    batch_size: int = 8,
    least_score: float = LEAST_SCORE,
    data: str = "",
    seed: int = 0,
) -> StoredCalibration:
    """Fit how scores become probabilities, and write that into a model folder; what was there is replaced.

    A kill leaves the old card or the new one. Of several processes, call it in one.

    Args:
        folder: a detector's model folder.
        held: labelled chunks that do not overlap and that the detector was not trained on.
        machine: device, precision and decoding processes.
        batch_size: chunks at a time.
        least_score: predictions scored lower are not looked at.
        data: what the chunks are and who boxed them, told with every precision; the names of their datasets by default.
        seed: of the folds among which methods are compared, and of the intervals.
    """
    model, card = load_checkpoint(folder)
    if not isinstance(model, BoxDetector):
        raise MastError(
            f"{folder}: holds a pretrained encoder, which gives no scores to calibrate; give a detector"
        )
    with machine.accelerator.autocast():
        measured = detect_chunks(
            model.to(machine.device),
            held,
            FrontEndPipeline.of(card).to(machine.device),
            batch_size=batch_size,
            workers=machine.workers,
            score_threshold=least_score,
            nms_iou=card.thresholds.get("nms_iou", 0.5),
        )
    named = data or ", ".join(sorted({Path(str(root)).name for root in held.table["root"]}))
    found = store_calibration(match_chunks(measured), least_score=least_score, data=named, seed=seed)
    update_card(folder, card.model_copy(update={"calibration": found.as_card()}))
    return found
