"""Packets and entries of STF tests for a switch of the API; what a test expects is not compared (`p4lite stf` does)."""

from __future__ import annotations

from collections.abc import Sequence

from p4lite.api.switch import Switch
from p4lite.switch.errors import ControlError
from p4lite.switch.fabric.values import FabricError
from p4lite.switch.program.entry import EntryAction, MemberRef
from p4lite.switch.program.facts import TableFacts
from p4lite_tools.commands import CommandError, Commands
from p4lite_tools.stf.engine import (
    PACKET_GAP_NS,
    PRIORITY_PIVOT,
    WAIT_NS,
    NameProblem,
    action_call,
    resolve,
    table_key,
)
from p4lite_tools.stf.parse import Add, Args, Command, Remove, SetDefault, Statement, StfError, StfPacket, Wait


class Feed:
    """Executes the statements of a test that change the switch or send packets."""

    def __init__(self, switch: Switch, filename: str) -> None:
        self._switch = switch
        self._control = switch.control
        self._filename = filename
        self._commands = Commands(switch.control, switch.replication, lambda line: None)
        self._handles: dict[str, tuple[str, int]] = {}

    def run(self, statements: Sequence[Statement]) -> None:
        """Execute statements. Raises StfError with file and line."""
        for statement in statements:
            try:
                self._execute(statement)
            except (NameProblem, ControlError, FabricError, CommandError, ValueError) as error:
                raise StfError(f"{self._filename}:{statement.line}: {error}") from None

    def _execute(self, statement: Statement) -> None:
        match statement:
            case StfPacket(port=port, data=data):
                self._switch.send(port, data)
                self._switch.advance(PACKET_GAP_NS)
            case Wait():
                self._switch.advance(WAIT_NS)
            case Add():
                self._add(statement)
            case SetDefault(table=name, action=action, args=args):
                table = resolve(name, self._control.program.tables, "table")
                self._control.table_set_default(table.name, self._action(table, action, args))
            case Remove(ident=ident):
                self._remove(ident)
            case Command(verb=verb, args=words):
                self._commands.run(" ".join([verb, *words]))
            case _:
                pass  # an expectation

    def _action(self, table: TableFacts, name: str, args: Args) -> EntryAction:
        call = action_call(table, name, args)
        return call if table.action_profile is None else MemberRef(self._control.member_add(table.action_profile, call))

    def _add(self, statement: Add) -> None:
        table = resolve(statement.table, self._control.program.tables, "table")
        priority = PRIORITY_PIVOT - (statement.priority or 0) if table.needs_priority else 0
        action = self._action(table, statement.action, statement.args)
        handle = self._control.table_add(table.name, table_key(table, statement.keys), action, priority=priority)
        if statement.ident is not None:
            self._handles[statement.ident] = (table.name, handle)

    def _remove(self, ident: str | None) -> None:
        if ident is not None:
            if ident not in self._handles:
                raise NameProblem(f"no entry was added as '{ident}'")
            self._control.table_delete(*self._handles.pop(ident))
            return
        for name in self._control.program.tables:
            for entry in list(self._control.table_entries(name)):
                if not entry.is_const:
                    self._control.table_delete(name, entry.handle)
