"""Values of the interpreter of syntax trees: what P4_16 says a type holds, with what is undefined as such.

Numbers are ints in the range of their type, booleans bools. Reading what has no defined value raises `Undefined`: such
a packet proves nothing, as the language lets every compiler do something else (specification §8.27).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from p4lite.compiler import types as ty
from p4lite.compiler.ast import EnumValue, ErrorValue
from p4lite.compiler.types import Type


class Undefined(Exception):
    """The program read what has no defined value."""


class Unset:
    """The value of what nothing was written to."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


@dataclass
class Struct:
    """A struct or tuple: values by name, or by place."""

    fields: dict[str | int, Held]


@dataclass
class Header:
    """A header."""

    fields: dict[str | int, Held]
    valid: bool = False


@dataclass
class Union:
    """A header union: at most one member is valid."""

    members: dict[str | int, Header]


@dataclass
class Stack:
    """A header stack; `following` is nextIndex."""

    items: list[Held]
    following: int = field(default=0)


@dataclass(frozen=True)
class VarBits:
    """What a varbit holds: as many bits as it has at present."""

    value: int
    width: int


Scalar: TypeAlias = bool | int | EnumValue | ErrorValue
Held: TypeAlias = Scalar | VarBits | Unset | Struct | Header | Union | Stack


def initial(t: Type) -> Held:
    """Return the value of a variable without initializer: headers invalid, all else unset."""
    t = ty.strip_newtypes(t)
    if isinstance(t, ty.HeaderType):
        return Header(dict.fromkeys(t.fields, UNSET))
    if isinstance(t, ty.UnionType):
        members: dict[str | int, Header] = {}
        for name, member in t.fields.items():
            made = initial(member)
            assert isinstance(made, Header)
            members[name] = made
        return Union(members)
    if isinstance(t, ty.StructType):
        return Struct({name: initial(f) for name, f in t.fields.items()})
    if isinstance(t, ty.TupleType):
        return Struct({i: initial(f) for i, f in enumerate(t.items)})
    if isinstance(t, ty.StackType):
        return Stack([initial(t.element) for _ in range(t.size)])
    return UNSET


def zero(t: Type) -> Held:
    """Return the value of metadata when a packet arrives: v1model sets it to zero."""
    t = ty.strip_newtypes(t)
    if isinstance(t, ty.StructType):
        return Struct({name: zero(f) for name, f in t.fields.items()})
    if isinstance(t, ty.BoolType):
        return False
    if isinstance(t, ty.EnumType):
        return EnumValue(t.name, t.members[0])
    if isinstance(t, ty.ErrorType):
        return ErrorValue("NoError")
    return 0 if ty.underlying_bits(t) is not None else initial(t)


def copied(v: Held) -> Held:
    """Return a value that shares nothing with `v`."""
    if isinstance(v, Struct):
        return Struct({k: copied(f) for k, f in v.fields.items()})
    if isinstance(v, Header):
        return copy_header(v)
    if isinstance(v, Union):
        return Union({k: copy_header(m) for k, m in v.members.items()})
    if isinstance(v, Stack):
        return Stack([copied(i) for i in v.items], v.following)
    return v


def copy_header(h: Header) -> Header:
    return Header(dict(h.fields) if h.valid else dict.fromkeys(h.fields, UNSET), h.valid)


def equal(a: Held, b: Held) -> bool:
    """Return whether two values of one type are equal (specification §§8.17, 8.18). Raises Undefined."""
    if isinstance(a, Struct) and isinstance(b, Struct):
        return all(equal(v, b.fields[k]) for k, v in a.fields.items())
    if isinstance(a, Header) and isinstance(b, Header):
        if not a.valid or not b.valid:
            return a.valid == b.valid
        return all(equal(v, b.fields[k]) for k, v in a.fields.items())
    if isinstance(a, Unset) or isinstance(b, Unset):
        raise Undefined("comparison of an undefined value")
    return a == b


def child(v: Held, key: str | int) -> Held:
    """Return a part of a value. Raises Undefined for an element that is not there, a field of an invalid header, and a
    part of what was never written."""
    if isinstance(v, Unset):
        raise Undefined("a part of an undefined value")
    if isinstance(v, Struct):
        return v.fields[key]
    if isinstance(v, Header):
        if not v.valid:
            raise Undefined("a field of an invalid header")
        return v.fields[key]
    if isinstance(v, Union):
        return v.members[key]
    assert isinstance(v, Stack)
    assert isinstance(key, int)
    if not 0 <= key < len(v.items):
        raise Undefined("an element outside of its stack")
    return v.items[key]


def put(v: Held, key: str | int, new: Held) -> None:
    """Set a part of a value. Raises Undefined for an element that is not there."""
    if isinstance(v, Struct):
        v.fields[key] = new
    elif isinstance(v, Header):
        if v.valid:
            v.fields[key] = new
    elif isinstance(v, Union):
        assert isinstance(new, Header)
        if new.valid:
            for member in v.members.values():
                member.valid = False
        v.members[key] = new
    else:
        child(v, key)
        assert isinstance(v, Stack)
        assert isinstance(key, int)
        v.items[key] = new


def wrap(value: int, width: int, signed: bool) -> int:
    """Return the low bits of a number as a number of its type (specification §§8.7, 8.8)."""
    value %= 1 << width
    return value - (1 << width) if signed and value >= 1 << (width - 1) else value


def unpacked(value: int, t: Type, varbits: int = 0) -> Held:
    """Return the value of type `t` that bits stand for; its varbit has `varbits` of them."""
    t = ty.strip_newtypes(t)
    bits = ty.underlying_bits(t)
    if bits is not None:
        return wrap(value, bits.width, bits.signed)
    if isinstance(t, ty.BoolType):
        return value != 0
    assert isinstance(t, ty.FieldsType)
    fields: dict[str | int, Held] = {}
    for name, part in reversed(list(t.fields.items())):
        if isinstance(part, ty.VarbitType):
            fields[name], value = VarBits(value % (1 << varbits), varbits), value >> varbits
            continue
        width = ty.max_width_bits(part)
        assert width is not None
        fields[name], value = unpacked(value % (1 << width), part), value >> width
    return Header(fields, True) if isinstance(t, ty.HeaderType) else Struct(fields)


def packed(v: Held, t: Type) -> tuple[int, int]:
    """Return a value as bits, and how many. Raises Undefined."""
    t = ty.strip_newtypes(t)
    if isinstance(v, Unset):
        raise Undefined("undefined bits")
    if isinstance(v, Struct | Header):
        types = (
            t.fields
            if isinstance(t, ty.FieldsType)
            else dict(enumerate(t.items if isinstance(t, ty.TupleType) else ()))
        )
        value = width = 0
        for name, part in types.items():
            more, size = packed(v.fields[name], part)
            value, width = value << size | more, width + size
        return value, width
    if isinstance(v, VarBits):
        return v.value, v.width
    bits = ty.max_width_bits(t)
    assert bits is not None, t
    assert isinstance(v, int), v
    return int(v) % (1 << bits), bits
