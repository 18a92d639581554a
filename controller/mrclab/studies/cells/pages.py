"""Pages of studies, from the templates beside this module; what is put into them is escaped."""

from __future__ import annotations

import io
import pathlib
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from mrc_topo.base import look, templates

if TYPE_CHECKING:
    import jinja2

FOLDER = pathlib.Path(__file__).parent / "templates"


def number(value: object) -> str:
    """Return a value as pages show it: a whole number in full, another with four digits, nothing for None, all else as
    it is."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e6 else f"{value:.5g}"
    return "" if value is None else str(value)


@cache
def _templates() -> jinja2.Environment:
    made = templates.environment(FOLDER)
    made.filters["number"] = number
    return made


def svg_of(drawn: Any) -> str:
    """Return a figure of matplotlib as SVG to stand in a page; the same bytes for the same figure."""
    sink = io.BytesIO()
    drawn.savefig(sink, format="svg", metadata={"Date": None, "Creator": "mrclab"})
    text = sink.getvalue().decode()
    return re.sub(r"\n\s*", "\n", text[text.index("<svg") :])


def fill(template: str, **values: object) -> str:
    """Return a template with values."""
    return _templates().get_template(template).render(values)


def render(template: str, title: str, rules: str, **values: object) -> str:
    """Return a page that opens offline: a template with values, in the frame that all pages have.

    Args:
        rules: of this page alone, as CSS.
    """
    return look.page(title, fill(template, **values), rules=rules)
