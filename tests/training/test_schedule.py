from __future__ import annotations

import itertools

import pytest

from mast.training.schedule import Unfreezing, warmup_cosine


def test_rises_then_falls_to_the_floor() -> None:
    factors = [warmup_cosine(s, total_steps=100, warmup_steps=10, floor=0.1) for s in range(100)]
    assert factors[:10] == pytest.approx([(s + 1) / 10 for s in range(10)])
    assert factors[10] == pytest.approx(1.0)
    assert all(a >= b for a, b in itertools.pairwise(factors[10:]))
    assert factors[-1] == pytest.approx(0.1, abs=0.01)
    assert warmup_cosine(1_000, total_steps=100, warmup_steps=10, floor=0.1) == pytest.approx(0.1)


def test_no_warmup() -> None:
    assert warmup_cosine(0, total_steps=1, warmup_steps=0) == 1.0


@pytest.mark.parametrize(
    ("stage", "epoch", "blocks"),
    [
        (Unfreezing(), 0, 0),  # Stage 1 of Table "Staged self-training": 20, 10, 3
        (Unfreezing(), 19, 0),
        (Unfreezing(), 20, 3),
        (Unfreezing(), 29, 3),
        (Unfreezing(), 30, 6),
        (Unfreezing(), 79, 12),
        (Unfreezing(warmup_epochs=3, interval_epochs=6, blocks_per_stage=6), 2, 0),  # Stage 2
        (Unfreezing(warmup_epochs=3, interval_epochs=6, blocks_per_stage=6), 3, 6),
        (Unfreezing(warmup_epochs=3, interval_epochs=6, blocks_per_stage=6), 9, 12),
        (Unfreezing(warmup_epochs=3, interval_epochs=6, blocks_per_stage=6), 39, 12),
    ],
)
def test_blocks_open_by_the_table(stage: Unfreezing, epoch: int, blocks: int) -> None:
    assert stage.blocks_at(epoch, depth=12) == blocks
