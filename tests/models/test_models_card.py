"""What a model folder says about itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_calibration import stored_calibration

from mast.errors import MastError
from mast.grid import FrontEnd
from mast.models.architecture import DetectorConfig, EncoderConfig
from mast.models.card import ModelCard, load_card
from mast.models.checkpoint import load_checkpoint, save_checkpoint, update_card
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation
from mast.probability import Calibration

ENCODER = EncoderConfig(chunk_frames=64, n_bins=32, width=32, depth=2, heads=2)
DETECTOR = DetectorConfig(encoder=ENCODER, channels=32, levels=2, head_convs=1)
CARD = ModelCard(
    kind="detector",
    architecture=DETECTOR,
    front_end=FrontEnd(chunk_frames=64, n_bins=32),
    normalisation=Normalisation(mean=-5.0, std=3.0),
    thresholds={"score": 0.3},
)


@pytest.mark.parametrize("file", ["model.json", "model.safetensors"])
def test_files_that_must_not_be_read_are_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """Not that they are damaged; taking the right away would not stop root."""
    save_checkpoint(tmp_path, MastDetector(DETECTOR), CARD)

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / file))

    def missing(path: Path, **_: object) -> None:  # as safetensors puts it
        raise FileNotFoundError(f"No such file or directory: {path}")

    if file == "model.json":
        monkeypatch.setattr(Path, "read_bytes", denied)
    else:
        monkeypatch.setattr(Path, "open", denied)
        monkeypatch.setattr("mast.models.card.safe_open", missing)
    with pytest.raises(MastError, match=f"{file}: permission denied; change"):
        load_card(tmp_path)


def test_edits_of_model_json_count(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, MastDetector(DETECTOR), CARD)
    text = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(text.replace('"score": 0.3', '"score": 0.7'))
    assert load_card(tmp_path).thresholds == {"score": 0.7}


def test_a_card_may_hold_no_calibration_and_no_strange_one(tmp_path: Path) -> None:
    stored = stored_calibration(Calibration(method="platt", slope=2.0))
    plain = save_checkpoint(tmp_path, MastDetector(DETECTOR), CARD)
    assert plain.probabilities.apply(0.3) == 0.3
    update_card(tmp_path, plain.model_copy(update={"calibration": stored}))
    assert load_card(tmp_path).calibration == stored
    assert load_card(tmp_path).probabilities == stored.calibration
    card, text = tmp_path / "model.json", json.loads((tmp_path / "model.json").read_text())
    card.write_text(json.dumps(text | {"calibration": {}}))  # as earlier versions wrote it
    assert load_card(tmp_path) == plain
    knots = {"method": "isotonic", "knot_scores": [0.1], "knot_probabilities": []}
    for broken, words in (
        ({"method": "platt"}, "field calibration.calibration"),
        (text["calibration"] | {"calibration": knots}, "calibration: method isotonic with 1 knot scores"),
    ):
        card.write_text(json.dumps(text | {"calibration": broken}))
        with pytest.raises(MastError, match=f"model.json: {words}"):
            load_card(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON object"),
        ("[]", "not a JSON object"),
        ('{"kind": "detector"}', "field architecture"),
        ('{"kind": "detector", "architecture": {"levles": 3}}', r"field architecture\.levles"),
    ],
)
def test_a_broken_card(tmp_path: Path, text: str, message: str) -> None:
    save_checkpoint(tmp_path, MastDetector(DETECTOR), CARD)
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(MastError, match=message):
        load_checkpoint(tmp_path)
