"""A folder to share: what it says is what the model is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import typer
import yaml
from typer.testing import CliRunner

from mast.cli.export import export
from mast.errors import MastError
from mast.export.hub_folder import write_hub_folder
from mast.grid import FrontEnd
from mast.habit import Habit
from mast.models.architecture import DetectorConfig, EncoderConfig
from mast.models.card import ModelCard, load_card
from mast.models.checkpoint import load_checkpoint, save_checkpoint, update_card
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation


@pytest.fixture
def run(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    encoder = EncoderConfig(chunk_frames=64, n_bins=32, width=32, depth=1, heads=2)
    config = DetectorConfig(encoder=encoder, channels=32, levels=2, head_convs=1)
    card = ModelCard(
        kind="detector",
        architecture=config,
        front_end=FrontEnd(chunk_frames=64, n_bins=32),
        normalisation=Normalisation(mean=-5.0, std=3.0),
        thresholds={"score": 0.25, "nms_iou": 0.5},
        provenance={
            "data": "/home/anna/secret project/dawn",
            "init": "C:\\Users\\anna\\runs",
            "metrics": {"f1": 0.71, "precision": 0.8, "threshold": 0.25},
            "recipe": {"paths": ["/data/anna/a", "relative/b"], "epochs": 3},
            "notes": [
                "all weights of the detector in C:\\Users\\anna\\runs, and/or more",
                "encoder of /home/anna/secret project/dawn; see ~/anna/notes.txt and https://example.org/a/b",
            ],
            "unlabelled": ["../anna/night", "anna/noon"],
        },
    )
    save_checkpoint(tmp_path / "run" / "best", MastDetector(config), card)
    return tmp_path / "run"


def test_a_habit_is_shared_with_the_model(run: Path, tmp_path: Path) -> None:
    write_hub_folder(run / "best", tmp_path / "plain")
    assert "It draws" not in (tmp_path / "plain" / "README.md").read_text(encoding="utf-8")
    habit = Habit(join_s=0.3)
    update_card(run / "best", load_card(run / "best").model_copy(update={"habit": habit}))
    write_hub_folder(run / "best", tmp_path / "share")
    assert load_card(tmp_path / "share").habit == habit
    said = (tmp_path / "share" / "README.md").read_text(encoding="utf-8")
    assert "It draws whole calls, joined over gaps of up to 0.3 s; `mast detect --box all`" in said


def front_matter(folder: Path) -> dict[str, object]:
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith("---\n")
    found: dict[str, object] = yaml.safe_load(text.split("---\n")[1])
    return found


def test_everything_of_the_model_and_nothing_of_the_machine(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "share"
    written = write_hub_folder(run / "best", out, name="anna/dawn-chorus", licence="CC-BY-4.0")
    names = {".gitattributes", "README.md", "model.json", "model.safetensors"}
    assert {path.name for path in out.iterdir()} == names
    (model, card), (original, _) = load_checkpoint(out), load_checkpoint(run / "best")
    assert card == written
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), original.parameters(), strict=True))
    assert card.provenance["data"] == "dawn"
    assert card.provenance["recipe"] == {"paths": ["a", "relative/b"], "epochs": 3}
    assert card.provenance["notes"] == [
        "all weights of the detector in runs, and/or more",
        "encoder of dawn; see notes.txt and https://example.org/a/b",
    ]
    assert card.provenance["unlabelled"] == ["night", "noon"]
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    assert {path.stat().st_mode for path in out.iterdir()} == {ordinary.stat().st_mode}
    for path in out.iterdir():  # the copy of the card inside the weights, too
        assert b"anna" not in path.read_bytes().replace(b"anna/dawn-chorus", b"")
    assert front_matter(out) == {
        "license": "cc-by-4.0",
        "library_name": "mast",
        "pipeline_tag": "audio-classification",
        "tags": ["bioacoustics", "sound-event-detection", "passive-acoustic-monitoring", "mast"],
    }
    text = (out / "README.md").read_text(encoding="utf-8")
    for part in (
        'mast.load("hf://anna/dawn-chorus")',
        "Trained on: dawn.",
        "0.710",
        "score 0.25 or more",
        "CC-BY-4.0",
    ):
        assert part in text
    assert "20–8000 Hz" in text


def test_licences_the_hub_does_not_know(run: Path, tmp_path: Path) -> None:
    write_hub_folder(run / "best", tmp_path / "a", licence="Museum: no resale")
    assert front_matter(tmp_path / "a")["license"] == "other"
    assert front_matter(tmp_path / "a")["license_name"] == "Museum: no resale"
    write_hub_folder(run / "best", tmp_path / "b")
    assert "license" not in front_matter(tmp_path / "b")
    assert "Not stated" in (tmp_path / "b" / "README.md").read_text(encoding="utf-8")


def test_not_over_the_model_itself(run: Path) -> None:
    before = (run / "best" / "model.safetensors").read_bytes()
    with pytest.raises(MastError, match="is the model itself"):
        write_hub_folder(run / "best", run / "best")
    assert (run / "best" / "model.safetensors").read_bytes() == before


def test_the_command(run: Path, tmp_path: Path) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(export)
    arguments = [str(run), "--out", str(tmp_path / "x"), "--format", "hub", "--half"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert "no licence is stated" in done.output
    assert "hf upload" in done.output
    assert load_card(tmp_path / "x").weights_sha256 != load_card(run / "best").weights_sha256
    half = (tmp_path / "x" / "model.safetensors").stat().st_size
    assert half < 0.7 * (run / "best" / "model.safetensors").stat().st_size
    with pytest.raises(MastError, match="no such folder"):
        CliRunner().invoke(app, [str(tmp_path / "none"), "--out", "y"], catch_exceptions=False)
