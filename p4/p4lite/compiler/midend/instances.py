"""Instances of externs, parsers and controls, with their control-plane names and constructor arguments."""

from __future__ import annotations

from dataclasses import dataclass, field

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend.base import Env, as_const, bindings
from p4lite.compiler.midend.exprs import Expressions
from p4lite.compiler.midend.names import control_plane_name, qualified
from p4lite.compiler.midend.report import unsupported
from p4lite.compiler.midend.values import Data, IntConst, Object, TextConst, Value


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


class Instances(Expressions):
    """Makes instances when their declarations are reached."""

    globals: Env

    def extern_created(self, instance: ExternInstance) -> None:
        raise NotImplementedError

    def instance(self, decl: ast.Instantiation) -> Object:
        """The instance of a declaration in the current environment."""
        home = self._declaring_env(decl)
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

    def _declaring_env(self, decl: ast.Declaration) -> Env:
        env: Env | None = self.env
        while env is not None:
            if decl in env.declared:
                return env
            env = env.parent
        return self.globals

    def construct(
        self, call: ast.Call, name: str, site: ast.Instantiation | None, home: Env, *, absolute: bool = False
    ) -> Object:
        """A new instance from a constructor call; `name` is relative to the environment's path."""
        path = name if absolute else qualified(home.path, name)
        args: dict[str, Value] = {}
        bound: list[tuple[ast.Param, Value]] = []
        saved = self.env
        self.env = home
        for param, expr, _ in bindings(call.args):
            if expr is None:
                continue
            value = self._constructor_argument(param, expr)
            args[param.name] = value
            bound.append((param, value))
        self.env = saved
        if site is not None and site.body:
            raise unsupported(site.pos, f"the instance '{site.name}' with methods of its own")
        target = call.target
        if isinstance(target, (ast.Method, ast.ExternDecl)):
            ty = call.type
            kind = ty.name if isinstance(ty, t.Nominal) else target.name
            types = ty.args if isinstance(ty, t.Nominal) else ()
            instance = ExternInstance(kind, path, args, types, site or call)
            self.extern_created(instance)
            return Object(instance)
        if isinstance(target, (ast.ControlDecl, ast.ParserDecl)):
            env = Env(self.globals, path)
            for param, value in bound:
                env.bind(param, value)
            self.claims.instance(path, site.pos if site is not None else call.pos)
            if isinstance(target, ast.ControlDecl):
                return Object(ControlInstance(target, path, env, site))
            return Object(ParserInstance(target, path, env, site))
        raise unsupported(call.pos, f"the construction of '{path}'")

    def _constructor_argument(self, param: ast.Param, expr: ast.Expr) -> Value:
        if isinstance(expr, ast.Call) and expr.kind is ast.CallKind.CONSTRUCTOR:
            return self.construct(expr, param.name, None, self.env)
        value = self.eval(expr)
        if isinstance(value, Object) and isinstance(value.what, ControlInstance):
            value.what.passed = True
        if isinstance(value, IntConst) and param.type is not None:
            return self.cast(value, param.type, expr.pos)
        if isinstance(value, Data) and as_const(value) is None:
            raise unsupported(expr.pos, f"a constructor argument for '{param.name}' that is not constant")
        return value

    def apply_sites(self, site: ast.Instantiation | None) -> int:
        """How many apply calls of an instance the program has."""
        return self.site_counts.get(site, 1) if site is not None else 1

    site_counts: dict[ast.Node, int]


def count_apply_sites(root: ast.Node) -> dict[ast.Node, int]:
    """Apply calls of sub-controls, by the declaration of the instance."""
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


def int_argument(instance: ExternInstance, name: str, default: int | None = None) -> int:
    """A constructor argument as integer."""
    value = instance.args.get(name)
    found = as_const(value) if value is not None else None
    if found is None:
        if default is not None:
            return default
        raise unsupported(instance.node.pos, f"'{instance.name}' without a constant '{name}'")
    return found


__all__ = ["ControlInstance", "ExternInstance", "Instances", "ParserInstance", "TextConst", "int_argument"]
