"""Expressions, and what they and declarations are made of: values, annotations, types as written, parameters.

These name each other, so they stand in one module.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from p4lite.compiler.ast.base import REF, Node
from p4lite.compiler.position import NOWHERE, Pos
from p4lite.compiler.types import Nominal, Type, TypeVar


@dataclass(frozen=True)
class EnumValue:
    """A member of an enum without representation, or of `match_kind` (then `enum` is "match_kind")."""

    enum: str
    member: str


@dataclass(frozen=True)
class ErrorValue:
    """A member of `error`."""

    member: str


@dataclass(frozen=True)
class ListValue:
    """A tuple or list constant."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class StructValue:
    """A struct or header constant; `valid` is False for `{#}`."""

    fields: tuple[tuple[str, Value], ...]
    valid: bool = True


@dataclass(eq=False)
class Instance:
    """The instance of an extern, parser, control or package that a constructor call makes.

    `args` maps each constructor parameter to its value (defaults put in; None for an optional one left
    out). `decl` is the declaration of what is instantiated; `site` is the `Instantiation`, None for
    an anonymous one.
    """

    decl: Declaration
    type: Type
    args: dict[str, Value | None]
    site: Declaration | None = None
    pos: Pos = NOWHERE


Value: TypeAlias = int | bool | str | EnumValue | ErrorValue | ListValue | StructValue | Instance


@dataclass(eq=False, slots=True, repr=False)
class Annotation(Node):
    """`@name`, `@name(tokens)` (unstructured), `@name[exprs]`, `@name[key=value]` (`structured`).

    `text` is the body as it was written (single spaces between tokens), `tokens` its token texts; strings
    in `tokens` keep their quotes. `args` holds the body of a known annotation (`name`, `id`, `brief`,
    ...) as Python values: str, int.
    """

    name: str
    text: str | None = None
    tokens: list[str] = field(default_factory=list, kw_only=True)
    exprs: list[Expr] = field(default_factory=list, kw_only=True)
    pairs: list[NamedExpr] = field(default_factory=list, kw_only=True)
    args: list[str | int] = field(default_factory=list, kw_only=True)
    structured: bool = field(default=False, kw_only=True)


@dataclass(eq=False, slots=True, repr=False)
class TypeNode(Node):
    """A type as written. `type` is what it denotes (checked)."""

    type: Type | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class BaseTypeNode(TypeNode):
    """`bool`, `error`, `int`, `string`, `void`, `match_kind`, `_`, `bit`/`int`/`varbit` with a width."""

    name: str
    width: Expr | None = None


@dataclass(eq=False, slots=True, repr=False)
class NamedTypeNode(TypeNode):
    """A type by name, with type arguments when generic. `absolute` for `.Name`. `decl` (checked)."""

    name: str
    args: list[TypeNode] = field(default_factory=list, kw_only=True)
    absolute: bool = False
    decl: Declaration | TypeParam | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class StackTypeNode(TypeNode):
    """`element[size]`."""

    element: TypeNode
    size: Expr


@dataclass(eq=False, slots=True, repr=False)
class TupleTypeNode(TypeNode):
    """`tuple<items>`, or `list<items[0]>` when `kind` is "list"."""

    items: list[TypeNode]
    kind: str = "tuple"


@dataclass(eq=False, slots=True, repr=False)
class Expr(Node):
    """An expression. Checked: `type`, and `const` (the compile-time value, None when there is none)."""

    type: Type | None = field(default=None, kw_only=True, metadata=REF)
    const: Value | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class IntLiteral(Expr):
    """An integer; `width` is None for a literal without width; `text` as written."""

    value: int
    width: int | None = None
    signed: bool = False
    text: str = ""


@dataclass(eq=False, slots=True, repr=False)
class BoolLiteral(Expr):
    """`true`, `false`."""

    value: bool


@dataclass(eq=False, slots=True, repr=False)
class StringLiteral(Expr):
    """A string (escapes resolved)."""

    value: str


@dataclass(eq=False, slots=True, repr=False)
class Name(Expr):
    """A name; `absolute` for `.name`. `decl` (checked) is what it refers to."""

    name: str
    absolute: bool = False
    decl: Declaration | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class This(Expr):
    """`this`."""


@dataclass(eq=False, slots=True, repr=False)
class TypeExpr(Expr):
    """A type where an expression stands: `E` in `E.A`, `register<bit<8>>` in `register<bit<8>>(4)`, `error`
    in `error.E`.
    """

    node: TypeNode


@dataclass(eq=False, slots=True, repr=False)
class Member(Expr):
    """`expr.name`. Struct/header/union fields, enum and error members, stack
    `next`/`last`/`lastIndex`/`size`, `hit`/`miss`/`action_run` of a table's result, methods (as
    `Call.func`).
    """

    expr: Expr
    name: str
    name_pos: Pos = field(default=NOWHERE, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class Index(Expr):
    """`expr[index]` of a stack, array, tuple or list."""

    expr: Expr
    index: Expr


@dataclass(eq=False, slots=True, repr=False)
class Slice(Expr):
    """`expr[hi:lo]`; checked: both are constants, in `hi.const` and `lo.const`."""

    expr: Expr
    hi: Expr
    lo: Expr


@dataclass(eq=False, slots=True, repr=False)
class PlusSlice(Expr):
    """`expr[lo+:width]`; only where `lo` is not a constant (otherwise the checker makes it a `Slice`)."""

    expr: Expr
    lo: Expr
    width: Expr


@dataclass(eq=False, slots=True, repr=False)
class Unary(Expr):
    """`! ~ - +`."""

    op: str
    expr: Expr


@dataclass(eq=False, slots=True, repr=False)
class Binary(Expr):
    """`* / % + - |+| |-| << >> <= >= < > != == & ^ | ++ && ||`; checked: operand types agree except for
    shifts and `++`.
    """

    op: str
    left: Expr
    right: Expr


@dataclass(eq=False, slots=True, repr=False)
class ConditionalExpr(Expr):
    """`cond ? then : other`."""

    cond: Expr
    then: Expr
    other: Expr


@dataclass(eq=False, slots=True, repr=False)
class Cast(Expr):
    """`(target) expr`; `implicit` when the checker put it in (then `target` is None; use `type`)."""

    target: TypeNode | None
    expr: Expr
    implicit: bool = False


@dataclass(eq=False, slots=True, repr=False)
class ListExpr(Expr):
    """`{a, b}`; checked: of tuple or list type only. `ellipsis`: ended in `...` (checked: filled up)."""

    items: list[Expr]
    ellipsis: bool = False


@dataclass(eq=False, slots=True, repr=False)
class NamedExpr(Node):
    """`name = expr` in a struct expression or annotation."""

    name: str
    expr: Expr


@dataclass(eq=False, slots=True, repr=False)
class StructExpr(Expr):
    """`{a = x, b = y}`; checked: all fields there, in order of declaration, type struct or header (then
    valid).
    """

    fields: list[NamedExpr]
    ellipsis: bool = False


@dataclass(eq=False, slots=True, repr=False)
class InvalidExpr(Expr):
    """`{#}`: an invalid header or union."""


@dataclass(eq=False, slots=True, repr=False)
class DefaultExpr(Expr):
    """`...`: the default value of its type (checked: replaced where the type is known)."""


@dataclass(eq=False, slots=True, repr=False)
class DontCare(Expr):
    """`_` or `default` in a keyset, `_` as an argument to an `out` parameter."""


@dataclass(eq=False, slots=True, repr=False)
class Mask(Expr):
    """`value &&& mask` in a keyset."""

    value: Expr
    mask: Expr


@dataclass(eq=False, slots=True, repr=False)
class RangeExpr(Expr):
    """`lo .. hi` in a keyset or a for-in loop."""

    lo: Expr
    hi: Expr


@dataclass(eq=False, slots=True, repr=False)
class Arg(Node):
    """An argument; `name` when it was given by name.

    Checked: `param`, the parameter it goes to; `place`, its position in the call as written (defaults come last);
    `expr` is None for an optional parameter left out.
    """

    expr: Expr | None
    name: str | None = None
    param: Param | None = field(default=None, kw_only=True, metadata=REF)
    place: int = field(default=0, kw_only=True, metadata=REF)


class CallKind(Enum):
    """What a call does."""

    ACTION = "action"
    FUNCTION = "function"
    EXTERN_FUNCTION = "extern function"
    EXTERN_METHOD = "extern method"
    ABSTRACT_METHOD = "abstract method"
    TABLE_APPLY = "table apply"
    PARSER_APPLY = "parser apply"
    CONTROL_APPLY = "control apply"
    HEADER_METHOD = "header method"
    STACK_METHOD = "stack method"
    SIZE_METHOD = "size method"
    CONSTRUCTOR = "constructor"


@dataclass(eq=False, slots=True, repr=False)
class Call(Expr):
    """`func<type_args>(args)`.

    Checked: `kind`; `target`, the declaration called (ActionDecl, FunctionDecl, Method, TableDecl, ParserDecl,
    ControlDecl, ExternDecl; None for the built-in methods isValid, setValid, setInvalid, push_front, pop_front,
    minSizeInBits, ...); `method`, the name of the method or function; `args` in parameter order, one for each
    parameter, defaults put in (they are evaluated in the order of `Arg.place`); `types`, the type arguments, given or
    inferred, in the order of the target's `type_params`. A call of a generic function with a body has as `target` the
    instance made for these types.
    """

    func: Expr
    args: list[Arg]
    type_args: list[TypeNode] = field(default_factory=list, kw_only=True)
    kind: CallKind | None = field(default=None, kw_only=True, metadata=REF)
    target: Declaration | None = field(default=None, kw_only=True, metadata=REF)
    method: str = field(default="", kw_only=True, metadata=REF)
    types: tuple[Type, ...] = field(default=(), kw_only=True, metadata=REF)

    @property
    def receiver(self) -> Expr | None:
        """The expression before the dot, None if there is none."""
        return self.func.expr if isinstance(self.func, Member) else None


@dataclass(eq=False, slots=True, repr=False)
class Stmt(Node):
    """A statement."""


@dataclass(eq=False, slots=True, repr=False)
class Declaration(Stmt):
    """Anything with a name. (A statement, because variables, constants and instances stand among
    statements.)
    """

    name: str
    annotations: list[Annotation] = field(default_factory=list, kw_only=True)

    def annotation(self, name: str) -> Annotation | None:
        """Return the first annotation `@name`, or None."""
        return next((a for a in self.annotations if a.name == name), None)


@dataclass(eq=False, slots=True, repr=False)
class TypeParam(Declaration):
    """A type parameter; `var` is its type variable (checked)."""

    var: TypeVar | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class Param(Declaration):
    """A parameter; `direction` is "in", "out", "inout", ""; `optional` for `@optional`. `type` (checked)."""

    type_node: TypeNode
    direction: str = ""
    default: Expr | None = None
    type: Type | None = field(default=None, kw_only=True, metadata=REF)

    @property
    def optional(self) -> bool:
        return any(a.name == "optional" for a in self.annotations)


def declaration_of(ty: Nominal) -> Declaration:
    """Return the declaration of a nominal type."""
    assert isinstance(ty.decl, Declaration)
    return ty.decl
