"""A search in ONNX Runtime finds what torch finds, window by window, and is chosen where it is faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from random_detector import FRONT_END, save_detector, write_sound

from mast.arrays import FloatArray
from mast.audio import windows
from mast.detect_options import DetectOptions
from mast.errors import ConfigError, MastError
from mast.events import boxes_of, pairwise_iou
from mast.inference import Detector, Source, detector, onnx_network
from mast.inference.onnx_network import OnnxNetwork, choose_boxes
from mast.inference.stitch import ScoredBoxes
from mast.inference.torch_network import TorchNetwork
from mast.models import onnx_detector
from mast.models.card import WEIGHTS, load_card, read_arrays
from mast.models.checkpoint import update_card
from mast.models.decode import select_boxes

ONNX = DetectOptions(device="cpu", runtime="onnx")
TORCH = DetectOptions(device="cpu", runtime="torch")


@pytest.fixture
def exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are written without rounding."""

    def exact(config: Any, weights: Any, *, ranges: Any = None) -> bytes:
        return onnx_detector.write_graph(config, weights, exact=True)

    monkeypatch.setattr(onnx_network, "write_graph", exact)


@pytest.mark.usefixtures("exactly")
@pytest.mark.parametrize("band_hz", [None, 2_000.0])
def test_without_rounding_the_events_are_torchs(model: Path, tmp_path: Path, band_hz: float | None) -> None:
    path = write_sound(tmp_path / "a.wav", 21, rate=16_000 if band_hz is None else 4_000)
    ours, theirs = (
        Detector(model, own.model_copy(update={"band_hz": band_hz})).detect(path) for own in (ONNX, TORCH)
    )
    assert len(ours) > 20
    assert abs(len(ours) - len(theirs)) <= 0.02 * len(theirs)  # two that nearly overlap too much may differ
    best = pairwise_iou(boxes_of(ours), boxes_of(theirs)).max(axis=1)
    assert (best > 0.99).mean() > 0.97


def test_rounded_most_events_are_the_same(model: Path, tmp_path: Path) -> None:
    """Of a random detector, whose scores crowd around its threshold."""
    path = write_sound(tmp_path / "a.wav", 30)
    ours, theirs = (Detector(model, own).detect(path) for own in (ONNX, TORCH))
    best = pairwise_iou(boxes_of(theirs), boxes_of(ours)).max(axis=1)
    assert (best > 0.5).mean() > 0.85


def test_a_windows_boxes_do_not_depend_on_its_neighbours(model: Path, tmp_path: Path) -> None:
    path = write_sound(tmp_path / "a.wav", 15)
    network = Detector(model, ONNX).network
    sounds = np.stack([window.samples for window in windows(path, FRONT_END, keep_short=True)])
    together = network.boxes([sounds], 0.3)
    assert sum(len(found.scores) for found in together) > 20
    for sound, found in zip(sounds, together, strict=True):
        (alone,) = network.boxes([sound[None]], 0.3)
        np.testing.assert_array_equal(alone.boxes, found.boxes)
        np.testing.assert_array_equal(alone.scores, found.scores)


def test_several_workers_give_the_very_same_events(model: Path, tmp_path: Path) -> None:
    sources = [Source(write_sound(tmp_path / f"{k}.wav", 4 + 5 * k, seed=k), f"{k}.wav") for k in range(4)]
    one, many = (Detector(model, ONNX, threads=threads) for threads in (1, 3))
    assert (one.network.workers, many.network.workers) == (1, 3)
    for expected, found in zip(one.outcomes(sources), many.outcomes(sources), strict=True):
        assert len(expected.events)
        pd.testing.assert_frame_equal(found.events, expected.events)


def test_measured_ranges_are_used(model: Path, tmp_path: Path) -> None:
    folder = save_detector(tmp_path / "model")
    path = write_sound(tmp_path / "a.wav", FRONT_END.chunk_s)
    network = Detector(folder, ONNX).network
    (without,) = network.boxes([_windows(path)], 0.05)
    card = load_card(folder)
    weights = read_arrays(folder, card.weights_sha256)
    assert weights is not None
    spectrogram = card.normalisation.apply(onnx_network.ArrayLogMel(FRONT_END).chunk(_windows(path)[0]))
    ranges = onnx_detector.measure_ranges(card.architecture, weights, [spectrogram])  # type: ignore[arg-type]
    update_card(folder, card.model_copy(update={"ranges": ranges}))
    (rounded,) = Detector(folder, ONNX).network.boxes([_windows(path)], 0.05)
    assert len(rounded.scores) > 5
    assert rounded.scores.tolist() != without.scores.tolist()
    assert abs(rounded.scores.max() - without.scores.max()) < 0.05


def _windows(path: Path) -> np.ndarray:
    return np.stack([window.samples for window in windows(path, FRONT_END, keep_short=True)])


def test_vectors_do_not_change_the_events_and_are_torchs(model: Path, tmp_path: Path) -> None:
    path = write_sound(tmp_path / "a.wav", 11)
    write_sound(tmp_path / "quiet.wav", 3)
    plain = Detector(model, ONNX)
    events, vectors = Detector(model, ONNX.model_copy(update={"embed": True})).detect_and_embed(path)
    pd.testing.assert_frame_equal(events, plain.detect(path))
    assert vectors.shape == (len(events), plain.embedding_width)
    theirs, their_vectors = Detector(model, TORCH.model_copy(update={"embed": True})).detect_and_embed(path)
    overlap = pairwise_iou(boxes_of(events), boxes_of(theirs))
    same = np.flatnonzero(overlap.max(axis=1) > 0.95)
    assert len(same) > 10
    off = vectors[same] - their_vectors[overlap[same].argmax(axis=1)]
    assert np.median(np.abs(off.astype(np.float64)).max(axis=1)) < 0.05


def test_windows_without_events_have_no_vectors(model: Path, tmp_path: Path) -> None:
    deaf = Detector(model, ONNX.model_copy(update={"embed": True, "threshold": 1.0}))
    events, vectors = deaf.detect_and_embed(write_sound(tmp_path / "a.wav", 5))
    assert len(events) == 0
    assert vectors.shape == (0, deaf.embedding_width)


def test_the_model_in_torch_is_there_for_those_who_ask(model: Path) -> None:
    band = Detector(model, ONNX.model_copy(update={"band_hz": 2_000.0}))
    assert band.loaded_model.front_end == band.card.front_end
    assert band.loaded_model is band.loaded_model  # read once
    embeds: Any = Detector(model, ONNX.model_copy(update={"embed": True}))
    assert embeds.loaded_model is embeds.network.loaded_model


@pytest.mark.parametrize("min_score", [0.0, 0.4])
@pytest.mark.parametrize("nested", [1.0, 0.7])
@pytest.mark.parametrize("count", [0, 1, 60, 3_000])
def test_boxes_are_chosen_as_in_torch(count: int, nested: float, min_score: float) -> None:
    rng = np.random.default_rng(count)
    corner = rng.uniform(0, 90, (count, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(-2, 30, (count, 2))], axis=1).astype(np.float32)
    boxes = boxes.clip(0, 100)
    scores = rng.permutation(count).astype(np.float32) / max(count, 1)
    (expected,) = select_boxes(
        torch.from_numpy(boxes[None]),
        torch.from_numpy(scores[None]),
        chunk=(100, 100),
        score_threshold=min_score,
        nms_iou=0.5,
        nested=nested,
    )
    found: ScoredBoxes = choose_boxes(boxes, scores, min_score=min_score, nms_iou=0.5, nested=nested)
    np.testing.assert_array_equal(found.scores, expected.scores.double().numpy())
    np.testing.assert_array_equal(found.boxes, expected.boxes.double().numpy())


@pytest.mark.parametrize(
    ("gpu", "bfloat16", "options", "expected"),
    [
        (False, False, {}, OnnxNetwork),
        (False, False, {"device": "cpu"}, OnnxNetwork),
        (True, False, {"device": "cpu"}, OnnxNetwork),
        (False, True, {}, TorchNetwork),
        (False, True, {"runtime": "onnx"}, OnnxNetwork),
        (False, False, {"runtime": "torch"}, TorchNetwork),
    ],
)
def test_the_faster_one_is_chosen(
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpu: bool,
    bfloat16: bool,
    options: dict[str, Any],
    expected: type,
) -> None:
    monkeypatch.setattr(detector, "might_have_gpu", lambda: gpu)
    monkeypatch.setattr(detector, "might_have_bfloat16", lambda: bfloat16)
    monkeypatch.setattr("mast.device.has_bfloat16", lambda device: bfloat16)
    monkeypatch.setattr("mast.inference.torch_network.has_bfloat16", lambda device: False)
    assert isinstance(Detector(model, DetectOptions(**options)).network, expected)


def test_torch_has_the_last_word_on_gpus_and_bfloat16(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detector, "might_have_gpu", lambda: True)
    monkeypatch.setattr(detector, "might_have_bfloat16", lambda: True)
    monkeypatch.setattr("mast.device.has_bfloat16", lambda device: False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert isinstance(Detector(model).network, OnnxNetwork)


def test_what_torch_alone_can_compute(tmp_path: Path) -> None:
    folder = save_detector(tmp_path / "model", second_look=True)
    assert OnnxNetwork.open(folder, DetectOptions()) is None
    with pytest.raises(ConfigError, match="cannot be run in ONNX Runtime"):
        Detector(folder, ONNX)


def test_torch_steps_in_where_onnx_runtime_cannot(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(config: Any, weights: Any, *, ranges: Any = None) -> bytes:
        return b"a graph of the future"

    monkeypatch.setattr(detector, "prefers_onnx", lambda options: True)
    monkeypatch.setattr(onnx_network, "write_graph", unreadable)
    assert isinstance(Detector(model, DetectOptions(device="cpu")).network, TorchNetwork)


@pytest.mark.parametrize("how", ["changed", "not finite", "of another model"])
def test_damaged_weights_are_refused_as_by_torch(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    from safetensors.numpy import load_file, save_file

    monkeypatch.setattr(detector, "prefers_onnx", lambda options: True)
    folder = save_detector(tmp_path / "model")
    path = folder / WEIGHTS
    weights = load_file(path)
    name = "head.classify.weight"
    if how == "changed":
        weights[name] = weights[name] + 1
    elif how == "not finite":
        weights[name] = weights[name] * np.float32(np.nan)
    else:
        del weights[name]
    card = load_card(folder)
    save_file(weights, path, metadata={"model.json": card.model_dump_json()})
    assert read_arrays(folder, card.weights_sha256) is None
    messages = []
    for options in (DetectOptions(device="cpu"), TORCH):
        with pytest.raises(MastError) as refused:
            Detector(folder, options)
        messages.append(str(refused.value))
    assert messages[0] == messages[1]


def test_arrays_are_the_stored_weights(model: Path) -> None:
    from safetensors.numpy import load_file

    folder = model / "best"
    card = load_card(folder)
    arrays = read_arrays(folder, card.weights_sha256)
    assert arrays is not None
    stored: dict[str, FloatArray] = load_file(folder / WEIGHTS)
    assert arrays.keys() == stored.keys()
    for name, array in arrays.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, stored[name])
