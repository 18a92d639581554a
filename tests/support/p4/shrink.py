"""Reduces a failing random program: delta debugging over its tree, its entries and its packets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from support.p4.random_tree import Items, Node, Part, Tree, literal, nodes

T = TypeVar("T")
MAX_TRIES = 3000


class Shrinker:
    """`shrink` changes a tree in place as long as it still fails."""

    def __init__(self, tree: Tree, fails: Callable[[Tree], bool]) -> None:
        self.tree = tree
        self._fails = fails
        self.tries = 0

    def fails(self) -> bool:
        """Return whether the tree still fails; no more tries after `MAX_TRIES`."""
        self.tries += 1
        return self.tries <= MAX_TRIES and self._fails(self.tree)

    def shrink(self) -> None:
        """Reduce until no part can be left out or replaced."""
        while True:
            before = len(self.tree.root.text()), len(self.tree.packets), len(self.tree.entries)
            self.lists(self.tree.packets)
            self.lists(self.tree.entries)
            self.items()
            self.hoist()
            self.expressions()
            after = len(self.tree.root.text()), len(self.tree.packets), len(self.tree.entries)
            if before == after or self.tries > MAX_TRIES:
                return

    def lists(self, items: list[T]) -> None:
        """Leave out parts of a list, first halves, then quarters, down to single items."""
        size = len(items)
        while size > 0:
            at = 0
            while at < len(items):
                removed = items[at : at + size]
                del items[at : at + size]
                if not self.fails():
                    items[at:at] = removed
                    at += size
            size //= 2

    def items(self) -> None:
        """Leave out statements, declarations, cases."""
        for found in _lists_of(self.tree.root):
            self.lists(found.nodes)

    def hoist(self) -> None:
        """Put the statements of a block in place of what is around the block."""
        for found in _lists_of(self.tree.root):
            for at in range(len(found.nodes) - 1, -1, -1):
                whole = found.nodes[at]
                for part in whole.parts:
                    if isinstance(part, Items):
                        found.nodes[at : at + 1] = part.nodes
                        if self.fails():
                            break
                        found.nodes[at : at + len(part.nodes)] = [whole]

    def expressions(self) -> None:
        """Replace expressions by constants, or by a part of the same type."""
        for node in list(nodes(self.tree.root)):
            if not node.type or node.parts == [literal(node.type)]:
                continue
            before = node.parts
            inner = [n.parts for n in nodes(node) if n is not node and n.type == node.type]
            choices: list[list[Part]] = [[literal(node.type)], *inner]
            for parts in choices:
                node.parts = list(parts)
                if self.fails():
                    break
                node.parts = before


def _lists_of(root: Node) -> list[Items]:
    return [part for node in nodes(root) for part in node.parts if isinstance(part, Items)]


def shrunk(tree: Tree, fails: Callable[[Tree], bool]) -> Tree:
    """Return the tree, reduced in place; `fails` says whether a tree still shows the fault."""
    Shrinker(tree, fails).shrink()
    return tree
