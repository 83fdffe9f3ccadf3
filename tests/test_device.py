"""Tests of devices and copies to them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx

from mast.device import find_device, to_device
from mast.errors import ConfigError


@pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="torch without CUDA cannot trace copies to it")
def test_compiled_code_sends_without_pinning() -> None:
    """Pinning cannot be traced: `mast detect` with a compiled DETR stopped on a GPU. No GPU is needed to see it."""
    graphs: list[fx.GraphModule] = []

    def sent(values: Tensor) -> Tensor:
        return values.to("cuda") * to_device(torch.tensor([1.0, 2.0]), "cuda")

    def keep(graph: fx.GraphModule, inputs: list[Tensor]) -> None:
        graphs.append(graph)
        raise _Traced("_Traced")

    compiled = torch.compile(sent, backend=keep, fullgraph=True)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="_Traced"):
        compiled(torch.zeros(2))
    (graph,) = graphs
    assert not [node for node in graph.graph.nodes if "pin" in str(node.target)]


def test_sent_values_are_the_same() -> None:
    values = torch.arange(5.0)
    assert torch.equal(to_device(values, "cpu"), values)


def test_devices_that_are_not_there_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"^device gpu: no such device; expected cpu, cuda or cuda:1$"):
        find_device("gpu")

    def no_driver(*size: int, device: torch.device) -> Tensor:
        raise RuntimeError(
            "Found no NVIDIA driver on your system. Please check that you have a GPU\nand more"
        )

    monkeypatch.setattr(torch, "zeros", no_driver)
    with pytest.raises(
        ConfigError,
        match=r"^device cuda: cannot be used here \(Found no NVIDIA driver on your system\); leave the device out, or "
        "give cpu$",
    ):
        find_device("cuda")


class _Traced(Exception):
    """Stops before anything runs."""
