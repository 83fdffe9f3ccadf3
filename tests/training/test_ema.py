from __future__ import annotations

import torch
from torch import nn

from mast.training.ema import Ema


def test_follows_by_the_formula() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    ema = Ema(model, decay=0.9)
    expected = {k: v.clone() for k, v in model.state_dict().items()}
    for update in range(20):
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor.copy_(torch.randn(tensor.shape) if tensor.is_floating_point() else tensor + 1)
        ema.update()
        decay = min(0.9, (1 + update) / (10 + update))
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                expected[name] = decay * expected[name] + (1 - decay) * tensor
            else:
                expected[name] = tensor.clone()
    for name, tensor in ema.model.state_dict().items():
        torch.testing.assert_close(tensor, expected[name])
    assert not any(p.requires_grad for p in ema.model.parameters())
