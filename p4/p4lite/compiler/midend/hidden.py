"""Tables and actions that are not the program's: they hold code that BMv2 runs in actions only."""

from __future__ import annotations

from collections.abc import Callable

from p4lite.compiler import ast
from p4lite.compiler.midend import lir
from p4lite.compiler.midend.emitter import Emitter, Routine
from p4lite.compiler.midend.lir import DEFAULT_TABLE_SIZE, ApplyTable, BasicBlock, LoweredAction, LoweredTable
from p4lite.compiler.midend.names import UniqueNames


class HiddenTables:
    """Creates the compiler's own tables and actions, with names that differ from the program's."""

    def __init__(self, code: Emitter) -> None:
        self.code = code
        self._names = UniqueNames()
        self._made: list[LoweredTable | LoweredAction] = []

    def in_action(self, node: ast.Node, body: Callable[[], None]) -> None:
        """Run `body` as an action of its own, called here."""
        loc = self.code.loc(node)
        made = LoweredAction(self._name(f"loop{node.pos.line}"), [], BasicBlock(), loc)
        self._made.append(made)
        outside = self.code.routine
        self.code.routine = Routine("action", made.body, made.body, outside.region)
        body()
        self.code.end()
        self.code.routine = outside
        self.code.out.actions.append(made)
        self.call_node(made, loc)

    def call_node(self, action: LoweredAction, loc: lir.SourceInfo | None) -> None:
        """Run an action here, by a table of its own that does nothing else."""
        short = action.name.rpartition(".")[2]
        table = LoweredTable(
            self._name(f"tbl_{short}"),
            [],
            [action],
            DEFAULT_TABLE_SIZE,
            default=action,
            default_const=True,
            loc=loc,
        )
        self._made.append(table)
        after = BasicBlock()
        if self.code.routine.current.term is None:
            self.code.routine.current.term = ApplyTable(table, {}, after)
        self.code.start(after)

    def rename(self) -> None:
        """Rename the compiler's own tables and actions where the program has their names."""
        self._names.reserve(self.code.claims.taken("table", "action"))
        wanted = self.code.claims.taken("table", "action")
        for item in self._made:
            if item.name in wanted:
                item.name = self._name(item.name)

    def _name(self, base: str) -> str:
        return self._names.take(base)
