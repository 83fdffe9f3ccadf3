"""A hook of mkdocs: links from a page to files outside `docs/` become plain names, for they are not part of the site.

`[results](../results/scan.json)` is a link in the repository and reads `results/scan.json` on the site. A link to a
file that does not exist is a warning, which `mkdocs build --strict` turns into a failure.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOG = logging.getLogger("mkdocs.hooks.docs_links")
_OUTSIDE = re.compile(r"(?<!!)\[([^\]]*)\]\(\.\./([^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs with the text of each page."""

    def plain(match: re.Match[str]) -> str:
        text, path = match[1], match[2]
        if not (ROOT / path).exists():
            LOG.warning(f"{page.file.src_uri}: the link to ../{path} leads nowhere")
        said = text.strip("`")
        return f"`{path}`" if said in (path, Path(path).name) else f"{text} (`{path}`)"

    return _OUTSIDE.sub(plain, markdown)
