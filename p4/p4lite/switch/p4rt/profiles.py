"""Action profiles and selectors: members, groups, and one-shot action sets.

Source: P4Runtime specification, "ActionProfileMember & ActionProfileGroup". A profile is programmed either with
members and groups, whose ids are the target's too, or with one-shots, whose ids the target chooses.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from p4lite.messages import p4runtime_pb2
from p4lite.switch.p4rt.errors import (
    ALREADY_EXISTS,
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    P4RtError,
    invalid,
)
from p4lite.switch.p4rt.info import ProfileInfo, decode
from p4lite.switch.p4rt.match import action_call
from p4lite.switch.p4rt.pipeline import DELETE, INSERT, DeviceTarget, control

#: A member of weight n takes n places in its group; a group may have this many places.
MAX_GROUP_PLACES = 65536
_PORT_WIDTH = 32


@dataclass(frozen=True, slots=True)
class _Place:
    member: int
    weight: int
    watch_port: int | None


@dataclass(slots=True)
class _Group:
    places: tuple[_Place, ...]
    message: bytes = b""
    max_size: int = 0


@dataclass(slots=True)
class _Profile:
    info: ProfileInfo
    actions: frozenset[int]
    members: dict[int, bytes] = field(default_factory=dict)
    groups: dict[int, _Group] = field(default_factory=dict)
    oneshots: dict[int, _Group] = field(default_factory=dict)


class Profiles:
    """The action profiles of one device under one pipeline."""

    def __init__(self, target: DeviceTarget) -> None:
        self._target = target
        info = target.pipeline.info
        self._profiles = {
            ident: _Profile(
                profile,
                frozenset(
                    action
                    for table in profile.table_ids
                    if table in info.tables
                    for action in info.tables[table].scopes
                ),
            )
            for ident, profile in info.profiles.items()
        }

    def _profile(self, ident: int) -> _Profile:
        profile = self._profiles.get(ident)
        if profile is None:
            raise invalid(f"there is no action profile with id {ident}")
        return profile

    # -- members -----------------------------------------------------------------------------------------

    def write_member(self, kind: int, message: Any) -> None:
        """Apply an update of an ActionProfileMember."""
        profile = self._profile(message.action_profile_id)
        ident = message.member_id
        if not ident:
            raise invalid("member_id must not be 0")
        name, instance = profile.info.name, self._target.instance
        if kind == DELETE:
            self._known(ident, profile.members, "member", name)
            if any(place.member == ident for group in profile.groups.values() for place in group.places):
                raise P4RtError(FAILED_PRECONDITION, f"member {ident} of '{name}' is part of a group")
            self._delete(lambda: instance.member_delete(name, ident), f"member {ident} of '{name}'")
            del profile.members[ident]
            return
        self._manual(profile)
        if kind == INSERT:
            if ident in profile.members:
                raise P4RtError(ALREADY_EXISTS, f"'{name}' has a member {ident}")
            if profile.info.size and len(profile.members) >= profile.info.size:
                raise P4RtError(RESOURCE_EXHAUSTED, f"'{name}' holds {profile.info.size} members")
        else:
            self._known(ident, profile.members, "member", name)
        if not message.HasField("action"):
            raise invalid("a member needs an action")
        call = action_call(self._target.pipeline, profile.actions, message.action, name)
        with control():
            if kind == INSERT:
                instance.member_add(name, call, ident)
            else:
                instance.member_modify(name, ident, call)
        profile.members[ident] = message.SerializeToString()

    def read_members(self, query: Any) -> Iterator[Any]:
        """Yield every ActionProfileMember that a query asks for (0: all)."""
        for profile in self._asked(query.action_profile_id):
            if query.member_id:
                self._known(query.member_id, profile.members, "member", profile.info.name)
                yield p4runtime_pb2.ActionProfileMember.FromString(profile.members[query.member_id])
            else:
                for data in list(profile.members.values()):
                    yield p4runtime_pb2.ActionProfileMember.FromString(data)

    def check_member(self, profile_id: int, member: int) -> None:
        """Raise NOT_FOUND unless the member exists, INVALID_ARGUMENT while one-shots use the profile."""
        profile = self._profile(profile_id)
        self._manual(profile)
        self._known(member, profile.members, "member", profile.info.name)

    # -- groups ------------------------------------------------------------------------------------------

    def write_group(self, kind: int, message: Any) -> None:
        """Apply an update of an ActionProfileGroup."""
        profile = self._profile(message.action_profile_id)
        ident, name, instance = message.group_id, profile.info.name, self._target.instance
        if not profile.info.with_selector:
            raise invalid(f"'{name}' is not a selector: it has no groups")
        if not ident:
            raise invalid("group_id must not be 0")
        if kind == DELETE:
            self._known(ident, profile.groups, "group", name)
            self._delete(lambda: instance.group_delete(name, ident), f"group {ident} of '{name}'")
            del profile.groups[ident]
            return
        self._manual(profile)
        if kind == INSERT:
            if ident in profile.groups:
                raise P4RtError(ALREADY_EXISTS, f"'{name}' has a group {ident}")
        else:
            self._known(ident, profile.groups, "group", name)
            if message.max_size != profile.groups[ident].max_size:
                raise invalid(f"max_size of group {ident} cannot change")
        places = self._places(profile, message)
        group = _Group(places, message.SerializeToString(), message.max_size)
        with control():
            if kind == INSERT:
                instance.group_add(name, self._usable(group), ident)
            else:
                instance.group_modify(name, ident, self._usable(group))
        profile.groups[ident] = group

    def _places(self, profile: _Profile, message: Any) -> tuple[_Place, ...]:
        info = profile.info
        if info.max_group_size and not 0 < message.max_size <= info.max_group_size:
            raise invalid(f"max_size {message.max_size} is not from 1 to {info.max_group_size}")
        if message.max_size < 0:
            raise invalid("max_size is negative")
        places = []
        for member in message.members:
            self._known(member.member_id, profile.members, "member", info.name)
            places.append(self._place(info, member.member_id, member))
        if len({place.member for place in places}) != len(places):
            raise invalid("a group lists a member twice: give it a weight instead")
        self._check_size(info, places, message.max_size, RESOURCE_EXHAUSTED)
        return tuple(places)

    def _place(self, info: ProfileInfo, member: int, message: Any) -> _Place:
        if message.weight <= 0:
            raise invalid(f"weight {message.weight} of a member of '{info.name}' is not above 0")
        if info.sum_of_members and info.max_member_weight and message.weight > info.max_member_weight:
            raise invalid(f"weight {message.weight} is above the member's limit {info.max_member_weight}")
        which = message.WhichOneof("watch_kind")
        port = None
        if which == "watch_port" and message.watch_port:
            port = decode(message.watch_port, _PORT_WIDTH, "watch_port")
        elif which == "watch" and message.watch:
            port = message.watch
        if port is not None and self._target.port_up(port) is None:
            raise invalid(f"the switch has no port {port} to watch")
        return _Place(member, message.weight, port)

    def _check_size(self, info: ProfileInfo, places: Sequence[_Place], limit: int, code: int) -> None:
        total = sum(place.weight for place in places)
        size = len(places) if info.sum_of_members else total
        if limit and size > limit:
            raise P4RtError(code, f"the group's size {size} is above its limit {limit}")
        if total > MAX_GROUP_PLACES:
            raise P4RtError(RESOURCE_EXHAUSTED, f"weights add up to {total}, more than {MAX_GROUP_PLACES}")

    def _usable(self, group: _Group) -> list[int]:
        """Return the group's members, each as often as its weight, without those whose watched port is down."""
        return [
            place.member
            for place in group.places
            if place.watch_port is None or self._target.port_up(place.watch_port)
            for _ in range(place.weight)
        ]

    def ports_changed(self) -> None:
        """Apply the state of the ports to every group that watches one."""
        for profile in self._profiles.values():
            for groups in (profile.groups, profile.oneshots):
                for ident, group in groups.items():
                    if any(place.watch_port is not None for place in group.places):
                        with control():
                            self._target.instance.group_modify(profile.info.name, ident, self._usable(group))

    def read_groups(self, query: Any) -> Iterator[Any]:
        """Yield every ActionProfileGroup that a query asks for (0: all)."""
        for profile in self._asked(query.action_profile_id):
            if query.group_id:
                self._known(query.group_id, profile.groups, "group", profile.info.name)
                yield p4runtime_pb2.ActionProfileGroup.FromString(profile.groups[query.group_id].message)
            else:
                for group in list(profile.groups.values()):
                    yield p4runtime_pb2.ActionProfileGroup.FromString(group.message)

    def check_group(self, profile_id: int, group: int) -> None:
        """Raise NOT_FOUND unless the group exists, INVALID_ARGUMENT while one-shots use the selector."""
        profile = self._profile(profile_id)
        if not profile.info.with_selector:
            raise invalid(f"'{profile.info.name}' is not a selector: it has no groups")
        self._manual(profile)
        self._known(group, profile.groups, "group", profile.info.name)

    # -- one-shots ---------------------------------------------------------------------------------------

    def add_oneshot(self, profile_id: int, message: Any, allowed: Container[int]) -> int:
        """Make members and a group for an ActionProfileActionSet; return the group's id in the target."""
        profile = self._profile(profile_id)
        info, instance = profile.info, self._target.instance
        if not info.with_selector:
            raise invalid(f"'{info.name}' is not a selector: it takes no action sets")
        if profile.members or profile.groups:
            raise invalid(f"'{info.name}' is programmed with members and groups; one-shots cannot be mixed in")
        calls = [
            action_call(self._target.pipeline, allowed, item.action, info.name)
            for item in message.action_profile_actions
        ]
        weights = [self._place(info, 0, item) for item in message.action_profile_actions]
        self._check_size(info, weights, info.max_group_size, INVALID_ARGUMENT)
        made: list[int] = []
        try:
            with control():
                for call in calls:
                    made.append(instance.member_add(info.name, call))
            group = _Group(
                tuple(
                    _Place(member, place.weight, place.watch_port) for member, place in zip(made, weights, strict=True)
                )
            )
            with control():
                ident = instance.group_add(info.name, self._usable(group))
        except P4RtError:
            for member in made:
                with control():
                    instance.member_delete(info.name, member)
            raise
        profile.oneshots[ident] = group
        return ident

    def drop_oneshot(self, profile_id: int, ident: int | None) -> None:
        """Remove what `add_oneshot` created, once no entry refers to it; None does nothing."""
        if ident is None:
            return
        profile = self._profile(profile_id)
        group = profile.oneshots.pop(ident)
        with control():
            self._target.instance.group_delete(profile.info.name, ident)
            for place in group.places:
                self._target.instance.member_delete(profile.info.name, place.member)

    # -- common ------------------------------------------------------------------------------------------

    def _asked(self, ident: int) -> list[_Profile]:
        return [self._profile(ident)] if ident else list(self._profiles.values())

    def _manual(self, profile: _Profile) -> None:
        if profile.oneshots:
            raise invalid(f"'{profile.info.name}' is programmed with one-shots; members and groups cannot be mixed in")

    def _known(self, ident: int, known: Container[int], what: str, name: str) -> None:
        if ident not in known:
            raise P4RtError(NOT_FOUND, f"'{name}' has no {what} {ident}")

    def _delete(self, delete: Any, what: str) -> None:
        try:
            with control():
                delete()
        except P4RtError as error:
            if error.status == INVALID_ARGUMENT:
                raise P4RtError(FAILED_PRECONDITION, f"{what} is in use by a table entry") from None
            raise
