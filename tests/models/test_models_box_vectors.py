"""What boxes are found again by, beside a slow twin."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mast.models.architecture import LOOK_WIDTH
from mast.models.box_vectors import box_looks, box_vectors

BOXES = [(3.2, 10.0, 40.7, 20.5), (0.0, 0.0, 128.0, 64.0), (60.0, 63.2, 60.5, 64.0), (127.5, 5.0, 128.0, 6.0)]


def slow_look(picture: NDArray[np.float32], box: tuple[float, float, float, float]) -> NDArray[np.float64]:
    """One box, bin by bin."""
    n_frames, n_bins = picture.shape
    first, last = int(box[0]), min(int(np.ceil(box[2])), n_frames)
    levels, unevenness = np.zeros(n_bins), np.zeros(n_bins)
    for b in range(int(box[1]), min(int(np.ceil(box[3])), n_bins)):
        levels[b], unevenness[b] = picture[first:last, b].mean(), picture[first:last, b].std()
    per_band = n_bins // 32
    bands = [values.reshape(32, per_band).mean(axis=1) for values in (levels, unevenness)]
    rest = [
        (np.log(max(box[2] - box[0], 1.0)) - 3.5) / 0.92,
        (box[1] / n_bins - 0.58) / 0.28,
        (box[3] / n_bins - 0.83) / 0.17,
    ]
    return np.concatenate([(bands[0] - 0.36) / 0.88, (bands[1] - 0.23) / 0.41, rest])


def test_the_look_of_a_box_is_that_of_the_slow_twin() -> None:
    torch.manual_seed(0)
    spectrograms = torch.randn(2, 1, 128, 64)
    boxes = torch.tensor([BOXES, BOXES[::-1]])
    looks = box_looks(spectrograms, boxes)
    assert looks.shape == (2, len(BOXES), LOOK_WIDTH)
    for chunk, own in enumerate((BOXES, BOXES[::-1])):
        for k, box in enumerate(own):
            expected = slow_look(spectrograms[chunk, 0].numpy(), box)
            np.testing.assert_allclose(looks[chunk, k].numpy(), expected, atol=1e-4)


def test_both_halves_have_length_one() -> None:
    torch.manual_seed(0)
    tokens = torch.randn(1, 24, 8, 4)
    vectors = box_vectors(tokens, torch.randn(1, 1, 128, 64), torch.tensor([BOXES]), 16)
    assert vectors.shape == (1, len(BOXES), 24 + LOOK_WIDTH)
    for half in (vectors[..., :24], vectors[..., 24:]):
        torch.testing.assert_close(half.norm(dim=-1), torch.ones(1, len(BOXES)))


@pytest.mark.parametrize("n_bins", [32, 48, 128])
def test_any_number_of_bins_has_the_same_width(n_bins: int) -> None:
    looks = box_looks(torch.randn(1, 1, 64, n_bins), torch.tensor([[[1.0, 2.0, 30.0, 12.0]]]))
    assert looks.shape[-1] == LOOK_WIDTH
    assert looks.isfinite().all()


def test_a_higher_call_of_the_same_shape_looks_different_and_a_later_one_alike() -> None:
    sound = torch.zeros(1, 1, 128, 64)
    sound[..., 10:30, 10:14] = sound[..., 60:80, 10:14] = sound[..., 10:30, 40:44] = 3.0
    boxes = torch.tensor([[[10.0, 10, 30, 14], [60.0, 10, 80, 14], [10.0, 40, 30, 44]]])
    here, later, higher = torch.nn.functional.normalize(box_looks(sound, boxes), dim=-1)[0]
    assert here @ later > 0.999
    assert here @ higher < 0.9


def test_no_boxes_give_no_vectors() -> None:
    assert box_looks(torch.randn(2, 1, 64, 32), torch.zeros(2, 0, 4)).shape == (2, 0, LOOK_WIDTH)
