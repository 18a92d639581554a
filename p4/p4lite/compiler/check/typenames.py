"""Types as written → types, and the rules for the objects of core.p4."""

from __future__ import annotations

from collections.abc import Sequence

from p4lite.compiler import ast
from p4lite.compiler import types as ty
from p4lite.compiler.check.scope import Evaluates, Run, closest
from p4lite.compiler.lexer import MAX_WIDTH
from p4lite.compiler.parser import type_hint
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


_TYPES: tuple[type[ast.Declaration], ...] = (ast.TypeParam, ast.TypedefDecl, ast.StructDecl, ast.EnumDecl)
_TYPES += (ast.ExternDecl, ast.ParserDecl, ast.ControlDecl, ast.PackageDecl)


def type_env(params: Sequence[ast.TypeParam], args: Sequence[Type]) -> dict[ty.TypeVar, Type]:
    """Return type variables of `params` to `args`."""
    return {p.var: a for p, a in zip(params, args, strict=False) if p.var is not None}


class TypeNames:
    """`resolve` gives the type that a type expression denotes."""

    def __init__(self, run: Run, exprs: Evaluates) -> None:
        self.run = run
        self.exprs = exprs

    def resolve(self, node: ast.TypeNode, *, generic_ok: bool = False, wildcard: bool = False) -> Type:
        """Return the type that a type expression denotes.

        `generic_ok` lets type arguments be left out (to be inferred), `wildcard` lets it be `_`.
        """
        if isinstance(node, ast.BaseTypeNode) and node.name == "_" and node.type is None and not wildcard:
            self.run.error(node.pos, "'_' stands for a type only among type arguments")
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
                self.run.error(node.pos, f"list<> takes one type, not {len(items)}")
                return ty.UNKNOWN
            return ty.ListType(items[0])
        for item, t in zip(node.items, items, strict=True):
            self.check_component(item.pos, t, "tuple")
        return ty.TupleType(items)

    def _base_type(self, node: ast.BaseTypeNode) -> Type:
        if node.width is None:
            return _SIMPLE[node.name]
        node.width, width = self.exprs.constant(node.width, f"the width of {node.name}<>")
        if width is None:
            return ty.UNKNOWN
        low = 1 if node.name == "int" else 0
        if width < low or width > MAX_WIDTH:
            self.run.error(node.pos, f"wrong width {width} of {node.name}<>: must be {low} to {MAX_WIDTH} bits")
            return ty.UNKNOWN
        if node.name == "varbit":
            return ty.VarbitType(width)
        return ty.BitType(width, node.name == "int")

    def _stack_type(self, node: ast.StackTypeNode) -> Type:
        element = self.resolve(node.element)
        node.size, size = self.exprs.constant(node.size, "the size of a stack")
        if size is None or isinstance(element, ty.UnknownType):
            return ty.UNKNOWN
        if size < 1 or size > MAX_STACK:
            self.run.error(node.size.pos, f"a stack of size {size}: must be 1 to {MAX_STACK}")
            return ty.UNKNOWN
        if isinstance(element, ty.VoidType | ty.IntType | ty.StringType | ty.ParserType | ty.ControlType):
            self.run.error(node.pos, f"no stack or array of {element} can be")
            return ty.UNKNOWN
        return ty.StackType(element, size)

    def _named_type(self, node: ast.NamedTypeNode, generic_ok: bool) -> Type:
        scope = self.run.scope.root() if node.absolute else self.run.scope
        found = scope.lookup(node.name)
        args = tuple(self.resolve(a, wildcard=True) for a in node.args)
        if not found:
            near = type_hint(node.name) or closest(node.name, scope.all_names(_TYPES))
            self.run.error(node.pos, f"unknown type '{node.name}'{near}")
            return ty.UNKNOWN
        decl = found[0]
        node.decl = decl
        return self.declared_type(decl, args, node.pos, generic_ok)

    def declared_type(self, decl: ast.Declaration, args: tuple[Type, ...], pos: Pos, generic_ok: bool) -> Type:
        """Return the type that a declaration with these type arguments is."""
        if isinstance(decl, ast.TypeParam):
            return decl.var or ty.UNKNOWN
        if isinstance(decl, ast.TypedefDecl):
            if args:
                self.run.error(pos, f"type '{decl.name}' takes no type arguments")
            return decl.type or ty.UNKNOWN
        if not isinstance(
            decl,
            ast.StructDecl | ast.EnumDecl | ast.ExternDecl | ast.ParserDecl | ast.ControlDecl | ast.PackageDecl,
        ):
            self.run.error(pos, f"'{decl.name}' is not a type")
            return ty.UNKNOWN
        if id(decl) in self.run.in_progress:
            if isinstance(decl, ast.ParserDecl | ast.ControlDecl):
                self.run.error(pos, f"recursion: '{decl.name}' cannot instantiate itself")
            else:
                self.run.error(pos, f"recursive type: '{decl.name}' cannot contain itself")
            return ty.UNKNOWN
        if decl.type is None:
            return ty.UNKNOWN
        if isinstance(decl, ast.EnumDecl):
            if args:
                self.run.error(pos, f"type '{decl.name}' takes no type arguments")
            return decl.type
        params = decl.type_params
        if not args:
            if params and not generic_ok:
                names = ", ".join(p.name for p in params)
                self.run.error(pos, f"generic type '{decl.name}' needs type arguments: {decl.name}<{names}>")
                return ty.UNKNOWN
            return decl.type
        if len(args) != len(params):
            self.run.error(pos, f"'{decl.name}' takes {len(params)} type arguments, not {len(args)}")
            return ty.UNKNOWN
        return ty.substitute(decl.type, type_env(params, args))

    def declare_type_params(self, params: Sequence[ast.TypeParam]) -> tuple[ty.TypeVar, ...]:
        for p in params:
            p.var = p.var or ty.TypeVar(p.name)
            self.run.declare(p)
        return tuple(p.var for p in params if p.var is not None)

    def check_component(self, pos: Pos, t: Type, where: str) -> None:
        """Report a type that cannot be inside a struct, header, union or tuple (specification §7.2.8)."""
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
            self.run.error(pos, f"{article} of a {where} cannot have type {t}")


def varbits(t: Type) -> int:
    """Return the number of varbit fields of a header."""
    if not isinstance(t, ty.FieldsType):
        return 0
    return sum(isinstance(ty.strip_newtypes(f), ty.VarbitType) for f in t.fields.values())


def emittable(t: Type) -> bool:
    """Return whether a deparser can emit a `t`: headers, unions, stacks, structs of these."""
    t = ty.strip_newtypes(t)
    if isinstance(t, ty.HeaderType | ty.UnionType | ty.TypeVar | ty.UnknownType):
        return True
    if isinstance(t, ty.StackType):
        return emittable(t.element)
    if isinstance(t, ty.StructType):
        return all(emittable(f) for f in t.fields.values())
    if isinstance(t, ty.TupleType):
        return all(emittable(f) for f in t.items)
    return False


def check_extern_method(run: Run, call: ast.Call, extern: str) -> None:
    """Check the type that `packet_in.extract`, `packet_in.lookahead` or `packet_out.emit` gets."""
    if extern == "packet_out" and call.method == "emit":
        arg = call.args[0].expr
        if arg is not None and arg.type is not None and not emittable(arg.type):
            run.error(arg.pos, f"only headers can be emitted, not a {arg.type}")
    elif extern == "packet_in" and call.method == "extract":
        _extract(run, call)
    elif extern == "packet_in" and call.method == "lookahead":
        t = call.types[0] if call.types else ty.UNKNOWN
        if not isinstance(t, ty.TypeVar | ty.UnknownType) and (
            ty.max_width_bits(t) is None or ty.min_width_bits(t) != ty.max_width_bits(t)
        ):
            run.error(call.pos, f"lookahead needs a type of fixed width, not {t}")


def _extract(run: Run, call: ast.Call) -> None:
    arg = call.args[0].expr
    if arg is None or arg.type is None:
        return
    t = ty.strip_newtypes(arg.type)
    if isinstance(t, ty.UnknownType | ty.TypeVar | ty.DontCareType):
        return
    if not isinstance(t, ty.HeaderType):
        run.error(arg.pos, f"only a header can be extracted, not a {arg.type}")
    elif len(call.args) == 1 and varbits(t):
        run.error(arg.pos, f"{t} has a varbit field: extract it with its length, extract(hdr, bits)")
    elif len(call.args) == 2 and varbits(t) != 1:
        run.error(arg.pos, f"extract with a length needs a header with one varbit field; {t} has {varbits(t)}")


def needs_name(e: ast.Expr) -> bool:
    """Return whether a table key is too complex to be named after its text, and so needs @name."""
    if isinstance(e, ast.Name | ast.IntLiteral | ast.BoolLiteral):
        return False
    if isinstance(e, ast.Member):
        return needs_name(e.expr)
    if isinstance(e, ast.Index):
        return needs_name(e.expr) or e.index.const is None
    if isinstance(e, ast.Slice):
        return needs_name(e.expr)
    if isinstance(e, ast.Cast):
        return not e.implicit or needs_name(e.expr)
    if isinstance(e, ast.Binary) and e.op == "&":
        return needs_name(e.left) or needs_name(e.right)
    if isinstance(e, ast.Call) and e.method == "isValid" and e.receiver is not None:
        return needs_name(e.receiver)
    return True


def prefix_mask(mask: int, width: int) -> bool:
    """Return whether the ones of a mask are its highest bits, as a longest-prefix match needs."""
    low = ~mask & ((1 << width) - 1)
    return low & (low + 1) == 0
