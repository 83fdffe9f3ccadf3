import torch

from mast.models.decode import decode_boxes
from mast.models.head import PRIOR, Head
from mast.models.points import anchor_boxes, make_points


def test_points_of_the_paper() -> None:
    points = make_points((128, 32), (8, 4), 4)
    assert points.counts == (4096, 1024, 256, 64)
    assert points.centres.shape == (5440, 2)
    # first point, its neighbour in frequency, its neighbour in time
    assert points.centres[[0, 1, 32]].tolist() == [[4, 2], [4, 6], [12, 2]]
    # second level
    assert points.centres[4096].tolist() == [8, 4]
    assert points.strides[[0, 4096, 5120, 5376]].tolist() == [[8, 4], [16, 8], [32, 16], [64, 32]]
    assert points.anchors[4096].tolist() == [128, 64]
    assert points.level[[0, 4095, 4096, 5439]].tolist() == [0, 0, 1, 3]
    assert points.centres.max(0).values.tolist() == [1020, 126]


def test_one_point_is_the_minimum() -> None:
    points = make_points((1, 1), (16, 16), 2)
    assert points.centres.tolist() == [[8, 8], [16, 16]]


def test_predictions_line_up_with_points() -> None:
    """Light up one cell of one level: only points around it may answer."""
    torch.manual_seed(0)
    head = Head(32, 2, 1)
    head.classification_tower = torch.nn.Identity()
    points = make_points((8, 4), (8, 4), 2)
    dark = [torch.zeros(1, 32, 8, 4), torch.zeros(1, 32, 4, 2)]
    lit = [level.clone() for level in dark]
    lit[0][0, :, 5, 2] = 10.0
    moved = (head(lit).logits - head(dark).logits)[0].abs()
    assert (moved[points.level == 1] == 0).all()
    answering = points.centres[moved > 0]
    assert len(answering) == 9
    assert answering.mean(0).tolist() == [44, 10]


def test_start_is_the_anchor_and_the_prior() -> None:
    torch.manual_seed(0)
    head = Head(32, 3, 2)
    points = make_points((8, 8), (8, 4), 3)
    out = head([torch.randn(2, 32, 8 >> i, 8 >> i) for i in range(3)])
    assert out.logits.shape == (2, sum(points.counts))
    assert (out.logits.sigmoid() - PRIOR).abs().max() < 0.02
    boxes = decode_boxes(out.regression, points)
    off = (boxes - anchor_boxes(points)).abs() / points.anchors.repeat(1, 2)
    assert off.max() < 0.25


def test_scales_are_per_level_and_axis() -> None:
    torch.manual_seed(0)
    head = Head(32, 2, 1)
    levels = [torch.randn(1, 32, 4, 4), torch.randn(1, 32, 2, 2)]
    before = head(levels).regression
    with torch.no_grad():
        head.scales[1, 3] = 2.0  # coarser level, size in frequency
    ratio = head(levels).regression / before
    expected = torch.ones_like(ratio)
    expected[:, 16:, 3] = 2.0
    torch.testing.assert_close(ratio, expected)


def test_stays_finite_however_large_the_features() -> None:
    head = Head(32, 2, 1)
    with torch.no_grad():
        head.regress.weight.mul_(1e6)
    points = make_points((4, 4), (8, 4), 2)
    boxes = decode_boxes(head([torch.randn(1, 32, 4, 4), torch.randn(1, 32, 2, 2)]).regression, points)
    assert boxes.isfinite().all()
    assert (
        boxes[..., 2:] > boxes[..., :2]
    ).float().mean() > 0.9  # the rest lie so far out that float32 rounds
