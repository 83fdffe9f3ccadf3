"""What pages are put together from shows text as text, whatever stands in it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from markupsafe import Markup
from PIL import Image

from mast.reports.html_page import (
    Section,
    cards,
    code,
    embedded_png,
    figure,
    folded,
    heading,
    page,
    paragraph,
    table,
)

SOURCE = Path(__file__).parents[2] / "src"
HOSTILE = "<script>alert('x')</script> & \"y\" (<i>"


def png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, format="png")
    return buffer.getvalue()


def test_a_page_shows_text_as_text() -> None:
    rows = table(["site"], [["<b>oak & elm</b>"]])
    text = page("a < b", Markup(), [Section("Data", "data", rows), Section("Empty", "empty", Markup())])
    assert "&lt;b&gt;oak &amp; elm&lt;/b&gt;" in text
    assert "<title>a &lt; b</title>" in text
    assert "Empty" not in text


@pytest.mark.parametrize(
    "made",
    [
        lambda text: page(text, Markup(), [Section(text, text, paragraph(text))]),
        lambda text: page("", text, [Section("", "", text)]),  # type: ignore[arg-type]  # not from a template
        paragraph,
        heading,
        code,
        lambda text: table([text, text], [[text, text]]),
        lambda text: cards([(text, text)]),
        lambda text: figure(text, text),
        lambda text: embedded_png(png(), text),
        lambda text: folded(text, paragraph(text)),
    ],
)
def test_a_hostile_name_is_only_shown(made: Callable[[str], str]) -> None:
    text = made(HOSTILE)
    assert not re.search(r"<script|<i>|\"y", text)
    assert "&lt;script&gt;alert(" in text


def test_only_templates_make_html() -> None:
    """Elsewhere markup is joined, and plain text that meets it is escaped."""
    for path in SOURCE.rglob("*.py"):
        made = re.findall(r"Markup\([^)]", path.read_text(encoding="utf-8"))
        assert not made or path.name == "templating.py", path
    for path in (SOURCE / "mast" / "reports" / "templates").iterdir():
        assert not re.search(r"\bsafe\b|autoescape", path.read_text(encoding="utf-8")), path


def test_a_number_has_its_range_set_smaller() -> None:
    assert '<td>0.5 <span class="range">(0.4–0.6)</span></td>' in table(["", ""], [["F1", "0.5 (0.4–0.6)"]])
    assert '<td class="text long">' in table([""], [["a" * 37]])
    assert '<td class="text">' in table([""], [["a" * 36]])
