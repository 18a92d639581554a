"""Table entries as controllers write them: what each matches, and what it does.

Names are those of the JSON, which are those of P4Info (`MyIngress.ipv4_lpm`). Priorities are BMv2's: the
*lower* number wins (P4Runtime's are the other way round; convert at that boundary). All match values are unsigned
integers of the key's width; a value with bits beyond it is OutOfRange.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exact:
    """Match on equality; for match type `valid` 0 or 1."""

    value: int


@dataclass(frozen=True, slots=True)
class Lpm:
    """Longest prefix; bits of `value` beyond `prefix_len` must be 0; prefix_len 0 matches everything."""

    value: int
    prefix_len: int


@dataclass(frozen=True, slots=True)
class Ternary:
    """`key & mask == value`; bits of `value` outside `mask` must be 0; mask 0 matches everything."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Range:
    """`low <= key <= high`, both inclusive."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Optional:
    """Equality, or anything when `value` is None."""

    value: int | None


MatchValue = Exact | Lpm | Ternary | Range | Optional


@dataclass(frozen=True, slots=True)
class ActionCall:
    """An action with its arguments in declaration order, unsigned integers of the parameters' widths."""

    name: str
    args: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberRef:
    """Member of the table's action profile (tables of type `indirect`, `indirect_ws`)."""

    member: int


@dataclass(frozen=True, slots=True)
class GroupRef:
    """Group of the table's action selector (tables of type `indirect_ws`)."""

    group: int


EntryAction = ActionCall | MemberRef | GroupRef
