"""Jinja2 templates of pages: what is put into them is escaped, and a value that is missing is an error."""

from __future__ import annotations

import html
import pathlib
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    import jinja2


def _escaped(value: object) -> Markup:
    """Return a value as HTML, escaped as `html.escape` does, so that pages without a template look the same."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


@cache
def environment(folder: pathlib.Path) -> jinja2.Environment:
    """Return the templates of a folder."""
    # It takes a tenth of a second, and most commands make no page.
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        finalize=_escaped,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def fill(folder: pathlib.Path, template: str, **values: object) -> str:
    """Fill a template of a folder with values and return the page."""
    return environment(folder).get_template(template).render(values)
