from __future__ import annotations

import pytest

from mast.errors import MOST_SHOWN, shortened


def test_a_short_message_stays_as_it_is() -> None:
    sentence = "a  b.wav, line 3: found “×”, expected a number; see mast convert --help"
    assert shortened(sentence) == sentence
    assert shortened("") == ""
    assert shortened(ValueError("x" * MOST_SHOWN)) == "x" * MOST_SHOWN


@pytest.mark.parametrize("length", [MOST_SHOWN + 1, 4 * MOST_SHOWN + 1, 200_000, 3_000_000])
def test_a_long_message_keeps_its_beginning_and_its_end(length: int) -> None:
    cut = shortened("boxes.csv, line 2: found " + "9" * length + "; expected a number")
    assert len(cut) <= MOST_SHOWN
    assert cut.startswith("boxes.csv, line 2: found 99")
    assert " … " in cut
    assert cut.endswith("99; expected a number")


def test_it_is_one_line_that_can_be_printed_and_written_anywhere() -> None:
    hostile = "a\r\n  b\x00\x1b[2J\u2028c\udcff\ud800\t" + "\x07" * 300_000
    cut = shortened(hostile)
    assert cut.isprintable()
    assert len(cut) <= MOST_SHOWN
    assert cut.startswith("a b\\x00\\x1b[2J c\\xff\\ud800\\t\\x07")
    cut.encode("utf-8")
