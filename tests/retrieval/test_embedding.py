"""Embeddings of known boxes: the right window, the right features, and nothing for what cannot be seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_embedder import FRONT_END, RATE, save_embedder, write_species

from mast.audio import centre_and_pad, read
from mast.data import load_dataset
from mast.detect_options import DetectOptions
from mast.errors import AudioError
from mast.events import boxes_of
from mast.features.logmel import LogMel
from mast.inference import Detector
from mast.models.architecture import LOOK_WIDTH
from mast.models.boxes import pool_boxes
from mast.retrieval.embedding import BoxEmbedder, plan_windows
from mast.retrieval.embedding_sources import labelled_batches
from mast_studies.mel_statistics import box_statistics, mel_statistics


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Detector:
    """In float32 on every machine, so that numbers can be compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mast.inference.torch_network.has_bfloat16", lambda device: False)
        return Detector(
            save_embedder(tmp_path_factory.mktemp("model")), DetectOptions(device="cpu", embed=True)
        )


@pytest.fixture(scope="module")
def species(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_species(tmp_path_factory.mktemp("species") / "data", recordings=3)


def slow_plan(start: float, end: float, duration: float, chunk: float, hop: float) -> float:
    """The start of the window for one box, from the list of all windows."""
    starts = [0.0]
    while starts[-1] + chunk < duration - 1e-9:
        starts.append(starts[-1] + hop)
    whole = [s for s in starts if s <= start + 1e-9 and end <= s + chunk + 1e-9]
    if whole:
        return max(whole, key=lambda s: round(min(start - s, s + chunk - end), 6))
    return min(max((start + end) / 2 - chunk / 2, 0.0), max(0.0, duration - chunk))


@given(
    spans=st.lists(st.tuples(st.floats(0, 59), st.floats(0.01, 30)), max_size=8),
    duration=st.floats(0.5, 60),
    share=st.sampled_from([0.25, 0.5, 0.75, 1.0]),
)
def test_windows_are_those_of_the_slow_plan(
    spans: list[tuple[float, float]], duration: float, share: float
) -> None:
    boxes = [(start, min(start + length, duration)) for start, length in spans if start < duration]
    plan = plan_windows(np.array(boxes).reshape(-1, 2), duration, 10.0, 10.0 * share)
    assert len(plan.window) == len(boxes)
    assert (np.diff(plan.starts_s) > 0).all()
    for (start, end), window in zip(boxes, plan.window, strict=True):
        chosen, expected = plan.starts_s[window], slow_plan(start, end, duration, 10.0, 10.0 * share)
        margins = [min(start - s, s + 10.0 - end) for s in (chosen, expected)]
        assert margins[0] == pytest.approx(margins[1], abs=1e-5)  # equal margins may be of either window
        if end - start <= 10.0:  # it is seen whole, whatever the step
            assert chosen <= start + 1e-6
            assert end <= chosen + 10.0 + 1e-6


def spectrogram(detector: Detector, path: Path, start_s: float) -> torch.Tensor:
    sound = centre_and_pad(
        read(path, start_s=start_s, end_s=start_s + FRONT_END.chunk_s, sample_rate=RATE),
        FRONT_END.chunk_samples,
    )
    raw = LogMel(FRONT_END).chunk_features(torch.from_numpy(sound)[None])
    return detector.card.normalisation.apply(raw)


def test_vectors_and_projections_are_the_models_own(detector: Detector, species: Path) -> None:
    path = sorted((species / "audio").iterdir())[0]
    box = np.array([1.0, 600.0, 1.6, 1_000.0])  # only the first window sees it whole
    made = BoxEmbedder(detector).embed_boxes(path, box[None])
    model = detector.loaded_model.mast_detector
    picture = spectrogram(detector, path, 0.0)
    low, high = FRONT_END.hz_to_bins([600.0, 1_000.0])
    cells = torch.tensor([[100.0, low, 160.0, high]], dtype=torch.float32)
    with torch.no_grad():
        np.testing.assert_allclose(made.vectors, model.embed(picture, [cells])[0].numpy(), atol=1e-4)
        pooled = pool_boxes(model(picture).levels[0], cells[None], model.config.strides)
        projected = model.projection(pooled)[0].numpy()
    assert made.projections is not None
    np.testing.assert_allclose(made.projections, projected, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(made.projections, axis=1), 1.0, atol=1e-5)


def test_detected_boxes_get_the_vectors_of_detection(detector: Detector, species: Path) -> None:
    path = sorted((species / "audio").iterdir())[1]
    events, vectors = detector.detect_and_embed(path)
    made = BoxEmbedder(detector).embed_boxes(path, boxes_of(events))
    assert made.seen.all()
    a, b = made.vectors, vectors.astype(np.float32)
    cosine = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert len(events) > 20
    # the others were put together from pieces, so that detection embedded a part of them
    assert (cosine > 0.999).mean() > 0.7
    assert np.median(cosine) > 0.9999


def test_what_cannot_be_seen(detector: Detector, species: Path) -> None:
    path = sorted((species / "audio").iterdir())[0]
    boxes = np.array(
        [
            [0.5, 500.0, 1.0, 900.0],
            [99.0, 500.0, 99.5, 900.0],  # after the end
            [0.5, 9_000.0, 1.0, 12_000.0],  # above the band
            [np.nan, 500.0, 1.0, 900.0],
            [7.9, 500.0, 30.0, 900.0],  # goes on after the end
            [0.0, 0.0, 8.0, 8_000.0],  # longer than a window
            [2.0, 800.0, 2.0, 800.0],  # a point
        ]
    )
    made = BoxEmbedder(detector).embed_boxes(path, boxes)
    assert made.seen.tolist() == [True, False, False, False, True, True, True]
    assert np.isfinite(made.vectors[made.seen]).all()
    assert np.isnan(made.vectors[~made.seen]).all()
    empty = BoxEmbedder(detector).embed_boxes(path, np.zeros((0, 4)))
    assert empty.vectors.shape == (0, 32 + LOOK_WIDTH)
    assert empty.projections is not None
    assert empty.projections.shape == (0, 16)
    with pytest.raises(AudioError):
        BoxEmbedder(detector).embed_boxes(path.with_name("none.wav"), boxes)


def test_an_order_of_boxes_changes_nothing(detector: Detector, species: Path) -> None:
    dataset = load_dataset(species)
    path = dataset.path(dataset.boxed_recordings[0])
    boxes = boxes_of(dataset.annotations.events)[:6]
    order = np.random.default_rng(0).permutation(6)
    embedder = BoxEmbedder(detector)
    np.testing.assert_allclose(
        embedder.embed_boxes(path, boxes[order]).vectors,
        embedder.embed_boxes(path, boxes).vectors[order],
        atol=1e-4,
    )


def test_a_dataset_continues_after_a_broken_recording(detector: Detector, tmp_path: Path) -> None:
    root = write_species(tmp_path / "data", recordings=3)
    dataset = load_dataset(root)
    broken = dataset.boxed_recordings[1]
    dataset.path(broken).write_bytes(b"no sound")
    failures: list[tuple[str, str]] = []
    made = list(labelled_batches(BoxEmbedder(detector), dataset, lambda *row: failures.append(row)))
    assert [some.events["recording"].iloc[0] for some in made] == [
        name for name in dataset.boxed_recordings if name != broken
    ]
    assert [name for name, _ in failures] == [broken]
    assert "not readable as sound" in failures[0][1]


def test_statistics_come_from_the_same_windows(detector: Detector, species: Path) -> None:
    path = sorted((species / "audio").iterdir())[0]
    found = box_statistics(
        BoxEmbedder(detector), path, [[1.0, 600.0, 1.6, 1_000.0], [50.0, 600.0, 51.0, 1_000.0]]
    )
    low, high = FRONT_END.hz_to_bins([600.0, 1_000.0])
    expected = mel_statistics(spectrogram(detector, path, 0.0)[0, 0].numpy(), [[100.0, low, 160.0, high]])
    np.testing.assert_allclose(found[:1], expected, atol=1e-3)
    assert np.isnan(found[1]).all()
