"""Every detector is measured at the threshold that validation gave it, on every part but train."""

from __future__ import annotations

from pathlib import Path

import torch
from toy_recipe import small_recipe

from mast.data import load_dataset
from mast.data.splits import SplitConfig
from mast.fit.detector_scores import measure_detectors
from mast.models.architecture import DetectorConfig
from mast.models.card import ModelCard, load_card
from mast.models.checkpoint import save_checkpoint
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation
from mast.training.chosen_chunks import labelled_chunks
from mast.training.machine import prepare_machine


def test_each_detector_is_measured_at_its_own_threshold(tones: Path, tmp_path: Path) -> None:
    recipe = small_recipe()
    config = recipe.detector
    assert isinstance(config, DetectorConfig)
    torch.manual_seed(0)
    model = MastDetector(config)
    with torch.no_grad():  # scores spread over (0, 1) without training
        for layer in (model.head.classify, model.head.regress):
            layer.weight.normal_(0, 0.1)
            layer.bias.zero_()
    thresholds = {"first": 0.2, "second": 0.35}
    for name, threshold in thresholds.items():
        card = ModelCard(
            kind="detector",
            architecture=config,
            front_end=recipe.front_end,
            normalisation=Normalisation(mean=-8.0, std=4.0),
            thresholds={"score": threshold, "nms_iou": 0.5},
        )
        save_checkpoint(tmp_path / name, model, card)
    parts = labelled_chunks(load_dataset(tones), recipe.front_end, split=SplitConfig())
    found = measure_detectors(
        {name: tmp_path / name for name in thresholds},
        parts,
        tmp_path / "tables",
        recipe,
        prepare_machine(recipe),
        resamples=0,
        seed=0,
    )
    assert list(found["parts"]) == ["val", "test"]
    kept = {}
    for name, threshold in thresholds.items():
        about = found["detectors"][name]
        assert about["threshold"] == threshold
        assert about["weights_sha256"] == load_card(tmp_path / name).weights_sha256
        assert {part["threshold"] for part in about["parts"].values()} == {threshold}
        kept[name] = about["parts"]["val"]["n_predictions"]
    assert kept["first"] > kept["second"] > 0  # the same boxes, cut at different scores
