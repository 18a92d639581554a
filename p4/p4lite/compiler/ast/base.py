"""Common base of the nodes of the syntax tree: positions, traversal, copying."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from p4lite.compiler.position import Pos

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
