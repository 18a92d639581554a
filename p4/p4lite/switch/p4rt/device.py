"""One device: its switch, its pipeline, its controllers, and the entities programmed into it.

Everything here runs under the device's lock, so that a Write is seen by reads as a whole, and an update by
packets as a whole (P4Runtime specification, "Parallelism of Read and Write Requests").
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from p4lite.messages import p4runtime_pb2
from p4lite.switch.fabric.fabric import FabricSwitch
from p4lite.switch.fabric.values import CloneSession, FabricError, Notification, NotificationKind, Replica
from p4lite.switch.p4rt.arbitration import Arbiter, Client, election_value
from p4lite.switch.p4rt.digests import Digests
from p4lite.switch.p4rt.errors import (
    ALREADY_EXISTS,
    FAILED_PRECONDITION,
    NOT_FOUND,
    OUT_OF_RANGE,
    PERMISSION_DENIED,
    UNIMPLEMENTED,
    P4RtError,
    invalid,
)
from p4lite.switch.p4rt.externs import Arrays, ValueSets
from p4lite.switch.p4rt.info import Info, ParamInfo, decode, encode
from p4lite.switch.p4rt.pipeline import (
    DELETE,
    INSERT,
    MODIFY,
    DeviceTarget,
    NoReplicator,
    Pipeline,
    PipelineCache,
    control,
)
from p4lite.switch.p4rt.profiles import Profiles
from p4lite.switch.p4rt.tables import DeviceTables
from p4lite.switch.runtime.loader import ProgramInstance

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


def packet_in(info: Info, frame: bytes) -> Any:
    """Return the PacketIn of a packet that left through the CPU port."""
    message = p4runtime_pb2.PacketIn()
    fields = info.packet_in or ()
    size = _header_bytes(fields)
    if not fields or len(frame) < size:
        message.payload = frame
        return message
    header = int.from_bytes(frame[:size], "big")
    left = size * 8
    for field in fields:
        left -= field.width
        value = header >> left & ((1 << field.width) - 1)
        message.metadata.add(metadata_id=field.id, value=encode(value))
    message.payload = frame[size:]
    return message


def packet_out(info: Info, message: Any) -> bytes:
    """Return the packet to receive on the CPU port; INVALID_ARGUMENT when its metadata is not that of the P4Info."""
    fields = info.packet_out or ()
    given: dict[int, bytes] = {}
    known = {field.id for field in fields}
    for metadata in message.metadata:
        if metadata.metadata_id not in known:
            raise invalid(f"packet-out has no metadata field with id {metadata.metadata_id}")
        if metadata.metadata_id in given:
            raise invalid(f"packet-out metadata {metadata.metadata_id} is given twice")
        given[metadata.metadata_id] = metadata.value
    header = 0
    for field in fields:
        if field.id not in given:
            raise invalid(f"packet-out lacks metadata '{field.name}' (id {field.id})")
        header = header << field.width | decode(given[field.id], field.width, f"metadata '{field.name}'")
    size = _header_bytes(fields)
    header <<= size * 8 - sum(field.width for field in fields)
    return header.to_bytes(size, "big") + bytes(message.payload)


def _header_bytes(fields: tuple[ParamInfo, ...]) -> int:
    return (sum(field.width for field in fields) + 7) // 8


_Set = p4runtime_pb2.SetForwardingPipelineConfigRequest
_Get = p4runtime_pb2.GetForwardingPipelineConfigRequest
_Write = p4runtime_pb2.WriteRequest
Writer = Callable[[int, Any], None]
#: Yields messages, or their serialised form.
Reader = Callable[[Any], Iterator[Any]]
_ENTITY_FIELDS = {field.name: field.number for field in p4runtime_pb2.Entity.DESCRIPTOR.fields}
_RESPONSE_ENTITIES = p4runtime_pb2.ReadResponse.DESCRIPTOR.fields_by_name["entities"].number


def length_delimited(number: int, data: bytes) -> bytes:
    """Return a protobuf field of wire type 2 (sub-message or bytes), without building the message around it."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Forwarding:
    """The entities of a device under one pipeline; it selects those that a message means."""

    def __init__(self, target: DeviceTarget) -> None:
        self.pipeline = target.pipeline
        self.profiles = Profiles(target)
        self.tables = DeviceTables(target, self.profiles)
        arrays, value_sets = Arrays(target), ValueSets(target)
        self.replication = DeviceReplication(target)
        self.digests = Digests(target.pipeline)
        self._entities: dict[str, tuple[Writer, Reader]] = {
            "table_entry": (self.tables.write, self.tables.read),
            "action_profile_member": (self.profiles.write_member, self.profiles.read_members),
            "action_profile_group": (self.profiles.write_group, self.profiles.read_groups),
            "meter_entry": (arrays.write_meter, arrays.read_meters),
            "direct_meter_entry": (self.tables.write_meter, self.tables.read_meters),
            "counter_entry": (arrays.write_counter, arrays.read_counters),
            "direct_counter_entry": (self.tables.write_counter, self.tables.read_counters),
            "packet_replication_engine_entry": (self.replication.write, self.replication.read),
            "value_set_entry": (value_sets.write, value_sets.read),
            "register_entry": (arrays.write_register, arrays.read_registers),
            "digest_entry": (self.digests.write, self.digests.read),
        }

    def write(self, update: Any) -> None:
        """Apply one Update message, which may be changed."""
        kind, entity = update.type, update.entity
        if kind not in (INSERT, MODIFY, DELETE):
            raise invalid(f"update type {kind} is not INSERT, MODIFY or DELETE")
        which, (writer, _) = self._handlers(entity, "an update")
        try:
            writer(kind, getattr(entity, which))
        except (ValueError, OverflowError) as error:
            raise P4RtError(OUT_OF_RANGE, f"a number is out of range: {error}") from None

    def read(self, query: Any) -> Iterator[bytes]:
        """Yield every Entity that a query means, serialised."""
        which, (_, reader) = self._handlers(query, "a read")
        for found in reader(getattr(query, which)):
            data = found if isinstance(found, bytes) else found.SerializeToString()
            yield length_delimited(_ENTITY_FIELDS[which], data)

    def _handlers(self, entity: Any, what: str) -> tuple[str, tuple[Writer, Reader]]:
        which = entity.WhichOneof("entity")
        if which is None:
            raise invalid(f"{what} needs an entity")
        handlers = self._entities.get(which)
        if handlers is None:
            raise P4RtError(UNIMPLEMENTED, f"{which} is not supported")
        return which, handlers


@dataclass(slots=True)
class _Saved:
    """A pipeline that was verified and saved, and the writes made since (to be replayed by COMMIT)."""

    forwarding: Forwarding
    instance: ProgramInstance
    writes: list[bytes]


class Device:
    """A switch with its P4Runtime state."""

    def __init__(
        self, switch: FabricSwitch, cache: PipelineCache, programs: AbstractContextManager[object] | None = None
    ) -> None:
        """Create the device of a switch; `programs` is held while programs come and go, as notifications use them."""
        self.switch = switch
        self.device_id = switch.device_id
        self.lock = threading.RLock()
        self.arbiter = Arbiter(switch.device_id)
        self._cache = cache
        self._programs = programs or nullcontext()
        self._forwarding: Forwarding | None = None
        self._saved: _Saved | None = None
        #: Stream messages that found their controller's queue full.
        self.stream_drops = 0

    # -- pipeline ----------------------------------------------------------------------------------------

    def set_pipeline(self, request: Any) -> None:
        """Perform the RPC SetForwardingPipelineConfig."""
        with self.lock:
            self.arbiter.check_primary(request.role, election_value(request))
        action = request.action
        if action == _Set.COMMIT:
            if request.HasField("config"):
                raise invalid("COMMIT takes no config: it commits the one that was saved")
            with self.lock:
                self._commit_saved()
            return
        if action == _Set.RECONCILE_AND_COMMIT:
            raise P4RtError(
                UNIMPLEMENTED,
                "RECONCILE_AND_COMMIT is not supported: use VERIFY_AND_COMMIT and write the entries again",
            )
        if action not in (_Set.VERIFY, _Set.VERIFY_AND_SAVE, _Set.VERIFY_AND_COMMIT):
            raise invalid(f"action {action} is not defined by the specification")
        if not request.HasField("config"):
            raise invalid("the request has no config")
        pipeline = self._cache.verify(request.config)
        with self.lock:
            self.arbiter.check_primary(request.role, election_value(request))
            if action == _Set.VERIFY_AND_SAVE:
                self._save(pipeline)
            elif action == _Set.VERIFY_AND_COMMIT:
                self.commit(pipeline)

    def commit(self, pipeline: Pipeline) -> None:
        """Run `pipeline` with empty tables."""
        with self.lock:
            with control(), self._programs:
                self.switch.load(pipeline.program)
            self._forwarding = self._fresh(pipeline)
            self._drop_saved()

    def adopt(self, pipeline: Pipeline) -> None:
        """Take over a pipeline that the switch runs already, with the entries in its tables."""
        with self.lock:
            self._forwarding = self._fresh(pipeline)
            self._drop_saved()

    def _fresh(self, pipeline: Pipeline) -> Forwarding:
        return Forwarding(DeviceTarget(pipeline, lambda: self.switch.instance, self.switch, self._port_up))

    def _save(self, pipeline: Pipeline) -> None:
        self._drop_saved()
        instance = pipeline.program.instance(drop_port=self.switch.drop_port)
        target = DeviceTarget(pipeline, lambda: instance, NoReplicator(), self._port_up)
        self._saved = _Saved(Forwarding(target), instance, [])

    def _drop_saved(self) -> None:
        if self._saved is not None:
            self._saved.instance.close()
            self._saved = None

    def _commit_saved(self) -> None:
        saved = self._saved
        if saved is None:
            raise P4RtError(NOT_FOUND, "no config was saved by VERIFY_AND_SAVE")
        self.commit(saved.forwarding.pipeline)
        assert self._forwarding is not None
        for data in saved.writes:
            self._forwarding.write(p4runtime_pb2.Update.FromString(data))

    def get_pipeline(self, request: Any) -> Any:
        """Perform the RPC GetForwardingPipelineConfig."""
        response = p4runtime_pb2.GetForwardingPipelineConfigResponse()
        if request.response_type not in _Get.ResponseType.values():
            raise invalid(f"response_type {request.response_type} is not defined by the specification")
        with self.lock:
            forwarding = self._saved.forwarding if self._saved else self._forwarding
        if forwarding is None:
            return response
        stored, cookie = forwarding.pipeline.config, forwarding.pipeline.cookie
        response.config.SetInParent()
        if cookie is not None:
            response.config.cookie.cookie = cookie
            response.config.cookie.SetInParent()
        if request.response_type in (_Get.ALL, _Get.P4INFO_AND_COOKIE):
            response.config.p4info.CopyFrom(stored.p4info)
        if request.response_type in (_Get.ALL, _Get.DEVICE_CONFIG_AND_COOKIE):
            response.config.p4_device_config = stored.p4_device_config
        return response

    def restarted(self) -> None:
        """Handle a restart of the switch: the program stays, all entities are gone."""
        with self.lock:
            if self._forwarding is not None:
                self._forwarding = self._fresh(self._forwarding.pipeline)
            self._drop_saved()

    def _port_up(self, number: int) -> bool | None:
        port = self.switch.ports.get(number)
        if port is None:
            return True if number == self.switch.cpu_port else None
        return port.is_up("outgoing")

    def ports_changed(self) -> None:
        """Update selectors that watch ports with the ports' state."""
        with self.lock:
            if self._forwarding is not None:
                self._forwarding.profiles.ports_changed()

    # -- entities ----------------------------------------------------------------------------------------

    def _entities(self) -> Forwarding:
        if self._saved is not None:
            return self._saved.forwarding
        if self._forwarding is None:
            raise P4RtError(
                FAILED_PRECONDITION, f"device {self.device_id} has no pipeline: set a ForwardingPipelineConfig"
            )
        return self._forwarding

    def write(self, request: Any) -> list[P4RtError | None]:
        """Perform the RPC Write; return the error of each update, or None."""
        with self.lock:
            self.arbiter.check_primary(request.role, election_value(request))
            forwarding = self._entities()
            if request.atomicity != _Write.CONTINUE_ON_ERROR:
                raise P4RtError(UNIMPLEMENTED, "only CONTINUE_ON_ERROR is supported as the atomicity of a batch")
            errors: list[P4RtError | None] = []
            for update in request.updates:
                original = b"" if self._saved is None else update.SerializeToString()
                try:
                    forwarding.write(update)
                except P4RtError as error:
                    errors.append(error.kept())
                else:
                    errors.append(None)
                    if self._saved is not None:
                        self._saved.writes.append(original)
            return errors

    def read(self, request: Any, chunk: int = 256) -> Iterator[bytes]:
        """Yield the serialised ReadResponses of the RPC Read, up to `chunk` entities each.

        Raises ReadErrors at the end if any entity failed.
        """
        with self.lock:
            forwarding = self._entities()
            responses: list[bytes] = []
            entities: list[bytes] = []
            errors: list[P4RtError | None] = []
            for query in request.entities:
                try:
                    for entity in forwarding.read(query):
                        entities.append(length_delimited(_RESPONSE_ENTITIES, entity))
                        if len(entities) == chunk:
                            responses.append(b"".join(entities))
                            entities = []
                except P4RtError as error:
                    errors.append(error.kept())
                else:
                    errors.append(None)
            if entities:
                responses.append(b"".join(entities))
        yield from responses
        if any(error is not None for error in errors):
            raise ReadErrors(errors)

    # -- streams -----------------------------------------------------------------------------------------

    def stream_message(self, client: Client, message: Any) -> None:
        """Handle a controller's message on its stream, after its arbitration."""
        which = message.WhichOneof("update")
        try:
            with self.lock:
                if which == "packet":
                    self._packet_out(client, message.packet)
                elif which == "digest_ack":
                    if not self.arbiter.is_primary(client):
                        raise P4RtError(PERMISSION_DENIED, "only the primary acknowledges digests")
                    if self._forwarding is None:
                        raise P4RtError(FAILED_PRECONDITION, f"device {self.device_id} has no pipeline")
                    self._forwarding.digests.acknowledge(message.digest_ack)
                elif which == "other":
                    raise P4RtError(UNIMPLEMENTED, "there are no other stream messages")
                else:
                    raise invalid("the stream message is empty")
        except P4RtError as error:
            client.send(_stream_error(which, message, error))

    def _packet_out(self, client: Client, packet: Any) -> None:
        if not self.arbiter.is_primary(client):
            raise P4RtError(PERMISSION_DENIED, "only the primary sends packets")
        if self._forwarding is None:
            raise P4RtError(FAILED_PRECONDITION, f"device {self.device_id} has no pipeline")
        frame = packet_out(self._forwarding.pipeline.info, packet)
        try:
            self.switch.packet_out(frame)
        except FabricError as error:
            raise P4RtError(FAILED_PRECONDITION, str(error)) from None

    def _broadcast(self, **fields: Any) -> None:
        message = p4runtime_pb2.StreamMessageResponse(**fields)
        for client in self.arbiter.primaries():
            if not client.offer(message):
                self.stream_drops += 1

    def notify(self, notifications: Sequence[Notification]) -> None:
        """Forward what the fabric reported for this device."""
        with self.lock:
            forwarding = self._forwarding
            if forwarding is None:
                return
            idle: list[Any] = []
            ports = False
            for note in notifications:
                if note.kind is NotificationKind.PACKET_IN:
                    self._broadcast(packet=packet_in(forwarding.pipeline.info, note.data))
                elif note.kind is NotificationKind.DIGEST:
                    found = forwarding.digests.sample(note.ident, note.data, time.monotonic_ns())
                    if found is not None:
                        self._broadcast(digest=found)
                elif note.kind is NotificationKind.IDLE_TIMEOUT:
                    ident = forwarding.pipeline.table_ids.get(note.ident, 0)
                    entry = forwarding.tables.idle_entry(ident, note.handle)
                    if entry is not None:
                        idle.append(entry)
                else:
                    ports = True
            if idle:
                self._broadcast(
                    idle_timeout_notification=p4runtime_pb2.IdleTimeoutNotification(
                        table_entry=idle, timestamp=time.time_ns()
                    )
                )
            if ports:
                forwarding.profiles.ports_changed()

    def digests_due(self, now: int) -> int | None:
        """Send the digest lists that are due; return the time of the next call, None for never."""
        with self.lock:
            if self._forwarding is None:
                return None
            for message in self._forwarding.digests.due(now):
                self._broadcast(digest=message)
            return self._forwarding.digests.next_due()


class ReadErrors(Exception):
    """Some of a ReadRequest's entities were refused; one element per entity."""

    def __init__(self, errors: list[P4RtError | None]) -> None:
        super().__init__("read")
        self.errors = errors


def _stream_error(which: str | None, message: Any, error: P4RtError) -> Any:
    response = p4runtime_pb2.StreamMessageResponse()
    response.error.canonical_code = error.status
    response.error.message = error.message
    response.error.space = "p4lite"
    if which == "packet":
        response.error.packet_out.packet_out.CopyFrom(message.packet)
    elif which == "digest_ack":
        response.error.digest_list_ack.digest_list_ack.CopyFrom(message.digest_ack)
    else:
        response.error.other.SetInParent()
    return response
