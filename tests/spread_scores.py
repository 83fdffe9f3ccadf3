"""An untrained detector whose scores differ."""

from __future__ import annotations

import torch

from mast.models.mast_detector import MastDetector


def spread_scores(model: MastDetector) -> None:
    """Give the last layers large weights and no bias, so that scores spread over (0, 1)."""
    with torch.no_grad():
        for layer in (model.head.classify, model.head.regress):
            layer.weight.normal_(0, 0.1)
            assert layer.bias is not None
            layer.bias.zero_()
