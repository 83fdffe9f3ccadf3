"""GPU work on tensors of one shape, recorded once and launched as a whole afterwards.

A network is some hundred kernels, and Python launches each of them: while other threads read recordings, every launch
waits for its turn. A CUDA graph is one launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

R = TypeVar("R")
_WARM_UP = 2  # calls before recording: the first compiles, the next has everything in place


class Graph(Generic[R]):
    """``work`` on a tensor of one shape. Its result is overwritten by the next call.

    Recording in one thread lets others keep using the GPU; if ``work`` cannot be recorded, it is called directly.

    Args:
        work: from a tensor on the GPU to tensors; the same kernels for every input, and nothing that waits for the GPU.
        example: an input, anywhere.
        device: the GPU.
    """

    def __init__(self, work: Callable[[Tensor], R], example: Tensor, device: torch.device) -> None:
        self._work = work
        self._input = example.to(device)
        for _ in range(_WARM_UP):
            work(self._input)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._output = work(self._input)
            self._replay: Callable[[], None] | None = graph.replay
        except RuntimeError:
            torch.cuda.synchronize(device)
            self._replay = None

    @property
    def recorded(self) -> bool:
        """Whether the work is launched as a whole."""
        return self._replay is not None

    def __call__(self, given: Tensor) -> R:
        """The result of ``work`` for ``given``, on the current stream."""
        self._input.copy_(given, non_blocking=True)
        if self._replay is None:
            return self._work(self._input)
        self._replay()
        return self._output
