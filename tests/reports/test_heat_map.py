"""Activity by date and hour: what is in the picture, and the sun at the pole."""

from __future__ import annotations

import base64
import io
from datetime import date
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from mast.reports.heat_map import Observer, compute_activity, draw_activity, sun_hours, sun_note
from mast.reports.searched_recordings import NO_CLOCK, Place

DAY = (date(2024, 5, 1) - date(1970, 1, 1)).days


def effort(*rows: tuple[int, int, float]) -> pd.DataFrame:
    return pd.DataFrame([((DAY + d) * 24 + h, s) for d, h, s in rows], columns=["slot", "recorded_s"])


def tally(*rows: tuple[int, int, int]) -> pd.DataFrame:
    return pd.DataFrame([((DAY + d) * 24 + h, n) for d, h, n in rows], columns=["slot", "n"])


def test_rates_where_something_was_recorded_and_nothing_elsewhere() -> None:
    found = compute_activity(
        effort((0, 5, 1_800), (0, 6, 3_600), (2, 5, 3_600)), tally((0, 5, 4), (2, 5, 1), (1, 1, 9))
    )
    assert found is not None
    assert found.rate.shape == (24, 3)
    assert found.rate[5].tolist()[::2] == [8.0, 1.0]
    assert found.rate[6, 0] == 0.0
    assert np.isnan(found.rate).sum() == 72 - 3
    assert (found.days[0], found.has_gaps) == (date(2024, 5, 1), False)


def test_long_gaps_are_left_out() -> None:
    found = compute_activity(effort((0, 5, 3_600), (400, 6, 3_600)), tally((400, 6, 7)))
    assert found is not None
    assert (found.rate.shape, found.has_gaps) == ((24, 2), True)
    assert found.rate[6, 1] == 7


def test_without_a_clock_there_is_no_picture() -> None:
    assert compute_activity(pd.DataFrame({"slot": [NO_CLOCK], "recorded_s": [60.0]}), tally()) is None


def test_the_sun_rises_by_the_recorders_clock() -> None:
    found = compute_activity(effort((0, 5, 3_600), (9, 5, 3_600)), tally())
    assert found is not None
    rise, set_ = sun_hours(found, Observer(Place(51.5, 0.0), 1.0))
    assert (rise[0], set_[0]) == pytest.approx((5.55, 20.38), abs=0.05)  # London, summer time
    far = sun_hours(found, Observer(Place(51.5, 0.0), 4.5))[1]
    assert (far[0], far[-1]) == pytest.approx((23.9, 0.1), abs=0.1)  # past midnight


def test_at_the_pole_there_are_no_lines_but_a_sentence() -> None:
    found = compute_activity(effort((0, 5, 3_600), (9, 5, 3_600)), tally())
    assert found is not None
    for latitude, says in ((90.0, "the sun does not set"), (-90.0, "the sun does not rise")):
        observer = Observer(Place(latitude, 0.0), 0.0)
        assert np.isnan(sun_hours(found, observer)).all()
        assert "<path" not in draw_activity(found, observer)
        assert sun_note(found, observer) == says
    partly = compute_activity(effort((0, 5, 3_600), (30, 5, 3_600)), tally())
    assert partly is not None
    assert "does not set on" in sun_note(partly, Observer(Place(69.65, 18.96), 2.0))
    assert "sunrise (orange)" in sun_note(partly, Observer(Place(69.65, 18.96), 2.0))


def test_the_picture_is_xml_with_a_pixel_for_each_hour_and_dashes_of_the_sun() -> None:
    found = compute_activity(effort((0, 0, 3_600), (0, 23, 3_600), (1, 5, 3_600)), tally((0, 23, 10)))
    assert found is not None
    drawn = ElementTree.fromstring(draw_activity(found, Observer(Place(51.5, 0.0), 1.0)))
    (cells,) = drawn.iter("image")
    with Image.open(io.BytesIO(base64.b64decode(cells.attrib["href"].partition(",")[2]))) as image:
        assert image.size == (2, 24)
        none, peak, unheard = image.getpixel((0, 23)), image.getpixel((0, 0)), image.getpixel((1, 0))
    assert (none, peak, unheard) == ((255, 255, 217), (8, 29, 88), (228, 231, 234))
    assert [path.attrib["d"].count("M") for path in drawn.iter("path")] == [2, 2]
    words = [text.text for text in drawn.iter("text")]
    assert {"0", "24", "1 May 2024", "2 May", "10", "events per hour"} <= set(words)
