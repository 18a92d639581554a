"""Names of a P4 program as controllers use them: identifiers and widths from its P4Info, and table entries.

Nothing here imports gRPC or protobuf (but for reading a P4Info text): a simulation fills its tables without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, TypeVar

from mrc_topo.base.document import printable
from mrc_topo.base.errors import MrclabError

#: A match value: exact/optional an integer; LPM (value, prefix length); ternary (value, mask); range (low, high).
Match = int | tuple[int, int]
#: What a counter counts.
Unit = Literal["PACKETS", "BYTES", "BOTH", "UNSPECIFIED"]


class P4RuntimeError(MrclabError):
    """A request that a switch refused; the text names the switch, the request and the server's reason."""


@dataclass(frozen=True)
class TableEntry:
    """A table entry by the names in the P4 program (`hdr.ipv6.dst_addr`); for LPM and other values see `Match`."""

    table: str
    match: Mapping[str, Match]
    action: str
    params: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0


@dataclass(frozen=True, slots=True)
class KeyName:
    """A key of a table: `kind` is the name in P4Info (EXACT, LPM, TERNARY, RANGE, OPTIONAL), `width` is in bits."""

    id: int
    name: str
    width: int
    kind: str


@dataclass(frozen=True, slots=True)
class ParamName:
    """A parameter of an action; `width` is in bits."""

    id: int
    name: str
    width: int


@dataclass(frozen=True, slots=True)
class ActionName:
    """An action."""

    id: int
    name: str
    params: tuple[ParamName, ...]


@dataclass(frozen=True, slots=True)
class TableName:
    """A table for `size` entries; `actions` are identifiers; `is_const`: its entries are the program's own."""

    id: int
    name: str
    size: int
    is_const: bool
    keys: tuple[KeyName, ...]
    actions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CounterName:
    """A counter; `table` is the identifier of a direct counter's table, else 0."""

    id: int
    name: str
    unit: Unit
    table: int = 0


T = TypeVar("T")


def to_bytes(value: int, bits: int) -> bytes:
    """Return the canonical byte string: no leading zeros, at least one byte."""
    if value < 0 or value >> bits:
        raise ValueError(f"{value:#x} does not fit {bits} bits")
    return value.to_bytes(max((value.bit_length() + 7) // 8, 1), "big")


@dataclass(frozen=True)
class P4InfoNames:
    """The identifiers and widths of a P4Info, by the full name."""

    tables: dict[str, TableName]
    actions: dict[str, ActionName]
    counters: dict[str, CounterName]
    direct_counters: dict[str, CounterName]

    @staticmethod
    def of(p4info: str) -> P4InfoNames:
        """Return the names in a P4Info text."""
        return _names(p4info)

    @staticmethod
    def find(kind: str, objects: Mapping[str, T], name: str) -> T:
        """Return the object with this name, or with a name that alone ends in it.

        Raises:
            P4RuntimeError: no object or several objects have it.
        """
        if name in objects:
            return objects[name]
        found = [each for full, each in objects.items() if full.endswith("." + name)]
        if len(found) != 1:
            what = f"several {kind}s end in" if found else f"no {kind}"
            raise P4RuntimeError(f"{what} '{name}'; the program has: {', '.join(sorted(objects)) or 'none'}")
        return found[0]


@cache
def _names(p4info: str) -> P4InfoNames:
    """Return the names; all switches of a lab have the same.

    Raises:
        P4RuntimeError: it is no P4Info.
    """
    # The project's program comes with its names (`program.fabric_program`), so that most commands need no protobuf,
    # whose import takes longer than building a small simulation.
    from google.protobuf import text_format

    from p4lite.messages import p4info_pb2

    try:
        info = text_format.Parse(p4info, p4info_pb2.P4Info())
    except (text_format.ParseError, RecursionError) as error:
        raise P4RuntimeError(
            f"the program's P4Info cannot be read: {printable(str(error))}; compile it again"
        ) from None
    kind_of, unit_of = p4info_pb2.MatchField.MatchType.Name, p4info_pb2.CounterSpec.Unit.Name
    tables = [
        TableName(
            each.preamble.id,
            each.preamble.name,
            each.size,
            each.is_const_table,
            tuple(KeyName(key.id, key.name, key.bitwidth, kind_of(key.match_type)) for key in each.match_fields),
            tuple(ref.id for ref in each.action_refs),
        )
        for each in info.tables
    ]
    actions = [
        ActionName(
            each.preamble.id,
            each.preamble.name,
            tuple(ParamName(param.id, param.name, param.bitwidth) for param in each.params),
        )
        for each in info.actions
    ]
    counters = [CounterName(each.preamble.id, each.preamble.name, unit_of(each.spec.unit)) for each in info.counters]
    direct = [
        CounterName(each.preamble.id, each.preamble.name, unit_of(each.spec.unit), each.direct_table_id)
        for each in info.direct_counters
    ]
    return P4InfoNames(
        {each.name: each for each in tables},
        {each.name: each for each in actions},
        {each.name: each for each in counters},
        {each.name: each for each in direct},
    )
