"""Implicit conversions (language specification §8.11.2) and the inference of type arguments."""

from __future__ import annotations

from p4lite.compiler import ast, constfold
from p4lite.compiler import types as ty
from p4lite.compiler.check import advice
from p4lite.compiler.check.scope import Run
from p4lite.compiler.check.typenames import type_env
from p4lite.compiler.types import Type


def show(t: Type | None) -> str:
    """Return a type for a message."""
    return "unknown" if t is None else str(t)


def const_literal(value: ast.Value | None, e: ast.Expr, t: Type) -> ast.Expr:
    """Return a literal of type `t` in place of the constant expression `e`."""
    assert isinstance(value, int)
    if isinstance(t, ty.BoolType):
        return ast.BoolLiteral(e.pos, bool(value), type=t, const=bool(value))
    bits = ty.underlying_bits(t)
    width, signed = (bits.width, bits.signed) if bits is not None else (None, False)
    text = e.text if isinstance(e, ast.IntLiteral) else str(value)
    return ast.IntLiteral(e.pos, value, width, signed, text, type=t, const=value)


def fields_of(t: Type) -> dict[str, Type] | None:
    """Return the fields that `{...}` can fill, None if `t` has none."""
    if isinstance(t, ty.StructType | ty.HeaderType):
        return dict(t.fields)
    return None


def is_or_holds_int(t: Type) -> bool:
    """Return whether `t` is `int` or has a component of that type: no run-time value can be of it."""
    if isinstance(t, ty.IntType):
        return True
    if isinstance(t, ty.TupleType):
        return any(is_or_holds_int(i) for i in t.items)
    if isinstance(t, ty.AnonStructType | ty.FieldsType):
        return any(is_or_holds_int(i) for i in t.fields.values())
    if isinstance(t, ty.StackType | ty.ListType):
        return is_or_holds_int(t.element)
    return False


def is_newtype_of_bits(t: Type) -> bool:
    """Return whether `t` is a `type` of a bit<> or int<>."""
    return isinstance(t, ty.NewType) and isinstance(ty.strip_newtypes(t), ty.BitType)


class Coercion:
    """Conversion of checked expressions to the type that their context requires."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.uncast: set[Type] = set()
        """`type`s to which a number was converted without a cast: one warning for each."""

    def coerce(self, e: ast.Expr, target: Type, what: str = "") -> ast.Expr:
        """Return `e` as an expression of type `target`; report it if it cannot be converted."""
        source = e.type
        if source is None or source == target:
            return e
        if isinstance(source, ty.UnknownType) or isinstance(target, ty.UnknownType | ty.DontCareType):
            return e
        if isinstance(e, ast.DefaultExpr):
            return self.default_value(target, e)
        if isinstance(source, ty.DontCareType):
            return e
        new = self._convert(e, source, target)
        if new is not None:
            return new
        self.run.error(
            e.pos,
            f"{what + ': ' if what else ''}cannot convert {show(source)} to {show(target)}"
            f"{_hint(source, target) or advice.text(e)}",
        )
        return self._typed(e, ty.UNKNOWN)

    @staticmethod
    def _typed(e: ast.Expr, t: Type) -> ast.Expr:
        return ast.Cast(e.pos, None, e, True, type=t)

    def _convert(self, e: ast.Expr, source: Type, target: Type) -> ast.Expr | None:
        if isinstance(e, ast.ConditionalExpr) and isinstance(source, ty.IntType | ty.TupleType | ty.AnonStructType):
            e.then, e.other = self.coerce(e.then, target), self.coerce(e.other, target)
            e.type = target
            e.const = constfold.evaluate(e.then if e.cond.const else e.other) if e.cond.const is not None else None
            return e
        if isinstance(e, ast.InvalidExpr):
            if isinstance(target, ty.HeaderType | ty.UnionType):
                e.type = target
                return e
            return None
        if isinstance(e, ast.ListExpr):
            return self._convert_list(e, target)
        if isinstance(e, ast.StructExpr):
            return self._convert_struct(e, target)
        if isinstance(source, ty.IntType) and isinstance(target, ty.BitType):
            return self._convert_int(e, target)
        if isinstance(source, ty.IntType) and is_newtype_of_bits(target):
            return self.convert_to_newtype(e, target)
        if isinstance(source, ty.SerEnumType) and (target == source.base or isinstance(target, ty.IntType)):
            cast = ast.Cast(e.pos, None, e, True, type=target)
            cast.const = e.const
            return cast
        if isinstance(source, ty.BitType) and isinstance(target, ty.IntType) and isinstance(e.const, int):
            return const_literal(e.const, e, target)
        if isinstance(source, ty.Nominal) and isinstance(target, ty.Nominal) and source.decl is target.decl:
            # `_` among the type arguments of a parameter takes any type.
            pairs = zip(source.args, target.args, strict=False)
            if all(a == b or isinstance(b, ty.DontCareType) for a, b in pairs):
                return e
        return None

    def _convert_int(self, e: ast.Expr, target: ty.BitType) -> ast.Expr:
        value = e.const
        if not isinstance(value, int):
            return ast.Cast(e.pos, None, e, True, type=target)
        # A negative number for bit<W> is commonly intended; a number that does not fit never is.
        if not constfold.in_range(value, target) and not constfold.in_range(value, ty.BitType(target.width, True)):
            self.run.warn(e.pos, f"value {value} does not fit in {target}: becomes {constfold.wrap(value, target)}")
        elif value < 0 and not target.signed:
            self.run.warn(e.pos, f"negative value {value} for {target}: becomes {constfold.wrap(value, target)}")
        elif target.signed and not constfold.in_range(value, target):
            self.run.warn(e.pos, f"value {value} does not fit in {target}: becomes {constfold.wrap(value, target)}")
        return const_literal(constfold.wrap(value, target), e, target)

    def convert_to_newtype(self, e: ast.Expr, target: Type) -> ast.Expr:
        """Convert a number without width to a `type` of a bit<> or int<>, and warn: p4c does so, the specification
        requires a cast."""
        if target not in self.uncast:
            self.uncast.add(target)
            self.run.warn(
                e.pos,
                f"a number becomes a {target}, as p4c does it; the specification (§7.6) wants ({target}) before it",
            )
        base = ty.strip_newtypes(target)
        assert isinstance(base, ty.BitType)
        new = self._convert_int(e, base)
        new.type = target
        return new

    def _convert_list(self, e: ast.ListExpr, target: Type) -> ast.Expr | None:
        fields = fields_of(target)
        if fields is not None:
            if not self._check_count(e, len(e.items), len(fields), e.ellipsis, str(target)):
                return self._typed(e, ty.UNKNOWN)
            named = [
                ast.NamedExpr(i.pos, n, self.coerce(i, t)) for i, (n, t) in zip(e.items, fields.items(), strict=False)
            ]
            rest = list(fields.items())[len(named) :]
            named += [ast.NamedExpr(e.pos, n, self.default_value(t, e)) for n, t in rest]
            return self._struct(e, named, target)
        if isinstance(target, ty.TupleType):
            if not self._check_count(e, len(e.items), len(target.items), e.ellipsis, str(target)):
                return self._typed(e, ty.UNKNOWN)
            items = [self.coerce(i, t) for i, t in zip(e.items, target.items, strict=False)]
            items += [self.default_value(t, e) for t in target.items[len(items) :]]
        elif isinstance(target, ty.ListType):
            items = [self.coerce(i, target.element) for i in e.items]
        elif isinstance(target, ty.StackType):
            if not self._check_count(e, len(e.items), target.size, e.ellipsis, str(target)):
                return self._typed(e, ty.UNKNOWN)
            items = [self.coerce(i, target.element) for i in e.items]
            items += [self.default_value(target.element, e) for _ in range(target.size - len(items))]
        else:
            return None
        e.items, e.ellipsis, e.type = items, False, target
        e.const = constfold.list_value([i.const for i in items])
        return e

    def _check_count(self, e: ast.Expr, given: int, wanted: int, ellipsis: bool, target: str) -> bool:
        if given > wanted or (given < wanted and not ellipsis):
            self.run.error(e.pos, f"{given} values for the {wanted} of {target}")
            return False
        return True

    def _convert_struct(self, e: ast.StructExpr, target: Type) -> ast.Expr | None:
        fields = fields_of(target)
        if fields is None:
            return None
        given: dict[str, ast.NamedExpr] = {}
        for f in e.fields:
            if f.name not in fields:
                self.run.error(f.pos, f"{target} has no field '{f.name}'")
            elif f.name in given:
                self.run.error(f.pos, f"field '{f.name}' is given twice")
            else:
                given[f.name] = ast.NamedExpr(f.pos, f.name, self.coerce(f.expr, fields[f.name]))
        missing = [n for n in fields if n not in given]
        if missing and not e.ellipsis:
            self.run.error(
                e.pos,
                f"no value for field {', '.join(repr(m) for m in missing)} of {target} (end with ... for defaults)",
            )
            return self._typed(e, ty.UNKNOWN)
        for n in missing:
            given[n] = ast.NamedExpr(e.pos, n, self.default_value(fields[n], e))
        # In the order of the source, which is that of evaluation.
        return self._struct(e, list(given.values()), target)

    @staticmethod
    def _struct(e: ast.Expr, named: list[ast.NamedExpr], target: Type) -> ast.StructExpr:
        values = {f.name: f.expr.const for f in named}
        const = constfold.struct_value({n: values[n] for n in fields_of(target) or values})
        return ast.StructExpr(e.pos, named, type=target, const=const)

    def default_value(self, t: Type, e: ast.Expr) -> ast.Expr:
        """Return the default value of a type (specification §7.3), at the place of `e`."""
        core = ty.strip_newtypes(t)
        if isinstance(core, ty.BitType | ty.IntType | ty.BoolType | ty.SerEnumType):
            return const_literal(0, e, t)
        if isinstance(core, ty.StringType):
            return ast.StringLiteral(e.pos, "", type=t, const="")
        if isinstance(core, ty.ErrorType):
            node = ast.TypeExpr(e.pos, ast.BaseTypeNode(e.pos, "error", type=t), type=ty.TypeType(t))
            return ast.Member(e.pos, node, "NoError", type=t, const=ast.ErrorValue("NoError"))
        if isinstance(core, ty.EnumType) and core.members:
            name = ast.NamedTypeNode(e.pos, core.name, type=core, decl=ast.declaration_of(core))
            node = ast.TypeExpr(e.pos, name, type=ty.TypeType(core))
            value = ast.EnumValue(core.name, core.members[0])
            return ast.Member(e.pos, node, core.members[0], type=t, const=value)
        if isinstance(core, ty.HeaderType | ty.UnionType):
            return ast.InvalidExpr(e.pos, type=t)
        if isinstance(core, ty.StructType):
            named = [ast.NamedExpr(e.pos, n, self.default_value(f, e)) for n, f in core.fields.items()]
            return self._struct(e, named, t)
        if isinstance(core, ty.TupleType | ty.StackType):
            parts = core.items if isinstance(core, ty.TupleType) else (core.element,) * core.size
            items = [self.default_value(p, e) for p in parts]
            return ast.ListExpr(e.pos, items, type=t, const=constfold.list_value([i.const for i in items]))
        self.run.error(e.pos, f"type {t} has no default value")
        return self._typed(e, ty.UNKNOWN)

    # -- inference

    def unify(self, formal: Type, actual: Type, env: dict[ty.TypeVar, Type]) -> bool:  # noqa: C901 - a branch per kind of type
        """Find type variables (keys of `env`, UNKNOWN while open) so that `formal` takes an `actual`; return whether it
        does."""
        if isinstance(actual, ty.UnknownType | ty.DontCareType) or isinstance(formal, ty.DontCareType):
            return True
        if isinstance(formal, ty.TypeVar) and formal in env:
            known = env[formal]
            if isinstance(known, ty.UnknownType) or (isinstance(known, ty.IntType) and actual != known):
                env[formal] = actual
                return True
            if isinstance(actual, ty.IntType):
                return isinstance(known, ty.IntType | ty.BitType | ty.SerEnumType) or is_newtype_of_bits(known)
            if known == actual:
                return True
            return self._same_shape(known, actual)
        if isinstance(formal, ty.TupleType) and isinstance(actual, ty.TupleType):
            return len(formal.items) == len(actual.items) and all(
                self.unify(f, a, env) for f, a in zip(formal.items, actual.items, strict=True)
            )
        if isinstance(formal, ty.ListType):
            if isinstance(actual, ty.ListType):
                return self.unify(formal.element, actual.element, env)
            if isinstance(actual, ty.TupleType):
                return all(self.unify(formal.element, a, env) for a in actual.items)
            return False
        if isinstance(formal, ty.StackType) and isinstance(actual, ty.StackType):
            return formal.size == actual.size and self.unify(formal.element, actual.element, env)
        if isinstance(formal, ty.SetType) and isinstance(actual, ty.SetType):
            return self.unify(formal.element, actual.element, env)
        if isinstance(formal, ty.FieldsType) and isinstance(actual, ty.TupleType | ty.AnonStructType):
            items = actual.items if isinstance(actual, ty.TupleType) else tuple(t for _, t in actual.items)
            return len(items) == len(formal.fields) and all(
                self.unify(f, a, env) for f, a in zip(formal.fields.values(), items, strict=True)
            )
        if isinstance(formal, ty.ParserType | ty.ControlType) and type(actual) is type(formal):
            if formal.decl is actual.decl:
                return self._unify_args(formal, actual, env)
            return self._unify_block(formal, actual, env)
        if isinstance(formal, ty.Nominal) and isinstance(actual, ty.Nominal) and formal.decl is actual.decl:
            return self._unify_args(formal, actual, env)
        if formal == actual:
            return True
        # Left to coerce(), which reports what cannot be.
        return self._same_shape(formal, actual)

    def _unify_args(self, formal: ty.Nominal, actual: ty.Nominal, env: dict[ty.TypeVar, Type]) -> bool:
        return len(formal.args) == len(actual.args) and all(
            self.unify(f, a, env) for f, a in zip(formal.args, actual.args, strict=True)
        )

    @staticmethod
    def _same_shape(formal: Type, actual: Type) -> bool:
        if isinstance(actual, ty.IntType):
            return isinstance(formal, ty.BitType | ty.IntType) or is_newtype_of_bits(formal)
        if isinstance(actual, ty.SerEnumType):
            return formal == actual.base
        if isinstance(actual, ty.TupleType | ty.AnonStructType):
            return isinstance(formal, ty.FieldsType | ty.TupleType | ty.ListType | ty.StackType)
        return formal == actual

    def _unify_block(self, formal: ty.Nominal, actual: ty.Nominal, env: dict[ty.TypeVar, Type]) -> bool:
        """Return whether a parser or control fits a parameter of a parser or control type: the apply parameters must
        agree."""
        f, a = formal.decl, actual.decl
        if not isinstance(f, ast.ParserDecl | ast.ControlDecl) or not isinstance(a, ast.ParserDecl | ast.ControlDecl):
            return False
        if len(f.params) != len(a.params):
            return False
        f_env = type_env(f.type_params, formal.args)
        a_env = type_env(a.type_params, actual.args)
        for fp, ap in zip(f.params, a.params, strict=True):
            if fp.direction != ap.direction or fp.type is None or ap.type is None:
                return False
            if not self.unify(ty.substitute(fp.type, f_env), ty.substitute(ap.type, a_env), env):
                return False
        return True


def _hint(source: Type, target: Type) -> str:
    a, b = ty.underlying_bits(source), ty.underlying_bits(target)
    if isinstance(target, ty.NewType) and isinstance(source, ty.IntType):
        return f"; cast with ({target})"
    if (a is not None and b is not None) or {type(source), type(target)} == {ty.BoolType, ty.BitType}:
        return f"; cast with ({target})"
    return ""
