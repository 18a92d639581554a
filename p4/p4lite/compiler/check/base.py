"""What all parts of the checker share: scopes, context, and types as written → types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.check.scope import Scope
from p4lite.compiler.diagnostics import Reporter
from p4lite.compiler.lexer import MAX_WIDTH
from p4lite.compiler.position import Pos
from p4lite.compiler.types import Type

MAX_STACK = 1 << 12
"""The largest size of a header stack or array."""

_SIMPLE: dict[str, Type] = {
    "bool": ty.BOOL,
    "error": ty.ERROR,
    "match_kind": ty.MATCH_KIND,
    "string": ty.STRING,
    "void": ty.VOID,
    "_": ty.DONT_CARE,
    "bit": ty.BitType(1),
    "int": ty.INT,
}


@dataclass(frozen=True)
class Context:
    """Where the checker is: kind "program", "parser", "state", "control", "apply", "action", "function".

    `owner` is the enclosing parser or control; `result` what a function returns; `loops` how many loops are around.
    """

    kind: str = "program"
    owner: ast.ParserDecl | ast.ControlDecl | None = None
    result: Type | None = None
    loops: int = 0
    this: Type | None = None


class CheckerBase:
    """State of a run; the parts of the checker are mixed into one class."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.scope = Scope()
        self.context = Context()
        self.errors: dict[str, ast.EnumMember] = {}
        self.match_kinds: dict[str, ast.EnumMember] = {}
        self.open: list[str] = []
        """Functions and actions whose bodies are being checked: not declared yet, so that calling one is recursion."""
        self.in_progress: set[int] = set()
        """ids of declarations whose bodies are being checked: using one of them is recursion."""
        self.hoisted: list[ast.Instantiation] = []
        """Instances made for `T.apply()` in the parser or control at hand."""
        self.uncast: set[Type] = set()
        """`type`s to which a number was converted without a cast: one warning for each."""
        self.pristine: dict[int, ast.FunctionDecl] = {}
        self.specialised: dict[tuple[int, tuple[Type, ...]], ast.FunctionDecl] = {}

    # -- implemented by other parts

    def expr(self, e: ast.Expr, want: Type | None = None) -> ast.Expr:
        raise NotImplementedError

    def coerce(self, e: ast.Expr, target: Type, what: str = "") -> ast.Expr:
        raise NotImplementedError

    # -- reporting

    def error(self, pos: Pos, message: str) -> None:
        self.reporter.error(pos, message)

    def warn(self, pos: Pos, message: str) -> None:
        self.reporter.warning(pos, message)

    # -- scopes

    @contextmanager
    def inner(self, kind: str | None = None, **changes: object) -> Iterator[Scope]:
        """A scope inside the present one, optionally in another context."""
        scope, context = self.scope, self.context
        self.scope = Scope(scope)
        if kind is not None:
            changes["kind"] = kind
        if changes:
            self.context = replace(context, **changes)  # type: ignore[arg-type]
        try:
            yield self.scope
        finally:
            self.scope, self.context = scope, context

    def declare(self, decl: ast.Declaration) -> None:
        self.scope.declare(decl, self.reporter)

    # -- constants

    def constant(self, e: ast.Expr, what: str) -> tuple[ast.Expr, int | None]:
        """Checks an expression that must be a compile-time number."""
        e = self.expr(e)
        value = e.const
        if isinstance(e.type, ty.UnknownType):
            return e, None
        if ty.underlying_bits(e.type or ty.UNKNOWN) is None and not isinstance(e.type, ty.IntType):
            self.error(e.pos, f"{what} must be a number, not {e.type}")
            return e, None
        if not isinstance(value, int):
            self.error(e.pos, f"{what} must be a compile-time constant")
            return e, None
        return e, int(value)

    # -- types

    def resolve(self, node: ast.TypeNode, *, generic_ok: bool = False, wildcard: bool = False) -> Type:
        """The type a type expression denotes.

        `generic_ok` lets type arguments be left out (to be inferred), `wildcard` lets it be `_`.
        """
        if isinstance(node, ast.BaseTypeNode) and node.name == "_" and node.type is None and not wildcard:
            self.error(node.pos, "'_' stands for a type only among type arguments")
        t = self._resolve(node, generic_ok)
        node.type = t
        return t

    def _resolve(self, node: ast.TypeNode, generic_ok: bool) -> Type:
        if isinstance(node, ast.BaseTypeNode):
            return self._base_type(node)
        if isinstance(node, ast.NamedTypeNode):
            return self._named_type(node, generic_ok)
        if isinstance(node, ast.StackTypeNode):
            return self._stack_type(node)
        assert isinstance(node, ast.TupleTypeNode)
        items = tuple(self.resolve(i) for i in node.items)
        if node.kind == "list":
            if len(items) != 1:
                self.error(node.pos, f"list<> takes one type, not {len(items)}")
                return ty.UNKNOWN
            return ty.ListType(items[0])
        for item, t in zip(node.items, items, strict=True):
            self.check_component(item.pos, t, "tuple")
        return ty.TupleType(items)

    def _base_type(self, node: ast.BaseTypeNode) -> Type:
        if node.width is None:
            return _SIMPLE[node.name]
        node.width, width = self.constant(node.width, f"the width of {node.name}<>")
        if width is None:
            return ty.UNKNOWN
        low = 1 if node.name == "int" else 0
        if width < low or width > MAX_WIDTH:
            self.error(node.pos, f"wrong width {width} of {node.name}<>: must be {low} to {MAX_WIDTH} bits")
            return ty.UNKNOWN
        if node.name == "varbit":
            return ty.VarbitType(width)
        return ty.BitType(width, node.name == "int")

    def _stack_type(self, node: ast.StackTypeNode) -> Type:
        element = self.resolve(node.element)
        node.size, size = self.constant(node.size, "the size of a stack")
        if size is None or isinstance(element, ty.UnknownType):
            return ty.UNKNOWN
        if size < 1 or size > MAX_STACK:
            self.error(node.size.pos, f"a stack of size {size}: must be 1 to {MAX_STACK}")
            return ty.UNKNOWN
        if isinstance(element, ty.VoidType | ty.IntType | ty.StringType | ty.ParserType | ty.ControlType):
            self.error(node.pos, f"no stack or array of {element} can be")
            return ty.UNKNOWN
        return ty.StackType(element, size)

    def _named_type(self, node: ast.NamedTypeNode, generic_ok: bool) -> Type:
        scope = self.scope.root() if node.absolute else self.scope
        found = scope.lookup(node.name)
        args = tuple(self.resolve(a, wildcard=True) for a in node.args)
        if not found:
            self.error(node.pos, f"unknown type '{node.name}'")
            return ty.UNKNOWN
        decl = found[0]
        node.decl = decl
        return self.declared_type(decl, args, node.pos, generic_ok)

    def declared_type(self, decl: ast.Declaration, args: tuple[Type, ...], pos: Pos, generic_ok: bool) -> Type:
        """The type that a declaration with these type arguments is."""
        if isinstance(decl, ast.TypeParam):
            return decl.var or ty.UNKNOWN
        if isinstance(decl, ast.TypedefDecl):
            if args:
                self.error(pos, f"type '{decl.name}' takes no type arguments")
            return decl.type or ty.UNKNOWN
        if not isinstance(
            decl,
            ast.StructDecl | ast.EnumDecl | ast.ExternDecl | ast.ParserDecl | ast.ControlDecl | ast.PackageDecl,
        ):
            self.error(pos, f"'{decl.name}' is not a type")
            return ty.UNKNOWN
        if id(decl) in self.in_progress:
            if isinstance(decl, ast.ParserDecl | ast.ControlDecl):
                self.error(pos, f"recursion: '{decl.name}' cannot instantiate itself")
            else:
                self.error(pos, f"recursive type: '{decl.name}' cannot contain itself")
            return ty.UNKNOWN
        if decl.type is None:
            return ty.UNKNOWN
        if isinstance(decl, ast.EnumDecl):
            if args:
                self.error(pos, f"type '{decl.name}' takes no type arguments")
            return decl.type
        params = decl.type_params
        if not args:
            if params and not generic_ok:
                names = ", ".join(p.name for p in params)
                self.error(pos, f"generic type '{decl.name}' needs type arguments: {decl.name}<{names}>")
                return ty.UNKNOWN
            return decl.type
        if len(args) != len(params):
            self.error(pos, f"'{decl.name}' takes {len(params)} type arguments, not {len(args)}")
            return ty.UNKNOWN
        return ty.substitute(decl.type, self.type_env(params, args))

    @staticmethod
    def type_env(params: Sequence[ast.TypeParam], args: Sequence[Type]) -> dict[ty.TypeVar, Type]:
        """Type variables of `params` to `args`."""
        return {p.var: a for p, a in zip(params, args, strict=False) if p.var is not None}

    def declare_type_params(self, params: Sequence[ast.TypeParam]) -> tuple[ty.TypeVar, ...]:
        for p in params:
            p.var = p.var or ty.TypeVar(p.name)
            self.declare(p)
        return tuple(p.var for p in params if p.var is not None)

    def check_component(self, pos: Pos, t: Type, where: str) -> None:
        """Reports a type that cannot be inside a struct, header, union or tuple (specification §7.2.8)."""
        core = ty.strip_newtypes(t)
        if isinstance(core, ty.UnknownType | ty.TypeVar):
            return
        bad = isinstance(
            core,
            ty.VoidType
            | ty.ParserType
            | ty.ControlType
            | ty.PackageType
            | ty.ExternType
            | ty.SetType
            | ty.ListType
            | ty.DontCareType,
        )
        if where == "header":
            bad = bad or isinstance(
                core,
                ty.IntType | ty.StringType | ty.ErrorType | ty.EnumType | ty.TupleType | ty.HeaderType | ty.UnionType,
            )
            if isinstance(core, ty.StructType):
                for part in core.fields.values():
                    self.check_component(pos, part, where)
            if isinstance(core, ty.StackType):
                inner = ty.strip_newtypes(core.element)
                bad = bad or isinstance(inner, ty.HeaderType | ty.UnionType)
        elif where == "header_union":
            bad = not isinstance(core, ty.HeaderType)
        if bad:
            article = "an element" if where == "tuple" else "a field"
            self.error(pos, f"{article} of a {where} cannot have type {t}")
