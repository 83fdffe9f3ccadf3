"""A detector as ONNX gives what it gives in torch, and can be used with numpy alone."""

from __future__ import annotations

import csv
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile as sf
import torch
from typer.testing import CliRunner

from mast.cli.export import export
from mast.detect_options import DetectOptions
from mast.errors import MastError
from mast.events import pairwise_iou
from mast.export import onnx_folder
from mast.export.onnx_folder import write_onnx_folder
from mast.export.onnx_graph import PlainLogMel
from mast.features.logmel import LogMel
from mast.grid import FrontEnd
from mast.habit import Habit
from mast.inference import Detector
from mast.models.architecture import DetectorConfig, EncoderConfig, MaeConfig
from mast.models.card import ModelCard, load_card
from mast.models.checkpoint import load_checkpoint, save_checkpoint, update_card
from mast.models.mae import MaskedAutoencoder
from mast.models.mast_detector import MastDetector
from mast.models.nested import drop_nested
from mast.normalisation import Normalisation

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

FRONT_END = FrontEnd(n_bins=64, chunk_frames=256)  # 2.56 s


def save_random(folder: Path, *, levelled: bool = True, second_look: bool = False) -> Path:
    """A detector with random weights whose scores spread over (0, 1)."""
    torch.manual_seed(0)
    encoder = EncoderConfig(chunk_frames=256, n_bins=64, width=32, depth=1, heads=2)
    config = DetectorConfig(
        encoder=encoder,
        channels=32,
        levels=2,
        head_convs=1,
        second_look=second_look,
        contrastive_weight=0,
    )
    model = MastDetector(config)
    with torch.no_grad():
        for layer in (model.head.classify, model.head.regress):
            layer.weight.normal_(0, 0.1)
    card = ModelCard(
        kind="detector",
        architecture=config,
        front_end=FRONT_END,
        normalisation=Normalisation(
            mean=0.0 if levelled else -8.0, std=2.0 if levelled else 4.0, levelled=levelled
        ),
        thresholds={"score": 0.02, "nms_iou": 0.5},
        provenance={"data": "made-up sound", "init": "/home/anna/runs/start"},
    )
    save_checkpoint(folder, model, card)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random(tmp_path_factory.mktemp("model") / "best")


@pytest.fixture(scope="module")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported")
    report = write_onnx_folder(model, out)
    assert report.path == out / "model.onnx"
    assert report.n_boxes > 100
    assert 0 < report.score_difference < 1e-4  # nothing is exactly zero: the two really are two ways
    assert report.box_difference < 0.2
    return out


def script(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("detect_onnx_copy", folder / "detect_onnx.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_calls(path: Path, seconds: float, rate: int = 16_000) -> np.ndarray:
    rng = np.random.default_rng(0)
    sound = rng.normal(0, 0.01, round(seconds * rate))
    for start in np.arange(0.3, seconds - 0.5, 0.9):
        n = round(0.3 * rate)
        tone = 0.2 * np.sin(2 * np.pi * rng.uniform(500, 6_000) * np.arange(n) / rate)
        sound[round(start * rate) : round(start * rate) + n] += tone
    sf.write(path, sound, rate)
    return sf.read(path, dtype="float32")[0]


@pytest.mark.parametrize("front_end", [FRONT_END, FrontEnd.for_band(2_000), FrontEnd()])
def test_plain_features_are_those_of_the_front_end(front_end: FrontEnd) -> None:
    generator = torch.Generator().manual_seed(1)
    sound = torch.randn(2, front_end.chunk_samples, generator=generator) * torch.tensor([[0.1], [1e-3]])
    sound[1, front_end.chunk_samples // 3 :] = 0
    expected = LogMel(front_end).chunk_features(sound)
    found = PlainLogMel(front_end)(sound)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-3)


def test_frames_are_those_of_unfold() -> None:
    sound = torch.arange(2 * FRONT_END.chunk_samples).reshape(2, -1).float()
    frames = PlainLogMel(FRONT_END).frames(sound)
    padded = torch.nn.functional.pad(sound, (0, FRONT_END.window_samples))
    expected = padded.unfold(1, FRONT_END.window_samples, FRONT_END.hop_samples)[:, : FRONT_END.chunk_frames]
    assert torch.equal(frames, expected)


def test_nothing_of_the_machine_it_was_trained_on(exported: Path) -> None:
    assert json.loads((exported / "model.json").read_text())["provenance"]["init"] == "start"
    assert not any(b"anna" in path.read_bytes() for path in exported.iterdir() if path.is_file())


def test_any_number_of_chunks(exported: Path) -> None:
    session = onnxruntime.InferenceSession(exported / "model.onnx", providers=["CPUExecutionProvider"])
    sound = np.random.default_rng(0).normal(0, 0.1, (5, FRONT_END.chunk_samples)).astype(np.float32)
    boxes, scores = session.run(None, {"sound": sound})
    points = 32 * 16 + 16 * 8
    assert boxes.shape == (5, points, 4)
    assert scores.shape == (5, points)
    assert boxes[..., 0::2].min() >= 0
    assert boxes[..., 2].max() <= FRONT_END.chunk_frames
    for row in range(5):
        alone = session.run(None, {"sound": sound[row : row + 1]})
        np.testing.assert_allclose(alone[0][0], boxes[row], atol=0.1)
        np.testing.assert_allclose(alone[1][0], scores[row], atol=1e-4)
    card = json.loads(session.get_modelmeta().custom_metadata_map["model.json"])
    assert card == json.loads((exported / "model.json").read_text())


def test_the_script_finds_what_mast_finds(model: Path, exported: Path, tmp_path: Path) -> None:
    path = tmp_path / "calls.wav"
    write_calls(path, 2.4)  # one window: joining pieces is left to mast
    done = subprocess.run(
        [sys.executable, exported / "detect_onnx.py", path], capture_output=True, text=True, check=True
    )
    rows = list(csv.DictReader(done.stdout.splitlines()))
    columns = ["start_s", "low_hz", "end_s", "high_hz"]
    found = np.array([[float(row[name]) for name in columns] for row in rows])
    events = Detector(model, DetectOptions(device="cpu", runtime="torch")).detect(path)
    truth = events[columns].to_numpy()
    assert len(truth) > 5
    # mast may work in bfloat16 here
    assert abs(len(found) - len(truth)) <= max(1, len(truth) // 5)
    assert (pairwise_iou(truth, found).max(axis=1) > 0.8).mean() >= 0.8


def test_the_script_without_mast_or_torch(exported: Path, tmp_path: Path) -> None:
    write_calls(tmp_path / "calls.wav", 6.1, rate=8_000)  # several windows, resampled
    code = (
        "import runpy, sys\n"
        "for name in ('mast', 'torch', 'pandas'): sys.modules[name] = None\n"
        f"sys.argv = ['detect_onnx.py', {str(tmp_path / 'calls.wav')!r}]\n"
        f"runpy.run_path({str(exported / 'detect_onnx.py')!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert rows
    assert max(float(row["end_s"]) for row in rows) <= 6.1
    assert [float(row["start_s"]) for row in rows] == sorted(float(row["start_s"]) for row in rows)


def test_numpy_nms_is_torchvisions(exported: Path) -> None:
    from torchvision.ops import nms

    rng = np.random.default_rng(0)
    low = rng.uniform(0, 50, (200, 2))
    boxes = np.concatenate([low, low + rng.uniform(1, 20, (200, 2))], axis=1)
    scores = rng.uniform(size=200)
    ours: Any = script(exported).nms
    assert ours(boxes, scores, 0.4).tolist() == nms(torch.tensor(boxes), torch.tensor(scores), 0.4).tolist()
    assert ours(np.zeros((0, 4)), np.zeros(0), 0.4).tolist() == []
    best_first = np.argsort(-scores)
    kept = best_first[drop_nested(boxes[best_first], 0.6)]
    assert ours(boxes, scores, 0.6, of_smaller=True).tolist() == kept.tolist()
    assert len(kept) < len(ours(boxes, scores, 0.6))


def test_bins_to_hertz_are_the_front_ends(exported: Path) -> None:
    bins = np.linspace(0, FRONT_END.n_bins, 30)
    expected = np.clip(FRONT_END.bins_to_hz(bins), FRONT_END.low_hz, FRONT_END.high_hz)
    np.testing.assert_allclose(script(exported).mel_bins_to_hz(bins, FRONT_END.model_dump()), expected)


def test_a_graph_that_differs_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf(PlainLogMel):
        def forward(self, sound: torch.Tensor) -> torch.Tensor:
            return super().forward(sound) + 1.0

    monkeypatch.setattr("mast.export.onnx_graph.PlainLogMel", Deaf)
    plain = Normalisation(mean=-8.0, std=4.0)  # levelling would take a constant off again
    detector, card = load_checkpoint(model)
    save_checkpoint(tmp_path / "plain", detector, card.model_copy(update={"normalisation": plain}))
    with pytest.raises(MastError, match="differs from the model"):
        write_onnx_folder(tmp_path / "plain", tmp_path / "out")
    assert not (tmp_path / "out" / "model.onnx").exists()


def test_what_cannot_be_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = MaeConfig(encoder=EncoderConfig(chunk_frames=64, n_bins=32, width=32, depth=1, heads=2))
    front_end = FrontEnd(chunk_frames=64, n_bins=32)
    statistics = Normalisation(mean=0, std=1)
    card = ModelCard(kind="mae", architecture=encoder, front_end=front_end, normalisation=statistics)
    save_checkpoint(tmp_path / "mae", MaskedAutoencoder(encoder), card)
    with pytest.raises(MastError, match="MaskedAutoencoder; only MAST's own detector"):
        write_onnx_folder(tmp_path / "mae", tmp_path / "out")
    monkeypatch.setattr(onnx_folder, "find_spec", lambda name: None if name == "onnxruntime" else object())
    with pytest.raises(
        MastError, match=r"needs onnxruntime; install it with `pip install 'mast-audio\[export\]'`"
    ):
        write_onnx_folder(tmp_path / "mae", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_with_a_habit_that_the_graph_does_not_follow(
    model: Path, exported: Path, tmp_path: Path
) -> None:
    import typer

    assert "habit" not in (exported / "README.md").read_text(encoding="utf-8")  # of a model without one
    shutil.copytree(model, tmp_path / "run" / "best")
    habit = Habit(box="strongest", join_s=0.3)
    update_card(tmp_path / "run" / "best", load_card(model).model_copy(update={"habit": habit}))
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(export)
    words = [str(tmp_path / "run"), "--out", str(tmp_path / "x")]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "scores differ by at most" in done.output
    assert "model.onnx" in done.output
    assert sorted(p.name for p in (tmp_path / "x").iterdir()) == [
        "README.md",
        "detect_onnx.py",
        "model.json",
        "model.onnx",
    ]
    assert "the model's habit of drawing boxes is not in the graph" in done.output
    said = (tmp_path / "x" / "README.md").read_text(encoding="utf-8")
    assert (
        f"`mast detect` draws {habit}, as `habit` in `model.json` says. Neither the graph nor the script"
        in said
    )
    assert json.loads((tmp_path / "x" / "model.json").read_text())["habit"]["join_s"] == 0.3
    with pytest.raises(MastError, match="--half: only for --format hub"):
        CliRunner().invoke(app, [str(model), "--out", str(tmp_path), "--half"], catch_exceptions=False)


def test_a_second_look_is_refused(tmp_path: Path) -> None:
    source = save_random(tmp_path / "model", second_look=True)
    with pytest.raises(MastError, match=r"looks at every box a second time.*second_look = false"):
        write_onnx_folder(source, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()
