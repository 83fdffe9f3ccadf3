"""A classifier that knows two tones, as a small ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

RATE, WINDOW_S = 8_000, 1.0
SAMPLES = round(RATE * WINDOW_S)
TONES_HZ = (1_000.0, 2_000.0)
LABELS = ("Sonus gravis_Low Tone", "Sonus acutus_High Tone")


def tones(*spans: tuple[float, float, float], seconds: float, rate: int = RATE) -> np.ndarray[Any, Any]:
    """Tones (start_s, end_s, hertz) in faint noise."""
    time = np.arange(round(seconds * rate)) / rate
    sound = np.random.default_rng(0).normal(0, 1e-3, len(time))
    for start_s, end_s, hz in spans:
        sound += 0.3 * np.sin(2 * np.pi * hz * time) * ((time >= start_s) & (time < end_s))
    return sound.astype(np.float32)


def write_classifier(
    folder: Path,
    shape: tuple[int | str, ...] = ("windows", SAMPLES),
    *,
    sigmoid: bool = False,
    outputs: int = 1,
) -> Path:
    """Logits that grow with the power at each tone, or their sigmoid; further outputs are the same again."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    time = np.arange(SAMPLES) / RATE
    waves = [wave(2 * np.pi * hz * time) for hz in TONES_HZ for wave in (np.cos, np.sin)]
    pairs = np.repeat(np.eye(len(TONES_HZ)), 2, axis=0)
    constants = {
        "flat": np.array([-1, SAMPLES], np.int64),
        "waves": (np.array(waves).T / SAMPLES).astype(np.float32),
        "pairs": (1_000 * pairs).astype(np.float32),
        "bias": np.full(len(TONES_HZ), -2.0, np.float32),
    }
    names = ["scores", *(f"more{k}" for k in range(1, outputs))]
    nodes = [
        helper.make_node("Reshape", ["sound", "flat"], ["rows"]),
        helper.make_node("MatMul", ["rows", "waves"], ["parts"]),
        helper.make_node("Mul", ["parts", "parts"], ["power"]),
        helper.make_node("MatMul", ["power", "pairs"], ["sums"]),
        helper.make_node("Add", ["sums", "bias"], ["logits"]),
        *(helper.make_node("Sigmoid" if sigmoid else "Identity", ["logits"], [name]) for name in names),
    ]
    graph = helper.make_graph(
        nodes,
        "tones",
        [helper.make_tensor_value_info("sound", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / "tones.onnx"
    onnx.save(model, path)
    return path


def write_labels(folder: Path, labels: tuple[str, ...] = LABELS) -> Path:
    path = folder / "labels.txt"
    path.write_text("\n".join(labels) + "\n", encoding="utf-8")
    return path
