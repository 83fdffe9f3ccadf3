"""Sunrise and sunset beside an almanac, and where there is none."""

from __future__ import annotations

import math
from datetime import date, timedelta

import pytest

from mast.reports.sun import sun_times


@pytest.mark.parametrize(
    ("day", "latitude", "longitude", "rise", "set_"),
    [
        (date(2024, 6, 20), 51.5, 0.0, "03:43", "20:21"),  # London, UTC
        (date(2024, 12, 21), 51.48, 0.0, "08:04", "15:53"),
        (date(2024, 12, 21), -33.87, 151.21, "18:41", "09:05"),  # Sydney: rises the day before by UTC
        (date(2024, 7, 4), 40.71, -74.01, "09:30", "00:30"),  # New York: sets the day after by UTC
        (date(2024, 3, 20), 0.0, -78.5, "11:18", "23:24"),  # Quito at the equinox: 12 h and 7 min
    ],
)
def test_as_in_the_almanac(day: date, latitude: float, longitude: float, rise: str, set_: str) -> None:
    found = sun_times(day, latitude, longitude)
    for hours, text in ((found.rise_h, rise), (found.set_h, set_)):
        minutes = int(text[:2]) * 60 + int(text[3:])
        apart = (hours * 60 - minutes) % 1_440
        assert min(apart, 1_440 - apart) <= 2, text
    assert found.rise_h < found.set_h


@pytest.mark.parametrize("latitude", [90.0, 80.0, 69.65, -69.65, -90.0])
@pytest.mark.parametrize("longitude", [-180.0, 0.0, 18.96, 180.0])
def test_beyond_the_polar_circle_each_day_is_one_of_three_kinds(latitude: float, longitude: float) -> None:
    north = latitude > 0
    assert sun_times(date(2024, 6, 21), latitude, longitude).kind == ("polar day" if north else "polar night")
    assert sun_times(date(2024, 12, 21), latitude, longitude).kind == (
        "polar night" if north else "polar day"
    )
    for k in range(366):
        rise, set_, kind = sun_times(date(2024, 1, 1) + timedelta(days=k), latitude, longitude)
        assert (kind == "" and rise <= set_) or (math.isnan(rise) and math.isnan(set_))
