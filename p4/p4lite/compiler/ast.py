"""The syntax tree of P4_16, as the parser builds it and the later passes fill it in.

Every node has `pos`. Passes of the front end fill the fields that are marked "checked"; they are None (or
empty) before. After the type checker (see `p4lite.compiler`) a tree holds these simplifications, so that
later passes need not repeat them: implicit casts are `Cast` nodes with `implicit=True`; integer literals
have the width that their context gives them; `{...}` lists given to a struct or header are `StructExpr`;
`Call.args` are in parameter order with the defaults put in; `a op= b` is `Assign` with
`op`; `T.apply()` on a type is a call on an `Instantiation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from p4lite.compiler.position import NOWHERE, Pos
from p4lite.compiler.types import Nominal, Type, TypeVar

REF = {"ref": True}
"""Marks a field that the checker fills, or that refers to a node elsewhere: not a child."""


@dataclass(eq=False, slots=True, repr=False)
class Node:
    """Any node."""

    pos: Pos

    def __repr__(self) -> str:
        name = getattr(self, "name", "")
        return f"<{type(self).__name__} {name} at {self.pos}>" if name else f"<{type(self).__name__} at {self.pos}>"


_CHILDREN: dict[type, tuple[str, ...]] = {}
_REFS: dict[type, tuple[str, ...]] = {}


def _child_fields(cls: type) -> tuple[str, ...]:
    """Return names of the fields that hold sub-trees (not references, not results of the checker)."""
    if cls in _CHILDREN:
        return _CHILDREN[cls]
    names: list[str] = []
    for klass in reversed(cls.__mro__):
        for name, f in getattr(klass, "__dataclass_fields__", {}).items():
            if name not in names and not f.metadata.get("ref") and name != "pos":
                names.append(name)
    _CHILDREN[cls] = tuple(names)
    return _CHILDREN[cls]


def children(node: Node) -> Iterator[Node]:
    """Yield the direct sub-nodes of `node` in source order."""
    for name in _child_fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, list | tuple):
            for item in value:
                if isinstance(item, Node):
                    yield item


def walk(node: Node) -> Iterator[Node]:
    """Yield `node` and everything under it, parents first."""
    stack = [node]
    while stack:
        n = stack.pop()
        yield n
        for name in reversed(_child_fields(type(n))):
            value = getattr(n, name)
            if isinstance(value, Node):
                stack.append(value)
            elif isinstance(value, list | tuple):
                stack.extend(item for item in reversed(value) if isinstance(item, Node))


class Visitor:
    """Calls `visit_<NodeClass>(node)` where defined (looked up along the class's ancestors), else visits the
    children.
    """

    def visit(self, node: Node) -> Any:
        for klass in type(node).__mro__:
            method = getattr(self, "visit_" + klass.__name__, None)
            if method is not None:
                return method(node)
            if klass is Node:
                break
        return self.generic_visit(node)

    def generic_visit(self, node: Node) -> Any:
        for child in children(node):
            self.visit(child)


class Transformer(Visitor):
    """Like `Visitor`, but what a method returns replaces the node, in place in its parent.

    In a list, None removes the node and a list is spliced in. Children are transformed by `generic_visit`.
    """

    def generic_visit(self, node: Node) -> Any:
        for name in _child_fields(type(node)):
            value = getattr(node, name)
            if isinstance(value, Node):
                setattr(node, name, self.visit(value))
            elif isinstance(value, list):
                out: list[Any] = []
                for item in value:
                    new = self.visit(item) if isinstance(item, Node) else item
                    if isinstance(new, list):
                        out.extend(new)
                    elif new is not None:
                        out.append(new)
                value[:] = out
        return node


def clone(node: Node, memo: dict[int, Node] | None = None) -> Any:
    """Return a deep copy of the sub-tree; references inside it to declarations inside it point to the copies.

    `memo` (id of original node -> copy) collects what was copied.
    """
    memo = {} if memo is None else memo
    top = _copy(node, memo)
    for old_id, new in list(memo.items()):
        del old_id
        for name in _ref_fields(type(new)):
            ref = getattr(new, name)
            if isinstance(ref, Node) and id(ref) in memo:
                setattr(new, name, memo[id(ref)])
    return top


def _ref_fields(cls: type) -> tuple[str, ...]:
    if cls not in _REFS:
        own = set(_child_fields(cls))
        fields: dict[str, Any] = getattr(cls, "__dataclass_fields__", {})
        _REFS[cls] = tuple(n for n in fields if n not in own and n != "pos")
    return _REFS[cls]


def _copy(node: Node, memo: dict[int, Node]) -> Node:
    cls = type(node)
    new: Node = cls.__new__(cls)
    memo[id(node)] = new
    new.pos = node.pos
    for name in _child_fields(cls):
        value = getattr(node, name)
        if isinstance(value, Node):
            value = _copy(value, memo)
        elif isinstance(value, list):
            value = [_copy(v, memo) if isinstance(v, Node) else v for v in value]
        setattr(new, name, value)
    for name in _ref_fields(cls):
        setattr(new, name, getattr(node, name))
    return new


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
    """Kind of thing that a call runs."""

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


@dataclass(eq=False, slots=True, repr=False)
class Block(Stmt):
    """`{ ... }`."""

    stmts: list[Stmt]
    annotations: list[Annotation] = field(default_factory=list, kw_only=True)


@dataclass(eq=False, slots=True, repr=False)
class Assign(Stmt):
    """`target = value`, or `target op= value` (`op` then is the binary operator, as in `Binary.op`)."""

    target: Expr
    value: Expr
    op: str | None = None


@dataclass(eq=False, slots=True, repr=False)
class CallStmt(Stmt):
    """A call for its effect."""

    call: Call


@dataclass(eq=False, slots=True, repr=False)
class If(Stmt):
    """`if (cond) then else other`."""

    cond: Expr
    then: Stmt
    other: Stmt | None = None


@dataclass(eq=False, slots=True, repr=False)
class SwitchCase(Node):
    """Labels (`is_default` for `default`) and a body; `body` None falls through to the next case."""

    label: Expr | None
    body: Block | None
    is_default: bool = False


@dataclass(eq=False, slots=True, repr=False)
class SwitchStmt(Stmt):
    """`switch (expr) { cases }`; over `t.apply().action_run` when the type of `expr` is `ActionEnumType`:
    then each label is a `Name` whose `decl` is the action. Otherwise labels are constants of the type
    of `expr`.
    """

    expr: Expr
    cases: list[SwitchCase]


@dataclass(eq=False, slots=True, repr=False)
class For(Stmt):
    """`for (init; cond; update) body`."""

    init: list[Stmt]
    cond: Expr
    update: list[Stmt]
    body: Stmt
    annotations: list[Annotation] = field(default_factory=list, kw_only=True)


@dataclass(eq=False, slots=True, repr=False)
class ForIn(Stmt):
    """`for (var in collection) body`: `collection` is a `RangeExpr` or an expression of list, tuple or stack
    type.

    `var` is a VarDecl (declared by the loop) or a `Name` of a variable outside.
    """

    var: VarDecl | Name
    collection: Expr
    body: Stmt
    annotations: list[Annotation] = field(default_factory=list, kw_only=True)


@dataclass(eq=False, slots=True, repr=False)
class Return(Stmt):
    """`return expr;`."""

    expr: Expr | None = None


@dataclass(eq=False, slots=True, repr=False)
class Exit(Stmt):
    """`exit;`."""


@dataclass(eq=False, slots=True, repr=False)
class Break(Stmt):
    """`break;`."""


@dataclass(eq=False, slots=True, repr=False)
class Continue(Stmt):
    """`continue;`."""


@dataclass(eq=False, slots=True, repr=False)
class Empty(Stmt):
    """`;`."""


@dataclass(eq=False, slots=True, repr=False)
class ConstDecl(Declaration):
    """`const type name = value;`; `type`, `const` (checked)."""

    type_node: TypeNode
    value: Expr
    type: Type | None = field(default=None, kw_only=True, metadata=REF)
    const: Value | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class VarDecl(Declaration):
    """`type name = init;`."""

    type_node: TypeNode
    init: Expr | None = None
    type: Type | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class Instantiation(Declaration):
    """`type(args) name = { methods };`. Checked: `call`, the constructor call (kind CONSTRUCTOR) and `type`;
    `instance`, its value where the arguments are constants (None inside a parser or control that has
    constructor parameters).
    """

    type_node: TypeNode
    args: list[Arg]
    body: list[Declaration] = field(default_factory=list, kw_only=True)
    type: Type | None = field(default=None, kw_only=True, metadata=REF)
    call: Call | None = field(default=None, kw_only=True, metadata=REF)
    instance: Instance | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class ValueSetDecl(Declaration):
    """`value_set<element>(size) name;`; `type` is the element's set type, `size_const` (checked)."""

    element: TypeNode
    size: Expr
    type: Type | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class TypedefDecl(Declaration):
    """`typedef target name;`, or `type target name;` when `distinct`."""

    target: TypeNode
    distinct: bool = False
    type: Type | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class FieldDecl(Declaration):
    """A field of a struct, header or header union."""

    type_node: TypeNode
    type: Type | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class StructDecl(Declaration):
    """`struct`, `header` or `header_union` (in `kind`). `type` (checked) has type variables where generic."""

    kind: str
    fields: list[FieldDecl]
    type_params: list[TypeParam] = field(default_factory=list, kw_only=True)
    type: Type | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class EnumMember(Declaration):
    """A member of an enum; `value` for a serializable one; `const` (checked)."""

    value: Expr | None = None
    const: Value | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class EnumDecl(Declaration):
    """`enum name { ... }`, `enum base name { a = 1, ... }`."""

    base: TypeNode | None
    members: list[EnumMember]
    type: Type | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class ErrorDecl(Declaration):
    """`error { ... }` (name "error")."""

    members: list[EnumMember]


@dataclass(eq=False, slots=True, repr=False)
class MatchKindDecl(Declaration):
    """`match_kind { ... }` (name "match_kind")."""

    members: list[EnumMember]


@dataclass(eq=False, slots=True, repr=False)
class FunctionDecl(Declaration):
    """A function with a body, an extern function (`body` None), or an implementation of an abstract method."""

    result: TypeNode
    params: list[Param]
    body: Block | None = None
    type_params: list[TypeParam] = field(default_factory=list, kw_only=True)
    type: Type | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class Method(Declaration):
    """A method or a constructor (`result` None) of an extern object."""

    result: TypeNode | None
    params: list[Param]
    abstract: bool = False
    type_params: list[TypeParam] = field(default_factory=list, kw_only=True)


@dataclass(eq=False, slots=True, repr=False)
class ExternDecl(Declaration):
    """`extern name { ... }`."""

    methods: list[Method]
    type_params: list[TypeParam] = field(default_factory=list, kw_only=True)
    type: Type | None = field(default=None, kw_only=True, metadata=REF)

    def constructors(self) -> list[Method]:
        return [m for m in self.methods if m.result is None]


@dataclass(eq=False, slots=True, repr=False)
class PackageDecl(Declaration):
    """`package name(params);`."""

    params: list[Param]
    type_params: list[TypeParam] = field(default_factory=list, kw_only=True)
    type: Type | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class ActionDecl(Declaration):
    """`action name(params) { body }`."""

    params: list[Param]
    body: Block
    type: Type | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class KeyElement(Node):
    """`expr : match_kind annotations;`."""

    expr: Expr
    match_kind: Name
    annotations: list[Annotation] = field(default_factory=list, kw_only=True)


@dataclass(eq=False, slots=True, repr=False)
class ActionRef(Node):
    """An action in a table's list, entries or default, with `args` (None: written without parentheses).

    Checked: `decl`; `args` in the order of the parameters given: of the directed parameters in the list of actions, of
    all parameters in default action and entries (see `Arg.param`).
    """

    action: Name
    args: list[Arg] | None = None
    annotations: list[Annotation] = field(default_factory=list, kw_only=True)
    decl: ActionDecl | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class EntryDecl(Node):
    """`const priority=p : keys : action;`. Checked: keys have the types of the table's keys."""

    keys: list[Expr]
    action: ActionRef
    const: bool = False
    priority: Expr | None = None
    annotations: list[Annotation] = field(default_factory=list, kw_only=True)


@dataclass(eq=False, slots=True, repr=False)
class TableProperty(Declaration):
    """Any other property: `const name = value;`; a value in `{...}` with instantiations etc. is an
    expression too.
    """

    value: Expr
    is_const: bool = False


@dataclass(eq=False, slots=True, repr=False)
class TableDecl(Declaration):
    """`table name { ... }`. Properties not named here are in `properties`.

    Checked: `default_action` (NoAction when none was written and it is in scope, marked
    `default_implicit`).
    """

    keys: list[KeyElement] | None
    actions: list[ActionRef] | None
    default_action: ActionRef | None = None
    default_const: bool = False
    entries: list[EntryDecl] | None = None
    entries_const: bool = False
    properties: list[TableProperty] = field(default_factory=list, kw_only=True)
    default_implicit: bool = field(default=False, kw_only=True, metadata=REF)
    type: Type | None = field(default=None, kw_only=True, metadata=REF)

    def property(self, name: str) -> TableProperty | None:
        return next((p for p in self.properties if p.name == name), None)


@dataclass(eq=False, slots=True, repr=False)
class ControlDecl(Declaration):
    """`control name(params)(constructor params) { locals apply { ... } }`; without body a control type."""

    params: list[Param]
    ctor_params: list[Param]
    locals: list[Declaration]
    body: Block | None
    type_params: list[TypeParam] = field(default_factory=list, kw_only=True)
    type: Type | None = field(default=None, kw_only=True, metadata=REF)

    @property
    def is_prototype(self) -> bool:
        return self.body is None


@dataclass(eq=False, slots=True, repr=False)
class SelectCase(Node):
    """`keys : state;`. `keys` has one expression per select argument, or a single `DontCare` for
    `default`/`_`.
    """

    keys: list[Expr]
    state: str
    target: ParserState | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class Select(Node):
    """`select (exprs) { cases }`."""

    exprs: list[Expr]
    cases: list[SelectCase]


@dataclass(eq=False, slots=True, repr=False)
class Transition(Node):
    """`transition state;` or `transition select(...) {...}`. `target` (checked): the state, None for a
    select; `accept` and `reject` are the states `ACCEPT` and `REJECT`.
    """

    state: str | None
    select: Select | None = None
    target: ParserState | None = field(default=None, kw_only=True, metadata=REF)


@dataclass(eq=False, slots=True, repr=False)
class ParserState(Declaration):
    """`state name { stmts transition }`; without a transition statement the state goes to reject."""

    stmts: list[Stmt]
    transition: Transition | None = None


@dataclass(eq=False, slots=True, repr=False)
class ParserDecl(Declaration):
    """`parser name(params)(constructor params) { locals states }`; without states a parser type."""

    params: list[Param]
    ctor_params: list[Param]
    locals: list[Declaration]
    states: list[ParserState] | None
    type_params: list[TypeParam] = field(default_factory=list, kw_only=True)
    type: Type | None = field(default=None, kw_only=True, metadata=REF)

    @property
    def is_prototype(self) -> bool:
        return self.states is None


@dataclass(eq=False, slots=True, repr=False)
class SourceProgram(Node):
    """A whole program: declarations in source order, those of included files too."""

    decls: list[Declaration]


ACCEPT = ParserState(NOWHERE, "accept", [])
REJECT = ParserState(NOWHERE, "reject", [])
