"""Objects of a program: controls, parsers and externs, instantiated with their names and constructor arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import lir
from p4lite.compiler.midend.arguments import bindings, unsupported
from p4lite.compiler.midend.emitter import Env
from p4lite.compiler.midend.exprs import ExpressionLowering
from p4lite.compiler.midend.lir import Const, Text
from p4lite.compiler.midend.names import control_plane_name, qualified
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.storage import data_shape
from p4lite.compiler.midend.values import Data, IntConst, Object, Value, as_const

METER_KINDS = ("packets", "bytes")
"""How a meter of v1model and of PSA counts, by the members of its enum."""


@dataclass(eq=False)
class ControlInstance:
    """A control with its constructor arguments bound in `env`.

    `site` is where it was instantiated; `passed` when it was given to a constructor, and so can be applied elsewhere.
    """

    decl: ast.ControlDecl
    path: str
    env: Env
    site: ast.Instantiation | None = None
    passed: bool = False


@dataclass(eq=False)
class ParserInstance:
    """A sub-parser."""

    decl: ast.ParserDecl
    path: str
    env: Env
    site: ast.Instantiation | None = None


@dataclass(eq=False)
class ExternInstance:
    """An extern object; `args` are its constructor arguments by parameter name, `types` its type arguments."""

    kind: str
    name: str
    args: dict[str, Value]
    types: tuple[t.Type, ...]
    node: ast.Node
    users: list[object] = field(default_factory=list)


def int_argument(instance: ExternInstance, name: str, default: int | None = None) -> int:
    """Return a constructor argument as integer."""
    value = instance.args.get(name)
    found = as_const(value) if value is not None else None
    if found is None:
        if default is not None:
            return default
        raise unsupported(instance.node.pos, f"'{instance.name}' without a constant '{name}'")
    return found


def claim(code: Places, instance: ExternInstance) -> None:
    """Take the name of an object that the control plane sees; those of one kind share their names."""
    kind = code.architecture.kind(instance.kind)
    if kind is not None:
        shared = kind.removeprefix("direct_").replace("_selector", "_profile").replace("_", " ")
        code.claims.claim(shared, instance.name, instance, instance.node.pos)


def add_register(code: Places, instance: ExternInstance, initial: int = 0) -> None:
    """Put a register into the output."""
    shape = data_shape(instance.types[0])
    if shape is None:
        raise unsupported(instance.node.pos, f"a register of type {instance.types[0]}")
    size = int_argument(instance, "size")
    if size == 0:
        raise unsupported(instance.node.pos, "a register of size 0")
    code.out.registers.append(lir.LoweredRegister(instance.name, size, shape[0], code.loc(instance.node), initial))


def add_own(code: Places, instance: ExternInstance) -> None:
    """Put an extern of the program's own into the output, for targets that have it."""
    code.claims.claim("extern", instance.name, instance, instance.node.pos)
    if instance.types:
        raise unsupported(instance.node.pos, f"extern '{instance.kind}' with type arguments")
    args: list[tuple[str, Const | Text]] = []
    for name, value in instance.args.items():
        number = as_const(value)
        if number is None or not isinstance(value, Data):
            raise unsupported(instance.node.pos, f"an argument '{name}' that is not a constant of type bit or int")
        args.append((name, Const(number, value.width)))
    code.out.externs.append(lir.ExternObject(instance.name, instance.kind, args, code.loc(instance.node)))


class Instances:
    """Makes instances when their declarations are reached; `declare` puts an extern object into the output."""

    def __init__(
        self,
        code: Places,
        exprs: ExpressionLowering,
        site_counts: dict[ast.Node, int],
        declare: Callable[[ExternInstance], None],
    ) -> None:
        self.code = code
        self.exprs = exprs
        self.site_counts = site_counts
        self.declare = declare

    def instance(self, decl: ast.Instantiation) -> Object:
        """Return the instance of a declaration in the current environment."""
        home = self.code.home(decl)
        known = home.own(decl)
        if known is not None:
            assert isinstance(known, Object)
            return known
        call = decl.call
        if call is None:
            raise unsupported(decl.pos, f"the instance '{decl.name}'")
        made = self.construct(call, control_plane_name(decl), decl, home)
        home.bind(decl, made)
        return made

    def construct(
        self, call: ast.Call, name: str, site: ast.Instantiation | None, home: Env, *, absolute: bool = False
    ) -> Object:
        """Return a new instance from a constructor call; `name` is relative to the environment's path."""
        path = name if absolute else qualified(home.path, name)
        args: dict[str, Value] = {}
        bound: list[tuple[ast.Param, Value]] = []
        saved = self.code.env
        self.code.env = home
        for param, expr, _ in bindings(call.args):
            if expr is None:
                continue
            value = self._constructor_argument(param, expr)
            args[param.name] = value
            bound.append((param, value))
        self.code.env = saved
        if site is not None and site.body:
            raise unsupported(site.pos, f"the instance '{site.name}' with methods of its own")
        target = call.target
        if isinstance(target, (ast.Method, ast.ExternDecl)):
            ty = call.type
            kind = ty.name if isinstance(ty, t.Nominal) else target.name
            types = ty.args if isinstance(ty, t.Nominal) else ()
            instance = ExternInstance(kind, path, args, types, site or call)
            self.declare(instance)
            return Object(instance)
        if isinstance(target, (ast.ControlDecl, ast.ParserDecl)):
            env = Env(self.code.globals, path)
            for param, value in bound:
                env.bind(param, value)
            self.code.claims.instance(path, site.pos if site is not None else call.pos)
            if isinstance(target, ast.ControlDecl):
                return Object(ControlInstance(target, path, env, site))
            return Object(ParserInstance(target, path, env, site))
        raise unsupported(call.pos, f"the construction of '{path}'")

    def _constructor_argument(self, param: ast.Param, expr: ast.Expr) -> Value:
        if isinstance(expr, ast.Call) and expr.kind is ast.CallKind.CONSTRUCTOR:
            return self.construct(expr, param.name, None, self.code.env)
        value = self.exprs.eval(expr)
        if isinstance(value, Object) and isinstance(value.what, ControlInstance):
            value.what.passed = True
        if isinstance(value, IntConst) and param.type is not None:
            return self.exprs.cast(value, param.type, expr.pos)
        if isinstance(value, Data) and as_const(value) is None:
            raise unsupported(expr.pos, f"a constructor argument for '{param.name}' that is not constant")
        return value

    def apply_sites(self, site: ast.Instantiation | None) -> int:
        """Return how many apply calls of an instance the program has."""
        return self.site_counts.get(site, 1) if site is not None else 1


def count_apply_sites(root: ast.Node) -> dict[ast.Node, int]:
    """Count the apply calls of sub-controls, by the declaration of the instance."""
    counts: dict[ast.Node, int] = {}
    for node in ast.walk(root):
        if (
            isinstance(node, ast.Call)
            and node.kind is ast.CallKind.CONTROL_APPLY
            and isinstance(node.receiver, ast.Name)
            and node.receiver.decl is not None
        ):
            counts[node.receiver.decl] = counts.get(node.receiver.decl, 0) + 1
    return counts
