import subprocess
import sys

import pytest
import torch
from torch import Tensor

from mast.models.kernels import nms, roi_align


def some_boxes(n: int, *, levels: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Boxes on whole cells and scores of a few values: overlaps and scores that are exactly equal."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.randint(0, 60, (n, 2), generator=generator).double()
    extent = torch.randint(1, 30, (n, 2), generator=generator).double()
    scores = torch.randint(0, levels, (n,), generator=generator).double() / levels
    return torch.cat([corner, corner + extent], dim=1), scores


def naive_nms(boxes: Tensor, scores: Tensor, overlap: float) -> list[int]:
    kept: list[int] = []
    for i in sorted(range(len(boxes)), key=lambda i: -float(scores[i])):  # stable: the earlier first
        free = True
        for j in kept:
            size = torch.minimum(boxes[i, 2:], boxes[j, 2:]) - torch.maximum(boxes[i, :2], boxes[j, :2])
            shared = float(size.clamp(min=0).prod())
            areas = [float((boxes[k, 2:] - boxes[k, :2]).prod()) for k in (i, j)]
            free &= shared / (sum(areas) - shared) <= overlap
        if free:
            kept.append(i)
    return kept


@pytest.mark.parametrize("levels", [3, 1_000_000])
@pytest.mark.parametrize("overlap", [0.2, 0.5, 1.0])
def test_nms_against_naive(levels: int, overlap: float) -> None:
    boxes, scores = some_boxes(120, levels=levels)
    assert nms(boxes, scores, overlap).tolist() == naive_nms(boxes, scores, overlap)


def test_nms_by_hand() -> None:
    boxes = torch.tensor([[0.0, 0.0, 4.0, 1.0], [0.0, 0.0, 2.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    assert nms(boxes, torch.tensor([0.5, 0.5, 0.9]), 0.4).tolist() == [2, 0]  # 1/2 and 1/4 with the first two
    assert nms(boxes, torch.tensor([0.5, 0.5, 0.9]), 0.5).tolist() == [2, 0, 1]  # just half is not more


def test_nothing_to_choose_or_pool() -> None:
    assert nms(torch.zeros(0, 4), torch.zeros(0), 0.5).shape == (0,)
    assert roi_align(torch.zeros(1, 3, 8, 8), torch.zeros(0, 5), (2, 2), samples=1).shape == (0, 3, 2, 2)


def test_kernels_are_torchvisions() -> None:
    ops = pytest.importorskip("torchvision.ops")
    for n in (1, 40, 1_000):
        boxes, scores = some_boxes(n, levels=20, seed=n)
        assert torch.equal(nms(boxes, scores, 0.5), ops.nms(boxes, scores, 0.5))
    boxes, _ = some_boxes(30, levels=2)
    regions = torch.cat([torch.arange(30)[:, None] % 2, boxes / 4], dim=1).float()
    ours, theirs = (torch.randn(2, 3, 24, 20, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    found = roi_align(ours.requires_grad_(), regions, (4, 2), samples=2)
    expected = ops.roi_align(theirs.requires_grad_(), regions, (4, 2), sampling_ratio=2, aligned=True)
    assert torch.equal(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad)


CALL = "kept = nms(torch.tensor([[0., 0., 1., 1.]]), torch.ones(1), 0.5).tolist()\nassert kept == [0]\n"


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_torchvision_can_follow_and_is_not_needed_before() -> None:
    code = (
        "import sys, torch\nfrom mast.models.kernels import nms\n"
        + CALL
        + "print('torchvision' in sys.modules)\n"
        "from torchvision.ops import nms\n" + CALL
    )
    assert run(code) == "False"


def test_where_the_library_lies_elsewhere_torchvision_is_asked() -> None:
    code = (
        "import sys, torch\nfrom mast.models import kernels\nfrom mast.models.kernels import nms\n"
        "class Nowhere:\n    find_spec = staticmethod(lambda name, path: None)\n"
        "kernels.PathFinder = Nowhere\n" + CALL + "print('torchvision' in sys.modules)\n"
    )
    assert run(code) == "True"
