"""The mean of the weights after all rounds: steadier than the last round's, and a better teacher for the next.

Rounds disagree more about what they got wrong than about what they got right, and each starts from the weights of the
one before, so that their mean is a detector, too. Beyond the paper, which keeps the last round's weights.
"""

from __future__ import annotations

import json
from pathlib import Path

from mast.files import write_json
from mast.loaded_model import LoadedModel
from mast.models.checkpoint import load_checkpoint, save_checkpoint
from mast.training.calibrate import calibrate_checkpoint
from mast.training.chosen_chunks import Chunks
from mast.training.chunk_scores import chunk_metrics, detect_by_plan
from mast.training.ema import average_weights
from mast.training.machine import Machine
from mast.training.recipe import TrainRecipe

AVERAGED = "averaged"  # the stage of a round that ends in the mean


def average_rounds(
    out: Path,
    *,
    number: int,
    trained: Path,
    before: Path | None,
    val_chunks: Chunks,
    plan: TrainRecipe,
    machine: Machine,
    seed: int,
) -> dict[str, float]:
    """Write the mean of the weights after each round so far to ``out/best``.

    Args:
        out: folder of this stage; what is complete there is not done again.
        number: how many rounds there were.
        trained: model folder after the last of them.
        before: model folder with the mean of those before it; none after the first.
        val_chunks: labelled chunks that do not overlap, for threshold and calibration.
        plan: of the stage that trained.
        machine: device and precision.
        seed: of the calibration.

    Returns:
        Metrics on the held-out chunks.
    """
    path = out / "metrics.json"
    is_done = path.exists()
    machine.accelerator.wait_for_everyone()  # all have looked before one writes, so all take the same branch
    if is_done:
        metrics: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
        return metrics
    last, card = load_checkpoint(trained)
    others = last if before is None else load_checkpoint(before).model
    model = average_weights(last, others.state_dict(), (number - 1) / number)
    loaded = LoadedModel(model, card, device=machine.device, precision=machine.precision)
    metrics = chunk_metrics(detect_by_plan(loaded, val_chunks, plan, machine, nms_iou=plan.nms_iou))
    if machine.is_main:
        own = {
            "thresholds": {"score": metrics["threshold"], "nms_iou": plan.nms_iou},
            "calibration": None,
            "ranges": None,
            "provenance": {**card.provenance, "averaged_rounds": number, "metrics": metrics},
        }
        save_checkpoint(out / "best", loaded.model, card.model_copy(update=own))
        batch_size = machine.eval_batch(plan.batch_size)
        calibrate_checkpoint(
            out / "best",
            val_chunks,
            machine,
            batch_size=batch_size,
            min_score=plan.score_threshold,
            seed=seed,
        )
        write_json(path, metrics)
    machine.accelerator.wait_for_everyone()  # the next round reads what is written here
    return metrics
