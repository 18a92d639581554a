"""The commands of simple_switch_CLI, on a switch in this process.

Names, arguments and order are those of behavioral-model's runtime_CLI, so that the command files of courses work; of
its output the handles and the values are kept. Numbers, addresses and prefixes are read as `p4lite.api.values` says,
which takes more forms than the original.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from p4lite.api.tables import action_call
from p4lite.api.values import Control, find, match, number
from p4lite.errors import P4liteError
from p4lite.switch.codegen.calculations import Crc
from p4lite.switch.errors import ControlError
from p4lite.switch.fabric.switch import FabricSwitch
from p4lite.switch.fabric.values import CloneSession, FabricError, QueueLimits, Replica
from p4lite.switch.multicast import Nodes, Replication
from p4lite.switch.program.entry import (
    ActionCall,
    EntryAction,
    Exact,
    GroupRef,
    Lpm,
    MatchValue,
    MemberRef,
    Range,
    Ternary,
)
from p4lite.switch.program.facts import ActionFacts, Array, Profile, TableFacts
from p4lite.switch.runtime.arrays import MeterConfig
from p4lite.switch.runtime.profiles import ProfileMember
from p4lite.switch.runtime.tables import Entry

T = TypeVar("T")


class CommandError(P4liteError):
    """A command that cannot be executed; nothing was changed."""

    code = "bad_command"


class UnknownCommandError(CommandError):
    """A line that starts with the name of no command, which scripts skip as BMv2 does."""

    code = "unknown_command"


#: Commands that name a table, and those of its action profile that took their place.
OLD_NAMES = {
    **{
        f"table_indirect_{name}": f"act_prof_{name}"
        for name in (
            "create_member", "delete_member", "modify_member", "create_group", "delete_group",
            "add_member_to_group", "remove_member_from_group",
        )
    },
    "table_dump_member": "act_prof_dump_member",
    "table_dump_group": "act_prof_dump_group",
}  # fmt: skip


def parse_number(text: str) -> int:
    """Return a number (decimal, 0x, 0b, 0o); ValueError otherwise."""
    return int(text) if text.isdigit() else int(text, 0)


def truth(text: str) -> bool:
    """Return whether a word is true: true, false or a number; ValueError otherwise."""
    return text.lower() == "true" if text.lower() in ("true", "false") else bool(parse_number(text))


def shown_match(value: MatchValue, width: int) -> str:
    """Return a match value as commands write it."""
    digits = (width + 3) // 4
    if isinstance(value, Exact):
        return f"0x{value.value:0{digits}x}"
    if isinstance(value, Lpm):
        return f"0x{value.value:0{digits}x}/{value.prefix_len}"
    if isinstance(value, Ternary):
        return f"0x{value.value:0{digits}x}&&&0x{value.mask:0{digits}x}"
    if isinstance(value, Range):
        return f"0x{value.low:0{digits}x}->0x{value.high:0{digits}x}"
    return "*" if value.value is None else f"0x{value.value:0{digits}x}"


def shown_action(actions: Mapping[str, ActionFacts], action: EntryAction | None) -> str:
    """Return what an entry does, its arguments with their names."""
    if action is None:
        return "(nothing)"
    if isinstance(action, MemberRef):
        return f"member({action.member})"
    if isinstance(action, GroupRef):
        return f"group({action.group})"
    params = actions[action.name].params
    arguments = (f"{p.name}=0x{v:0{(p.width + 3) // 4}x}" for p, v in zip(params, action.args, strict=True))
    return f"{action.name}({', '.join(arguments)})"


class Commands:
    """Executes commands; `write` gets each line that they print.

    `device` is the switch that has the ports, `clock` its time in ns; a switch of the interpreter takes any port.
    """

    def __init__(
        self,
        control: Control,
        replication: Replication,
        write: Callable[[str], None] = print,
        *,
        device: FabricSwitch | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.control = control
        self.program = control.program
        self.replication = replication
        self.write = write
        self.device = device
        self.clock = clock or (lambda: getattr(control, "now_ns", 0))
        self.nodes = Nodes(replication)
        self.names = sorted([*(n.removeprefix("do_") for n in dir(self) if n.startswith("do_")), *OLD_NAMES])

    def run(self, line: str) -> None:
        """Execute a line; empty ones and comments do nothing. Raises CommandError."""
        words = line.partition("#")[0].split()
        if words:
            self.execute(words)

    def execute(self, words: list[str]) -> None:
        """Execute a command with its arguments. Raises CommandError."""
        if words[0] not in self.names:
            raise UnknownCommandError(f"there is no command '{words[0]}'; 'help' lists them")
        method: Callable[[list[str]], None] = getattr(self, "do_" + OLD_NAMES.get(words[0], words[0]))
        try:
            arguments = words[1:]
            if words[0] in OLD_NAMES:
                table = self._table(arguments[0])
                if table.action_profile is None:
                    raise CommandError(f"table {table.name} has no action profile")
                arguments[0] = table.action_profile
            method(arguments)
        except IndexError:
            raise CommandError(f"{words[0]}: arguments are missing; usage: {self.usage(words[0])}") from None
        except (ControlError, FabricError, ValueError) as error:
            raise CommandError(f"{words[0]}: {error}") from None

    def usage(self, name: str) -> str:
        """Return how a command is written."""
        text = getattr(self, "do_" + OLD_NAMES.get(name, name)).__doc__ or name
        return str(text).partition(": ")[2].rstrip(".") or name

    def complete(self, line: str, text: str) -> list[str]:
        """Return what the word `text`, the last of `line`, may become."""
        words = line[: len(line) - len(text)].split()
        known: Sequence[str] = self.names
        if words:
            facts = self.program
            kinds: dict[str, Mapping[str, object]] = {
                "table": facts.tables,
                "register": facts.registers,
                "counter": facts.counters,
                "meter": facts.meters,
                "act": facts.action_profiles,
                "pvs": facts.value_sets,
            }
            objects = kinds.get(words[0].partition("_")[0], {})
            known = list(objects) if len(words) == 1 else []
            if len(words) == 2 and words[1] in facts.tables:
                known = list(facts.tables[words[1]].actions)
        return [name for name in known if name.startswith(text)]

    # --- what the words mean ---

    def _table(self, name: str) -> TableFacts:
        return self.program.tables[find(name, self.program.tables, "table")]

    def _array(self, name: str, known: Mapping[str, Array], what: str) -> Array:
        return known[find(name, known, what)]

    def _profile(self, name: str) -> Profile:
        return self.program.action_profiles[find(name, self.program.action_profiles, "action profile")]

    @staticmethod
    def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return what is before and after `=>`; without one everything is before."""
        at = words.index("=>") if "=>" in words else len(words)
        return list(words[:at]), list(words[at + 1 :])

    def _key(self, table: TableFacts, words: Sequence[str]) -> tuple[MatchValue, ...]:
        if len(words) != len(table.key):
            names = ", ".join(f"{k.name} ({k.match})" for k in table.key) or "none"
            raise CommandError(f"table {table.name} has {len(table.key)} keys, not {len(words)}: {names}")
        where = f"table '{table.name}'"
        return tuple(match(key, word, where) for key, word in zip(table.key, words, strict=True))

    @staticmethod
    def _priority(table: TableFacts, words: list[str]) -> int:
        """Take the priority from the end of the words, where the table needs one."""
        if not table.needs_priority:
            return 0
        if not words:
            raise CommandError(f"table {table.name} is {table.kind}: end the command with a priority, the lower wins")
        return parse_number(words.pop())

    # --- tables ---

    def do_show_tables(self, words: list[str]) -> None:
        """List the tables: show_tables."""
        for table in self.program.tables.values():
            self.write(self._described(table))

    def do_show_actions(self, words: list[str]) -> None:
        """List the actions: show_actions."""
        for action in self.program.actions.values():
            self.write(self._signature(action))

    def _signature(self, action: ActionFacts) -> str:
        return f"{action.name:30} [{', '.join(f'{p.name}({p.width})' for p in action.params)}]"

    def _described(self, table: TableFacts) -> str:
        keys = ", ".join(f"{k.name}({k.match}, {k.width})" for k in table.key)
        implementation = f"implementation={table.action_profile}, " if table.action_profile else ""
        return f"{table.name:30} [{implementation}mk={keys}]"

    def do_table_show_actions(self, words: list[str]) -> None:
        """List a table's actions: table_show_actions TABLE."""
        for action in self._table(words[0]).actions.values():
            self.write(self._signature(action))

    def do_table_info(self, words: list[str]) -> None:
        """Describe a table: table_info TABLE."""
        self.write(self._described(self._table(words[0])))
        self.do_table_show_actions(words)

    def do_table_add(self, words: list[str]) -> None:
        """Add an entry: table_add TABLE ACTION KEY... => [ARGUMENT...] [PRIORITY]."""
        table = self._table(words[0])
        priority = self._priority(table, words)
        keys, arguments = self._split(words[2:])
        call = action_call(table.actions, (words[1], arguments), f"table '{table.name}'")
        self._added(self.control.table_add(table.name, self._key(table, keys), call, priority=priority))

    def _added(self, handle: int) -> None:
        self.write(f"Entry has been added with handle {handle}")

    def do_table_set_default(self, words: list[str]) -> None:
        """Set the default action: table_set_default TABLE ACTION [ARGUMENT...]."""
        table = self._table(words[0])
        _, arguments = self._split(["=>", *(w for w in words[2:] if w != "=>")])
        self.control.table_set_default(
            table.name, action_call(table.actions, (words[1], arguments), f"table '{table.name}'")
        )

    def do_table_reset_default(self, words: list[str]) -> None:
        """Give a table its default action of the program: table_reset_default TABLE."""
        self.control.table_reset_default(self._table(words[0]).name)

    def do_table_num_entries(self, words: list[str]) -> None:
        """Count the entries: table_num_entries TABLE."""
        self.write(str(self.control.table_size(self._table(words[0]).name)))

    def do_table_clear(self, words: list[str]) -> None:
        """Delete all entries: table_clear TABLE."""
        self.control.table_clear(self._table(words[0]).name)

    def do_table_modify(self, words: list[str]) -> None:
        """Give an entry another action: table_modify TABLE ACTION HANDLE [=>] [ARGUMENT...]."""
        table = self._table(words[0])
        arguments = [w for w in words[3:] if w != "=>"]
        call = action_call(table.actions, (words[1], arguments), f"table '{table.name}'")
        self.control.table_modify(table.name, parse_number(words[2]), call)

    def do_table_delete(self, words: list[str]) -> None:
        """Delete an entry: table_delete TABLE HANDLE."""
        self.control.table_delete(self._table(words[0]).name, parse_number(words[1]))

    def do_table_set_timeout(self, words: list[str]) -> None:
        """Set when an entry is idle: table_set_timeout TABLE HANDLE MILLISECONDS."""
        handle, after_ms = parse_number(words[1]), parse_number(words[2])
        self.control.table_set_timeout(self._table(words[0]).name, handle, after_ms * 1_000_000)

    def do_table_dump(self, words: list[str]) -> None:
        """Show a table's entries: table_dump TABLE."""
        table = self._table(words[0])
        self.write("==========\nTABLE ENTRIES")
        for entry in self.control.table_entries(table.name):
            self._dump(table, entry)
        self.write("==========\nDumping default entry")
        self.write(f"Action entry: {shown_action(table.actions, self.control.table_default(table.name))}\n==========")

    def _dump(self, table: TableFacts, entry: Entry) -> None:
        self.write(f"**********\nDumping entry {entry.handle:#x}\nMatch key:")
        for key, value in zip(table.key, entry.key, strict=True):
            self.write(f"* {key.name:20}: {key.match.upper():10}{shown_match(value, key.width)}")
        if table.needs_priority:
            self.write(f"Priority: {entry.priority}")
        self.write(f"Action entry: {shown_action(table.actions, entry.action)}")

    def do_table_dump_entry(self, words: list[str]) -> None:
        """Show an entry: table_dump_entry TABLE HANDLE."""
        table = self._table(words[0])
        self._dump(table, self.control.table_entry(table.name, parse_number(words[1])))

    def do_table_dump_entry_from_key(self, words: list[str]) -> None:
        """Show the entry with a key: table_dump_entry_from_key TABLE KEY... [PRIORITY]."""
        table = self._table(words[0])
        priority = self._priority(table, words)
        handle = self.control.table_find(table.name, self._key(table, words[1:]), priority=priority)
        self._dump(table, self.control.table_entry(table.name, handle))

    # --- action profiles ---

    def _indirect(self, words: list[str], make: Callable[[int], EntryAction]) -> None:
        table = self._table(words[0])
        priority = self._priority(table, words)
        keys, (number_,) = self._split(words[1:])
        action = make(parse_number(number_))
        self._added(self.control.table_add(table.name, self._key(table, keys), action, priority=priority))

    def do_table_indirect_add(self, words: list[str]) -> None:
        """Add an entry for a member: table_indirect_add TABLE KEY... => MEMBER [PRIORITY]."""
        self._indirect(words, MemberRef)

    def do_table_indirect_add_with_group(self, words: list[str]) -> None:
        """Add an entry for a group: table_indirect_add_with_group TABLE KEY... => GROUP [PRIORITY]."""
        self._indirect(words, GroupRef)

    def do_table_indirect_delete(self, words: list[str]) -> None:
        """Delete an entry: table_indirect_delete TABLE HANDLE."""
        self.do_table_delete(words)

    def do_table_indirect_set_default(self, words: list[str]) -> None:
        """Set the default member: table_indirect_set_default TABLE MEMBER."""
        self.control.table_set_default(self._table(words[0]).name, MemberRef(parse_number(words[1])))

    def do_table_indirect_set_default_with_group(self, words: list[str]) -> None:
        """Set the default group: table_indirect_set_default_with_group TABLE GROUP."""
        self.control.table_set_default(self._table(words[0]).name, GroupRef(parse_number(words[1])))

    def do_act_prof_create_member(self, words: list[str]) -> None:
        """Create a member: act_prof_create_member PROFILE ACTION [ARGUMENT...]."""
        profile = self._profile(words[0])
        call = action_call(profile.actions, (words[1], words[2:]), f"action profile '{profile.name}'")
        self.write(f"Member has been created with handle {self.control.member_add(profile.name, call)}")

    def do_act_prof_modify_member(self, words: list[str]) -> None:
        """Give a member another action: act_prof_modify_member PROFILE ACTION MEMBER [ARGUMENT...]."""
        profile = self._profile(words[0])
        call = action_call(profile.actions, (words[1], words[3:]), f"action profile '{profile.name}'")
        self.control.member_modify(profile.name, parse_number(words[2]), call)

    def do_act_prof_delete_member(self, words: list[str]) -> None:
        """Delete a member: act_prof_delete_member PROFILE MEMBER."""
        self.control.member_delete(self._profile(words[0]).name, parse_number(words[1]))

    def do_act_prof_create_group(self, words: list[str]) -> None:
        """Create a group: act_prof_create_group PROFILE."""
        self.write(f"Group has been created with handle {self.control.group_add(self._profile(words[0]).name)}")

    def do_act_prof_delete_group(self, words: list[str]) -> None:
        """Delete a group: act_prof_delete_group PROFILE GROUP."""
        self.control.group_delete(self._profile(words[0]).name, parse_number(words[1]))

    def _members(self, profile: str, group: int) -> list[int]:
        found = next((g for g in self.control.groups(profile) if g.group == group), None)
        if found is None:
            raise CommandError(f"action profile '{profile}' has no group {group}")
        return list(found.members)

    def do_act_prof_add_member_to_group(self, words: list[str]) -> None:
        """Add a member to a group: act_prof_add_member_to_group PROFILE MEMBER GROUP."""
        profile, member, group = self._profile(words[0]).name, parse_number(words[1]), parse_number(words[2])
        self.control.group_modify(profile, group, [*self._members(profile, group), member])

    def do_act_prof_remove_member_from_group(self, words: list[str]) -> None:
        """Take a member out of a group: act_prof_remove_member_from_group PROFILE MEMBER GROUP."""
        profile, member, group = self._profile(words[0]).name, parse_number(words[1]), parse_number(words[2])
        members = self._members(profile, group)
        members.remove(member)
        self.control.group_modify(profile, group, members)

    def do_table_indirect_reset_default(self, words: list[str]) -> None:
        """Give a table its default action of the program: table_indirect_reset_default TABLE."""
        self.do_table_reset_default(words)

    def _dump_member(self, profile: Profile, member: ProfileMember) -> None:
        self.write(f"Dumping member {member.member}\nAction: {shown_action(profile.actions, member.action)}")

    def do_act_prof_dump_member(self, words: list[str]) -> None:
        """Show a member of a profile: act_prof_dump_member PROFILE MEMBER."""
        profile, wanted = self._profile(words[0]), parse_number(words[1])
        found = next((m for m in self.control.members(profile.name) if m.member == wanted), None)
        if found is None:
            raise CommandError(f"action profile '{profile.name}' has no member {wanted}")
        self._dump_member(profile, found)

    def do_act_prof_dump_group(self, words: list[str]) -> None:
        """Show a group of a profile: act_prof_dump_group PROFILE GROUP."""
        group = parse_number(words[1])
        self.write(f"Dumping group {group}\nMembers: {self._members(self._profile(words[0]).name, group)}")

    def do_act_prof_dump(self, words: list[str]) -> None:
        """Show a profile: act_prof_dump PROFILE."""
        profile = self._profile(words[0])
        for member in self.control.members(profile.name):
            self._dump_member(profile, member)
        for group in self.control.groups(profile.name):
            self.write(f"Dumping group {group.group}\nMembers: {list(group.members)}")

    # --- replication ---

    def do_mirroring_add(self, words: list[str]) -> None:
        """Mirror to a port: mirroring_add SESSION PORT."""
        self.replication.set_clone_session(parse_number(words[0]), CloneSession(port=parse_number(words[1])))

    def do_mirroring_add_mc(self, words: list[str]) -> None:
        """Mirror to a multicast group: mirroring_add_mc SESSION GROUP."""
        self.replication.set_clone_session(parse_number(words[0]), CloneSession(mcast_group=parse_number(words[1])))

    def do_mirroring_delete(self, words: list[str]) -> None:
        """Delete a mirror session: mirroring_delete SESSION."""
        self.replication.delete_clone_session(parse_number(words[0]))

    def do_mirroring_get(self, words: list[str]) -> None:
        """Show a mirror session: mirroring_get SESSION."""
        number = parse_number(words[0])
        session = self.replication.clone_sessions().get(number)
        if session is None:
            raise CommandError(f"there is no mirror session {number}")
        parts = [] if session.mcast_group is None else [f"multicast group {session.mcast_group}"]
        parts += [f"port {each.port} (rid {each.rid})" for each in session.replicas]
        parts += [] if session.port is None else [f"port {session.port}"]
        parts += [f"cut off after {session.truncate_bytes} bytes"] if session.truncate_bytes else []
        self.write(f"session {number}: {', '.join(parts)}")

    def do_mc_mgrp_create(self, words: list[str]) -> None:
        """Create a multicast group: mc_mgrp_create GROUP."""
        self.nodes.create_group(parse_number(words[0]))

    def do_mc_mgrp_destroy(self, words: list[str]) -> None:
        """Delete a multicast group: mc_mgrp_destroy GROUP."""
        self.nodes.delete_group(parse_number(words[0]))

    @staticmethod
    def _ports(words: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return ports and LAGs, which a `|` separates."""
        at = words.index("|") if "|" in words else len(words)
        return [parse_number(w) for w in words[:at]], [parse_number(w) for w in words[at + 1 :]]

    def do_mc_node_create(self, words: list[str]) -> None:
        """Create a multicast node: mc_node_create RID PORT... [| LAG...]."""
        handle = self.nodes.create(parse_number(words[0]), *self._ports(words[1:]))
        self.write(f"node was created with handle {handle}")

    def do_mc_node_update(self, words: list[str]) -> None:
        """Give a multicast node other ports: mc_node_update NODE PORT... [| LAG...]."""
        self.nodes.update(parse_number(words[0]), *self._ports(words[1:]))

    def do_mc_set_lag_membership(self, words: list[str]) -> None:
        """Give a LAG its ports: mc_set_lag_membership LAG PORT..."""
        self.nodes.set_lag(parse_number(words[0]), [parse_number(w) for w in (words[1], *words[2:])])

    def do_mc_node_associate(self, words: list[str]) -> None:
        """Add a node to a group: mc_node_associate GROUP NODE."""
        self.nodes.associate(parse_number(words[0]), parse_number(words[1]))

    def do_mc_node_dissociate(self, words: list[str]) -> None:
        """Take a node out of a group: mc_node_dissociate GROUP NODE."""
        self.nodes.dissociate(parse_number(words[0]), parse_number(words[1]))

    def do_mc_node_destroy(self, words: list[str]) -> None:
        """Delete a multicast node: mc_node_destroy NODE."""
        self.nodes.delete(parse_number(words[0]))

    def do_mc_dump(self, words: list[str]) -> None:
        """Show the multicast groups: mc_dump."""
        for group, replicas in sorted(self.replication.multicast_groups().items()):
            self.write(f"mgrp({group}) -> {', '.join(f'port {r.port} (rid {r.rid})' for r in replicas)}")

    # --- counters, meters, registers, value sets ---

    def _counter(self, name: str) -> Array:
        return self._array(name, self.program.counters, "counter")

    def do_counter_read(self, words: list[str]) -> None:
        """Read a counter: counter_read COUNTER INDEX (of a direct one: HANDLE)."""
        counter, index = self._counter(words[0]), parse_number(words[1])
        if counter.table is not None:
            value = self.control.direct_counter_read(counter.table, index)
        else:
            value = self.control.counter_read(counter.name, index)
        self.write(f"{words[0]}[{index}]= ({value.bytes} bytes, {value.packets} packets)")

    def do_counter_write(self, words: list[str]) -> None:
        """Set a counter: counter_write COUNTER INDEX PACKETS BYTES."""
        counter, (index, packets, octets) = self._counter(words[0]), (parse_number(w) for w in words[1:4])
        if counter.table is not None:
            self.control.direct_counter_write(counter.table, index, packets, octets)
        else:
            self.control.counter_write(counter.name, index, packets, octets)

    def do_counter_reset(self, words: list[str]) -> None:
        """Set a counter's cells to 0: counter_reset COUNTER."""
        counter = self._counter(words[0])
        if counter.table is None:
            self.control.counter_reset(counter.name)
            return
        for entry in self.control.table_entries(counter.table):
            self.control.direct_counter_write(counter.table, entry.handle, 0, 0)

    def _meter(self, name: str) -> Array:
        return self._array(name, self.program.meters, "meter")

    @staticmethod
    def _rates(words: Sequence[str]) -> MeterConfig:
        """Return the configuration `RATE:BURST [RATE:BURST]`, rates in units per microsecond."""
        pairs = []
        for word in words:
            rate, colon, burst = word.partition(":")
            if not colon:
                raise CommandError(f"'{word}' is not RATE:BURST, the rate in units per microsecond: 0.001:5")
            pairs.append((round(float(rate) * 1_000_000), parse_number(burst)))
        if len(pairs) not in (1, 2):
            raise CommandError("a meter takes one or two RATE:BURST, rates in units per microsecond: 0.001:5 0.002:10")
        return MeterConfig(*pairs[0], *pairs[-1])

    def do_meter_set_rates(self, words: list[str]) -> None:
        """Configure a meter's cell: meter_set_rates METER INDEX RATE:BURST RATE:BURST."""
        meter, index, config = self._meter(words[0]), parse_number(words[1]), self._rates(words[2:])
        if meter.table is not None:
            self.control.direct_meter_set(meter.table, index, config)
        else:
            self.control.meter_set(meter.name, index, config)

    def do_meter_array_set_rates(self, words: list[str]) -> None:
        """Configure all cells of a meter: meter_array_set_rates METER RATE:BURST RATE:BURST."""
        meter, config = self._meter(words[0]), self._rates(words[1:])
        if meter.table is None:
            for index in range(meter.size):
                self.control.meter_set(meter.name, index, config)
            return
        for entry in self.control.table_entries(meter.table):
            self.control.direct_meter_set(meter.table, entry.handle, config)

    def do_meter_get_rates(self, words: list[str]) -> None:
        """Show a meter's configuration: meter_get_rates METER INDEX."""
        meter, index = self._meter(words[0]), parse_number(words[1])
        if meter.table is not None:
            config = self.control.direct_meter_config(meter.table, index)
        else:
            config = self.control.meter_config(meter.name, index)
        if config is None:
            self.write(f"{words[0]}[{index}] is not configured: every packet is green")
            return
        for n, (rate, burst) in enumerate(((config.cir, config.cburst), (config.pir, config.pburst))):
            self.write(f"{n}: info rate = {rate / 1_000_000:g}, burst size = {burst}")

    def _register(self, name: str) -> Array:
        return self._array(name, self.program.registers, "register")

    def do_register_read(self, words: list[str]) -> None:
        """Read a register: register_read REGISTER [INDEX]."""
        register = self._register(words[0])
        if len(words) == 1:
            self.write(f"{words[0]}= {', '.join(map(str, self.control.register_read_all(register.name)))}")
        else:
            index = parse_number(words[1])
            self.write(f"{words[0]}[{index}]= {self.control.register_read(register.name, index)}")

    def do_register_write(self, words: list[str]) -> None:
        """Set a cell of a register: register_write REGISTER INDEX VALUE."""
        register = self._register(words[0])
        value = number(words[2], register.width, f"register '{register.name}'")
        self.control.register_write(register.name, parse_number(words[1]), value)

    def do_register_reset(self, words: list[str]) -> None:
        """Set a register's cells to 0: register_reset REGISTER."""
        self.control.register_reset(self._register(words[0]).name)

    def _value_set(self, name: str) -> str:
        return find(name, self.program.value_sets, "parser value set")

    def do_show_pvs(self, words: list[str]) -> None:
        """List the parser value sets: show_pvs."""
        for values in self.program.value_sets.values():
            self.write(f"{values.name} ({values.width})")

    def do_pvs_add(self, words: list[str]) -> None:
        """Add a value to a parser value set: pvs_add SET VALUE."""
        name = self._value_set(words[0])
        self.control.value_set_add(name, number(words[1], self.program.value_sets[name].width, name))

    def do_pvs_remove(self, words: list[str]) -> None:
        """Take a value out of a parser value set: pvs_remove SET VALUE."""
        name = self._value_set(words[0])
        self.control.value_set_delete(name, number(words[1], self.program.value_sets[name].width, name))

    def do_pvs_get(self, words: list[str]) -> None:
        """Show a parser value set: pvs_get SET."""
        self.write(", ".join(hex(value) for value in self.control.value_set_values(self._value_set(words[0]))))

    def do_pvs_clear(self, words: list[str]) -> None:
        """Empty a parser value set: pvs_clear SET."""
        name = self._value_set(words[0])
        for value in self.control.value_set_values(name):
            self.control.value_set_delete(name, value)

    # --- the switch ---

    def do_help(self, words: list[str]) -> None:
        """List the commands: help."""
        self.write("\n".join(self.names))

    def do_show_ports(self, words: list[str]) -> None:
        """List the ports: show_ports."""
        self.write(f"{'port #':^10}{'iface name':^20}{'status':^10}extra info\n" + "=" * 50)
        for at, port in sorted(self.device.ports.items() if self.device else ()):
            up = "UP" if port.is_up("outgoing") and port.is_up("incoming") else "DOWN"
            self.write(f"{at:^10}{port.interface or port.name:^20}{up:^10}".rstrip())

    def _without_effect(self, name: str, why: str) -> None:
        self.write(f"{name}: accepted without effect: {why}")

    def do_port_add(self, words: list[str]) -> None:
        """Attach an interface: port_add INTERFACE PORT [CAPTURE]."""
        interface, number = words[0], parse_number(words[1])
        if self.device is None:
            self._without_effect("port_add", "an interpreted switch has every port")
        else:
            self.device.add_port(number, interface=interface, pcap=words[2] if len(words) > 2 else None)

    def do_port_remove(self, words: list[str]) -> None:
        """Detach an interface: port_remove PORT."""
        number = parse_number(words[0])
        if self.device is None:
            self._without_effect("port_remove", "an interpreted switch has every port")
        else:
            self.device.remove_port(number)

    def do_set_queue_depth(self, words: list[str]) -> None:
        """Limit queues: set_queue_depth PACKETS [PORT [PRIORITY]]."""
        depth, *where = (parse_number(w) for w in (words[0], *words[1:3]))
        if self.device is None:
            self._without_effect("set_queue_depth", "an interpreted switch has no queues")
            return
        for port in [self.device.port(where[0])] if where else list(self.device.ports.values()):
            port.set_queue(QueueLimits(packets=depth), where[1] if len(where) > 1 else None)

    def do_set_queue_rate(self, words: list[str]) -> None:
        """Accept a rate of queues: set_queue_rate PACKETS_PER_SECOND [PORT [PRIORITY]]."""
        for word in (words[0], *words[1:3]):
            parse_number(word)
        self._without_effect("set_queue_rate", "ports have rates of bits per second (p4lite switch: RATE of -i)")

    def do_switch_info(self, words: list[str]) -> None:
        """Describe the switch: switch_info."""
        device = self.device.device_id if self.device else 0
        for name, value in (("device_id", device), ("program", self.program.name)):
            self.write(f"{name:15}: {value}")

    def do_get_time_elapsed(self, words: list[str]) -> None:
        """Show the microseconds since the switch started: get_time_elapsed."""
        self.write(str(self.clock() // 1_000))

    def do_reset_state(self, words: list[str]) -> None:
        """Empty tables, profiles, arrays and multicast, as at the start but for mirror sessions: reset_state."""
        control, facts = self.control, self.program
        for table in facts.tables.values():
            if not table.const_entries:
                control.table_clear(table.name)
        for profile in facts.action_profiles:
            for group in list(control.groups(profile)):
                control.group_delete(profile, group.group)
            for member in list(control.members(profile)):
                control.member_delete(profile, member.member)
        for reset, arrays in (
            (self.do_counter_reset, facts.counters),
            (self.do_register_reset, facts.registers),
            (self.do_pvs_clear, facts.value_sets),
        ):
            for name in arrays:
                reset([name])
        for meter in facts.meters.values():
            for index in range(meter.size if meter.table is None else 0):
                control.meter_set(meter.name, index, None)
        for mgrp in list(self.replication.multicast_groups()):
            self.replication.delete_multicast_group(mgrp)
        self.nodes = Nodes(self.replication)

    def _set_crc(self, width: int, words: list[str]) -> None:
        polynomial, initial, final = (number(w, width, f"crc{width}") for w in words[1:4])
        data, remainder = (truth(words[n]) for n in (4, 5))
        self.control.set_crc(words[0], Crc(width, polynomial, initial, final, data, remainder))

    def do_set_crc16_parameters(self, words: list[str]) -> None:
        """Change a crc16_custom: set_crc16_parameters NAME POLYNOMIAL INITIAL FINAL_XOR REFLECT_DATA REFLECT_REST."""
        self._set_crc(16, words)

    def do_set_crc32_parameters(self, words: list[str]) -> None:
        """Change a crc32_custom: set_crc32_parameters NAME POLYNOMIAL INITIAL FINAL_XOR REFLECT_DATA REFLECT_REST."""
        self._set_crc(32, words)


__all__ = ["ActionCall", "CommandError", "Commands", "Replica", "shown_action", "shown_match"]
