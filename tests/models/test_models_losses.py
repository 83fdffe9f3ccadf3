import math

import numpy as np
import pytest
import torch

from mast.models.losses import (
    centreness_loss,
    centreness_target,
    corner_loss,
    focal_loss,
    giou_loss,
    mean_over_processes,
    over_positives,
    quality_focal_loss,
)

LOGITS = [-30.0, -2.0, 0.0, 0.7, 3.0, 30.0]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def cross_entropy(x: float, y: float) -> float:
    return math.log1p(math.exp(-abs(x))) + max(x, 0) - x * y


def random_boxes(n: int, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 100, size=(n, 2))
    return torch.tensor(
        np.concatenate([low, low + rng.uniform(0.5, 80, size=(n, 2))], axis=1), dtype=torch.float32
    )


@pytest.mark.parametrize("quality", [0.0, 0.35, 1.0])
def test_quality_focal_against_naive(quality: float) -> None:
    logits = torch.tensor(LOGITS, requires_grad=True)
    loss = quality_focal_loss(logits, torch.full((6,), quality))
    expected = [abs(quality - sigmoid(x)) ** 2 * cross_entropy(x, quality) for x in LOGITS]
    torch.testing.assert_close(loss, torch.tensor(expected))
    loss.sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("positive", [True, False])
def test_focal_against_naive(positive: bool) -> None:
    loss = focal_loss(torch.tensor(LOGITS), torch.full((6,), positive))
    expected = []
    for x in LOGITS:
        right = sigmoid(x) if positive else 1 - sigmoid(x)
        alpha = 0.25 if positive else 0.75
        expected.append(alpha * (1 - right) ** 2 * cross_entropy(x, float(positive)))
    torch.testing.assert_close(loss, torch.tensor(expected))


def test_giou_against_naive() -> None:
    a, b = random_boxes(20, 0), random_boxes(20, 1)
    expected = []
    for p, q in zip(a.tolist(), b.tolist(), strict=True):
        width = max(0.0, min(p[2], q[2]) - max(p[0], q[0]))
        height = max(0.0, min(p[3], q[3]) - max(p[1], q[1]))
        union = (p[2] - p[0]) * (p[3] - p[1]) + (q[2] - q[0]) * (q[3] - q[1]) - width * height
        hull = (max(p[2], q[2]) - min(p[0], q[0])) * (max(p[3], q[3]) - min(p[1], q[1]))
        expected.append(1 - (width * height / union - (hull - union) / hull))
    torch.testing.assert_close(giou_loss(a, b), torch.tensor(expected), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(giou_loss(a, a), torch.zeros(20), atol=1e-5, rtol=0)


def test_corner_loss_by_hand() -> None:
    predicted = torch.tensor([[0.0, 0.0, 64.0, 32.0]])
    true = torch.tensor([[16.0, 0.0, 64.0, 24.0]])
    anchors = torch.tensor([[64.0, 32.0]])
    assert corner_loss(predicted, true, anchors).tolist() == pytest.approx([(16 / 64 + 8 / 32) / 4])


def test_centreness_by_hand() -> None:
    true = torch.tensor([[0.0, 0.0, 100.0, 40.0]])
    strides = torch.tensor([[8.0, 4.0]])

    def at(t: float, f: float) -> float:
        return float(centreness_target(torch.tensor([[t, f]]), strides, true))

    assert at(50, 20) == 1
    assert at(20, 10) == pytest.approx(math.sqrt(20 / 80 * 10 / 30))
    assert at(0, 20) == 0
    assert at(-5, 20) == 0


def test_centreness_of_the_point_nearest_to_a_tiny_box() -> None:
    strides = torch.tensor([[8.0, 4.0]])
    corner = torch.tensor([[0.0, 0.0]])  # as far as can be from the nearest point, (4, 2)
    true = torch.cat([corner - 0.5, corner + 0.5], dim=1)
    assert float(centreness_target(torch.tensor([[4.0, 2.0]]), strides, true)) == pytest.approx(1 / 3)


def test_centreness_loss_is_cross_entropy() -> None:
    loss = centreness_loss(torch.tensor(LOGITS), torch.full((6,), 0.3))
    torch.testing.assert_close(loss, torch.tensor([cross_entropy(x, 0.3) for x in LOGITS]))


def test_over_positives_weighs_images_and_counts_positives() -> None:
    """Three images, six points, five positives: no other count gives these numbers."""
    per_point = torch.tensor([[1.0, 2.0], [0.0, 4.0], [3.0, 0.0]])
    five = torch.tensor(5.0)
    assert over_positives(per_point, None, five) == 2.0
    assert over_positives(per_point, torch.tensor([1.0, 0.25, 2.0]), five) == 2.0  # (3 + 1 + 6) / 5
    assert over_positives(per_point, torch.tensor([1.0, 0.0, 0.0]), five) == pytest.approx(0.6)
    assert over_positives(per_point, None, torch.tensor(0.25)) == 10  # less than one, of many processes
    assert over_positives(per_point * 0, None, torch.tensor(0.0)) == 0


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_defined_for_no_points(shape: tuple[int, ...]) -> None:
    logits = torch.zeros(shape, requires_grad=True)
    boxes = torch.zeros(*shape, 4, requires_grad=True)
    pairs = torch.ones(*shape, 2)
    total = (
        quality_focal_loss(logits, torch.zeros(shape)).sum()
        + focal_loss(logits, torch.zeros(shape, dtype=torch.bool)).sum()
        + giou_loss(boxes, torch.zeros(*shape, 4)).sum()
        + corner_loss(boxes, torch.zeros(*shape, 4), pairs).sum()
        + centreness_loss(logits, centreness_target(pairs, pairs, torch.zeros(*shape, 4))).sum()
    )
    total.backward()
    assert total == 0


def test_one_process_is_its_own_mean() -> None:
    assert mean_over_processes(torch.tensor(5.0)) == 5
