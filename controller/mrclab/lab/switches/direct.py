"""Tables of a fabric in this process, filled without P4Runtime.

A simulation's switches get the same program and the same entries as on the real clock (`program.push_rules`), by the
same calls that P4Runtime's server makes (`p4lite.switch.p4rt.tables`). What is saved is gRPC, whose import and messages
take longer than building the rest of a small lab. `tests/lab/test_direct.py` compares the two.
"""

from __future__ import annotations

import json
import pathlib

from mrc_topo.topology import Switch, Topology
from mrclab.lab.switches import mapping
from mrclab.lab.switches.names import Match, P4RuntimeError, TableEntry
from mrclab.lab.switches.program import FabricProgram
from p4lite.switch.fabric.switch import FabricSwitch
from p4lite.switch.program.entry import ActionCall, Exact, Lpm, MatchValue
from p4lite.switch.program.facts import KeyFacts
from p4lite.switch.runtime.loader import load_program


class DirectTables:
    """The project's program, ready for switches of this process."""

    def __init__(self, program: FabricProgram) -> None:
        """Check the program and load its C, compiled if that is not cached.

        Raises:
            ProgramError, BuildError: as `p4lite.switch.runtime.loader`.
        """
        document = json.loads(program.bmv2)
        source = document.get("program")
        self.program = program
        self._loaded = load_program(document, name=pathlib.Path(source).stem if isinstance(source, str) else None)
        _ = self._loaded.opened

    def fill(self, topology: Topology, switch: Switch, into: FabricSwitch) -> None:
        """Load the program with empty tables into a switch, and fill them.

        Raises:
            P4RuntimeError: as `mapping.fit`.
            ControlError: an entry that the program does not take.
        """
        fitted = mapping.fit(topology, switch, self.program.names)
        into.load(self._loaded)
        instance = into.instance
        for entry in fitted.defaults:
            instance.table_set_default(entry.table, self._call(entry))
        for entry in fitted.entries:
            key = tuple(_value(each, entry.match[each.name]) for each in self._loaded.tables[entry.table].key)
            instance.table_add(entry.table, key, self._call(entry))

    def _call(self, entry: TableEntry) -> ActionCall:
        action = self._loaded.tables[entry.table].actions[entry.action]
        return ActionCall(entry.action, tuple(entry.params[param.name] for param in action.params))


def _value(key: KeyFacts, value: Match) -> MatchValue:
    """Return a match value in the form of the program."""
    if isinstance(value, int):
        return Exact(value)
    if key.match != "lpm":
        raise P4RuntimeError(f"key {key.name} is {key.match}; tables of this process are filled as exact or lpm")
    return Lpm(*value)
