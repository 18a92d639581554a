"""Integer literals (P4_16 specification §6.4.3): value, width and sign."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"(?:([0-9]+)([ws]))?(?:0[xX]([0-9a-fA-F_]+)|0[oO]([0-7_]+)|0[bB]([01_]+)|(?:0[dD])?([0-9_]+))")
_BASES = ((3, 16), (4, 8), (5, 2), (6, 10))
MAX_WIDTH = 1 << 16
"""The widest `bit<W>` the compiler takes; a wider literal is a slip of the pen."""


def parse_number(text: str) -> tuple[int, int | None, bool] | None:
    """Return (value, width or None, signed) of an integer literal; None if `text` is not one."""
    m = _NUMBER.fullmatch(text)
    if m is None:
        return None
    for group, base in _BASES:
        digits = m.group(group)
        if digits is not None:
            digits = digits.replace("_", "")
            if not digits or len(digits) > MAX_WIDTH:
                return None
            value = _decimal(digits) if base == 10 else int(digits, base)
            if m.group(1) and len(m.group(1)) > 6:
                return None
            return value, int(m.group(1)) if m.group(1) else None, m.group(2) == "s"
    return None


def _decimal(digits: str) -> int:
    # int() refuses more than 4300 digits at once.
    value = 0
    for i in range(0, len(digits), 4000):
        part = digits[i : i + 4000]
        value = value * 10 ** len(part) + int(part)
    return value
