"""Look of all pages of mrclab: style sheets and scripts that they share, and templates that escape all values."""

from __future__ import annotations

import html
import json
import pathlib
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    import jinja2


FOLDER = pathlib.Path(__file__).parent
#: The colours and layout that all pages share.
STYLE = "style.css"


@cache
def part(name: str) -> str:
    """Return a style sheet or script of this folder."""
    return (FOLDER / name).read_text(encoding="utf-8")


def page(title: str, body: str, rules: str = "", scripts: Sequence[str] = (), modules: Sequence[str] = ()) -> str:
    """Return a page that needs no other file.

    Args:
        title: plain text.
        body: HTML.
        rules: CSS beside `STYLE`.
        scripts: code that runs when the body is loaded, in this order; `modules` follow it.
    """
    code = "".join(f"<script>{each}</script>" for each in scripts if each)
    code += "".join(f'<script type="module">{each}</script>' for each in modules)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{part(STYLE)}\n{rules}</style></head><body><main class=page>{body}</main>{code}</body></html>\n"
    )


def data(name: str, value: Any) -> str:
    """Return a script element with a value as JSON, safe for any text; the page's scripts find it by its id."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")
    named = f' id="{name}"' if name else ""
    return f'<script type="application/json"{named}>{text}</script>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; cells are HTML already. A table that is wider than the page scrolls."""
    top = "".join(f"<th>{each}</th>" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{top}</tr>{body}</table></div>'


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
