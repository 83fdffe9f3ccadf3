"""Scores that mean something: a saved detector on validation chunks → probabilities and thresholds in its card.

Chunks lie end to end, as where the threshold is tuned; in use, windows overlap and their boxes are stitched.
"""

from __future__ import annotations

from pathlib import Path

from mast.evaluation.operating import store_calibration
from mast.models.card import load_card
from mast.models.checkpoint import update_card
from mast.probability import StoredCalibration
from mast.training.chosen_chunks import Chunks
from mast.training.chunk_scores import detect_chunks
from mast.training.machine import Machine

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
    kept: StoredCalibration | None = None,
) -> StoredCalibration:
    """Fit how scores become probabilities, and write that into a model folder; what was there is replaced.

    A kill leaves the old card or the new one. Of several processes, call it in one.

    Args:
        folder: a detector's model folder, or its run.
        held: labelled chunks that do not overlap and that the detector was not trained on.
        machine: device, precision and decoding processes.
        batch_size: chunks at a time.
        least_score: predictions scored lower are not looked at.
        data: what the chunks are and who boxed them, told with every precision; the names of their datasets by default.
        seed: of the folds among which methods are compared, and of the intervals.
        kept: to be written instead of a fit: that of the detector which training started from.
    """
    if kept is not None:
        card = load_card(folder)
        update_card(folder, card.model_copy(update={"calibration": kept}))
        return kept
    model = machine.load(folder)
    measured = detect_chunks(
        model, held, batch_size=batch_size, workers=machine.workers, score_threshold=least_score
    )
    named = data or ", ".join(sorted({Path(str(root)).name for root in held.table["root"]}))
    places = dict(zip(held.table["recording"], held.table["site"].astype(str), strict=True))
    found = store_calibration(measured.match(), least_score=least_score, data=named, places=places, seed=seed)
    update_card(model.folder, model.card.model_copy(update={"calibration": found}))
    return found
