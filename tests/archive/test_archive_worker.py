"""What a worker loads: which GPU, how many threads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mast.archive import worker
from mast.archive.worker import DetectorSpec
from mast.detect_options import DetectOptions


@pytest.mark.parametrize(
    ("asked", "gpus", "expected"),
    [
        (None, 3, ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]),
        ("cuda", 2, ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]),
        ("cuda:1", 2, ["cuda:1"] * 4),
        ("cpu", 2, ["cpu"] * 4),
        (None, 0, [None] * 4),
        ("cuda", 0, ["cuda"] * 4),  # which is then refused in a sentence
    ],
)
def test_workers_take_the_gpus_in_turn(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, gpus: int, expected: list[str | None]
) -> None:
    monkeypatch.setattr(worker, "might_have_gpu", lambda: True)  # torch decides
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    loaded: list[DetectOptions] = []
    monkeypatch.setattr(worker, "Detector", lambda model, options, *, threads: loaded.append(options))
    monkeypatch.setattr(worker, "tune_process", lambda: None)
    monkeypatch.setattr(worker, "keep_freed_memory", lambda: True)
    for number in range(4):
        DetectorSpec("default", DetectOptions(device=asked, hop=0.5)).load(number)
    assert [options.device for options in loaded] == expected
    assert {options.hop for options in loaded} == {0.5}


def test_where_there_can_be_no_gpu_torch_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> bool:
        raise AssertionError("torch was asked")

    monkeypatch.setattr("torch.cuda.is_available", asked)
    monkeypatch.setattr(worker, "might_have_gpu", lambda: False)
    assert DetectorSpec("default")._with_gpu(1).device is None


def test_a_worker_has_the_threads_that_it_is_given(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "tune_process", lambda: None)
    monkeypatch.setattr(worker, "keep_freed_memory", lambda: True)
    before = torch.get_num_threads()
    try:
        in_torch = DetectOptions(device="cpu", runtime="torch")
        detector = DetectorSpec(str(model), in_torch, threads=3).load()
        assert torch.get_num_threads() == detector.network.workers == 3
        in_onnx = in_torch.model_copy(update={"runtime": "onnx"})
        assert DetectorSpec(str(model), in_onnx, threads=2).load().network.workers == 2
    finally:
        torch.set_num_threads(before)
