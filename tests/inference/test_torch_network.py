"""The network in torch under a detector: batches side by side, of one size, cast and compiled."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from random_detector import FRONT_END, write_sound

from mast.arrays import Samples
from mast.audio import windows as audio_windows
from mast.detect_options import DetectOptions
from mast.errors import ConfigError
from mast.events import boxes_of, pairwise_iou
from mast.inference import Detector, Source
from mast.inference.stitch import ScoredBoxes
from mast.inference.torch_network import _cast_products
from mast.models.checkpoint import load_checkpoint
from mast.models.mast_detector import MastDetector


@pytest.mark.usefixtures("bfloat16_anywhere")
@pytest.mark.parametrize("bfloat16", [False, True])
def test_several_batches_at_once_give_the_very_same_events(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bfloat16: bool
) -> None:
    monkeypatch.setattr("mast.inference.torch_network.has_bfloat16", lambda device: bfloat16)
    paths = [write_sound(tmp_path / f"{i}.wav", 2 + 6.3 * i, seed=i) for i in range(5)]
    sources = [Source(path, path.name) for path in paths]
    one, many = (
        Detector(model, DetectOptions(device="cpu", runtime="torch", batch_size=2, embed=True))
        for _ in range(2)
    )
    one.network.workers, many.network.workers = 1, 3
    threads = torch.get_num_threads()
    for expected, found in zip(one.outcomes(sources), many.outcomes(sources), strict=True):
        assert len(expected.events)
        pd.testing.assert_frame_equal(found.events, expected.events)
        assert found.embeddings is not None
        assert expected.embeddings is not None
        np.testing.assert_array_equal(found.embeddings, expected.embeddings)
        assert torch.get_num_threads() == threads  # what the workers use is their own affair


def test_workers_share_the_cores(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in its own share, whatever the main thread sets meanwhile."""
    paths = [write_sound(tmp_path / f"{i}.wav", 9, seed=i) for i in range(3)]
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        detector = Detector(model, DetectOptions(device="cpu", runtime="torch", batch_size=1))
        network = detector.network
        assert network.workers == 4
        network.workers = 2
        search, seen = network.boxes, []

        def watched(sounds: Sequence[Samples], min_score: float) -> list[ScoredBoxes]:
            found = search(sounds, min_score)
            seen.append((threading.current_thread().name, torch.get_num_threads()))
            return found

        monkeypatch.setattr(network, "boxes", watched)
        list(detector.stream(paths))
        assert {threads for _, threads in seen} == {2}
        assert {name for name, _ in seen} == {"worker_0", "worker_1"}
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("bfloat16_anywhere")
def test_weights_cast_once_give_what_autocast_gives(model: Path, tmp_path: Path) -> None:
    spectrograms = torch.randn(2, 1, FRONT_END.chunk_frames, FRONT_END.n_bins)
    ours, cast = (load_checkpoint(model / "best").model for _ in range(2))
    assert isinstance(cast, MastDetector)
    _cast_products(cast)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        a, b = ours(spectrograms), cast(spectrograms)
        for expected, found in zip((*a[:3], *a.levels, a.tokens), (*b[:3], *b.levels, b.tokens), strict=True):
            assert torch.equal(found, expected)


def test_full_batches_are_of_one_size_and_do_not_mix_recordings(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where the network is compiled and recorded for one shape."""
    monkeypatch.setattr(
        "mast.inference.torch_network.has_bfloat16", lambda device: False
    )  # not a CPU's own layers
    plain, full = (
        Detector(model, DetectOptions(device="cpu", runtime="torch", batch_size=8, embed=True, hop=0.5))
        for _ in range(2)
    )
    full.network.full_batches, full.network.workers = True, 2
    full._reader = replace(full._reader, batch_size=3)
    sizes: list[int] = []
    search = full.network._search
    monkeypatch.setattr(
        full.network,
        "_search",
        lambda sound, min_score: (sizes.append(len(sound)), search(sound, min_score))[1],
    )
    paths = [write_sound(tmp_path / f"{i}.wav", 1.3 * i, seed=i) for i in (6, 1, 3, 11, 2)]
    (tmp_path / "none.wav").write_text("no sound")
    paths.insert(2, tmp_path / "none.wav")
    together = list(full.outcomes(Source(path, path.name) for path in paths))
    assert [outcome.source.path for outcome in together] == paths
    windows = sum(
        len(list(audio_windows(path, FRONT_END, hop_s=0.5 * FRONT_END.chunk_s, keep_short=True)))
        for path in paths
        if path.name != "none.wav"
    )
    assert sizes == [8] * -(-windows // 8)
    for outcome in together:
        if outcome.source.recording == "none.wav":
            assert outcome.error
            continue
        expected, rows = plain.detect_and_embed(outcome.source.path)
        boxes = ["start_s", "end_s", "low_hz", "high_hz", "score"]
        assert outcome.embeddings is not None
        # other sizes of products round differently
        pd.testing.assert_frame_equal(outcome.events[boxes], expected[boxes], atol=0.01, rtol=1e-4)
        np.testing.assert_allclose(outcome.embeddings, rows, atol=2e-3)
        # alone as among others, to the last digit
        pd.testing.assert_frame_equal(outcome.events, full.detect(outcome.source.path))


def test_compiling_is_for_gpus(model: Path) -> None:
    assert not Detector(model, DetectOptions(device="cpu", runtime="torch")).network.compiled
    with pytest.raises(ConfigError, match="compile on cpu"):
        Detector(model, DetectOptions(device="cpu", compile=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_compiled_on_a_gpu_finds_what_the_plain_model_finds(model: Path, tmp_path: Path) -> None:
    path = write_sound(tmp_path / "a.wav", 30)
    plain = Detector(model, DetectOptions(device="cuda", batch_size=8, compile=False, embed=True))
    compiled = Detector(model, DetectOptions(device="cuda", batch_size=8, compile=True, embed=True))
    expected, rows = plain.detect_and_embed(path)
    events, embeddings = compiled.detect_and_embed(path)
    # in bfloat16 a score near the threshold may fall on either side
    assert abs(len(events) - len(expected)) <= 0.1 * len(expected)
    near = pairwise_iou(boxes_of(expected), boxes_of(events))
    assert (near.max(axis=1) > 0.8).mean() > 0.8
    assert embeddings.shape == (len(events), rows.shape[1])
    again = compiled.detect_and_embed(path)
    pd.testing.assert_frame_equal(events, again[0])
    np.testing.assert_array_equal(embeddings, again[1])
    assert 0 < len(compiled.network._graphs) <= compiled.network.workers  # the same for both
    assert all(graph.recorded for graph in compiled.network._graphs)
