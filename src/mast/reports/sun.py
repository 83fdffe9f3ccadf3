"""When the sun rises and sets, by NOAA's formulas (Meeus, Astronomical Algorithms): to a minute or two.

Sunrise is when the upper rim of the sun meets a flat horizon: its centre is then 0.833° below, as the air bends light.
"""

from __future__ import annotations

import math
from datetime import date
from typing import Literal, NamedTuple

_HORIZON = 90.833  # degrees from the zenith


class SunTimes(NamedTuple):
    """Sunrise and sunset in hours UTC from a day's midnight: below 0 or above 24 where they are on a neighbouring day.

    Where the sun does not rise or set all day, ``kind`` is ``"polar day"`` or ``"polar night"``, and both are NaN.
    """

    rise_h: float
    set_h: float
    kind: Literal["", "polar day", "polar night"] = ""


def sun_times(day: date, latitude: float, longitude: float) -> SunTimes:
    """Sunrise and sunset of a day at a place.

    Args:
        day: at the place.
        latitude: degrees, north positive, −90 to 90.
        longitude: degrees, east positive, −180 to 180.

    >>> rise, set, _ = sun_times(date(2024, 6, 20), 51.5, 0.0)  # London
    >>> round(rise, 1), round(set, 1)
    (3.7, 20.3)
    """
    noon_h = 12 - longitude / 15
    times = []
    for sign in (-1, 1):
        at_h = noon_h
        for _ in range(2):  # the sun's position changes a little until it rises
            declination, equation_min = _sun_position(day, at_h)
            angle = _hour_angle(latitude, declination)
            if angle is None:
                up = math.sin(math.radians(latitude)) * math.sin(declination) > 0
                return SunTimes(math.nan, math.nan, "polar day" if up else "polar night")
            at_h = 12 - longitude / 15 - equation_min / 60 + sign * angle / 15
        times.append(at_h)
    return SunTimes(times[0], times[1])


def _hour_angle(latitude: float, declination: float) -> float | None:
    """Degrees that the Earth turns from sunrise to noon; ``None`` where the sun does not cross the horizon."""
    across = math.cos(math.radians(latitude)) * math.cos(declination)
    height = math.cos(math.radians(_HORIZON)) - math.sin(math.radians(latitude)) * math.sin(declination)
    return math.degrees(math.acos(height / across)) if abs(height) < across else None


def _sun_position(day: date, hour_utc: float) -> tuple[float, float]:
    """Declination in radians, and by how many minutes a sundial is ahead of the clock."""
    century = (day.toordinal() + hour_utc / 24 - 730_120.5) / 36_525  # since noon of 1 January 2000
    mean_longitude = math.radians((280.46646 + century * (36_000.76983 + century * 0.0003032)) % 360)
    anomaly = math.radians(357.52911 + century * (35_999.05029 - 0.0001537 * century))
    eccentricity = 0.016708634 - century * (0.000042037 + 0.0000001267 * century)
    centre = (
        math.sin(anomaly) * (1.914602 - century * (0.004817 + 0.000014 * century))
        + math.sin(2 * anomaly) * (0.019993 - 0.000101 * century)
        + math.sin(3 * anomaly) * 0.000289
    )
    node = math.radians(125.04 - 1_934.136 * century)
    longitude = mean_longitude + math.radians(centre - 0.00569 - 0.00478 * math.sin(node))
    seconds = 21.448 - century * (46.815 + century * (0.00059 - century * 0.001813))
    tilt = math.radians(23 + (26 + seconds / 60) / 60 + 0.00256 * math.cos(node))
    y = math.tan(tilt / 2) ** 2
    equation = (
        y * math.sin(2 * mean_longitude)
        - 2 * eccentricity * math.sin(anomaly)
        + 4 * eccentricity * y * math.sin(anomaly) * math.cos(2 * mean_longitude)
        - 0.5 * y**2 * math.sin(4 * mean_longitude)
        - 1.25 * eccentricity**2 * math.sin(2 * anomaly)
    )
    return math.asin(math.sin(tilt) * math.sin(longitude)), 4 * math.degrees(equation)
