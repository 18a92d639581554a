"""Tables on terminals of 80 columns and more: no number, date or unit is broken or cut, whatever has no room."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from mrclab.results.terminal import Terminal

WHOLE = ("2026-11-29 10:00:00", "10.35 Pb/s", "196,087,000", "less than 100 ms", "90.9 % after 0.2 s")
COLUMNS = st.lists(st.tuples(st.sampled_from(["at", "queue pairs that lost", "probes lost"]), st.sampled_from(WHOLE)))


def printed(columns: list[tuple[str, str]], width: int | None, box: bool) -> list[str]:
    made = Table(title="t") if box else Table(title="t", box=None)
    for head, _ in columns:
        made.add_column(head)
    made.add_row(*(cell for _, cell in columns))
    sink = io.StringIO()
    Terminal(file=sink, **({} if width is None else {"width": width})).print(made)
    return sink.getvalue().splitlines()


@given(COLUMNS.filter(bool), st.sampled_from([80, 100, 160]), st.booleans())
def test_table_fits_and_has_its_numbers_whole(columns: list[tuple[str, str]], width: int, box: bool) -> None:
    lines = printed(columns, width, box)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "…" not in text
    left = re.search(r"without room here: (.*?) \(", " ".join(lines))
    shown = len(columns) - (len(left[1].split(", ")) if left else 0)
    assert shown >= min(2, len(columns))
    for cell in {cell for _, cell in columns[:shown]}:
        assert cell in text


@pytest.mark.parametrize("box", [True, False])
def test_words_wrap_before_a_column_is_left_out(box: bool) -> None:
    lines = printed([("what", "word " * 30), ("at", "10.35 Pb/s"), ("since", WHOLE[0])], 80, box)
    assert not any("without room" in line for line in lines)


def test_table_that_is_piped_has_all_columns_in_full_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    columns = [(f"head {number}", f"{WHOLE[number % 5]} {number}") for number in range(20)]
    text = " ".join("\n".join(printed(columns, None, True)).split())
    assert "without room" not in text
    assert all(head in text and cell in text for head, cell in columns)
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, printed(columns, None, True))) <= 80
