"""The switch: what simple_switch does around the program (docs/p4-target.md), one packet at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from p4lite.interpreter.calculations import Calculation
from p4lite.interpreter.events import (
    ChecksumTested,
    Cloned,
    Deparsed,
    DigestSent,
    Dropped,
    Named,
    Observer,
    PacketStarted,
    Place,
    Recirculated,
    Replicated,
    Resubmitted,
    Sent,
    place_of,
)
from p4lite.interpreter.expressions import Expressions, Truth
from p4lite.interpreter.packet import Packet, fresh_packet, header_bytes
from p4lite.interpreter.parser import Parser
from p4lite.interpreter.pipelines import Pipelines
from p4lite.interpreter.primitives import Primitives, PythonExtern
from p4lite.interpreter.tables import Tables
from p4lite.switch.bmv2.model import FieldRef
from p4lite.switch.bmv2.reader import Node
from p4lite.switch.fabric.values import CloneSession, FabricError, Replica
from p4lite.switch.program.facts import Digest, Facts

NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED, RESUBMITTED = 0, 1, 2, 4, 5, 6
DROP_PORT = 511
LOOP_LIMIT = 64
#: Another struct than standard_metadata that v1model's names may be in, by alias.
_ELSEWHERE = {
    "priority": "intrinsic_metadata",
    "mcast_grp": "intrinsic_metadata",
    "egress_rid": "intrinsic_metadata",
    "ingress_global_timestamp": "intrinsic_metadata",
    "egress_global_timestamp": "intrinsic_metadata",
    "enq_timestamp": "queueing_metadata",
    "enq_qdepth": "queueing_metadata",
    "deq_timedelta": "queueing_metadata",
    "deq_qdepth": "queueing_metadata",
    "qid": "queueing_metadata",
}
_STANDARD = (
    "ingress_port",
    "egress_spec",
    "egress_port",
    "instance_type",
    "packet_length",
    "parser_error",
    "checksum_error",
    *_ELSEWHERE,
)


class Output(NamedTuple):
    """A packet that was sent."""

    port: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Checksum:
    """A checksum to verify or update: its field, its function (conditions included)."""

    target: FieldRef
    applies: Truth
    compute: Calculation
    where: Place | None


class Interpreter(Tables):
    """One switch that interprets a program. Control operations are those of `Tables` and `State`.

    `ports`: the numbers of its ports, None for any; packets to others are dropped. `externs`: a Python object for each
    extern instance of the program, by its name. `strict`: what P4 leaves undefined raises AssertionFailed.
    Raises ProgramError for a document that it cannot run.
    """

    def __init__(
        self,
        program: Facts,
        *,
        seed: int = 1,
        drop_port: int = DROP_PORT,
        ports: Collection[int] | None = None,
        priority_queues: int = 1,
        strict: bool = False,
        externs: Mapping[str, PythonExtern] | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        super().__init__(program, seed=seed, strict=strict)
        self.drop_port = drop_port
        self.ports = ports
        self.priority_queues = priority_queues
        self.observers = list(observers)
        self.digests: list[tuple[str, tuple[int, ...]]] = []
        self.messages: list[str] = []
        self.current: Packet | None = None
        """The packet that is being processed, for debuggers."""
        self._groups: dict[int, tuple[Replica, ...]] = {}
        self._sessions: dict[int, CloneSession] = {}
        self._expressions = Expressions(program.model, self)
        self._primitives = Primitives(self, self._expressions, drop_port, externs or {})
        self.parser = Parser(self._primitives)
        self.pipelines = Pipelines(self._primitives)
        self._fields = {name: ref for name in _STANDARD if (ref := self._standard_field(name)) is not None}
        self._queueing = {"enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth"} <= self._fields.keys()
        self._verified = [
            self._checksum(n, True) for n in program.model.root.items("checksums") if n.flag("verify", True)
        ]
        self._updated = [
            self._checksum(n, False) for n in program.model.root.items("checksums") if n.flag("update", True)
        ]
        deparsers = list(program.model.root["deparsers"].items())
        self._order = [n.str() for n in deparsers[0]["order"].items()] if deparsers else []
        self._deparse_steps = self._primitives.action(list(deparsers[0].items("primitives"))) if deparsers else []
        self._digests: dict[int, Digest] = {d.id: d for d in program.learn_lists}

    def _standard_field(self, name: str) -> FieldRef | None:
        model = self.program.model
        for header in (_ELSEWHERE.get(name, "standard_metadata"), "standard_metadata"):
            alias = model.aliases.get(f"{header}.{name}")
            if alias is not None:
                return alias
            found = model.headers.get(header)
            if found is not None and name in found.type.by_name:
                return FieldRef(found, found.type.by_name[name])
        return None

    def get(self, packet: Packet, name: str) -> int:
        """Return a field of the standard metadata, 0 if the program lacks it."""
        ref = self._fields.get(name)
        return 0 if ref is None else packet.headers[ref.header.name].fields[ref.field.name]

    def _set(self, packet: Packet, **values: int) -> None:
        """Write fields of the standard metadata as the target does, unseen by observers."""
        for name, value in values.items():
            ref = self._fields.get(name)
            if ref is not None:
                packet.headers[ref.header.name].fields[ref.field.name] = value & ((1 << ref.field.width) - 1)

    # --- replication ---

    def set_multicast_group(self, group: int, replicas: Sequence[Replica]) -> None:
        """Create or replace a group (1-65535); replicas are made in the given order."""
        if not 1 <= group <= 65535:
            raise FabricError(f"multicast group {group}: the number must be 1-65535")
        self._groups[group] = tuple(replicas)

    def delete_multicast_group(self, group: int) -> None:
        """Delete a multicast group. Raises FabricError when there is none."""
        if self._groups.pop(group, None) is None:
            raise FabricError(f"no multicast group {group}")

    def multicast_groups(self) -> dict[int, tuple[Replica, ...]]:
        """Return all groups."""
        return dict(self._groups)

    def set_clone_session(self, session: int, config: CloneSession) -> None:
        """Create or replace a mirror session (0-32767)."""
        if not 0 <= session <= 32767:
            raise FabricError(f"clone session {session}: the number must be 0-32767")
        self._sessions[session] = config

    def delete_clone_session(self, session: int) -> None:
        """Delete a clone session. Raises FabricError when there is none."""
        if self._sessions.pop(session, None) is None:
            raise FabricError(f"no clone session {session}")

    def clone_sessions(self) -> dict[int, CloneSession]:
        """Return all sessions."""
        return dict(self._sessions)

    # --- packets ---

    def process(self, port: int, data: bytes, *, now_ns: int | None = None) -> list[Output]:
        """Return everything that is sent because of one packet, in order.

        `now_ns` is the time on the switch's clock, by default the latest.
        """
        if now_ns is not None:
            self.now_ns = now_ns
        sent: list[Output] = []
        packet = fresh_packet(self.program.model, port, data)
        self._set(packet, ingress_port=port, ingress_global_timestamp=self.now_ns // 1000)
        work = deque([packet])
        while work:
            self._ingress(work.popleft(), work, sent)
        self.current = None
        return sent

    def _drop(self, reason: str) -> None:
        if self.observers:
            self.emit(Dropped(self.where, reason))

    def _begin(self, packet: Packet) -> None:
        self.current = packet
        self.where = None
        if self.observers:
            self.emit(PacketStarted(None, packet.port, packet.data, self.get(packet, "instance_type")))

    def _parse(self, packet: Packet) -> None:
        packet.length = packet.ingress_length = len(packet.data)
        self.parser.run(packet)
        for checksum in self._verified:
            if self._applies(packet, checksum, update=False):
                value = packet.headers[checksum.target.header.name].fields[checksum.target.field.name]
                packet.checksum_error |= checksum.compute(packet) != value

    def _ingress(self, packet: Packet, work: deque[Packet], sent: list[Output]) -> None:
        self._set(packet, packet_length=len(packet.data))
        self._begin(packet)
        self._parse(packet)
        self._set(packet, parser_error=packet.parser_error, checksum_error=int(packet.checksum_error))
        self.pipelines.run(packet, "ingress", packet.port)
        self._finish_messages(packet)
        self.where = None
        if packet.clone is not None:
            self._clone_at_ingress(packet, work, sent)
        if packet.digest:
            self._digest(packet)
        group, port = self.get(packet, "mcast_grp"), self.get(packet, "egress_spec")
        if packet.resubmit:
            if self.observers:
                self.emit(Resubmitted(self.where, packet.resubmit))
            self._again(packet, packet.data, packet.resubmit, RESUBMITTED, work)
        elif group:
            self._set(packet, instance_type=REPLICATED)
            self._multicast(packet, group, work, sent, None)
        elif port == self.drop_port:
            self._drop("ingress: egress_spec is the drop port")
        else:
            self._set(packet, instance_type=NORMAL)
            self._enqueue(packet, port, work, sent)

    def _finish_messages(self, packet: Packet) -> None:
        self.messages += packet.messages
        packet.messages.clear()

    def _again(self, packet: Packet, data: bytes, list_id: int, kind: int, work: deque[Packet]) -> None:
        if packet.loops >= LOOP_LIMIT:
            self._drop(f"it went round {LOOP_LIMIT} times")
            return
        again = fresh_packet(self.program.model, packet.port, data)
        again.loops = packet.loops + 1
        self._preserve(packet, again, list_id)
        self._set(again, instance_type=kind)
        work.append(again)

    def _preserve(self, source: Packet, target: Packet, list_id: int) -> None:
        for ref in self.program.field_lists.get(list_id, ()):
            value = source.headers[ref.header.name].fields[ref.field.name]
            target.headers[ref.header.name].fields[ref.field.name] = value

    def _reset_metadata(self, packet: Packet) -> None:
        for header in self.program.model.headers.values():
            if header.metadata:
                packet.headers[header.name].fields = {f.name: 0 for f in header.type.fields}

    def _session(self, packet: Packet, pipeline: str) -> tuple[CloneSession, int] | None:
        assert packet.clone is not None
        session, list_id = packet.clone
        packet.clone = None
        config = self._sessions.get(session)
        if self.observers:
            self.emit(Cloned(self.where, pipeline, session))
        if config is None:
            self._drop(f"the clone: there is no mirror session {session}")
            return None
        return config, list_id

    def _clone_at_ingress(self, packet: Packet, work: deque[Packet], sent: list[Output]) -> None:
        """Send the original bytes, parsed again; of the metadata only the field list survives."""
        found = self._session(packet, "ingress")
        if found is None:
            return
        copy = fresh_packet(self.program.model, packet.port, packet.data)
        self._set(copy, ingress_port=packet.port)
        observers, self.observers = self.observers, []
        self._parse(copy)
        self.observers = observers
        self._reset_metadata(copy)
        self._preserve(packet, copy, found[1])
        self._set(copy, instance_type=INGRESS_CLONE)
        self._send_clone(copy, found[0], work, sent)

    def _clone_at_egress(self, packet: Packet, work: deque[Packet], sent: list[Output]) -> None:
        """Send the headers as they are now; of the metadata only the field list survives."""
        found = self._session(packet, "egress")
        if found is None:
            return
        if packet.loops >= LOOP_LIMIT:
            self._drop(f"the clone: it went round {LOOP_LIMIT} times")
            return
        copy = packet.copy()
        copy.loops += 1
        self._reset_metadata(copy)
        self._preserve(packet, copy, found[1])
        self._set(copy, instance_type=EGRESS_CLONE)
        self._send_clone(copy, found[0], work, sent)

    def _send_clone(self, copy: Packet, config: CloneSession, work: deque[Packet], sent: list[Output]) -> None:
        limit = config.truncate_bytes or None
        if config.mcast_group is not None:
            self._multicast(copy, config.mcast_group, work, sent, limit)
        self._replicate(copy, 0, config.replicas, work, sent, limit)
        if config.port is not None:
            copy.truncate = limit
            self._enqueue(copy, config.port, work, sent)

    def _digest(self, packet: Packet) -> None:
        listed = self._digests.get(packet.digest)
        if listed is None:
            return
        values = []
        for ref in listed.fields:
            value = packet.headers[ref.header.name].fields[ref.field.name] & ((1 << ref.field.width) - 1)
            values.append(Named(f"{ref.header.name}.{ref.field.name}", value, ref.field.width))
        self.digests.append((listed.name, tuple(v.value for v in values)))
        if self.observers:
            self.emit(DigestSent(self.where, listed.name, tuple(values)))

    def _multicast(
        self, packet: Packet, group: int, work: deque[Packet], sent: list[Output], limit: int | None
    ) -> None:
        if group not in self._groups:
            self._drop(f"there is no multicast group {group}")
            return
        self._replicate(packet, group, self._groups[group], work, sent, limit)

    def _replicate(
        self,
        packet: Packet,
        group: int,
        replicas: Sequence[Replica],
        work: deque[Packet],
        sent: list[Output],
        limit: int | None,
    ) -> None:
        for replica in replicas:
            copy = packet.copy()
            copy.truncate = limit
            self._set(copy, egress_rid=replica.rid)
            if self.observers:
                self.emit(Replicated(self.where, group, replica.port, replica.rid))
            self._enqueue(copy, replica.port, work, sent)

    def _enqueue(self, packet: Packet, port: int, work: deque[Packet], sent: list[Output]) -> None:
        """Run egress at once: queues are empty here, and so are the fields that describe them."""
        if self.ports is not None and port not in self.ports:
            self._drop(f"there is no port {port}")
            return
        if self.get(packet, "priority") >= self.priority_queues:
            self._drop(f"priority {self.get(packet, 'priority')}: the port has {self.priority_queues} queues")
            return
        now = self.now_ns // 1000
        if self._queueing:
            self._set(packet, enq_timestamp=now, enq_qdepth=0, deq_timedelta=0, deq_qdepth=0)
            self._set(packet, qid=self.get(packet, "priority"))
        self._egress(packet, port, work, sent)

    def _egress(self, packet: Packet, port: int, work: deque[Packet], sent: list[Output]) -> None:
        before, self.current = self.current, packet
        self._set(
            packet,
            egress_global_timestamp=self.now_ns // 1000,
            egress_port=port,
            egress_spec=self.drop_port + 1,
            packet_length=packet.length,
        )
        self.pipelines.run(packet, "egress", port)
        self._finish_messages(packet)
        if packet.clone is not None:
            self._clone_at_egress(packet, work, sent)
        self.current = packet
        if self.get(packet, "egress_spec") == self.drop_port:
            self._drop("egress: egress_spec is the drop port")
        else:
            self._send(packet, port, work, sent)
        self.current = before

    def _send(self, packet: Packet, port: int, work: deque[Packet], sent: list[Output]) -> None:
        data = self._deparse(packet)
        self.where = None
        if packet.recirculate:
            if self.observers:
                self.emit(Recirculated(self.where, packet.recirculate))
            self._again(packet, data, packet.recirculate, RECIRCULATED, work)
            return
        if packet.truncate is not None:
            data = data[: packet.truncate]
        sent.append(Output(port, data))
        if self.observers:
            self.emit(Sent(self.where, port, data))

    # --- checksums and the deparser ---

    def _checksum(self, node: Node, verify: bool) -> _Checksum:
        target = self.program.model.field_ref(node["target"])
        header = target.header.name
        kind = node["type"].str()
        if kind not in ("generic", "ipv4"):
            node["type"].fail(f"'{kind}' is not a type of checksum")
        calculations = self._primitives.calculations
        compute = calculations.named(node["calculation"]) if kind == "generic" else calculations.ipv4(header)
        condition = node.get("if_cond")
        test = None if condition is None else self._expressions.truth(condition)
        guarded = verify or kind == "ipv4"

        def applies(packet: Packet, args: Sequence[int]) -> bool:
            return (not guarded or packet.headers[header].valid) and (test is None or test(packet, args))

        return _Checksum(target, applies, compute, place_of(node))

    def _applies(self, packet: Packet, checksum: _Checksum, *, update: bool) -> bool:
        self.where = checksum.where
        holds = checksum.applies(packet, ())
        if self.observers:
            name = f"{checksum.target.header.name}.{checksum.target.field.name}"
            self.emit(ChecksumTested(checksum.where, name, update, holds))
        return holds

    def _deparse(self, packet: Packet) -> bytes:
        for checksum in self._updated:
            if self._applies(packet, checksum, update=True):
                self._primitives.set(
                    packet, checksum.target.header.name, checksum.target.field, checksum.compute(packet)
                )
        self._primitives.run(self._deparse_steps, packet, ())
        written = tuple(name for name in self._order if packet.headers[name].valid)
        data = b"".join(header_bytes(self.program.model, packet, name) for name in written)
        if self.observers:
            self.where = None
            self.emit(Deparsed(None, written, data))
        return data + packet.payload
