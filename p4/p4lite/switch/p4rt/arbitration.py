"""Client arbitration per (device, role) by election id: the choice of the primary.

Source: P4Runtime specification, "Client Arbitration and Controller Replication". No gRPC here: a client is
any object with `send(message)`, so the rules can be tested without a network.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from p4lite.messages import code_pb2, p4runtime_pb2
from p4lite.switch.p4rt.errors import (
    FAILED_PRECONDITION,
    NOT_FOUND,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    P4RtError,
    invalid,
)

MAX_CLIENTS_PER_ROLE = 64
#: A role is remembered for its highest election id.
MAX_ROLES = 64
MAX_ROLE_NAME = 256


class Client(Protocol):
    """An open stream channel. Neither method blocks."""

    def send(self, message: Any) -> None:
        """Queue a StreamMessageResponse for the controller."""

    def offer(self, message: Any) -> bool:
        """Queue the response unless too many wait already; return False when it was dropped."""


@dataclass(eq=False)
class _Member:
    client: Client
    election_id: int | None


@dataclass
class _Role:
    name: str
    members: list[_Member] = field(default_factory=list)
    highest: int | None = None

    def primary(self) -> _Member | None:
        if self.highest is None:
            return None
        return next((member for member in self.members if member.election_id == self.highest), None)


def election_value(message: Any) -> int | None:
    """Return the 128-bit election id of a message that has the field, None when it is unset."""
    if not message.HasField("election_id"):
        return None
    return (int(message.election_id.high) << 64) | int(message.election_id.low)


class Arbiter:
    """The roles of one device. Not thread-safe: the device's lock guards it."""

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id
        self._roles: dict[str, _Role] = {}
        self._of: dict[Client, tuple[_Role, _Member]] = {}

    def update(self, client: Client, message: Any) -> None:
        """Handle a MasterArbitrationUpdate; a P4RtError means the stream must end with its code."""
        known = self._of.get(client)
        name = message.role.name if message.HasField("role") else ""
        if known is not None:
            if message.device_id != self.device_id:
                raise P4RtError(
                    FAILED_PRECONDITION,
                    f"this stream is for device {self.device_id}, not {message.device_id}; open another",
                )
            if known[0].name != name:
                raise P4RtError(
                    FAILED_PRECONDITION,
                    f"this stream has role '{known[0].name}', not '{name}'; open another to change it",
                )
        if message.HasField("role") and message.role.HasField("config") and message.role.config.ByteSize():
            raise invalid("role.config is not supported: every role has full access to the pipeline")
        if known is None and name not in self._roles:
            if len(name) > MAX_ROLE_NAME:
                raise invalid(f"a role's name has at most {MAX_ROLE_NAME} characters")
            if len(self._roles) >= MAX_ROLES:
                raise P4RtError(RESOURCE_EXHAUSTED, f"device {self.device_id} has {MAX_ROLES} roles already")
        role = known[0] if known else self._roles.setdefault(name, _Role(name))
        election_id = election_value(message)
        for other in role.members:
            if election_id is not None and other.election_id == election_id and other.client is not client:
                raise invalid(f"election id {election_id} is in use by another controller of role '{name}'")
        if known is None:
            if len(role.members) >= MAX_CLIENTS_PER_ROLE:
                raise P4RtError(RESOURCE_EXHAUSTED, f"role '{name}' has {MAX_CLIENTS_PER_ROLE} open streams")
            member = _Member(client, election_id)
            role.members.append(member)
            self._of[client] = (role, member)
            was_primary = False
        else:
            member = known[1]
            was_primary = role.primary() is member
            member.election_id = election_id
        if election_id is not None and (role.highest is None or election_id >= role.highest):
            role.highest = election_id
            self._notify_all(role)
        elif was_primary:
            self._notify_all(role)
        else:
            self._notify(role, member, role.primary())

    def remove(self, client: Client) -> None:
        """Remove the stream of `client`; notify the rest of its role if it was the primary."""
        known = self._of.pop(client, None)
        if known is None:
            return
        role, member = known
        was_primary = role.primary() is member
        role.members.remove(member)
        if was_primary:
            self._notify_all(role)

    def check_primary(self, role_name: str, election_id: int | None) -> None:
        """Raise unless a request with these two fields comes from the primary of that role."""
        role = self._roles.get(role_name)
        if role is None:
            if not role_name:
                raise P4RtError(PERMISSION_DENIED, "no controller has opened a stream: arbitrate before writing")
            raise P4RtError(NOT_FOUND, f"device {self.device_id} has no role '{role_name}'")
        primary = role.primary()
        if primary is None:
            raise P4RtError(PERMISSION_DENIED, "there is no primary controller: arbitrate before writing")
        if election_id != primary.election_id:
            got = "none" if election_id is None else str(election_id)
            raise P4RtError(
                PERMISSION_DENIED, f"not primary: election id {got}, the primary's is {primary.election_id}"
            )

    def is_primary(self, client: Client) -> bool:
        """Return whether `client` is the primary of its role."""
        known = self._of.get(client)
        return known is not None and known[0].primary() is known[1]

    def primaries(self) -> list[Client]:
        """Return the primary of every role that has one; they receive packets, digests and notifications."""
        found = (role.primary() for role in self._roles.values())
        return [member.client for member in found if member is not None]

    def _notify_all(self, role: _Role) -> None:
        primary = role.primary()
        # The new primary is notified last: the others then know already that they may not write.
        for member in sorted(role.members, key=lambda member: member is primary):
            self._notify(role, member, primary)

    def _notify(self, role: _Role, member: _Member, primary: _Member | None) -> None:
        message = p4runtime_pb2.StreamMessageResponse()
        update = message.arbitration
        update.device_id = self.device_id
        if role.name:
            update.role.name = role.name
        if role.highest is not None:
            update.election_id.high = role.highest >> 64
            update.election_id.low = role.highest & ((1 << 64) - 1)
        if primary is None:
            update.status.code = code_pb2.NOT_FOUND
            update.status.message = "there is no primary controller"
        elif member is primary:
            update.status.code = code_pb2.OK
            update.status.message = "you are primary"
        else:
            update.status.code = code_pb2.ALREADY_EXISTS
            update.status.message = "you are backup: another controller is primary"
        member.client.send(message)
