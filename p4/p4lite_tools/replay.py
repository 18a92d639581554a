"""A copy of a running switch in the interpreter: its program, entries and registers, read over its API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import grpc

from p4lite.api.program import Program
from p4lite.api.switch import Switch
from p4lite.errors import P4liteError
from p4lite.messages import P4RuntimeStub, p4runtime_pb2
from p4lite.switch.p4rt.device import Forwarding
from p4lite.switch.p4rt.errors import P4RtError
from p4lite.switch.p4rt.pipeline import INSERT, MODIFY, DeviceTarget, PipelineCache
from p4lite.switch.runtime.loader import ProgramInstance
from p4lite.switch.targetapi.client import TargetClient
from p4lite.switch.targetapi.values import SwitchInfo
from p4lite_tools.interpreter.events import Observer

TIMEOUT_S = 20.0


class ReplayError(P4liteError):
    """A switch whose state cannot be read or copied."""

    code = "cannot_replay"


@dataclass
class Snapshot:
    """What a switch holds at a moment: its pipeline, the entities of P4Runtime, and the registers by name."""

    config: Any
    entities: list[Any]
    defaults: list[Any]
    info: SwitchInfo
    registers: dict[str, list[int]] = field(default_factory=dict)

    def changed(self, later: Snapshot) -> list[str]:
        """Return what differs in a later snapshot, in words."""
        out = []
        if [e.SerializeToString() for e in self.entities + self.defaults] != [
            e.SerializeToString() for e in later.entities + later.defaults
        ]:
            out.append("table entries, groups or sessions")
        out += [f"register {name}" for name, cells in self.registers.items() if later.registers.get(name) != cells]
        return out


def read_snapshot(address: str, device_id: int) -> Snapshot:
    """Read a switch's state; other controllers are not disturbed. Raises ReplayError."""
    with grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 64 << 20)]) as channel:
        stub = P4RuntimeStub(channel)
        try:
            asked = p4runtime_pb2.GetForwardingPipelineConfigRequest(device_id=device_id)
            config = stub.GetForwardingPipelineConfig(asked, timeout=TIMEOUT_S).config
            entities = list(_read(stub, device_id, _queries()))
            defaults = list(_read(stub, device_id, _defaults(config.p4info)))
        except grpc.RpcError as error:
            raise ReplayError(f"{address}: device {device_id}: {error.details()}") from None
    document = json.loads(bytes(config.p4_device_config))
    with TargetClient(address) as target:
        names = [array["name"] for array in document.get("register_arrays", [])]
        info = target.info().switches[device_id]
        registers = {name: target.read_register(device_id, name) for name in names}
    return Snapshot(config, entities, defaults, info, registers)


def _queries() -> list[Any]:
    kinds = ("action_profile_member", "action_profile_group", "table_entry", "meter_entry", "direct_meter_entry")
    queries = [p4runtime_pb2.Entity() for _ in kinds]
    for kind, query in zip(kinds, queries, strict=True):
        getattr(query, kind).SetInParent()
    queries[-1].direct_meter_entry.table_entry.SetInParent()
    for part in ("multicast_group_entry", "clone_session_entry"):
        query = p4runtime_pb2.Entity()
        getattr(query.packet_replication_engine_entry, part).SetInParent()
        queries.append(query)
    return queries


def _defaults(p4info: Any) -> list[Any]:
    queries = []
    for table in p4info.tables:
        query = p4runtime_pb2.Entity()
        query.table_entry.table_id, query.table_entry.is_default_action = table.preamble.id, True
        queries.append(query)
    return queries


def _read(stub: Any, device_id: int, queries: Sequence[Any]) -> Iterator[Any]:
    for query in queries:
        request = p4runtime_pb2.ReadRequest(device_id=device_id, entities=[query])
        for answer in stub.Read(request, timeout=TIMEOUT_S):
            yield from answer.entities


def copy_switch(snapshot: Snapshot, *, observers: Sequence[Observer] = ()) -> Switch:
    """Return an interpreted switch with the state of a snapshot. Raises ReplayError."""
    document = json.loads(bytes(snapshot.config.p4_device_config))
    program = Program(str(document.get("program", "program")), document)
    info = snapshot.info
    ports = [*info.ports, *([] if info.cpu_port is None else [info.cpu_port])]
    queues = info.priority_queues
    switch = Switch(program, backend="interpreter", ports=ports, priority_queues=queues, observers=observers)
    try:
        # The interpreter has the operations of a compiled instance, so that P4Runtime's entities can be written to it.
        pipeline = PipelineCache().verify(snapshot.config)
        instance = cast(ProgramInstance, switch.control)
        forwarding = Forwarding(DeviceTarget(pipeline, lambda: instance, switch.replication, lambda port: True))
        for entity in snapshot.entities:
            which = entity.WhichOneof("entity")
            if which == "table_entry" and entity.table_entry.is_const:
                continue
            modified = which in ("meter_entry", "direct_meter_entry")
            forwarding.write(p4runtime_pb2.Update(type=MODIFY if modified else INSERT, entity=_writable(entity)))
        # A default action that cannot be changed is in the copy already.
        tables = snapshot.config.p4info.tables
        const = {table.preamble.id for table in tables if table.const_default_action_id or table.implementation_id}
        for entity in snapshot.defaults:
            if entity.table_entry.HasField("action") and entity.table_entry.table_id not in const:
                forwarding.write(p4runtime_pb2.Update(type=MODIFY, entity=_writable(entity)))
    except P4RtError as error:
        raise ReplayError(f"an entry of the switch does not fit its program: {error}") from None
    for name, cells in snapshot.registers.items():
        for index, value in enumerate(cells):
            if value:
                switch.control.register_write(name, index, value)
    return switch


def _writable(entity: Any) -> Any:
    """Return an entity without what only a read has."""
    out = p4runtime_pb2.Entity()
    out.CopyFrom(entity)
    if out.WhichOneof("entity") == "table_entry":
        for name in ("counter_data", "time_since_last_hit", "meter_counter_data"):
            out.table_entry.ClearField(name)
    return out
