"""The packet replication engine: multicast groups and clone sessions.

Source: P4Runtime specification, "PacketReplicationEngineEntry"; limits are those of simple_switch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4lite.messages import p4runtime_pb2
from p4lite.switch.fabric.values import CloneSession, Replica
from p4lite.switch.p4rt.errors import ALREADY_EXISTS, NOT_FOUND, UNIMPLEMENTED, P4RtError, invalid
from p4lite.switch.p4rt.info import decode, encode
from p4lite.switch.p4rt.pipeline import DELETE, INSERT, DeviceTarget, control

MAX_GROUP = 65535
MAX_SESSION = 32767
MAX_INSTANCE = 65535
MAX_PORT = 65535
_PORT_WIDTH = 32


class DeviceReplication:
    """Multicast groups and clone sessions of one device under one pipeline."""

    def __init__(self, target: DeviceTarget) -> None:
        self._target = target
        self._groups: dict[int, bytes] = {}
        self._sessions: dict[int, bytes] = {}

    def write(self, kind: int, message: Any) -> None:
        """Apply a PacketReplicationEngineEntry."""
        which = message.WhichOneof("type")
        if which == "multicast_group_entry":
            self._write_group(kind, message.multicast_group_entry)
        elif which == "clone_session_entry":
            self._write_session(kind, message.clone_session_entry)
        else:
            raise invalid("a packet replication engine entry needs a multicast group or a clone session")

    def _write_group(self, kind: int, message: Any) -> None:
        ident = message.multicast_group_id
        if not 0 < ident <= MAX_GROUP:
            raise invalid(f"multicast_group_id {ident} is not from 1 to {MAX_GROUP}")
        self._check_known(kind, ident, self._groups, "multicast group")
        if kind == DELETE:
            with control():
                self._target.replicator.delete_multicast_group(ident)
            del self._groups[ident]
            return
        replicas = _replicas(message.replicas)
        with control():
            self._target.replicator.set_multicast_group(ident, replicas)
        self._groups[ident] = message.SerializeToString()

    def _write_session(self, kind: int, message: Any) -> None:
        ident = message.session_id
        if not 0 < ident <= MAX_SESSION:
            raise invalid(f"session_id {ident} is not from 1 to {MAX_SESSION}")
        self._check_known(kind, ident, self._sessions, "clone session")
        if kind == DELETE:
            with control():
                self._target.replicator.delete_clone_session(ident)
            del self._sessions[ident]
            return
        if message.class_of_service:
            raise P4RtError(UNIMPLEMENTED, "clone sessions have no class of service")
        if message.packet_length_bytes < 0:
            raise invalid("packet_length_bytes is negative")
        session = CloneSession(replicas=tuple(_replicas(message.replicas)), truncate_bytes=message.packet_length_bytes)
        with control():
            self._target.replicator.set_clone_session(ident, session)
        self._sessions[ident] = message.SerializeToString()

    def _check_known(self, kind: int, ident: int, known: dict[int, bytes], what: str) -> None:
        if kind == INSERT and ident in known:
            raise P4RtError(ALREADY_EXISTS, f"there is a {what} {ident}")
        if kind != INSERT and ident not in known:
            raise P4RtError(NOT_FOUND, f"there is no {what} {ident}")

    def read(self, query: Any) -> Iterator[Any]:
        """Yield every PacketReplicationEngineEntry that a query asks for (id 0: all)."""
        which = query.WhichOneof("type")
        if which == "multicast_group_entry":
            for data in _asked(query.multicast_group_entry.multicast_group_id, self._groups, "multicast group"):
                entry = p4runtime_pb2.PacketReplicationEngineEntry()
                entry.multicast_group_entry.ParseFromString(data)
                yield entry
        elif which == "clone_session_entry":
            for data in _asked(query.clone_session_entry.session_id, self._sessions, "clone session"):
                entry = p4runtime_pb2.PacketReplicationEngineEntry()
                entry.clone_session_entry.ParseFromString(data)
                yield entry
        else:
            raise invalid("a read of the packet replication engine names multicast groups or clone sessions")


def _asked(ident: int, known: dict[int, bytes], what: str) -> list[bytes]:
    if not ident:
        return list(known.values())
    if ident not in known:
        raise P4RtError(NOT_FOUND, f"there is no {what} {ident}")
    return [known[ident]]


def _replicas(messages: Any) -> list[Replica]:
    """Return the copies of a group or session; `port` becomes canonical in place."""
    result: list[Replica] = []
    for message in messages:
        if message.WhichOneof("port_kind") == "port":
            port = decode(message.port, _PORT_WIDTH, "replica port")
            message.port = encode(port)
        else:
            port = message.egress_port
        if port > MAX_PORT:
            raise invalid(f"replica port {port} is above {MAX_PORT}")
        if message.instance > MAX_INSTANCE:
            raise invalid(f"replica instance {message.instance} is above {MAX_INSTANCE}")
        replica = Replica(port, message.instance)
        if replica in result:
            raise invalid(f"port {port} with instance {message.instance} is given twice")
        result.append(replica)
    return result
