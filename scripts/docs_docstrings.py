"""A griffe extension: our docstrings are written for `help()`; for the site, their markup becomes Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:func|class|meth|mod|data|attr|exc):`~?([^`]+)`")
_LITERAL = re.compile(r"::\n\n(?=    )")  # what follows is code
_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)  # up to the next blank line


class Docstrings(griffe.Extension):
    """Rewrites each docstring before it is shown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Cross-references as code, ``::`` before code as a colon, examples as blocks.

    >>> as_markdown("See :func:`~mast.events.as_events`::")
    'See `as_events`::'
    """
    text = _ROLE.sub(lambda found: f"`{found[1].rsplit('.', 1)[-1]}`", text)
    text = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
    return _LITERAL.sub(":\n\n", text)
