"""A classifier of sound windows, from an ONNX or TFLite file and a list of labels.

A model file is checked when it is loaded: it must take one window of samples and give one number per label.
Scores are kept as logits, so that those of several windows and boxes can be averaged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mast.arrays import Samples
from mast.audio.libsndfile import silence_stderr
from mast.errors import ConfigError, first_line

Logits = NDArray[np.float32]
Run = Callable[[Samples], list[NDArray[np.float32]]]  # (B, n) → every output

# sample rates of common classifiers (BirdNET and Perch), by the length of their input
KNOWN_RATES = {144_000: 48_000, 160_000: 32_000}
_BATCH = 8  # windows at once, where the model takes any number
_SURE = 1e-6  # probabilities closer to 0 or 1 are clipped to this


@dataclass(frozen=True, eq=False)
class Classifier:
    """Windows of sound in, a logit per label out.

    Attributes:
        name: as shown in tables.
        sample_rate: of its input, Hz.
        window_samples: samples of a window.
        labels: in the order of its outputs.
        batch: windows it takes at once.
        run: (B, window_samples) → (B, labels) logits.
    """

    name: str
    sample_rate: int
    window_samples: int
    labels: tuple[str, ...]
    batch: int
    run: Callable[[Samples], Logits]

    @property
    def window_s(self) -> float:
        """Seconds of a window."""
        return self.window_samples / self.sample_rate

    def logits(self, windows: Samples) -> Logits:
        """(N, window_samples) → (N, labels), as many windows at once as the model takes."""
        parts = [self.run(windows[at : at + self.batch]) for at in range(0, len(windows), self.batch)]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.labels)), np.float32)


class _Model(NamedTuple):
    """An open model file."""

    shape: list[int | None]  # of its input; None where any number will do
    run: Run


def load_classifier(
    path: str | Path,
    labels: str | Path,
    *,
    sample_rate: int | None = None,
    window_s: float | None = None,
    softmax: bool = False,
) -> Classifier:
    """Open a classifier.

    Args:
        path: the model, ``.onnx`` or ``.tflite``.
        labels: a text file, one label per line in the order of the model's outputs.
        sample_rate: of the sound it was trained on; known for models whose windows are as long as BirdNET's or Perch's.
        window_s: seconds of a window, where the model takes any length.
        softmax: its outputs are logits of mutually exclusive classes. Otherwise outputs between 0 and 1 are taken as
            probabilities, and others as independent logits of each class.

    Raises:
        ConfigError: a file is missing or unreadable, the model does not take sound, or has other labels.
    """
    path = Path(path)
    names = read_labels(labels)
    model = open_model(path)
    samples, rate = _window_size(path, model.shape, sample_rate, window_s)
    flat = len(model.shape) == 1  # one window, without an axis for more
    batch = 1 if flat else model.shape[0] or _BATCH

    def outputs(windows: Samples) -> list[NDArray[np.float32]]:
        missing = batch - len(windows) if flat or model.shape[0] is not None else 0
        full = np.concatenate([windows, np.zeros((missing, samples), np.float32)]) if missing else windows
        return model.run(full[0] if flat else full[:, None] if len(model.shape) == 3 else full)

    chosen, probabilities = _find_output(path, Path(labels), outputs, samples, len(names))

    def run(windows: Samples) -> Logits:
        found = outputs(windows)[chosen].reshape(-1, len(names))[: len(windows)].astype(np.float32)
        if softmax:
            shifted = np.exp(found - found.max(axis=1, keepdims=True))
            found = shifted / shifted.sum(axis=1, keepdims=True)
        if softmax or probabilities:
            sure = np.clip(found, _SURE, 1 - _SURE)
            found = np.log(sure) - np.log1p(-sure)
        return found

    return Classifier(path.name, rate, samples, tuple(names), batch, run)


def read_labels(path: str | Path) -> list[str]:
    """The lines of a file of labels; empty lines at its end do not count.

    Raises:
        ConfigError: there is no such file, it is not text, or it is empty.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").rstrip().splitlines()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; expected a text file with one name per line") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not text in UTF-8; expected one name per line") from None
    if not lines:
        raise ConfigError(f"{path}: is empty; expected one name per line")
    return [line.strip() for line in lines]


def open_model(path: Path) -> _Model:
    """Open a model file with the runtime for its kind.

    Raises:
        ConfigError: it is missing, of another kind, cannot be read, or its runtime is not installed.
    """
    kind = path.suffix.lower()
    if kind not in (".onnx", ".tflite"):
        raise ConfigError(f"{path}: not a classifier; expected birdnet, or a file ending in .onnx or .tflite")
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; check the name of the classifier")
    return _open_onnx(path) if kind == ".onnx" else _open_tflite(path)


def _open_onnx(path: Path) -> _Model:
    try:
        import onnxruntime
    except ImportError:
        raise ConfigError(
            f"{path}: needs the package onnxruntime; install it with `pip install onnxruntime`"
        ) from None
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ConfigError(
            f"{path}: cannot be read as ONNX ({first_line(error)}); export the model again"
        ) from None
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise ConfigError(f"{path}: takes {len(inputs)} inputs; expected one, the samples of a window")
    if inputs[0].type != "tensor(float)":
        raise ConfigError(f"{path}: takes {inputs[0].type}; expected samples as 32-bit floating point")
    shape = [size if isinstance(size, int) and size > 0 else None for size in inputs[0].shape]
    name = inputs[0].name

    def run(windows: Samples) -> list[NDArray[np.float32]]:
        return [np.asarray(one) for one in session.run(None, {name: windows})]

    return _Model(shape, run)


def _open_tflite(path: Path) -> _Model:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        raise ConfigError(
            f"{path}: needs the package ai-edge-litert; install it with `pip install 'mast-audio[birdnet]'`"
        ) from None
    try:
        with silence_stderr():  # it prints what it uses for acceleration
            interpreter: Any = Interpreter(model_path=str(path), num_threads=1)
            interpreter.allocate_tensors()
    except Exception as error:
        raise ConfigError(
            f"{path}: cannot be read as TFLite ({first_line(error)}); export the model again"
        ) from None
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    if len(inputs) != 1:
        raise ConfigError(f"{path}: takes {len(inputs)} inputs; expected one, the samples of a window")

    def run(windows: Samples) -> list[NDArray[np.float32]]:
        interpreter.set_tensor(inputs[0]["index"], windows)
        interpreter.invoke()
        return [np.array(interpreter.get_tensor(one["index"])) for one in outputs]

    return _Model([int(size) for size in inputs[0]["shape"]], run)


def _window_size(
    path: Path, shape: list[int | None], sample_rate: int | None, window_s: float | None
) -> tuple[int, int]:
    """Samples of a window of the model, and their rate."""
    if len(shape) not in (1, 2, 3) or (len(shape) == 3 and shape[1] not in (1, None)) or shape[-1] == 1:
        sizes = " × ".join("any" if size is None else str(size) for size in shape)
        raise ConfigError(
            f"{path}: takes an input of {sizes or 'one number'}; expected windows of samples (windows × samples), so "
            "give a model that computes its spectrogram itself"
        )
    samples = shape[-1]
    rate = sample_rate or KNOWN_RATES.get(samples or 0)
    if rate is None:
        heard = "any number of samples" if samples is None else f"{samples:,} samples"
        raise ConfigError(f"{path}: takes {heard}, but does not say at what sample rate; give it with --rate")
    if samples is not None:
        return samples, rate
    if window_s is None:
        raise ConfigError(
            f"{path}: takes windows of any length; say how many seconds it should hear with --window"
        )
    return max(1, round(window_s * rate)), rate


def _find_output(path: Path, labels: Path, outputs: Run, samples: int, n_labels: int) -> tuple[int, bool]:
    """Which output holds a number per label, and whether these are probabilities, tried on two windows."""
    noise = np.random.default_rng(0).normal(0, 0.05, (2, samples)).astype(np.float32)
    noise[1] = 0
    try:
        heard = [outputs(noise[k : k + 1]) for k in range(2)]
    except Exception as error:
        raise ConfigError(f"{path}: does not run on a window of sound ({first_line(error)})") from None
    fits = [k for k, one in enumerate(heard[0]) if one.ndim in (1, 2) and one.shape[-1] == n_labels]
    if not fits:
        sizes = " or ".join(f"{one.shape[-1]:,}" for one in heard[0] if one.ndim in (1, 2)) or "no"
        raise ConfigError(
            f"{labels}: holds {n_labels:,} labels, but {path.name} gives {sizes} scores; expected one label per "
            "score, without a heading"
        )
    if len(fits) > 1:
        raise ConfigError(
            f"{path}: has {len(fits)} outputs of {n_labels:,} numbers, so it is unclear which one holds the scores; "
            "export it with that one only"
        )
    values = np.concatenate([np.ravel(one[fits[0]]) for one in heard])
    return fits[0], bool(((values >= 0) & (values <= 1)).all())
