"""Averages of weights: over the steps of training, to be validated and shipped, and with another model's weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping

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
        # gathered once: walking through a model's modules takes longer than the update itself
        self._shadow, self._current = _tensors(self.model), _tensors(model)

    @torch.no_grad()
    def update(self) -> None:
        """Move the shadow towards the model by one step."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        torch._foreach_lerp_(self._shadow[True], self._current[True], 1.0 - decay)
        for shadow, current in zip(self._shadow[False], self._current[False], strict=True):
            shadow.copy_(current)


def _tensors(model: nn.Module) -> dict[bool, list[Tensor]]:
    """Parameters and buffers, grouped by whether they are floating-point."""
    everything = [t.detach() for t in (*model.parameters(), *model.buffers())]
    return {kind: [t for t in everything if t.is_floating_point() == kind] for kind in (True, False)}


def clone_weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers as they are now."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def average_weights(model: nn.Module, others: Mapping[str, Tensor], share: float) -> nn.Module:
    """A copy of a model whose weights are averaged with others of the same names.

    Args:
        model: is not changed.
        others: parameters and buffers of a model of the same shape.
        share: of the others, from 0 to 1.
    """
    mixed = copy.deepcopy(model).eval().requires_grad_(False)
    weights = mixed.state_dict()
    for name, own in weights.items():
        if own.is_floating_point():
            own.lerp_(others[name].to(own), share)
    return mixed
