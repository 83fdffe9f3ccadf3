"""Exponential moving average of the weights: what is validated and what is shipped."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Ema:
    """A shadow model that follows another one.

    The decay starts low, ``(1 + n) / (10 + n)``, and rises to its final value, so that a short run is not
    averaged with its random start (our choice; the paper gives the final value 0.9995 only).
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move the shadow towards ``model`` by one step."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        shadow, current = self._floats(self.model), self._floats(model)
        torch._foreach_lerp_(shadow, current, 1.0 - decay)
        for name, buffer in self.model.named_buffers():
            if not buffer.is_floating_point():
                buffer.copy_(model.get_buffer(name))

    @staticmethod
    def _floats(model: nn.Module) -> list[Tensor]:
        tensors = [*model.parameters(), *model.buffers()]
        return [t.detach() for t in tensors if t.is_floating_point()]
