from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from mast.inference.graph import Graph

CPU = torch.device("cpu")


def doubled(calls: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """Twice a tensor, written into the same place each time, as a GPU's graph does."""
    place = torch.empty(3)

    def work(given: Tensor) -> Tensor:
        calls.append(given)
        return torch.mul(given, 2, out=place)

    return work


def pretend_a_gpu(monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
    """Recording and replaying do nothing, or recording fails; what is called beside them is what counts."""

    class Recorder:
        replay: Callable[[], None] = staticmethod(lambda: None)

    @contextmanager
    def record(graph: Recorder, *, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"  # other threads go on
        if fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recorder)
    monkeypatch.setattr(torch.cuda, "graph", record)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)


def test_recorded_work_is_not_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_a_gpu(monkeypatch, fails=False)
    calls: list[Tensor] = []
    graph = Graph(doubled(calls), torch.ones(3), CPU)
    before = len(calls)
    graph(torch.arange(3.0))
    assert graph.recorded
    assert len(calls) == before == 3  # twice to warm up, once recorded
    assert all(given is calls[0] for given in calls)  # the same place always
    assert calls[0].tolist() == [0, 1, 2]  # which is where new input goes


def test_work_that_cannot_be_recorded_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_a_gpu(monkeypatch, fails=True)
    graph = Graph(doubled([]), torch.ones(3), CPU)
    assert not graph.recorded
    assert graph(torch.arange(3.0)).tolist() == [0, 2, 4]
    assert graph(torch.zeros(3)).tolist() == [0, 0, 0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_graph_gives_what_its_work_gives() -> None:
    device = torch.device("cuda")
    graph = Graph(lambda given: (given * 2).relu().sum(dim=0), torch.zeros(4, 5), device)
    assert graph.recorded
    for seed in range(3):
        given = torch.randn(4, 5, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(graph(given).cpu(), (given * 2).relu().sum(dim=0))
