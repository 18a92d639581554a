"""Places in the source."""

from __future__ import annotations

from typing import NamedTuple


class Pos(NamedTuple):
    """Where a node starts in the source: 1-based `line` and `col`; `length` characters to underline."""

    file: str
    line: int
    col: int
    length: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}"


NOWHERE = Pos("<builtin>", 0, 0)
