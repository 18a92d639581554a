"""Objects of a program: controls, parsers and externs, instantiated."""

from __future__ import annotations

from dataclasses import dataclass, field

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import lir
from p4lite.compiler.midend.emitter import Env
from p4lite.compiler.midend.lir import Const, Text
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.report import unsupported
from p4lite.compiler.midend.storage import data_shape
from p4lite.compiler.midend.values import Data, Value, as_const

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
