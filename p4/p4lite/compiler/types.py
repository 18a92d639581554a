"""The types of P4_16 (language specification §7) as values the compiler compares and prints.

Base and structural types are frozen dataclasses: two equal types are `==`. Nominal types (structs, headers,
enums, externs, parsers, controls, packages, newtypes) are equal when they come from the same declaration with the
same type arguments. Typedefs leave no trace here: they are replaced by what they name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from p4lite.compiler.position import Pos


class Declared(Protocol):
    """The properties of a declaration that a type uses; `ast.declaration_of` returns the whole declaration."""

    pos: Pos
    name: str


@dataclass(frozen=True)
class BitType:
    """`bit<width>` (unsigned) or `int<width>` (signed, two's complement)."""

    width: int
    signed: bool = False

    def __str__(self) -> str:
        return f"{'int' if self.signed else 'bit'}<{self.width}>"


@dataclass(frozen=True)
class VarbitType:
    """`varbit<max_width>`."""

    max_width: int

    def __str__(self) -> str:
        return f"varbit<{self.max_width}>"


@dataclass(frozen=True)
class IntType:
    """`int`: arbitrary precision, compile-time only."""

    def __str__(self) -> str:
        return "int"


@dataclass(frozen=True)
class BoolType:
    """`bool`."""

    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True)
class StringType:
    """`string`: compile-time only."""

    def __str__(self) -> str:
        return "string"


@dataclass(frozen=True)
class VoidType:
    """`void`: what a function without a result returns."""

    def __str__(self) -> str:
        return "void"


@dataclass(frozen=True)
class ErrorType:
    """`error`: one type for the whole program; its members are in `TypedProgram.errors`."""

    def __str__(self) -> str:
        return "error"


@dataclass(frozen=True)
class MatchKindType:
    """`match_kind`."""

    def __str__(self) -> str:
        return "match_kind"


@dataclass(frozen=True)
class DontCareType:
    """The type of `_` and `...`, compatible with everything."""

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True)
class UnknownType:
    """The type of an expression that was already reported as wrong; silences errors that follow from it."""

    def __str__(self) -> str:
        return "<error>"


@dataclass(frozen=True, eq=False)
class TypeVar:
    """A type parameter of a generic declaration, or an unknown during inference."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class SetType:
    """`set<element>`: masks, ranges, value sets; exists in keysets only."""

    element: Type

    def __str__(self) -> str:
        return f"set<{self.element}>"


@dataclass(frozen=True)
class TupleType:
    """`tuple<items>`, and the type of a list expression before it is given another one."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.items))}>"


@dataclass(frozen=True)
class ListType:
    """`list<element>`: compile-time lists, given to extern constructors."""

    element: Type

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True)
class StackType:
    """`element[size]`: a header (or header union) stack, or (P4_16 1.2.5) an array of another type."""

    element: Type
    size: int

    def __str__(self) -> str:
        return f"{self.element}[{self.size}]"


@dataclass(frozen=True)
class Nominal:
    """A type with a declaration; equality is by declaration and type arguments."""

    decl: Declared = field(repr=False)
    args: tuple[Type, ...] = ()

    @property
    def name(self) -> str:
        return self.decl.name

    def __str__(self) -> str:
        return self.name + (f"<{', '.join(map(str, self.args))}>" if self.args else "")


@dataclass(frozen=True)
class FieldsType(Nominal):
    """A type with ordered, named, typed fields (type arguments already put in)."""

    _fields: dict[str, Type] = field(default_factory=dict, compare=False, repr=False)

    @property
    def fields(self) -> Mapping[str, Type]:
        return self._fields


@dataclass(frozen=True)
class HeaderType(FieldsType):
    """`header`."""


@dataclass(frozen=True)
class StructType(FieldsType):
    """`struct`."""


@dataclass(frozen=True)
class UnionType(FieldsType):
    """`header_union`."""


@dataclass(frozen=True)
class AnonStructType:
    """The type of `{a = 1, b = 2}` before it is given a struct or header type."""

    items: tuple[tuple[str, Type], ...]

    @property
    def fields(self) -> Mapping[str, Type]:
        return dict(self.items)

    def __str__(self) -> str:
        return "struct {" + ", ".join(f"{t} {n}" for n, t in self.items) + "}"


@dataclass(frozen=True)
class EnumType(Nominal):
    """An `enum` without representation; `members` in order of declaration."""

    members: tuple[str, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class SerEnumType(Nominal):
    """A serializable enum: `values` maps members to constants of `base`. It has the width of `base`."""

    base: BitType = field(default=BitType(1), compare=False)
    values: dict[str, int] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class NewType(Nominal):
    """`type base name;`: a type of its own with the values of `base`."""

    base: Type = field(default_factory=UnknownType, compare=False)


@dataclass(frozen=True)
class ExternType(Nominal):
    """An instance of an extern object; methods are in `decl.methods`."""


@dataclass(frozen=True)
class ParserType(Nominal):
    """A parser, or a parser type (`decl.is_prototype`)."""


@dataclass(frozen=True)
class ControlType(Nominal):
    """A control, or a control type (`decl.is_prototype`)."""


@dataclass(frozen=True)
class PackageType(Nominal):
    """A package."""


@dataclass(frozen=True)
class TableType(Nominal):
    """A table; only `apply` can be called on it."""


@dataclass(frozen=True)
class ApplyResultType(Nominal):
    """What `table.apply()` returns: fields hit, miss (bool), action_run (`ActionEnumType`)."""


@dataclass(frozen=True)
class ActionEnumType(Nominal):
    """The type of `table.apply().action_run`; `decl` is the table."""


@dataclass(frozen=True)
class ActionType(Nominal):
    """An action named in an expression (to call it, or in a table's properties)."""


@dataclass(frozen=True)
class FunctionType(Nominal):
    """A function or an extern method named in a call."""


@dataclass(frozen=True)
class StateType(Nominal):
    """A parser state."""


@dataclass(frozen=True)
class TypeType:
    """The type of an expression that names the type `of` (`E` in `E.A`)."""

    of: Type

    def __str__(self) -> str:
        return f"type {self.of}"


Type: TypeAlias = (
    BitType
    | VarbitType
    | IntType
    | BoolType
    | StringType
    | VoidType
    | ErrorType
    | MatchKindType
    | DontCareType
    | UnknownType
    | TypeVar
    | SetType
    | TupleType
    | ListType
    | StackType
    | AnonStructType
    | Nominal
    | TypeType
)

BOOL = BoolType()
INT = IntType()
STRING = StringType()
VOID = VoidType()
ERROR = ErrorType()
MATCH_KIND = MatchKindType()
DONT_CARE = DontCareType()
UNKNOWN = UnknownType()


def bit(width: int) -> BitType:
    """Return the type `bit<width>`."""
    return BitType(width)


def strip_newtypes(t: Type) -> Type:
    """Return the type that a chain of `type` declarations stands for."""
    while isinstance(t, NewType):
        t = t.base
    return t


def underlying_bits(t: Type) -> BitType | None:
    """Return the `bit<W>` or `int<W>` that represents a value of `t`: itself, or the base of a newtype or serializable
    enum."""
    t = strip_newtypes(t)
    if isinstance(t, SerEnumType):
        return t.base
    return t if isinstance(t, BitType) else None


def min_width_bits(t: Type) -> int | None:
    """Return `minSizeInBits()`: varbit counts 0; None for a type that has no size."""
    return _width_bits(t, largest=False)


def max_width_bits(t: Type) -> int | None:
    """Return `maxSizeInBits()`: varbit counts its maximum; None for a type that has no size."""
    return _width_bits(t, largest=True)


def _width_bits(t: Type, *, largest: bool) -> int | None:
    t = strip_newtypes(t)
    base = underlying_bits(t)
    if base is not None:
        return base.width
    if isinstance(t, BoolType):
        return 1
    if isinstance(t, VarbitType):
        return t.max_width if largest else 0
    if isinstance(t, StackType):
        w = _width_bits(t.element, largest=largest)
        return None if w is None else w * t.size
    if isinstance(t, FieldsType | AnonStructType):
        parts = [_width_bits(f, largest=largest) for f in t.fields.values()]
    elif isinstance(t, TupleType):
        parts = [_width_bits(f, largest=largest) for f in t.items]
    else:
        return None
    known = [p for p in parts if p is not None]
    if len(known) != len(parts):
        return None
    if isinstance(t, UnionType):
        return (max if largest else min)(known, default=0)
    return sum(known)


def substitute(t: Type, env: Mapping[TypeVar, Type]) -> Type:
    """Return `t` with the type variables of `env` replaced."""
    if not env:
        return t
    if isinstance(t, TypeVar):
        return env.get(t, t)
    if isinstance(t, SetType):
        return SetType(substitute(t.element, env))
    if isinstance(t, ListType):
        return ListType(substitute(t.element, env))
    if isinstance(t, TupleType):
        return TupleType(tuple(substitute(i, env) for i in t.items))
    if isinstance(t, StackType):
        return StackType(substitute(t.element, env), t.size)
    if isinstance(t, AnonStructType):
        return AnonStructType(tuple((n, substitute(i, env)) for n, i in t.items))
    if isinstance(t, FieldsType) and t.args:
        args = tuple(substitute(a, env) for a in t.args)
        return type(t)(t.decl, args, {n: substitute(f, env) for n, f in t.fields.items()})
    if isinstance(t, Nominal) and t.args:
        return type(t)(t.decl, tuple(substitute(a, env) for a in t.args))
    return t
