"""Cells of CSV files: no text is a formula for a spreadsheet, and numbers stay numbers."""

from __future__ import annotations

import pytest

from mrc_topo.base.document import csv_cell


@pytest.mark.parametrize("text", ["=1+1", "+1", "-cmd", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_formula_becomes_text(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", [-1, -0.5, 0, None, True, "h0", "a=b", ""])
def test_csv_cell_leaves_harmless_values_unchanged(value: object) -> None:
    assert csv_cell(value) is value
