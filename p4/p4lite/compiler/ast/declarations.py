"""Statements and declarations."""

from __future__ import annotations

from dataclasses import dataclass, field

from p4lite.compiler.ast.base import REF, Node
from p4lite.compiler.ast.expressions import (
    Annotation,
    Arg,
    Call,
    Declaration,
    Expr,
    Instance,
    Name,
    Param,
    Stmt,
    TypeNode,
    TypeParam,
    Value,
)
from p4lite.compiler.position import NOWHERE
from p4lite.compiler.types import Type


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
