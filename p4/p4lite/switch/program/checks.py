"""Checks of control operations against the program, the same for every switch that runs it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from p4lite.switch.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
)
from p4lite.switch.program.entry import ActionCall, EntryAction, GroupRef
from p4lite.switch.program.facts import ActionFacts, Facts, Profile, TableFacts, ValueSetFacts

#: The most members of a group.
MAX_GROUP = 1 << 16


class Checks:
    """The part of a switch that checks what its control operations are given. All raise ControlError."""

    program: Facts

    def _table(self, name: str) -> TableFacts:
        table = self.program.tables.get(name)
        if table is None:
            raise NotFound(f"there is no table '{name}'")
        return table

    def _custom_crc(self, name: str, width: int) -> int:
        """Return the place of a calculation among those whose CRC can be changed."""
        known = self.program.model.custom_crcs
        if known.get(name) != width:
            names = ", ".join(n for n, w in known.items() if w == width) or "none"
            raise NotFound(f"there is no calculation '{name}' of crc{width}_custom; there are: {names}")
        return list(known).index(name)

    def _writable(self, name: str) -> TableFacts:
        table = self._table(name)
        if table.const_entries:
            raise PermissionDenied(f"table '{name}': its entries are const")
        return table

    def _with_counters(self, name: str) -> TableFacts:
        table = self._table(name)
        if not table.with_counters:
            raise InvalidArgument(f"table '{name}' has no direct counters")
        return table

    def _with_meter(self, name: str) -> TableFacts:
        table = self._table(name)
        if table.direct_meter is None:
            raise InvalidArgument(f"table '{name}' has no direct meter")
        return table

    def _check_kind(self, table: TableFacts, action: EntryAction) -> None:
        """Check that an entry names an action, a member or a group as its table wants it."""
        where, profile = f"table '{table.name}'", table.action_profile
        if isinstance(action, ActionCall):
            if profile is not None:
                raise InvalidArgument(f"{where}: entries name members or groups of '{profile}'")
        elif profile is None:
            raise InvalidArgument(f"{where}: entries name actions, the table has no action profile")
        elif isinstance(action, GroupRef) and not self.program.action_profiles[profile].selector:
            raise InvalidArgument(f"{where}: '{profile}' has no groups")

    @staticmethod
    def _check_call(actions: Mapping[str, ActionFacts], call: ActionCall, where: str) -> ActionFacts:
        """Return the action that is called, with arguments that fit."""
        action = actions.get(call.name)
        if action is None:
            raise InvalidArgument(f"{where}: no action '{call.name}' here")
        if len(call.args) != len(action.params):
            raise InvalidArgument(
                f"{where}: action '{call.name}' takes {len(action.params)} arguments, not {len(call.args)}"
            )
        for value, param in zip(call.args, action.params, strict=True):
            if not 0 <= value < (1 << param.width):
                raise OutOfRange(f"{where}: {value} does not fit into the {param.width} bits of '{param.name}'")
        return action

    def _value_set(self, name: str, value: int = 0) -> ValueSetFacts:
        values = self.program.value_sets.get(name)
        if values is None:
            raise NotFound(f"there is no value set '{name}'")
        if not 0 <= value < (1 << values.width):
            raise OutOfRange(f"value set '{name}': {value} does not fit into {values.width} bits")
        return values

    def _known_profile(self, name: str) -> Profile:
        profile = self.program.action_profiles.get(name)
        if profile is None:
            raise NotFound(f"there is no action profile '{name}'")
        return profile

    @staticmethod
    def _new_id(profile: Profile, what: str, wanted: int | None, taken: Collection[int]) -> int:
        """Return the id of a new member or group: the wanted one, or the lowest free one."""
        found = next(n for n in range(len(taken) + 1) if n not in taken) if wanted is None else wanted
        if not 0 <= found < 2**32:
            raise OutOfRange(f"action profile '{profile.name}': {found} is not a 32-bit id")
        if found in taken:
            raise AlreadyExists(f"action profile '{profile.name}' has a {what} {found}")
        if what == "member" and len(taken) >= profile.max_size > 0:
            raise ResourceExhausted(f"action profile '{profile.name}' is full ({profile.max_size} members)")
        return found

    @staticmethod
    def _group_members(
        profile: Profile, members: Iterable[int], max_size: int, known: Collection[int]
    ) -> tuple[int, ...]:
        if not profile.selector:
            raise InvalidArgument(f"action profile '{profile.name}' has no groups")
        found, limit = tuple(members), max_size or MAX_GROUP
        for member in found:
            if member not in known:
                raise NotFound(f"action profile '{profile.name}' has no member {member}")
        if len(found) > limit:
            raise ResourceExhausted(f"action profile '{profile.name}': {len(found)} members in a group of {limit}")
        return found
