"""Pages that need nothing but themselves: pictures and styles are inside, no other host is asked."""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from mast.reports.spectrogram import figure_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { --ink: #1d2327; --soft: #5c6670; --line: #d9dee3; --tint: #f4f6f8; --accent: #1558d6; }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; color: var(--ink);
  margin: 0 auto; max-width: 1080px; padding: 2rem 1.2rem 4rem; background: #fff; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.35rem; margin: 2.6rem 0 .6rem; padding-top: .6rem; border-top: 2px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p, li { max-width: 46rem; }
.soft, figcaption { color: var(--soft); font-size: .92rem; }
nav { margin: 1rem 0; } nav a { margin-right: 1rem; white-space: nowrap; } a { color: var(--accent); }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }
.card { background: var(--tint); border-radius: .5rem; padding: .8rem 1.1rem; min-width: 11rem; flex: 1; }
.card b { display: block; font-size: 1.7rem; line-height: 1.2; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .6rem 0 1rem; font-size: .95rem; }
th, td { padding: .35rem .75rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { background: var(--tint); font-weight: 600; }
td { font-variant-numeric: tabular-nums; white-space: nowrap; }
th.text, td.text { text-align: left; font-variant-numeric: normal; }
td.long { white-space: normal; }
.range { color: var(--soft); font-size: .85em; }
figure { margin: .8rem 0 1.2rem; } img { max-width: 100%; height: auto; display: block; }
pre { background: var(--tint); padding: .8rem 1rem; border-radius: .5rem; overflow-x: auto; font-size: .9rem; }
details { margin: .6rem 0; } summary { cursor: pointer; }
@media print { nav { display: none; } h2 { break-after: avoid; } figure { break-inside: avoid; } }
"""


_LONG = 36  # letters of a cell that may be broken into lines


class Section(NamedTuple):
    """A part of a page: its heading, an anchor for it, and what stands below, as HTML."""

    title: str
    anchor: str
    body: str


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """A whole HTML page.

    Args:
        title: plain text.
        lead: HTML between the title and the first section.
        sections: those without a body are left out.
    """
    shown = [section for section in sections if section.body]
    links = "".join(f'<a href="#{s.anchor}">{escape(s.title)}</a>' for s in shown)
    bodies = "".join(f'<h2 id="{s.anchor}">{escape(s.title)}</h2>\n{s.body}\n' for s in shown)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{lead}\n<nav>{links}</nav>\n{bodies}</body></html>\n"
    )


def paragraph(text: str, *, soft: bool = False) -> str:
    """Plain text as a paragraph."""
    return f"<p{' class=soft' if soft else ''}>{escape(text)}</p>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, words: Collection[int] = (0,)) -> str:
    """A table of plain texts.

    Args:
        header: names of the columns.
        rows: as many texts each.
        words: numbers of the columns that hold words; the others hold numbers, with their range in brackets.
    """

    def line(cells: Sequence[str], tag: str) -> str:
        return "".join(
            f'<{tag} class="text{" long" if len(cell) > _LONG else ""}">{escape(cell)}</{tag}>'
            if i in words
            else f"<{tag}>{_number(cell)}</{tag}>"
            for i, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{line(header, "th")}</tr>{body}</table></div>'


def _number(text: str) -> str:
    """A number; what stands in brackets behind it is set smaller."""
    value, bracket, rest = text.partition(" (")
    return escape(value) + (f' <span class="range">({escape(rest)}</span>' if bracket else "")


def cards(facts: Sequence[tuple[str, str]]) -> str:
    """A row of large figures, each with what it is below."""
    return (
        '<div class="cards">'
        + "".join(
            f'<div class="card"><b>{escape(value)}</b>{escape(meaning)}</div>' for value, meaning in facts
        )
        + "</div>"
    )


def picture(figure: Figure, caption: str = "", *, dpi: int = 100, small: bool = False) -> str:
    """A matplotlib figure inside the page; ``small`` as in :func:`embedded_png`."""
    return embedded_png(figure_png(figure, dpi=dpi), caption, small=small)


def embedded_png(content: bytes, caption: str = "", *, small: bool = False) -> str:
    """A PNG inside the page; ``small``: with few colours, a quarter of the bytes for a spectrogram."""
    data = base64.b64encode(_few_colours(content) if small else content).decode("ascii")
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure><img alt="{escape(caption, quote=True)}" src="data:image/png;base64,{data}">{below}</figure>'


def _few_colours(png: bytes) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        # the octree keeps thin coloured lines on grey, which the median cut turns grey too
        few = image.convert("RGB").quantize(64, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        few.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def code(text: str) -> str:
    """Lines to type."""
    return f"<pre>{escape(text)}</pre>"


def folded(summary: str, body: str) -> str:
    """Something long that opens on a click."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"
