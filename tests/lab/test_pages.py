"""Pages of studies: what is put into a template is text, whatever it holds."""

from __future__ import annotations

import jinja2
import pytest

from mrclab.studies.cells import pages


def test_page_escapes_its_values_and_refuses_a_missing_one() -> None:
    given = {"figures": [], "files": {}, "options": "--quick", "times": "times.js", "settled": 0.15}
    page = pages.render("figures.html", "a <title>", "", **given, notes=["<script>alert(1)</script>"])
    assert "<title>a &lt;title&gt;</title>" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "alert(1)</script>" not in page
    with pytest.raises(jinja2.UndefinedError, match="notes"):
        pages.render("figures.html", "t", "", **given)


@pytest.mark.parametrize(
    ("value", "shown"), [(1.23456, "1.235"), (1234567.0, "1,234,567"), (None, ""), (7, "7"), (True, "True")]
)
def test_number_of_a_page_has_four_digits(value: object, shown: str) -> None:
    assert pages.number(value) == shown
