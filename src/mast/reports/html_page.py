"""Self-contained pages: pictures and styles are embedded, and nothing is loaded from other hosts."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from mast.reports.spectrogram import figure_png, image_png
from mast.reports.templating import render, render_macro

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Section(NamedTuple):
    """A part of a page: its heading, an anchor for it, and what stands below."""

    title: str
    anchor: str
    body: Markup


def page(title: str, lead: Markup, sections: Sequence[Section]) -> str:
    """A whole HTML page.

    Args:
        title: plain text.
        lead: between the title and the first section.
        sections: those without a body are left out.
    """
    shown = [section for section in sections if section.body]
    return render("page.html", title=title, lead=lead, sections=shown)


def paragraph(text: str, *, soft: bool = False) -> Markup:
    """Plain text as a paragraph."""
    return render_macro("pieces.html", "paragraph", text, soft)


def heading(text: str) -> Markup:
    """Plain text as a heading within a section."""
    return render_macro("pieces.html", "heading", text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, words: Collection[int] = (0,)) -> Markup:
    """A table of plain texts.

    Args:
        header: names of the columns.
        rows: one text per column.
        words: numbers of the columns that hold words; the others hold numbers, with their range in brackets.
    """
    return render_macro("pieces.html", "table", header, rows, words)


def cards(facts: Sequence[tuple[str, str]]) -> Markup:
    """A row of large figures, each with its meaning below."""
    return render_macro("pieces.html", "cards", facts)


def figure(content: Markup, caption: str) -> Markup:
    """Something drawn, with plain text below."""
    return render_macro("pieces.html", "figure", content, caption)


def side_by_side(parts: Sequence[Markup]) -> Markup:
    """As many parts in a row as there is room for."""
    return render_macro("pieces.html", "side_by_side", parts)


def picture(drawn: Figure, caption: str = "", *, dpi: int = 100, small: bool = False) -> Markup:
    """A matplotlib figure inside the page; ``small`` as in :func:`embedded_png`."""
    return embedded_png(figure_png(drawn, dpi=dpi), caption, small=small)


def embedded_png(content: bytes, caption: str = "", *, small: bool = False) -> Markup:
    """A PNG inside the page; ``small``: with few colours, a quarter of the bytes for a spectrogram."""
    return figure(
        render_macro("pieces.html", "png", _few_colours(content) if small else content, caption), caption
    )


def _few_colours(png: bytes) -> bytes:
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        return image_png(image, few_colours=True)


def code(text: str) -> Markup:
    """Lines to type."""
    return render_macro("pieces.html", "code", text)


def folded(summary: str, body: Markup) -> Markup:
    """Something long that opens on a click."""
    return render_macro("pieces.html", "folded", summary, body)
