"""Words of headers: fields that are read and written together, each word one unit of a struct.

Consecutive fields share a word where they must. This module writes the expressions that take a field out of a word or
put one in; `generate.py` makes functions of them.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from mrc_host.proto.wire.fields import Header

_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}
_SIGNED_CODES = {8: "b", 16: "h", 32: "i", 64: "q"}
# What an item costs that shares a word of this many bits, in words: a shift, a mask; more where integers are longer.
_SHARING = {8: 1.2, 16: 1.2, 32: 1.3, 64: 4.0}
# Fields that the data path handles as one value: name, header, first and last.
_JOINED = (
    ("traffic_class", "IPV6", "dscp", "ecn"),
    ("addresses", "IPV6", "src", "dst"),
    ("flags", "BTH", "ack_req", "resv4"),
)


class Item(NamedTuple):
    """A field, or several that are handled as one."""

    name: str
    width: int
    default: int
    signed: bool


class Word(NamedTuple):
    """One unit of a struct: its format, and the items in it, most significant first; none: its bytes are skipped."""

    code: str
    items: tuple[Item, ...]

    def shift(self, name: str) -> int:
        """Return how far left the item stands."""
        names = [item.name for item in self.items]
        return sum(item.width for item in self.items[names.index(name) + 1 :])

    @property
    def size(self) -> int:
        """Its bytes."""
        return struct.calcsize("!" + self.code)

    @property
    def read(self) -> bool:
        """Whether it is read, and not skipped."""
        return not self.code.endswith("x")


def items_of(headers: Iterable[Header]) -> list[Item]:
    """Return the fields of headers that follow each other, some joined."""
    items: list[Item] = []
    for header in headers:
        joined = {first: (name, last) for name, where, first, last in _JOINED if where == header.name}
        fields = iter(header.fields)
        for field in fields:
            if field.name not in joined:
                items.append(Item(field.name, field.width, field.default, field.signed))
                continue
            name, last = joined[field.name]
            width = field.width
            while field.name != last:
                field = next(fields)
                width += field.width
            items.append(Item(name, width, 0, False))
    return items


def words_of(items: Sequence[Item], skipped: Collection[str], variable: Collection[str]) -> list[Word]:
    """Return the cheapest struct for these items: few words, and few shifts of variable items.

    `skipped` need not be there (they are 0, or not needed).
    """
    best: list[tuple[float, list[Word]] | None] = [(0.0, [])] + [None] * len(items)
    for start, end in itertools.combinations(range(len(items) + 1), 2):
        before, group = best[start], tuple(items[start:end])
        width = sum(item.width for item in group)
        if before is None or width % 8:
            continue
        if all(item.name in skipped for item in group):
            word, cost = Word(f"{width // 8}x", ()), 0.0
        elif end - start == 1 and width > 64:
            word, cost = Word(f"{width // 8}s", group), 1.0
        elif width in _CODES and (end - start == 1 or not any(item.signed for item in group)):
            word = Word((_SIGNED_CODES if group[0].signed else _CODES)[width], group)
            shared = (end - start > 1) * sum(item.name in variable for item in group)
            cost = 1.0 + shared * _SHARING[width]
        else:
            continue
        known = best[end]
        if known is None or before[0] + cost < known[0]:
            best[end] = before[0] + cost, [*before[1], word]
    found = best[-1]
    assert found is not None, f"no struct for {', '.join(item.name for item in items)}"
    return found[1]


def grouped(headers: Iterable[Header], *groups: tuple[str, ...], skipped: Collection[str] = ()) -> list[Word]:
    """Return the words of a grouping by hand: `groups` name all items in order; `skipped` are single ones that are not
    needed.
    """
    items = iter(items_of(headers))
    words = []
    for names in groups:
        group = tuple(itertools.islice(items, len(names)))
        assert tuple(item.name for item in group) == names, f"{names} where {group} stands"
        width = sum(item.width for item in group)
        code = f"{width // 8}x" if names[0] in skipped else _CODES.get(width, f"{width // 8}s")
        words.append(Word(code, group))
    assert next(items, None) is None, "headers end with the last group"
    return words


def struct_of(words: Iterable[Word]) -> struct.Struct:
    """Return the struct of these words."""
    return struct.Struct("!" + "".join(word.code for word in words))


def packed(word: Word, values: Mapping[str, str | int]) -> str:
    """Return the expression of a word; `values` has an expression or a constant for every item."""
    constant, terms, shift = 0, [], sum(item.width for item in word.items)
    for item in word.items:
        shift -= item.width
        value = values[item.name]
        if isinstance(value, int):
            constant |= value << shift
        else:
            plain = value.replace(".", "").isidentifier() or len(word.items) == 1
            text = value if plain else f"({value})"
            terms.append(f"{text} << {shift}" if shift else text)
    return " | ".join([*([hex(constant)] if constant or not terms else []), *terms])


def unpacked(word: Word, name: str, variable: str) -> str:
    """Return the expression of an item in a word that has been read into `variable`."""
    shift, position = word.shift(name), [item.name for item in word.items].index(name)
    if shift:
        variable = f"{variable} >> {shift}"
    return variable if position == 0 else f"{variable} & {hex((1 << word.items[position].width) - 1)}"


def variable_of(word: Word) -> str:
    """Return the name of the variable that a word is read into: of its item, or of the first and the last."""
    names = [word.items[0].name, *([word.items[-1].name] if len(word.items) > 1 else [])]
    return "_to_".join(names)


def moved(at: str, by: int) -> str:
    """Return the expression of a place some bytes behind another: a number, or a variable and a number."""
    if at.isdecimal():
        return str(int(at) + by)
    variable, _, before = at.partition(" + ")
    return f"{variable} + {int(before or 0) + by}" if by or before else at


def read_of(word: Word, at: str) -> str:
    """Return the expression that reads a word of `packet` at a place."""
    if word.code.endswith("s"):
        return f"packet[{at}:{moved(at, word.size)}]"
    return f"{'i' if word.code.islower() else 'u'}{8 * word.size}(packet, {at})"
