"""HTML from the files in ``templates/``: every text is escaped, except the output of templates."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mast.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = lambda content: b64encode(content).decode("ascii")
    return environment


def render(template: str, **values: Any) -> Markup:
    """A whole template, filled with these values."""
    return Markup(_environment().get_template(template).render(values))


def render_macro(template: str, macro: str, *values: Any) -> Markup:
    """One macro of a template, filled with these values."""
    return Markup(getattr(_environment().get_template(template).module, macro)(*values))
