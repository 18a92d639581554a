"""Action profiles and selectors: members and groups by the controller's ids."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from p4lite.switch.errors import InvalidArgument, NotFound
from p4lite.switch.program.entry import ActionCall
from p4lite.switch.program.facts import Facts, Profile, TableFacts
from p4lite.switch.runtime.abi import Handle, OpenedProgram


@dataclass(frozen=True, slots=True)
class ProfileMember:
    profile: str
    member: int
    action: ActionCall


@dataclass(frozen=True, slots=True)
class Group:
    """A group; a member of weight n comes n times."""

    profile: str
    group: int
    members: tuple[int, ...]
    max_size: int


@dataclass
class _Slots:
    """Ids of one kind, the C slots they are in, and how many table entries refer to each slot."""

    slot: dict[int, int] = field(default_factory=dict)
    id: dict[int, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    references: dict[int, int] = field(default_factory=dict)

    def take(self, id_: int) -> int:
        slot = self.free.pop() if self.free else len(self.id)
        self.slot[id_], self.id[slot], self.references[slot] = slot, id_, 0
        return slot

    def release(self, id_: int) -> None:
        slot = self.slot.pop(id_)
        del self.id[slot], self.references[slot]
        self.free.append(slot)


@dataclass
class _State:
    members: _Slots = field(default_factory=_Slots)
    groups: _Slots = field(default_factory=_Slots)
    calls: dict[int, ActionCall] = field(default_factory=dict)
    contents: dict[int, Group] = field(default_factory=dict)


class ProfileControl(Handle):
    """The part of ProgramInstance that concerns action profiles."""

    def __init__(self, program: Facts, opened: OpenedProgram, **options: int):
        """See `Handle`."""
        super().__init__(program, opened, **options)
        self._init_profiles()

    def restart(self) -> None:
        super().restart()
        self._init_profiles()

    def _init_profiles(self) -> None:
        self._states = {name: _State() for name in self.program.action_profiles}
        self._generation = int(self._c.p4c_generation(self.pointer))

    def _profile(self, name: str) -> tuple[Profile, _State]:
        profile = self._known_profile(name)
        if int(self._c.p4c_generation(self.pointer)) != self._generation:
            self._init_profiles()  # the switch was restarted
        return profile, self._states[name]

    def _member_slot(self, profile: str, member: int) -> int:
        slot = self._profile(profile)[1].members.slot.get(member)
        if slot is None:
            raise NotFound(f"action profile '{profile}' has no member {member}")
        return slot

    def _group_slot(self, profile: str, group: int) -> int:
        slot = self._profile(profile)[1].groups.slot.get(group)
        if slot is None:
            raise NotFound(f"action profile '{profile}' has no group {group}")
        return slot

    def _member_id(self, profile: str, slot: int) -> int:
        return self._profile(profile)[1].members.id[slot]

    def _group_id(self, profile: str, slot: int) -> int:
        return self._profile(profile)[1].groups.id[slot]

    def _refer(self, table: TableFacts, kind: int, number: int, change: int) -> None:
        """Change the number of table entries that refer to a member or group."""
        if table.action_profile is None or kind not in (self._member_ref, self._group_ref):
            return
        state = self._profile(table.action_profile)[1]
        slots = state.members if kind == self._member_ref else state.groups
        if number in slots.references:
            slots.references[number] += change

    # --- members ------------------------------------------------------------------------------------------
    def member_add(self, profile: str, action: ActionCall, member: int | None = None) -> int:
        """Add a member with the given id, or the lowest free one."""
        with self._mutex:
            p, state = self._profile(profile)
            id_ = self._new_id(p, "member", member, state.members.slot)
            index, args = self._call(p, action)
            self._c.p4c_member_set(self.pointer, p.index, state.members.take(id_), index, args)
            state.calls[id_] = action
            return id_

    def _call(self, p: Profile, action: ActionCall) -> tuple[int, Any]:
        index, args = self._pack(p.actions, action, p.arg_words, f"action profile '{p.name}'")
        return int(index), args

    def member_modify(self, profile: str, member: int, action: ActionCall) -> None:
        with self._mutex:
            p, state = self._profile(profile)
            slot = self._member_slot(profile, member)
            index, args = self._call(p, action)
            self._c.p4c_member_set(self.pointer, p.index, slot, index, args)
            state.calls[member] = action

    def member_delete(self, profile: str, member: int) -> None:
        """Delete a member. Raises InvalidArgument while an entry or group refers to it."""
        with self._mutex:
            p, state = self._profile(profile)
            slot = self._member_slot(profile, member)
            grouped = any(member in g.members for g in state.contents.values())
            if state.members.references[slot] or grouped:
                raise InvalidArgument(f"action profile '{profile}': member {member} is in use")
            self._c.p4c_member_set(self.pointer, p.index, slot, -1, None)
            state.members.release(member)
            del state.calls[member]

    def members(self, profile: str) -> Iterator[ProfileMember]:
        """Yield the members in order of their ids."""
        state = self._profile(profile)[1]
        for id_ in sorted(state.calls):
            yield ProfileMember(profile, id_, state.calls[id_])

    # --- groups -------------------------------------------------------------------------------------------
    def _set_group(self, p: Profile, state: _State, slot: int, members: tuple[int, ...]) -> None:
        # BMv2 picks the n-th member in order of its id
        slots = [state.members.slot[m] for m in sorted(members)]
        array = (ctypes.c_uint32 * (len(slots) + 1))(*slots)
        self._c.p4c_group_set(self.pointer, p.index, slot, len(slots), array)

    def group_add(
        self, profile: str, members: Iterable[int] = (), group: int | None = None, *, max_size: int = 0
    ) -> int:
        """Add a group with the given id, or the lowest free one; a member listed n times has weight n."""
        with self._mutex:
            p, state = self._profile(profile)
            contents = self._group_members(p, members, max_size, state.members.slot)
            id_ = self._new_id(p, "group", group, state.groups.slot)
            self._set_group(p, state, state.groups.take(id_), contents)
            state.contents[id_] = Group(profile, id_, contents, max_size)
            return id_

    def group_modify(self, profile: str, group: int, members: Iterable[int]) -> None:
        with self._mutex:
            p, state = self._profile(profile)
            slot = self._group_slot(profile, group)
            old = state.contents[group]
            contents = self._group_members(p, members, old.max_size, state.members.slot)
            self._set_group(p, state, slot, contents)
            state.contents[group] = Group(profile, group, contents, old.max_size)

    def group_delete(self, profile: str, group: int) -> None:
        """Delete a group. Raises InvalidArgument while an entry refers to it."""
        with self._mutex:
            p, state = self._profile(profile)
            slot = self._group_slot(profile, group)
            if state.groups.references[slot]:
                raise InvalidArgument(f"action profile '{profile}': group {group} is in use")
            self._c.p4c_group_set(self.pointer, p.index, slot, 0, None)
            state.groups.release(group)
            del state.contents[group]

    def groups(self, profile: str) -> Iterator[Group]:
        """Yield the groups in order of their ids."""
        state = self._profile(profile)[1]
        for id_ in sorted(state.contents):
            yield state.contents[id_]
