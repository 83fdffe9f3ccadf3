from __future__ import annotations

import torch
from torch import nn

from mast.training.ema import Ema, average_weights, clone_weights


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


def test_a_mean_with_other_weights_leaves_both_as_they_were() -> None:
    torch.manual_seed(0)
    first, second = (nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)) for _ in range(2))
    second[1].num_batches_tracked += 7
    before, own = clone_weights(first), clone_weights(second)
    mixed = average_weights(second, before, 0.25)
    for name, value in mixed.state_dict().items():
        expected = 0.25 * before[name] + 0.75 * own[name] if value.is_floating_point() else own[name]
        torch.testing.assert_close(value, expected)
    for model, kept in ((first, before), (second, own)):
        for name, value in model.state_dict().items():
            assert torch.equal(value, kept[name])
    assert second[0].weight.requires_grad
    assert not any(p.requires_grad for p in mixed.parameters())
