"""Match keys between Python values and the key words of a table."""

from __future__ import annotations

from collections.abc import Sequence

from p4lite.switch.errors import InvalidArgument, OutOfRange
from p4lite.switch.program.entry import Exact, Lpm, MatchValue, Optional, Range, Ternary
from p4lite.switch.program.facts import KeyFacts, TableFacts
from p4lite.switch.program.layout import KeyWords

_WANTED: dict[str, tuple[type, ...]] = {
    "exact": (Exact,),
    "valid": (Exact,),
    "lpm": (Lpm,),
    "ternary": (Ternary, Optional),  # p4c writes optional keys as ternary
    "range": (Range,),
    "optional": (Optional, Ternary),
}


def _fits(value: int, key: KeyFacts, table: TableFacts) -> int:
    if not 0 <= value < (1 << key.width):
        raise OutOfRange(f"table '{table.name}': {value} does not fit into the {key.width} bits of '{key.name}'")
    return value


def _put(words: KeyWords, key: KeyFacts, match: MatchValue, table: TableFacts) -> None:
    full = (1 << key.width) - 1
    where = f"table '{table.name}', key '{key.name}'"
    if isinstance(match, Exact):
        value = _fits(match.value, key, table)
        words.put(key.place, value, full, value)
    elif isinstance(match, Lpm):
        value = _fits(match.value, key, table)
        if not 0 <= match.prefix_len <= key.width:
            raise OutOfRange(f"{where}: a prefix of {match.prefix_len} bits in a key of {key.width}")
        mask = full ^ (full >> match.prefix_len)
        if value & ~mask:
            raise InvalidArgument(f"{where}: {value:#x} has bits set beyond its prefix of {match.prefix_len} bits")
        words.put(key.place, value, mask, value | (full ^ mask))
        if table.kind == "lpm":
            words.order = key.width - match.prefix_len
    elif isinstance(match, Ternary):
        value, mask = _fits(match.value, key, table), _fits(match.mask, key, table)
        if value & ~mask:
            raise InvalidArgument(f"{where}: {value:#x} has bits set outside its mask {mask:#x}")
        words.put(key.place, value, mask, value)
    elif isinstance(match, Range):
        low, high = _fits(match.low, key, table), _fits(match.high, key, table)
        if low > high:
            raise InvalidArgument(f"{where}: the range {low} to {high} is empty")
        words.put(key.place, low, full, high)
    elif match.value is None:
        words.put(key.place, 0, 0, 0)
    else:
        value = _fits(match.value, key, table)
        words.put(key.place, value, full, value)


def key_to_words(table: TableFacts, key: Sequence[MatchValue], priority: int) -> KeyWords:
    """Check a match key against a table. Raises InvalidArgument or OutOfRange."""
    if len(key) != len(table.key):
        raise InvalidArgument(f"table '{table.name}' has {len(table.key)} keys, not {len(key)}")
    words = KeyWords(table.key_words)
    for info, match in zip(table.key, key, strict=True):
        if not isinstance(match, _WANTED[info.match]):
            kind = type(match).__name__
            raise InvalidArgument(f"table '{table.name}': key '{info.name}' is of type {info.match}, not {kind}")
        _put(words, info, match, table)
    if table.needs_priority:
        if not -(2**31) <= priority < 2**31:
            raise OutOfRange(f"table '{table.name}': the priority {priority} does not fit into 32 bits")
        words.order = priority
    elif priority != 0:
        raise InvalidArgument(f"table '{table.name}' of type {table.kind} takes no priority")
    if table.kind != "range":
        words.high = [0] * table.key_words
    return words


def words_to_key(
    table: TableFacts, value: Sequence[int], mask: Sequence[int], high: Sequence[int]
) -> tuple[MatchValue, ...]:
    out: list[MatchValue] = []
    for info in table.key:
        v, m = info.place.take(value), info.place.take(mask)
        if info.match in ("exact", "valid"):
            out.append(Exact(v))
        elif info.match == "lpm":
            out.append(Lpm(v, m.bit_count()))
        elif info.match == "ternary":
            out.append(Ternary(v, m))
        elif info.match == "range":
            out.append(Range(v, info.place.take(high)))
        else:
            out.append(Optional(v if m else None))
    return tuple(out)
