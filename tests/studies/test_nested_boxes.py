"""Boxes inside boxes, counted, and a model that decides between them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from toy_recipe import FRONT_END, small_recipe

from mast.events import BOX_COLUMNS, as_events
from mast.models.architecture import DetectorConfig
from mast.models.card import ModelCard
from mast.models.checkpoint import save_checkpoint
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation
from mast_studies import nested_boxes
from mast_studies.zero_shot_sets import load_set


def events(*rows: tuple[str, float, float, float, float]) -> pd.DataFrame:
    table = pd.DataFrame([row[1:] for row in rows], columns=BOX_COLUMNS)
    return as_events(table.assign(recording=[row[0] for row in rows]))


def test_boxes_inside_boxes_are_counted_by_recording(tones: Path, tmp_path: Path) -> None:
    shutil.copytree(tones, tmp_path / "tones")
    own = load_set(tmp_path / "tones")
    phrase = ("a.wav", 1.0, 500.0, 4.0, 2_000.0)
    note, beside = ("a.wav", 1.5, 600.0, 2.0, 1_500.0), ("a.wav", 3.0, 600.0, 6.0, 1_500.0)
    assert nested_boxes.share_nested(own, events(phrase, note)) == 1.0
    assert nested_boxes.share_nested(own, events(phrase, note, beside)) == pytest.approx(2 / 3, abs=1e-4)
    assert nested_boxes.share_nested(own, events(phrase, ("b.wav", *note[1:]))) == 0.0
    assert nested_boxes.share_nested(own, events()) is None


def test_the_model_decides_or_gives_both(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tones, tmp_path / "tones")
    config = small_recipe().detector
    assert isinstance(config, DetectorConfig)
    config = config.model_copy(update={"nested": 0.8})
    card = ModelCard(
        kind="detector",
        architecture=config,
        front_end=FRONT_END,
        normalisation=Normalisation(mean=-7.0, std=3.0),
        thresholds={"score": 1e-4, "nms_iou": 0.5},
    )
    torch.manual_seed(0)
    model = MastDetector(config)
    torch.nn.init.normal_(model.head.regress.weight, std=0.1)  # boxes of all sizes
    save_checkpoint(tmp_path / "model", model, card)
    out = tmp_path / "nested.json"
    words = ["--model", tmp_path / "model", "--data", tmp_path / "tones", "--work", tmp_path / "work"]
    monkeypatch.setattr(sys, "argv", ["nested_boxes.py", *map(str, words), "--out", str(out)])
    nested_boxes.main()
    found = json.loads(out.read_text(encoding="utf-8"))["figures"]["sets"]["tones"]
    assert found["detections_nested"]["both"] > found["detections_nested"]["decided"]
    systems = found["systems"]
    assert systems["both"]["n_predictions"] > systems["decided"]["n_predictions"]
    assert found["f1_of_decided_minus_both"].keys() == {"difference", "low", "high"}
