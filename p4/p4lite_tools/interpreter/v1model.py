"""The way of packets through v1model: what simple_switch does around the program (p4-target.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from p4lite.switch.bmv2.model import FieldRef
from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.fabric.values import CloneSession, Replica
from p4lite.switch.program.load import main_parser
from p4lite_tools.interpreter.core import LOOP_LIMIT, Deparser, InterpreterCore, Output
from p4lite_tools.interpreter.events import ChecksumTested, Cloned, Place, Recirculated, Resubmitted, place_of
from p4lite_tools.interpreter.expressions import Calculation, Truth
from p4lite_tools.interpreter.packet import Packet, fresh_packet
from p4lite_tools.interpreter.parser import Parser

NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED, RESUBMITTED = 0, 1, 2, 4, 5, 6
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


@dataclass(frozen=True, slots=True)
class _Checksum:
    """A checksum to verify or update: its field, its function (conditions included)."""

    target: FieldRef
    applies: Truth
    compute: Calculation
    where: Place | None


class V1ModelSwitch:
    """Takes packets through a switch of v1model."""

    def __init__(self, core: InterpreterCore) -> None:
        self.core = core
        model = core.program.model
        fields = {name: ref for name in _STANDARD if (ref := self._standard_field(name)) is not None}
        core.name_fields(fields)
        self._queueing = {"enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth"} <= fields.keys()
        checksums = list(model.root.items("checksums"))
        self._verified = [self._checksum(n, True) for n in checksums if n.flag("verify", True)]
        self._updated = [self._checksum(n, False) for n in checksums if n.flag("update", True)]
        self._deparser = next(iter(core.deparsers.values()), Deparser())
        chosen = main_parser(model)
        self.parser = Parser(core.primitives, None) if chosen is None else core.parsers[chosen["name"].str()]

    def _standard_field(self, name: str) -> FieldRef | None:
        model = self.core.program.model
        for header in (_ELSEWHERE.get(name, "standard_metadata"), "standard_metadata"):
            alias = model.aliases.get(f"{header}.{name}")
            if alias is not None:
                return alias
            found = model.headers.get(header)
            if found is not None and name in found.type.by_name:
                return FieldRef(found, found.type.by_name[name])
        return None

    def process(self, port: int, data: bytes) -> list[Output]:
        """Return everything that is sent because of one packet, in order."""
        packet = fresh_packet(self.core.program.model, port, data)
        self.core.put(packet, ingress_port=port, ingress_global_timestamp=self.core.now_ns // 1000)
        work = deque([packet])
        sent: list[Output] = []
        while work:
            self._ingress(work.popleft(), work, sent)
        return sent

    def _parse(self, packet: Packet) -> None:
        packet.length = packet.ingress_length = len(packet.data)
        self.parser.run(packet)
        for checksum in self._verified:
            if self._applies(packet, checksum, update=False):
                value = packet.headers[checksum.target.header.name].fields[checksum.target.field.name]
                packet.checksum_error |= checksum.compute(packet) != value

    def _ingress(self, packet: Packet, work: deque[Packet], sent: list[Output]) -> None:
        self.core.put(packet, packet_length=len(packet.data))
        self.core.begin(packet, self.core.get(packet, "instance_type"))
        self._parse(packet)
        self.core.put(packet, parser_error=packet.parser_error, checksum_error=int(packet.checksum_error))
        self.core.pipelines.run(packet, "ingress", packet.port)
        self.core.finish_messages(packet)
        self.core.where = None
        if packet.clone is not None:
            self._clone_at_ingress(packet, work, sent)
        if packet.digest:
            self.core.send_digest(packet)
        group, port = self.core.get(packet, "mcast_grp"), self.core.get(packet, "egress_spec")
        if packet.resubmit:
            if self.core.observers:
                self.core.emit(Resubmitted(self.core.where, packet.resubmit))
            self._again(packet, packet.data, packet.resubmit, RESUBMITTED, work)
        elif group:
            self.core.put(packet, instance_type=REPLICATED)
            self._multicast(packet, group, work, sent, None)
        elif port == self.core.drop_port:
            self.core.drop("ingress: egress_spec is the drop port")
        else:
            self.core.put(packet, instance_type=NORMAL)
            self._enqueue(packet, port, work, sent)

    def _again(self, packet: Packet, data: bytes, list_id: int, kind: int, work: deque[Packet]) -> None:
        if packet.loops >= LOOP_LIMIT:
            self.core.drop(f"it went round {LOOP_LIMIT} times")
            return
        again = fresh_packet(self.core.program.model, packet.port, data)
        again.loops = packet.loops + 1
        self._keep(packet, again, list_id)
        self.core.put(again, instance_type=kind)
        work.append(again)

    def _keep(self, source: Packet, target: Packet, list_id: int) -> None:
        self.core.preserve(source, target, self.core.program.field_lists.get(list_id, ()))

    def _reset_metadata(self, packet: Packet) -> None:
        for header in self.core.program.model.headers.values():
            if header.metadata:
                packet.headers[header.name].fields = {f.name: 0 for f in header.type.fields}

    def _session(self, packet: Packet, pipeline: str) -> tuple[CloneSession, int] | None:
        assert packet.clone is not None
        session, list_id = packet.clone
        packet.clone = None
        if self.core.observers:
            self.core.emit(Cloned(self.core.where, pipeline, session))
        config = self.core.session(session)
        return None if config is None else (config, list_id)

    def _clone_at_ingress(self, packet: Packet, work: deque[Packet], sent: list[Output]) -> None:
        """Send the original bytes, parsed again; of the metadata only the field list survives."""
        found = self._session(packet, "ingress")
        if found is None:
            return
        copy = fresh_packet(self.core.program.model, packet.port, packet.data)
        self.core.put(copy, ingress_port=packet.port)
        observers, self.core.observers = self.core.observers, []
        self._parse(copy)
        self.core.observers = observers
        self._reset_metadata(copy)
        self._keep(packet, copy, found[1])
        self.core.put(copy, instance_type=INGRESS_CLONE)
        self._send_clone(copy, found[0], work, sent)

    def _clone_at_egress(self, packet: Packet, work: deque[Packet], sent: list[Output]) -> None:
        """Send the headers as they are now; of the metadata only the field list survives."""
        found = self._session(packet, "egress")
        if found is None:
            return
        if packet.loops >= LOOP_LIMIT:
            self.core.drop(f"the clone: it went round {LOOP_LIMIT} times")
            return
        copy = packet.copy()
        copy.loops += 1
        self._reset_metadata(copy)
        self._keep(packet, copy, found[1])
        self.core.put(copy, instance_type=EGRESS_CLONE)
        self._send_clone(copy, found[0], work, sent)

    def _send_clone(self, copy: Packet, config: CloneSession, work: deque[Packet], sent: list[Output]) -> None:
        limit = config.truncate_bytes or None
        if config.mcast_group is not None:
            self._multicast(copy, config.mcast_group, work, sent, limit)
        self._replicate(copy, 0, config.replicas, work, sent, limit)
        if config.port is not None:
            copy.truncate = limit
            self._enqueue(copy, config.port, work, sent)

    def _multicast(
        self, packet: Packet, group: int, work: deque[Packet], sent: list[Output], limit: int | None
    ) -> None:
        self._replicate(packet, group, self.core.group(group), work, sent, limit)

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
            copy = self.core.replica(packet, group, replica, limit)
            self.core.put(copy, egress_rid=replica.rid)
            self._enqueue(copy, replica.port, work, sent)

    def _enqueue(self, packet: Packet, port: int, work: deque[Packet], sent: list[Output]) -> None:
        """Run egress at once: queues are empty here, and so are the fields that describe them."""
        if self.core.ports is not None and port not in self.core.ports:
            self.core.drop(f"there is no port {port}")
            return
        if self.core.get(packet, "priority") >= self.core.priority_queues:
            self.core.drop(
                f"priority {self.core.get(packet, 'priority')}: the port has {self.core.priority_queues} queues"
            )
            return
        now = self.core.now_ns // 1000
        if self._queueing:
            self.core.put(packet, enq_timestamp=now, enq_qdepth=0, deq_timedelta=0, deq_qdepth=0)
            self.core.put(packet, qid=self.core.get(packet, "priority"))
        self._egress(packet, port, work, sent)

    def _egress(self, packet: Packet, port: int, work: deque[Packet], sent: list[Output]) -> None:
        before, self.core.current = self.core.current, packet
        self.core.put(
            packet,
            egress_global_timestamp=self.core.now_ns // 1000,
            egress_port=port,
            egress_spec=self.core.drop_port + 1,
            packet_length=packet.length,
        )
        self.core.pipelines.run(packet, "egress", port)
        self.core.finish_messages(packet)
        if packet.clone is not None:
            self._clone_at_egress(packet, work, sent)
        self.core.current = packet
        if self.core.get(packet, "egress_spec") == self.core.drop_port:
            self.core.drop("egress: egress_spec is the drop port")
        else:
            self._send(packet, port, work, sent)
        self.core.current = before

    def _send(self, packet: Packet, port: int, work: deque[Packet], sent: list[Output]) -> None:
        data = self._deparse(packet)
        self.core.where = None
        if packet.recirculate:
            if self.core.observers:
                self.core.emit(Recirculated(self.core.where, packet.recirculate))
            self._again(packet, data, packet.recirculate, RECIRCULATED, work)
            return
        if packet.truncate is not None:
            data = data[: packet.truncate]
        sent.append(self.core.sent(port, data))

    # --- checksums and the deparser ---

    def _checksum(self, node: JsonNode, verify: bool) -> _Checksum:
        target = self.core.program.model.field_ref(node["target"])
        header = target.header.name
        kind = node["type"].str()
        if kind not in ("generic", "ipv4"):
            node["type"].fail(f"'{kind}' is not a type of checksum")
        calculations = self.core.primitives.calculations
        compute = calculations.named(node["calculation"]) if kind == "generic" else calculations.ipv4(header)
        condition = node.get("if_cond")
        test = None if condition is None else self.core.expressions.truth(condition)
        guarded = verify or kind == "ipv4"

        def applies(packet: Packet, args: Sequence[int]) -> bool:
            return (not guarded or packet.headers[header].valid) and (test is None or test(packet, args))

        return _Checksum(target, applies, compute, place_of(node))

    def _applies(self, packet: Packet, checksum: _Checksum, *, update: bool) -> bool:
        self.core.where = checksum.where
        holds = checksum.applies(packet, ())
        if self.core.observers:
            name = f"{checksum.target.header.name}.{checksum.target.field.name}"
            self.core.emit(ChecksumTested(checksum.where, name, update, holds))
        return holds

    def _deparse(self, packet: Packet) -> bytes:
        for checksum in self._updated:
            if self._applies(packet, checksum, update=True):
                self.core.primitives.set(
                    packet, checksum.target.header.name, checksum.target.field, checksum.compute(packet)
                )
        return self.core.deparse(packet, self._deparser)
