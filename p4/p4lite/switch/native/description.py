"""Structures and enumerations of a C library, built from what the library says of itself (`core/describe.h`)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from p4lite.switch.errors import BuildError

_SCALARS: dict[str, Any] = {
    "b": ctypes.c_int8,
    "B": ctypes.c_uint8,
    "h": ctypes.c_int16,
    "H": ctypes.c_uint16,
    "i": ctypes.c_int32,
    "I": ctypes.c_uint32,
    "q": ctypes.c_int64,
    "Q": ctypes.c_uint64,
    "d": ctypes.c_double,
    "P": ctypes.c_void_p,
}


class _Row(ctypes.Structure):
    """`struct p4_described`: the one layout that is known beforehand (describe.h asserts it)."""

    _fields_ = [
        ("owner", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("value", ctypes.c_int64),
        ("size", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
    ]


class _Table(ctypes.Structure):
    """`struct p4_description`."""

    _fields_ = [("rows", ctypes.POINTER(_Row)), ("count", ctypes.c_uint64)]


@dataclass(frozen=True, slots=True)
class Description:
    """The structures and enumerations of a library: `structures` are ctypes classes by their C names; `enums` are
    constants by their names in lower case."""

    structures: Mapping[str, type[ctypes.Structure]]
    enums: Mapping[str, Mapping[str, int]]

    def names(self, enum: str) -> tuple[str, ...]:
        """Return the constants of an enumeration that counts from 0, in its order. Raises BuildError if it does not."""
        numbered = {number: name for name, number in self.enums[enum].items()}
        if sorted(numbered) != list(range(len(self.enums[enum]))):
            raise BuildError(f"enum {enum} does not describe itself from 0 on without a gap")
        return tuple(numbered[i] for i in range(len(numbered)))

    def record(self, name: str) -> struct.Struct:
        """Return a structure of plain numbers without holes, for reading many of them. Raises BuildError if it is not
        one.
        """
        made = self.structures[name]
        codes = {kind: code for code, kind in _SCALARS.items()}
        found = struct.Struct("=" + "".join(codes[field[1]] for field in made._fields_))
        if found.size != ctypes.sizeof(made):
            raise BuildError(f"struct {name} has holes")
        return found


def read_description(library: ctypes.CDLL, function: str) -> Description:
    """Return the description of a library that its `function` returns. Raises BuildError when it contradicts itself,
    which happens when a list in a describe.c lacks a field."""
    describe = getattr(library, function)
    describe.restype = ctypes.c_void_p
    describe.argtypes = []
    return _read(int(describe()))


@cache
def _read(address: int) -> Description:
    """Read a description, once for each address: a library stays where it is, and so do its classes."""
    table = _Table.from_address(address)
    structures: dict[str, type[ctypes.Structure]] = {}
    sizes: dict[str, int] = {}
    fields: dict[str, list[tuple[str, Any, int]]] = {}
    enums: dict[str, dict[str, int]] = {}
    for row in table.rows[: table.count]:
        owner, name = row.owner.decode(), row.name.decode()
        if row.type is None:
            enums.setdefault(owner, {})[name.lower()] = row.value
        elif row.type == b"struct":
            sizes[owner], fields[owner] = row.size, []
        else:
            fields[owner].append((name, _field(owner, name, row, sizes, fields, structures), row.value))
    for owner in sizes:
        _structure(owner, sizes, fields, structures)
    return Description(structures, enums)


def _field(
    owner: str,
    name: str,
    row: _Row,
    sizes: dict[str, int],
    fields: dict[str, list[tuple[str, Any, int]]],
    structures: dict[str, type[ctypes.Structure]],
) -> Any:
    code = row.type.decode()
    if code not in _SCALARS and code not in sizes:
        raise BuildError(f"struct {owner}: '{code}', the type of '{name}', is not described before it")
    kind = _SCALARS[code] if code in _SCALARS else _structure(code, sizes, fields, structures)
    if ctypes.sizeof(kind) * row.count != row.size:
        raise BuildError(f"struct {owner}: the field '{name}' of {row.size} bytes is described as {row.count} '{code}'")
    return kind if row.count == 1 else kind * row.count


def _structure(
    name: str,
    sizes: dict[str, int],
    fields: dict[str, list[tuple[str, Any, int]]],
    structures: dict[str, type[ctypes.Structure]],
) -> type[ctypes.Structure]:
    """Return the class of a structure, all of whose fields are known; its layout must come out as the C compiler's."""
    if name not in structures:
        made = type(name, (ctypes.Structure,), {"_fields_": [(field, kind) for field, kind, _ in fields[name]]})
        for field, _, offset in fields[name]:
            if getattr(made, field).offset != offset:
                raise BuildError(f"struct {name}: something before '{field}' is not described")
        if ctypes.sizeof(made) != sizes[name]:
            raise BuildError(f"struct {name}: something at its end is not described")
        structures[name] = made
    return structures[name]
