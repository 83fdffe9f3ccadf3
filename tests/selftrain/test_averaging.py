"""The mean of the weights after all rounds, and what is measured about it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from untrained_detector import gain_recipe, save_untrained

from mast.data import load_dataset
from mast.loaded_model import LoadedModel
from mast.models.card import load_card
from mast.models.checkpoint import load_checkpoint
from mast.selftrain import averaging
from mast.selftrain.averaging import average_rounds
from mast.training.chosen_chunks import labelled_chunks
from mast.training.chunk_scores import chunk_metrics, detect_by_plan
from mast.training.machine import prepare_machine


def test_every_round_counts_alike(tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = gain_recipe()
    machine, plan = prepare_machine(recipe), recipe.selftrain.stage1
    held = labelled_chunks(load_dataset(tones), recipe.front_end)["val"]
    rounds = [save_untrained(tmp_path / str(n), seed=n, threshold=0.9) for n in (1, 2, 3)]
    before, metrics = None, {}
    for number, trained in enumerate(rounds, start=1):
        out = tmp_path / f"mean-{number}"
        metrics = average_rounds(
            out,
            number=number,
            trained=trained,
            before=before,
            val_chunks=held,
            plan=plan,
            machine=machine,
            seed=0,
        )
        before = out / "best"
    ends = [load_checkpoint(folder).model.state_dict() for folder in rounds]
    model, card = load_checkpoint(tmp_path / "mean-3" / "best")
    for name, kept in model.state_dict().items():
        if kept.is_floating_point():
            torch.testing.assert_close(kept, sum(end[name] for end in ends) / 3)
    # threshold and metrics are those of the mean, not of a round
    again = LoadedModel.load(tmp_path / "mean-3" / "best", device=machine.device, precision=machine.precision)
    measured = chunk_metrics(detect_by_plan(again, held, plan, machine, nms_iou=plan.nms_iou))
    assert measured == pytest.approx(metrics, abs=1e-3)
    assert card.thresholds["score"] == metrics["threshold"] != 0.9
    assert card.calibration is not None
    assert (card.provenance["averaged_rounds"], card.provenance["metrics"]) == (3, metrics)
    assert load_card(rounds[2]).calibration is None  # what was averaged stays as it is
    # what is complete is not done again
    monkeypatch.setattr(averaging, "load_checkpoint", None)
    out = tmp_path / "mean-3"
    assert metrics == average_rounds(
        out, number=3, trained=rounds[2], before=None, val_chunks=held, plan=plan, machine=machine, seed=0
    )
