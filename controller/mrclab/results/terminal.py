"""Rich consoles that show texts of others as they are: without markup, and without control of the terminal.

Tables fit the terminal: numbers, dates and units are never broken or cut; columns without room are left out, and named.
Where they are piped they are whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Column, Table

from p4lite.terminal import harmless

#: A cell that must stay in one line: a number with its unit, or a date.
_WHOLE = re.compile(r"(?:less than |at (?:least|most) )?[-+~]?[\d∞].{0,21}\Z")
#: Of a table that no terminal shows.
WIDEST = 10_000
#: The room that a column of words needs: its longest word, but no more than this.
_WORD = 20


class Terminal(Console):
    """A console for texts that come from files, labs and users. Styles are `rich.text.Text`, never markup."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, **settings})
        self._whole = not self.is_terminal and "width" not in settings and "COLUMNS" not in os.environ

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See `Console`; what would control the terminal is escaped."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else harmless(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)

    def print(self, *objects: Any, **settings: Any) -> None:
        """See `Console`; a table has the columns for which there is room, in a file or a pipe all of them."""
        left: list[str] = []
        tables = [each for each in objects if isinstance(each, Table) and each.columns]
        width = self.width
        if tables and self._whole:
            self.width = WIDEST
        for each in tables:
            left += fit(each, self.width)
        super().print(*objects, **settings)
        self.width = width
        if left:
            super().print(f"without room here: {', '.join(left)} (a wider terminal shows them)", highlight=False)


def fit(table: Table, width: int) -> list[str]:
    """Leave out the last columns of a table until the others fit into a width; return the names of those.

    The first two columns say what a row is, and stay.
    """
    # A box has a line and a blank on both sides of each column, a table without one a blank on both.
    beside = 2 if table.box is None else 3
    needed = [_needed(each) for each in table.columns]
    left: list[str] = []
    while len(needed) > 2 and sum(needed) + beside * len(needed) + 1 > width:
        left.insert(0, _plain(table.columns.pop().header) or "the verdict")
        needed.pop()
    room = width - beside * len(needed) - 1 - sum(needed)
    wanted = [
        max(cell_len(line) for each in (column.header, *column.cells) for line in [*_plain(each).split("\n"), ""])
        for column in table.columns
    ]
    # Columns that want little get it; what then remains is shared by the others.
    order = sorted(range(len(needed)), key=lambda at: wanted[at] - needed[at])
    for done, at in enumerate(order):
        more = max(min(wanted[at] - needed[at], room // (len(order) - done)), 0)
        room -= more
        column = table.columns[at]
        column.width, column.no_wrap, column.overflow = needed[at] + more, False, "fold"
    return left


def _plain(cell: object) -> str:
    return str(getattr(cell, "plain", cell))


def _needed(column: Column) -> int:
    """Return the least width of a column in which no number, date or unit is broken."""
    texts = [_plain(each) for each in column.cells]
    whole = [cell_len(each) for each in texts if _WHOLE.match(each)]
    words = [min(cell_len(word), _WORD) for each in [*texts, _plain(column.header)] for word in each.split()]
    return max([*whole, *words, 1])
