"""Activity by date and hour: what is in the picture, and the sun at the pole."""

from __future__ import annotations

from datetime import date

import numpy as np
import pandas as pd
import pytest

from mast.reports.heard import NO_CLOCK, Place
from mast.reports.heat_map import Activity, Sky, activity, plot_activity, sun_note

DAY = (date(2024, 5, 1) - date(1970, 1, 1)).days


def effort(*rows: tuple[int, int, float]) -> pd.DataFrame:
    return pd.DataFrame([((DAY + d) * 24 + h, s) for d, h, s in rows], columns=["slot", "recorded_s"])


def tally(*rows: tuple[int, int, int]) -> pd.DataFrame:
    return pd.DataFrame([((DAY + d) * 24 + h, n) for d, h, n in rows], columns=["slot", "n"])


def test_rates_where_something_was_recorded_and_nothing_elsewhere() -> None:
    found = activity(
        effort((0, 5, 1_800), (0, 6, 3_600), (2, 5, 3_600)), tally((0, 5, 4), (2, 5, 1), (1, 1, 9))
    )
    assert found is not None
    assert found.rate.shape == (24, 3)
    assert found.rate[5].tolist()[::2] == [8.0, 1.0]
    assert found.rate[6, 0] == 0.0
    assert np.isnan(found.rate).sum() == 72 - 3
    assert (found.days[0], found.has_gaps) == (date(2024, 5, 1), False)


def test_long_gaps_are_left_out() -> None:
    found = activity(effort((0, 5, 3_600), (400, 6, 3_600)), tally((400, 6, 7)))
    assert found is not None
    assert (found.rate.shape, found.has_gaps) == ((24, 2), True)
    assert found.rate[6, 1] == 7


def test_without_a_clock_there_is_no_picture() -> None:
    assert activity(pd.DataFrame({"slot": [NO_CLOCK], "recorded_s": [60.0]}), tally()) is None


def lines(found: Activity, sky: Sky) -> list[np.ndarray]:
    return [np.asarray(line.get_ydata(), dtype=float) for line in plot_activity(found, sky).axes[0].lines]


def test_the_sun_rises_by_the_recorders_clock() -> None:
    found = activity(effort((0, 5, 3_600), (9, 5, 3_600)), tally())
    assert found is not None
    rise, set_ = lines(found, Sky(Place(51.5, 0.0), 1.0))
    assert (rise[0], set_[0]) == pytest.approx((5.55, 20.38), abs=0.05)  # London, summer time
    far = lines(found, Sky(Place(51.5, 0.0), 4.5))[1]
    assert np.isnan(far).any()
    assert not np.isnan(far).all()


def test_at_the_pole_there_are_no_lines_but_a_sentence() -> None:
    found = activity(effort((0, 5, 3_600), (9, 5, 3_600)), tally())
    assert found is not None
    for latitude, says in ((90.0, "the sun does not set"), (-90.0, "the sun does not rise")):
        sky = Sky(Place(latitude, 0.0), 0.0)
        assert all(np.isnan(line).all() for line in lines(found, sky))
        assert sun_note(found, sky) == says
    partly = activity(effort((0, 5, 3_600), (30, 5, 3_600)), tally())
    assert partly is not None
    assert "does not set on" in sun_note(partly, Sky(Place(69.65, 18.96), 2.0))
    assert "sunrise (orange)" in sun_note(partly, Sky(Place(69.65, 18.96), 2.0))
