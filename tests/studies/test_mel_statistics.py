"""What a box looks like without any learning."""

from __future__ import annotations

import numpy as np

from mast_studies.mel_statistics import mel_statistics, standardise


def test_mel_statistics_are_means_and_deviations_inside() -> None:
    rng = np.random.default_rng(0)
    picture = rng.normal(size=(20, 8))
    found = mel_statistics(picture, [[2.0, 3.0, 7.0, 6.0], [4.5, 0.0, 5.5, 8.0]])
    expected = np.zeros(19)
    for b in (3, 4, 5):
        values = [picture[t, b] for t in range(2, 7)]
        expected[b], expected[8 + b] = np.mean(values), np.std(values)
    expected[-3:] = np.log(5), 3, 6
    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    np.testing.assert_allclose(found[1][:8], picture[4:6].mean(axis=0), atol=1e-6)
    assert mel_statistics(picture, np.zeros((0, 4))).shape == (0, 19)
    scaled = standardise(np.array([[1.0, 5.0], [3.0, 5.0]]))
    assert scaled.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
