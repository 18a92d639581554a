"""Table entries for a program that is not `fabric.p4`: what of them it takes, and what it lacks.

A program is free in the names of its controls and keys: a table, an action, a counter is found by the last part of its
name, an action's parameters by theirs. What a lab cannot forward without must be there (`rules.needed`); entries for
anything else that is not there are left out, and `MappedEntries.lacking` tells of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mrc_topo import rules
from mrc_topo.topology import Switch, Topology
from mrclab.lab.switches.names import ActionName, Match, P4InfoNames, P4RuntimeError, TableEntry, TableName, to_bytes


@dataclass
class MappedEntries:
    """Entries and default actions under the program's own names; `lacking`: the entries that the program has no table
    or action for, a line each."""

    entries: list[TableEntry] = field(default_factory=list)
    defaults: list[TableEntry] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)


def last(name: str) -> str:
    """Return the last component of a full name."""
    return name.rpartition(".")[2]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


class _MappedTable:
    """A table of the program that corresponds to one of `fabric.p4`."""

    def __init__(self, names: P4InfoNames, table: TableName) -> None:
        self.name = table.name
        self.size = table.size
        self.is_const = table.is_const
        self.keys = table.keys
        by_id = {each.id: each for each in names.actions.values()}
        actions = [by_id[each] for each in table.actions if each in by_id]
        self.actions = {last(each.name): each for each in actions}

    def match(self, given: rules.TableEntry) -> Mapping[str, Match]:
        """Return the entry's key in the form of this table. Raises P4RuntimeError."""
        if not given.match:
            return {}
        (key,) = given.match
        bits = rules.KEY_BITS[key.field]
        if len(self.keys) != 1 or self.keys[0].width != bits:
            found = _listed(f"{each.name} ({each.width} bits)" for each in self.keys)
            raise P4RuntimeError(f"table {self.name} must have one key, of {bits} bits ({key.field}); it has: {found}")
        kind = self.keys[0].kind
        name = self.keys[0].name
        if kind == "LPM":
            return {name: (key.value, bits if key.prefix_length is None else key.prefix_length)}
        if kind == "EXACT" and key.prefix_length in (None, bits):
            return {name: key.value}
        wanted = "exact or lpm" if key.prefix_length is None else "lpm"
        raise P4RuntimeError(
            f"table {self.name}: its key {name} is {kind.lower()}; the controller fills it as {wanted}"
        )

    def params(self, given: rules.TableEntry, action: ActionName) -> dict[str, int]:
        """Return the entry's parameters that the action takes. Raises P4RuntimeError."""
        found = {}
        for param in action.params:
            if param.name not in given.params:
                raise P4RuntimeError(
                    f"action {action.name} takes '{param.name}', which the controller does not know; "
                    f"it gives: {_listed(given.params)}"
                )
            value = given.params[param.name]
            try:
                to_bytes(value, param.width)
            except ValueError:
                raise P4RuntimeError(
                    f"action {action.name}: its parameter '{param.name}' has {param.width} bits, too few for {value}"
                ) from None
            found[param.name] = value
        return found


def _table(names: P4InfoNames, wanted: str) -> _MappedTable | None:
    """Return the program's table of this last name. Raises P4RuntimeError when several have it."""
    if wanted in names.tables:
        return _MappedTable(names, names.tables[wanted])
    found = [each for full, each in names.tables.items() if last(full) == last(wanted)]
    if len(found) > 1:
        several = _listed(each.name for each in found)
        raise P4RuntimeError(f"several tables are called {last(wanted)}: {several}; the controller fills one")
    return _MappedTable(names, found[0]) if found else None


def fit(topology: Topology, switch: Switch, names: P4InfoNames) -> MappedEntries:
    """Return a switch's entries for a program.

    Raises:
        P4RuntimeError: the program lacks what the lab needs, or has it in another form.
    """
    needed = rules.needed(topology)
    made = MappedEntries()
    tables: dict[str, _MappedTable | None] = {}
    for given in rules.switch_entries(topology, switch):
        if given.table not in tables:
            tables[given.table] = _table(names, given.table)
        table, wanted = tables[given.table], last(given.action)
        must = wanted in needed.get(given.table, ())
        if table is None:
            if must:
                have = _listed(names.tables)
                lost = f"routing.mode {topology.lab.routing.mode.value} forwards nothing"
                if given.table in rules.ISOLATION:
                    lost = "tenants would reach each other"
                raise P4RuntimeError(f"no table {last(given.table)}, without which {lost}; the program has: {have}")
            made.lacking.append(f"no table {last(given.table)}: {rules.WITHOUT[given.table]}")
            continue
        if table.is_const:
            made.lacking.append(f"table {table.name} has entries of its own (const entries) and is left as it is")
            continue
        action = table.actions.get(wanted)
        if action is None:
            if must:
                raise P4RuntimeError(f"table {table.name} has no action {wanted}; it has: {_listed(table.actions)}")
            made.lacking.append(f"table {table.name} has no action {wanted}: its entries are left out")
            continue
        params = table.params(given, action)
        if len(params) < len(given.params):
            missing = ", ".join(each for each in given.params if each not in params)
            made.lacking.append(f"action {action.name} takes no {missing}: what the lab file says of it is lost")
        entry = TableEntry(table.name, table.match(given), action.name, params)
        (made.defaults if given.default else made.entries).append(entry)
    _check_sizes(tables, made)
    made.lacking = list(dict.fromkeys(made.lacking))
    return made


def _check_sizes(tables: Mapping[str, _MappedTable | None], made: MappedEntries) -> None:
    count = Counter(each.table for each in made.entries)
    for table in tables.values():
        if table is not None and count[table.name] > table.size:
            raise P4RuntimeError(
                f"table {table.name} has room for {table.size} entries, this lab needs {count[table.name]}; "
                "raise its size"
            )


def lacking(topology: Topology, names: P4InfoNames) -> list[str]:
    """Return a line per requirement that no switch of the lab can fulfil. Raises P4RuntimeError as `fit`."""
    return list(dict.fromkeys(text for each in topology.switches for text in fit(topology, each, names).lacking))


def counters(names: P4InfoNames) -> dict[str, str]:
    """Return the program's counters by what they count (`rules.COUNTERS`); counters that it lacks are left out."""
    found = {}
    for key, wanted in rules.COUNTERS.items():
        full = [each for each in names.counters if each == wanted or last(each) == last(wanted)]
        if len(full) == 1:
            found[key] = full[0]
    return found
