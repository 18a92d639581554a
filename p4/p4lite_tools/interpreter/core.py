"""Common core of switches of all architectures: one packet at a time, its metadata, groups, sessions and digests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from p4lite.recursion import deep_recursion
from p4lite.switch.bmv2.model import Bmv2Architecture, FieldRef
from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.codegen.calculations import Crc
from p4lite.switch.fabric.values import (
    CloneSession,
    FabricError,
    Replica,
    check_clone_session,
    check_multicast_group,
)
from p4lite.switch.program.facts import DROP_PORT, Digest, Facts
from p4lite_tools.interpreter.events import (
    Deparsed,
    DigestSent,
    Dropped,
    NamedValue,
    Observer,
    PacketStarted,
    Replicated,
    Sent,
)
from p4lite_tools.interpreter.expressions import ExpressionCompiler
from p4lite_tools.interpreter.packet import Packet, header_bytes
from p4lite_tools.interpreter.parser import Parser, ParseState
from p4lite_tools.interpreter.pipelines import PipelineCompiler
from p4lite_tools.interpreter.primitives import PrimitiveCompiler, PythonExtern, Step
from p4lite_tools.interpreter.psa_externs import PsaExternCompiler
from p4lite_tools.interpreter.tables import InterpreterTables

EXTERNS: dict[Bmv2Architecture, tuple[type[PsaExternCompiler], ...]] = {
    Bmv2Architecture.V1MODEL: (),
    Bmv2Architecture.PSA: (PsaExternCompiler,),
}
"""The externs of an architecture whose methods are primitives of their own."""
LOOP_LIMIT = 64


class Output(NamedTuple):
    """A packet that was sent."""

    port: int
    data: bytes


@dataclass
class Deparser:
    """A deparser: what it computes, and the headers that it writes."""

    steps: list[Step] = field(default_factory=list)
    order: list[str] = field(default_factory=list)


class InterpreterCore(InterpreterTables):
    """A switch that runs a program, without the way of packets through it, which `_start` prepares.

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
        with deep_recursion():
            self._compile(externs or {})
            self._start()

    def _start(self) -> None:
        raise NotImplementedError

    def _compile(self, externs: Mapping[str, PythonExtern]) -> None:
        program = self.program
        self.expressions = ExpressionCompiler(program.model, self)
        self.primitives = PrimitiveCompiler(self, self.expressions, self.drop_port, externs)
        for externs_of in EXTERNS[program.architecture]:
            externs_of(self.primitives)
        self.parsers = {n["name"].str(): Parser(self.primitives, n) for n in program.model.root.items("parsers")}
        self.pipelines = PipelineCompiler(self.primitives)
        self._fields: dict[str, FieldRef] = {}
        self.deparsers = {n["name"].str(): self._deparser(n) for n in program.model.root.items("deparsers")}
        self._digests: dict[int, Digest] = {d.id: d for d in program.learn_lists}

    def _deparser(self, node: JsonNode) -> Deparser:
        steps = self.primitives.action(list(node.items("primitives")))
        return Deparser(steps, [n.str() for n in node["order"].items()])

    @property
    def states(self) -> dict[str, ParseState]:
        """The states of all parsers by name; of several with one name the last."""
        return {name: state for parser in self.parsers.values() for name, state in parser.states.items()}

    def name_fields(self, fields: Mapping[str, FieldRef]) -> None:
        """Let `get` and `put` find fields of the architecture's metadata by these names."""
        self._fields.update(fields)

    def get(self, packet: Packet, name: str) -> int:
        """Return a field of the architecture's metadata, 0 if the program lacks it."""
        ref = self._fields.get(name)
        return 0 if ref is None else packet.headers[ref.header.name].fields[ref.field.name]

    def put(self, packet: Packet, **values: int) -> None:
        """Write fields of the architecture's metadata as the target does, unseen by observers."""
        for name, value in values.items():
            ref = self._fields.get(name)
            if ref is not None:
                packet.headers[ref.header.name].fields[ref.field.name] = value & ((1 << ref.field.width) - 1)

    def set_crc(self, name: str, crc: Crc) -> None:
        """Change the CRC of a calculation `crc16_custom` or `crc32_custom`."""
        self._custom_crc(name, crc.width)
        self.primitives.calculations.set_crc(name, crc)

    # --- replication ---

    def set_multicast_group(self, group: int, replicas: Sequence[Replica]) -> None:
        """Create or replace a group (1-65535); replicas are made in the given order."""
        check_multicast_group("", group, replicas)
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
        check_clone_session("", session, config)
        self._sessions[session] = config

    def delete_clone_session(self, session: int) -> None:
        """Delete a clone session. Raises FabricError when there is none."""
        if self._sessions.pop(session, None) is None:
            raise FabricError(f"no clone session {session}")

    def clone_sessions(self) -> dict[int, CloneSession]:
        """Return all sessions."""
        return dict(self._sessions)

    # --- packets ---

    def drop(self, reason: str) -> None:
        """Tell the observers that a packet goes no further."""
        if self.observers:
            self.emit(Dropped(self.where, reason))

    def begin(self, packet: Packet, kind: int) -> None:
        """Start with a packet; `kind` is v1model's instance type."""
        self.current = packet
        self.where = None
        if self.observers:
            self.emit(PacketStarted(None, packet.port, packet.data, kind))

    def session(self, number: int) -> CloneSession | None:
        """Return a mirror session; None, and a drop for the observers, if there is none."""
        config = self._sessions.get(number)
        if config is None:
            self.drop(f"the clone: there is no mirror session {number}")
        return config

    def group(self, number: int) -> tuple[Replica, ...]:
        """Return the replicas of a multicast group; none, and a drop for the observers, if there is no such group."""
        if number not in self._groups:
            self.drop(f"there is no multicast group {number}")
        return self._groups.get(number, ())

    def replica(self, packet: Packet, group: int, replica: Replica, limit: int | None) -> Packet:
        """Return the copy of a packet for a replica."""
        copy = packet.copy()
        copy.truncate = limit
        if self.observers:
            self.emit(Replicated(self.where, group, replica.port, replica.rid))
        return copy

    def finish_messages(self, packet: Packet) -> None:
        """Take what the program logged about a packet."""
        self.messages += packet.messages
        packet.messages.clear()

    def preserve(self, source: Packet, target: Packet, fields: Sequence[FieldRef]) -> None:
        """Copy fields of a packet to another one."""
        for ref in fields:
            origin, into = source.headers[ref.header.name], target.headers[ref.header.name]
            if ref.field.index < 0:
                into.valid = origin.valid
            else:
                into.fields[ref.field.name] = origin.fields[ref.field.name]

    def send_digest(self, packet: Packet) -> None:
        """Send the digest that a packet asked for."""
        listed = self._digests.get(packet.digest)
        if listed is None:
            return
        values = []
        for ref in listed.fields:
            value = packet.headers[ref.header.name].fields[ref.field.name] & ((1 << ref.field.width) - 1)
            values.append(NamedValue(f"{ref.header.name}.{ref.field.name}", value, ref.field.width))
        self.digests.append((listed.name, tuple(v.value for v in values)))
        if self.observers:
            self.emit(DigestSent(self.where, listed.name, tuple(values)))

    def deparse(self, packet: Packet, deparser: Deparser) -> bytes:
        """Return the bytes of a packet: the valid ones of the headers that the deparser writes, then the payload."""
        self.primitives.run(deparser.steps, packet, ())
        written = tuple(name for name in deparser.order if packet.headers[name].valid)
        data = b"".join(header_bytes(self.program.model, packet, name) for name in written)
        if self.observers:
            self.where = None
            self.emit(Deparsed(None, written, data))
        return data + packet.payload

    def sent(self, port: int, data: bytes) -> Output:
        """Return what is sent at a port."""
        self.where = None
        if self.observers:
            self.emit(Sent(self.where, port, data))
        return Output(port, data)
