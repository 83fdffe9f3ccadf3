"""Normalisation by hand, and the quiet level of a chunk."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from mast.normalisation import Normalisation, quiet_level


def test_apply_by_hand() -> None:
    normalisation = Normalisation(mean=-4.0, std=2.5)
    found = normalisation.apply(torch.tensor([[-4.0, 1.0]]))
    torch.testing.assert_close(found, torch.tensor([[0.0, 2.0]]))
    np.testing.assert_allclose(normalisation.apply(np.array([6.0])), [4.0])


def test_normalisation_is_frozen_and_checked() -> None:
    normalisation = Normalisation(mean=0.0, std=1.0)
    with pytest.raises(ValidationError):
        normalisation.mean = 1.0  # type: ignore[misc]
    for wrong in (
        {"mean": 0.0, "std": -1.0},
        {"mean": float("nan"), "std": 1.0},
        {"mean": 0.0, "std": 1.0, "sd": 2},
    ):
        with pytest.raises(ValidationError):
            Normalisation(**wrong)
    for wrong in ({"mean": 1e7, "std": 1.0}, {"mean": 0.0, "std": 0.0}, {"mean": 0.0, "std": float("inf")}):
        with pytest.raises(ValidationError):
            Normalisation(**wrong)
    assert Normalisation.model_validate_json(normalisation.model_dump_json()) == normalisation


def test_statistics_of_earlier_runs_hold_epsilon_beside() -> None:
    text = '{"mean": -8.0, "std": 4.0, "epsilon": 1e-6, "levelled": true}'
    assert Normalisation.model_validate_json(text) == Normalisation(mean=-8.0, std=4.0 + 1e-6, levelled=True)


def test_quiet_level_is_the_lower_quartile_of_the_sounding_frames() -> None:
    raw = torch.randn(3, 1, 64, 8, generator=torch.Generator().manual_seed(0))
    raw[1, :, 40:] = -15.94  # padding
    raw[2] = -15.94
    level = quiet_level(raw)
    assert level.shape == (3, 1, 1, 8)
    for chunk, frames in ((0, 64), (1, 40)):
        for f in range(8):
            values = sorted(raw[chunk, 0, :frames:4, f].tolist())
            assert level[chunk, 0, 0, f] == pytest.approx(values[int((len(values) - 1) * 0.25)])
    assert (level[2] == -15.94).all()


def test_levelled_chunks_do_not_know_the_recorders_gain_or_colour() -> None:
    raw = torch.randn(2, 1, 128, 16, generator=torch.Generator().manual_seed(1))
    colour = torch.linspace(-3, 5, 16)
    levelled = Normalisation(mean=1.0, std=2.0, levelled=True)
    assert torch.allclose(levelled.apply(raw + 7 + colour), levelled.apply(raw), atol=1e-5)
    assert np.allclose(levelled.apply(raw.numpy()), levelled.apply(raw).numpy())
    plain = Normalisation(mean=1.0, std=2.0)
    assert not torch.allclose(plain.apply(raw + 7), plain.apply(raw), atol=1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("frames", [1, 3, 64])
def test_arrays_and_tensors_have_the_same_quiet_level(dtype: type, frames: int) -> None:
    """NumPy alone, torch by way of NumPy, and torch alone, as on a GPU: to the last digit."""
    raw = np.random.default_rng(2).normal(size=(4, 1, frames, 8)).astype(dtype)
    raw[1, :, frames // 2 :] = -15.94  # padding
    raw[2] = -15.94
    expected = quiet_level(torch.from_numpy(raw.copy()).requires_grad_()).detach().numpy()
    assert expected.dtype == dtype
    for found in (quiet_level(raw), quiet_level(torch.from_numpy(raw)).numpy()):
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)
    assert quiet_level(raw[:0]).shape == (0, 1, 1, 8)
