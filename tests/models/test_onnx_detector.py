"""The graph for ONNX Runtime is the detector in torch, the naive reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from spread_scores import spread_scores

from mast.models.architecture import DetectorConfig, EncoderConfig
from mast.models.boxes import clip_boxes
from mast.models.mast_detector import MastDetector
from mast.models.onnx_detector import (
    BOXES,
    GIVEN,
    MIN_SCORE,
    SCORES,
    can_write,
    measure_ranges,
    open_session,
    write_graph,
)

SMALL = EncoderConfig(chunk_frames=256, n_bins=64, width=32, depth=2, heads=2)
PLAIN: dict[str, Any] = {"encoder": SMALL, "channels": 32, "levels": 3, "head_convs": 2}


def detector(**fields: Any) -> MastDetector:
    torch.manual_seed(0)
    model = MastDetector(DetectorConfig.model_validate(PLAIN | fields)).eval()
    with torch.no_grad():  # norms, fusion and scales that do something
        for name, value in model.named_parameters():
            if value.ndim == 1 or "fusion" in name or "scales" in name:
                value += 0.2 * torch.randn_like(value)
    spread_scores(model)
    return model


def weights_of(model: MastDetector) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in model.state_dict().items()}


def seen(number: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=(256, 64)).astype(np.float32) for _ in range(number)]


@torch.inference_mode()
def by_torch(model: MastDetector, spectrogram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    output = model(torch.from_numpy(spectrogram[None, None]))
    return clip_boxes(output.boxes, model.chunk)[0].numpy(), model.scores(output)[0].numpy()


def by_onnx(
    graph: bytes, spectrogram: np.ndarray, *, min_score: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    given = {GIVEN: spectrogram[None, None], MIN_SCORE: np.array(min_score, dtype=np.float32)}
    boxes, scores = open_session(graph, threads=1).run([BOXES, SCORES], given)
    return boxes, scores


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"levels": 2, "head_convs": 1},
        {"levels": 4, "channels": 64},
        {"centreness_in_score": False},
        {"encoder": SMALL.model_copy(update={"heads": 4, "depth": 1})},
        {"encoder": SMALL.model_copy(update={"patch": 8})},
    ],
    ids=str,
)
def test_the_exact_graph_is_the_detector(fields: dict[str, Any]) -> None:
    model = detector(**fields)
    graph = write_graph(model.config, weights_of(model), exact=True)
    for spectrogram in seen(2):
        boxes, scores = by_torch(model, spectrogram)
        found_boxes, found_scores = by_onnx(graph, spectrogram)
        np.testing.assert_allclose(found_scores, scores, atol=1e-4)
        np.testing.assert_allclose(found_boxes, boxes, atol=0.02)
        assert scores.std() > 0.05  # the test sees different scores


@pytest.mark.parametrize("rounded", [True, False])
@pytest.mark.parametrize("centreness", [True, False])
def test_boxes_that_count_are_the_same_whatever_else_is_left_out(centreness: bool, rounded: bool) -> None:
    model = detector(centreness_in_score=centreness)
    weights, spectrogram = weights_of(model), seen(1)[0]
    ranges = measure_ranges(model.config, weights, seen(4)) if rounded else None
    graph = write_graph(model.config, weights, ranges=ranges, exact=not rounded)
    boxes, scores = by_onnx(graph, spectrogram)
    levels = np.split(np.arange(len(scores)), np.cumsum([32 * 16, 16 * 8]))
    left_out = set()
    for min_score in (0.0, *np.sort(scores)[[len(scores) // 2, -20, -1]].tolist(), 1.0):
        found_boxes, found_scores = by_onnx(graph, spectrogram, min_score=min_score)
        counts = scores >= min_score
        np.testing.assert_array_equal(found_scores >= min_score, counts)
        np.testing.assert_array_equal(found_scores[counts], scores[counts])
        np.testing.assert_array_equal(found_boxes[counts], boxes[counts])
        left_out.add(sum(not np.array_equal(found_boxes[own], boxes[own]) for own in levels))
    assert {0, 3} <= left_out  # levels: all are computed for a score of 0, and none for 1


def test_the_rounded_graphs_are_close_to_it() -> None:
    model = detector()
    weights = weights_of(model)
    ranges = measure_ranges(model.config, weights, seen(4))
    errors = {}
    for name, given in (("layers", None), ("layers and convolutions", ranges)):
        graph = write_graph(model.config, weights, ranges=given)
        off = [np.abs(by_onnx(graph, own)[1] - by_torch(model, own)[1]) for own in seen(2)]
        errors[name] = float(np.mean(off))
    assert 0 < errors["layers"] < errors["layers and convolutions"] < 0.02


def test_a_range_that_is_too_narrow_is_seen_in_the_scores() -> None:
    """Ranges are used at all, each at its place."""
    model = detector()
    weights = weights_of(model)
    ranges = measure_ranges(model.config, weights, seen(4))
    spectrogram = seen(1)[0]
    whole = by_onnx(write_graph(model.config, weights, ranges=ranges), spectrogram)[1]
    for name, (low, high) in ranges.items():
        narrow = ranges | {name: (low / 20, high / 20)}
        changed = by_onnx(write_graph(model.config, weights, ranges=narrow), spectrogram)[1]
        assert np.abs(changed - whole).max() > 1e-3, name


def test_ranges_hold_those_of_every_spectrogram() -> None:
    model = detector()
    weights = weights_of(model)
    each = [measure_ranges(model.config, weights, [own]) for own in seen(3)]
    whole = measure_ranges(model.config, weights, seen(3))
    assert len(whole) > 20
    for name, (low, high) in whole.items():
        assert low == min(own[name][0] for own in each)
        assert high == max(own[name][1] for own in each)


@pytest.mark.parametrize(
    "fields",
    [
        {"second_look": True},
        {"detail": 8},
        {"pyramid_blocks": 1},
        {"adapter": "fine"},
        {"adapter": "none"},
        {"encoder": EncoderConfig(chunk_frames=240, n_bins=64, width=32, depth=1, heads=2), "levels": 4},
    ],
    ids=str,
)
def test_what_it_cannot_write(fields: dict[str, Any]) -> None:
    assert can_write(DetectorConfig.model_validate(PLAIN))
    assert not can_write(DetectorConfig.model_validate(PLAIN | fields))


def test_nothing_is_written_without_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.models.onnx_detector.find_spec", lambda name: None)
    assert not can_write(DetectorConfig.model_validate(PLAIN))
