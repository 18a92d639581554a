"""The way of packets through the Portable Switch Architecture (PSA specification 1.2, sections 6.2 to 6.9)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from p4lite.switch.bmv2.model import FieldRef
from p4lite.switch.errors import ProgramError
from p4lite_tools.interpreter.core import LOOP_LIMIT, Deparser, InterpreterCore, Output
from p4lite_tools.interpreter.events import Cloned, Recirculated, Resubmitted
from p4lite_tools.interpreter.packet import Packet, fresh_packet

NORMAL, UNICAST, MULTICAST, CLONE_I2E, CLONE_E2E, RESUBMIT, RECIRCULATE = range(7)
#: v1model's instance types, which events tell, by packet path.
INSTANCE_TYPES = {NORMAL: 0, CLONE_I2E: 1, CLONE_E2E: 2, RECIRCULATE: 4, RESUBMIT: 6}
PORT_RECIRCULATE = 0xFFFFFFFA
STRUCTS = {
    "ip": "psa_ingress_parser_input_metadata",
    "ig": "psa_ingress_input_metadata",
    "io": "psa_ingress_output_metadata",
    "ep": "psa_egress_parser_input_metadata",
    "eg": "psa_egress_input_metadata",
    "eo": "psa_egress_output_metadata",
    "ed": "psa_egress_deparser_input_metadata",
}
#: What each path keeps: the field list of that name.
KEPT = {
    UNICAST: "normal_meta",
    MULTICAST: "normal_meta",
    CLONE_I2E: "clone_i2e_meta",
    CLONE_E2E: "clone_e2e_meta",
    RESUBMIT: "resubmit_meta",
    RECIRCULATE: "recirculate_meta",
}


class PsaSwitch:
    """Takes packets through a switch of PSA."""

    def __init__(self, core: InterpreterCore) -> None:
        self.core = core
        headers = core.program.model.headers
        fields: dict[str, FieldRef] = {}
        for short, name in STRUCTS.items():
            header = headers.get(name)
            for field in header.fields if header is not None else ():
                assert header is not None
                fields[f"{short}_{field.name}"] = FieldRef(header, field)
        core.name_fields(fields)
        lists = {n["name"].value: n["id"].int() for n in core.program.model.root.items("field_lists")}
        self._kept: dict[int, Sequence[FieldRef]] = {
            path: core.program.field_lists[lists[name]] for path, name in KEPT.items() if name in lists
        }
        try:
            self.parser, self._egress_parser = core.parsers["ingress_parser"], core.parsers["egress_parser"]
            self._deparsers = core.deparsers["ingress_deparser"], core.deparsers["egress_deparser"]
        except KeyError as missing:
            raise ProgramError(f"{core.program.source}: a program for PSA has no {missing.args[0]}") from None

    def process(self, port: int, data: bytes) -> list[Output]:
        """Return everything that is sent because of one packet, in order."""
        packet = fresh_packet(self.core.program.model, port, data)
        self.core.put(packet, ip_ingress_port=port, ip_packet_path=NORMAL)
        work, sent = deque([packet]), list[Output]()
        while work:
            self._ingress(work.popleft(), work, sent)
        return sent

    def _again(self, packet: Packet, data: bytes, path: int, port: int) -> Packet | None:
        """Return a packet that starts its path with `data` and what the path keeps; None if it went round too often."""
        if packet.loops >= LOOP_LIMIT:
            self.core.drop(f"it went round {LOOP_LIMIT} times")
            return None
        again = fresh_packet(self.core.program.model, port, data)
        again.loops = packet.loops + 1
        self.core.preserve(packet, again, self._kept.get(path, ()))
        return again

    def _run(self, packet: Packet, pipeline: str, port: int, deparser: Deparser) -> bytes:
        """Run a pipeline and its deparser, tell what they logged and learned, and return the bytes of the packet."""
        core = self.core
        core.pipelines.run(packet, pipeline, port)
        packet.exited = False
        data = core.deparse(packet, deparser)
        core.finish_messages(packet)
        if packet.digest:
            core.send_digest(packet)
        core.where = None
        return data

    # --- ingress ---

    def _ingress(self, packet: Packet, work: deque[Packet], sent: list[Output]) -> None:
        core = self.core
        path, port = core.get(packet, "ip_packet_path"), core.get(packet, "ip_ingress_port")
        core.begin(packet, INSTANCE_TYPES[path])
        packet.length = packet.ingress_length = len(packet.data)
        self.parser.run(packet)
        core.put(
            packet,
            ig_ingress_port=port,
            ig_packet_path=path,
            ig_ingress_timestamp=core.now_ns // 1000,
            ig_parser_error=packet.parser_error,
            io_class_of_service=0,
            io_clone=0,
            io_clone_session_id=0,
            io_drop=1,
            io_resubmit=0,
            io_multicast_group=0,
            io_egress_port=0,
        )
        # The deparser computes what the paths keep, also for a packet that is not sent.
        data = self._run(packet, "ingress", packet.port, self._deparsers[0])
        if core.get(packet, "io_clone"):
            self._clone(packet, packet.data, "ingress", work, sent)
        if core.get(packet, "io_drop"):
            core.drop("ingress: drop is true")
        elif core.get(packet, "io_resubmit"):
            if core.observers:
                core.emit(Resubmitted(None, 0))
            again = self._again(packet, packet.data, RESUBMIT, packet.port)
            if again is not None:
                core.put(again, ip_ingress_port=port, ip_packet_path=RESUBMIT)
                work.append(again)
        else:
            self._leave(packet, data, work, sent)

    def _leave(self, packet: Packet, data: bytes, work: deque[Packet], sent: list[Output]) -> None:
        """Send a packet from ingress to egress."""
        core = self.core
        group, cos = core.get(packet, "io_multicast_group"), core.get(packet, "io_class_of_service")
        if not group:
            port = core.get(packet, "io_egress_port")
            self._enqueue(self._arriving(packet, data, UNICAST, cos, 0), port, work, sent)
            return
        for replica in core.group(group):
            copy = core.replica(packet, group, replica, None)
            self._enqueue(self._arriving(copy, data, MULTICAST, cos, replica.rid), replica.port, work, sent)

    def _clone(self, packet: Packet, data: bytes, pipeline: str, work: deque[Packet], sent: list[Output]) -> None:
        """Send the clones of a packet to egress: of what came in, or of what egress sends."""
        core, ingress = self.core, pipeline == "ingress"
        session = core.get(packet, "io_clone_session_id" if ingress else "eo_clone_session_id")
        path = CLONE_I2E if ingress else CLONE_E2E
        if core.observers:
            core.emit(Cloned(None, pipeline, session))
        config = core.session(session)
        if config is None:
            return
        data = data[: config.truncate_bytes or None]
        replicas = list(config.replicas)
        if config.mcast_group is not None:
            replicas = [*core.group(config.mcast_group), *replicas]
        group = config.mcast_group or 0
        for replica in replicas:
            copy = core.replica(packet, group, replica, None)
            self._enqueue(self._arriving(copy, data, path, 0, replica.rid), replica.port, work, sent)
        if config.port is not None:
            self._enqueue(self._arriving(packet, data, path, 0, 0), config.port, work, sent)

    # --- egress ---

    def _arriving(self, packet: Packet, data: bytes, path: int, cos: int, instance: int) -> Packet | None:
        """Return a packet as it comes out of the queue; None if it went round too often."""
        made = self._again(packet, data, path, packet.port)
        if made is not None:
            if path in (UNICAST, MULTICAST):
                made.loops = packet.loops
            self.core.put(made, ep_packet_path=path, eg_class_of_service=cos, eg_instance=instance)
        return made

    def _enqueue(self, packet: Packet | None, port: int, work: deque[Packet], sent: list[Output]) -> None:
        """Run egress at once: queues are empty here."""
        core = self.core
        if packet is None:
            return
        if core.ports is not None and port != PORT_RECIRCULATE and port not in core.ports:
            core.drop(f"there is no port {port}")
            return
        before, core.current = core.current, packet
        path = core.get(packet, "ep_packet_path")
        core.put(packet, ep_egress_port=port)
        packet.length = packet.ingress_length = len(packet.data)
        self._egress_parser.run(packet)
        core.put(
            packet,
            eg_egress_port=port,
            eg_packet_path=path,
            eg_egress_timestamp=core.now_ns // 1000,
            eg_parser_error=packet.parser_error,
            eo_clone=0,
            eo_clone_session_id=0,
            eo_drop=0,
            ed_egress_port=port,
        )
        data = self._run(packet, "egress", port, self._deparsers[1])
        if core.get(packet, "eo_clone"):
            self._clone(packet, data, "egress", work, sent)
        core.current = packet
        if core.get(packet, "eo_drop"):
            core.drop("egress: drop is true")
        elif port == PORT_RECIRCULATE:
            if core.observers:
                core.emit(Recirculated(None, 0))
            again = self._again(packet, data, RECIRCULATE, packet.port)
            if again is not None:
                core.put(again, ip_ingress_port=PORT_RECIRCULATE, ip_packet_path=RECIRCULATE)
                work.append(again)
        else:
            sent.append(core.sent(port, data))
        core.current = before
