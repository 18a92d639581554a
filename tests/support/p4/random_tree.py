"""The tree of a random program: text with parts that can be left out or replaced, which is what shrinking works on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from support.p4.control_plane import ControlItem


@dataclass
class Node:
    """A piece of a program. `type` is that of an expression, as P4 writes it, "" for all else."""

    parts: list[Part]
    type: str = ""

    def text(self) -> str:
        return "".join(p if isinstance(p, str) else p.text() for p in self.parts)


@dataclass
class Items:
    """A list of nodes of which each can be left out: statements, declarations, entries, cases."""

    nodes: list[Node]
    between: str = "\n"

    def text(self) -> str:
        return self.between.join(n.text() for n in self.nodes)


Part: TypeAlias = str | Node | Items


@dataclass
class Tree:
    """A program, and what the control plane (`entries`) and the network do to it."""

    root: Node
    entries: list[ControlItem] = field(default_factory=list)
    packets: list[tuple[int, bytes]] = field(default_factory=list)


def nodes(root: Node) -> Iterator[Node]:
    """Yield a node and all nodes in it, outer ones first."""
    yield root
    for part in root.parts:
        for inner in part.nodes if isinstance(part, Items) else [part] if isinstance(part, Node) else []:
            yield from nodes(inner)


def literal(type_: str) -> str:
    """Return a constant of a type."""
    if type_ == "bool":
        return "false"
    if type_.startswith(("bit<", "int<")):
        return f"{type_[4:-1]}{'w' if type_[0] == 'b' else 's'}0"
    return {"E": "E.A", "SE": "SE.ONE", "inner_t": "(inner_t){n = 0, f = false, e = E.A}"}[type_]
