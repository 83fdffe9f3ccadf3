from __future__ import annotations

import pytest
import torch
from torch import nn

from mast.training.loop import clip_gradients


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_clipping_is_torchs(scale: float) -> None:
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    for model in models:
        (model(torch.ones(3, 4)).square().sum() * scale).backward()
        model[1].bias.grad = None  # a frozen parameter
    ours = clip_gradients(list(models[0].parameters()), 1.0)
    theirs = nn.utils.clip_grad_norm_(models[1].parameters(), 1.0)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(*(m.parameters() for m in models), strict=True):
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad)
