"""mkdocs hooks that adapt the repository's Markdown to the site.

Links from a page to files outside `docs/` become plain names, because those are not part of the site:
`[results](../results/scan.json)` is a link in the repository and reads `results/scan.json` on the site. A link to a
file that does not exist is a warning, which `mkdocs build --strict` turns into a failure.

In code an option such as `--out` stays on one line, in a table an interval such as (0.22–0.50). Inside a table cell,
where `|` has to be written as `\\|`, it becomes `|` again.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOG = logging.getLogger("mkdocs.hooks.docs_links")
_OUTSIDE = re.compile(r"(?<!!)\[([^\]]*)\]\(\.\./([^)\s#]+)(#[^)\s]*)?\)")
_CELL = re.compile(r"<t[dh][^>]*>.*?</t[dh]>", re.DOTALL)
_CODE = re.compile(r"<code[^>]*>.*?</code>", re.DOTALL)
_OPTION = re.compile(r"(?<![\w&;-])(--?[A-Za-z][\w-]*)(?![^<>]*>)")
_INTERVAL = re.compile(r"(\([−\d.]+–[−\d.]+\))")  # of a table


def on_page_content(html: str, **_: Any) -> str:
    """Called by mkdocs with the HTML of each page."""

    whole = r'<span class="whole">\1</span>'
    html = _CELL.sub(lambda cell: _INTERVAL.sub(whole, cell[0].replace("\\|", "|")), html)
    return _CODE.sub(lambda code: _OPTION.sub(whole, code[0]), html)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs with the text of each page."""

    def plain(match: re.Match[str]) -> str:
        text, path = match[1], match[2]
        if not (ROOT / path).exists():
            LOG.warning(f"{page.file.src_uri}: the link to ../{path} leads nowhere")
        said = text.strip("`/")
        return f"`{path}`" if said in (path, Path(path).name) else f"{text} (`{path}`)"

    return _OUTSIDE.sub(plain, markdown)
