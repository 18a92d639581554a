"""A scripted P4Runtime controller for tests: stubs, a stream with its messages in a queue, entities by name."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import grpc

from p4lite.messages import P4RuntimeStub, code_pb2, p4runtime_pb2, status_pb2
from p4lite.switch.fabric.fabric import Fabric
from p4lite.switch.server import FabricServer
from p4lite.switch.source import load_source
from p4lite.switch.targetapi.grants import Grants

INSERT, MODIFY, DELETE = p4runtime_pb2.Update.INSERT, p4runtime_pb2.Update.MODIFY, p4runtime_pb2.Update.DELETE
PROGRAMS = Path(__file__).parents[2] / "switch" / "programs"
Config = p4runtime_pb2.SetForwardingPipelineConfigRequest


@cache
def control_config() -> Any:
    """Return the ForwardingPipelineConfig of control.p4."""
    return load_source(PROGRAMS / "control.p4").config()


def code_of(call: Any) -> str:
    """Return the name of the gRPC status code with which `call` fails; OK when it does not."""
    try:
        call()
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def batch_codes(call: Any) -> list[str]:
    """Return the canonical codes of the updates or queries of a batch that fails with UNKNOWN."""
    failure = None
    try:
        call()
    except grpc.RpcError as error:
        failure = error
    if failure is None:
        return []
    assert failure.code() is grpc.StatusCode.UNKNOWN, f"{failure.code()}: {failure.details()}"
    trailers: dict[str, Any] = dict(failure.trailing_metadata() or ())  # type: ignore[arg-type]
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert (status.code, status.message) == (code_pb2.UNKNOWN, failure.details())
    names = []
    for detail in status.details:
        message = p4runtime_pb2.Error()
        assert detail.Unpack(message)
        names.append(code_pb2.Code.Name(message.canonical_code))
        assert bool(message.message) == (message.canonical_code != code_pb2.OK)
    return names


class Controller:
    """One controller of one device. `close` ends its stream and channel."""

    def __init__(self, address: str, device_id: int = 1, election_id: int | None = 1, role: str = "") -> None:
        self.device_id, self.election_id, self.role = device_id, election_id, role
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = P4RuntimeStub(self.channel)
        self.heard: queue.Queue[Any] = queue.Queue()
        self.info: Any = None
        self._out: queue.Queue[Any] = queue.Queue()
        self._stream: Any = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- stream ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the stream without saying anything."""
        self._stream = self.stub.StreamChannel(iter(self._out.get, None))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            for message in self._stream:
                self.heard.put(message)
        except grpc.RpcError as error:
            self.heard.put(error)
        self.heard.put(None)

    def say(self, message: Any) -> None:
        """Send a StreamMessageRequest."""
        self._out.put(message)

    def arbitrate(self, election_id: int | None = None) -> Any:
        """Open the stream if need be, arbitrate, and return the answer."""
        if self._stream is None:
            self.open()
        if election_id is not None:
            self.election_id = election_id
        request = p4runtime_pb2.StreamMessageRequest()
        request.arbitration.device_id = self.device_id
        if self.role:
            request.arbitration.role.name = self.role
        if self.election_id is not None:
            request.arbitration.election_id.high = self.election_id >> 64
            request.arbitration.election_id.low = self.election_id & ((1 << 64) - 1)
        self.say(request)
        return self.hear("arbitration").arbitration

    def hear(self, which: str, timeout: float = 20.0) -> Any:
        """Return the next message of the stream, which must be of this kind."""
        message = self.heard.get(timeout=timeout)
        assert isinstance(message, p4runtime_pb2.StreamMessageResponse), message
        assert message.WhichOneof("update") == which, message
        return message

    def stream_end(self, timeout: float = 20.0) -> str:
        """Return the status with which the stream ends."""
        while True:
            message = self.heard.get(timeout=timeout)
            if isinstance(message, grpc.RpcError):
                return str(message.code().name)
            if message is None:
                return "OK"

    def hang_up(self) -> None:
        """Vanish without a word: the channel is closed under the stream."""
        self.channel.close()
        self._out.put(None)
        if self._reader is not None:
            self._reader.join(20)

    def close(self) -> None:
        """End stream and channel."""
        self._out.put(None)
        if self._stream is not None:
            self._stream.cancel()
        if self._reader is not None:
            self._reader.join(20)
        self.channel.close()

    # -- pipeline ----------------------------------------------------------------------------------------

    def set_pipeline(self, config: Any, action: int = Config.VERIFY_AND_COMMIT) -> None:
        """SetForwardingPipelineConfig; `config` None sends none."""
        request = Config(device_id=self.device_id, role=self.role, action=action)
        self._identify(request)
        if config is not None:
            request.config.CopyFrom(config)
        self.stub.SetForwardingPipelineConfig(request)
        if config is not None:
            self.info = config.p4info

    def _identify(self, request: Any) -> None:
        if self.election_id is not None:
            request.election_id.high = self.election_id >> 64
            request.election_id.low = self.election_id & ((1 << 64) - 1)

    # -- entities ----------------------------------------------------------------------------------------

    def ident(self, kind: str, name: str) -> int:
        """Return the id of an object by the kind of P4Info (`tables`, …) and name or alias."""
        for entity in getattr(self.info, kind):
            if name in (entity.preamble.name, entity.preamble.alias):
                return int(entity.preamble.id)
        raise KeyError(f"{kind}: {name}")

    def entry(
        self,
        table: str,
        match: dict[str, Any] | None = None,
        action: str | None = None,
        args: Iterable[bytes] = (),
        **fields: Any,
    ) -> Any:
        """Return a TableEntry Entity. Values: bytes (exact, optional), (value, int) lpm, (value, mask) ternary,
        [low, high] range; names of match fields as in the P4Info."""
        entity = p4runtime_pb2.Entity()
        entry = entity.table_entry
        entry.table_id = self.ident("tables", table)
        info = next(found for found in self.info.tables if found.preamble.id == entry.table_id)
        for name, value in (match or {}).items():
            field = next(found for found in info.match_fields if found.name == name)
            item = entry.match.add(field_id=field.id)
            if isinstance(value, list):
                item.range.low, item.range.high = value
            elif isinstance(value, tuple) and isinstance(value[1], int):
                item.lpm.value, item.lpm.prefix_len = value
            elif isinstance(value, tuple):
                item.ternary.value, item.ternary.mask = value
            elif field.match_type == field.OPTIONAL:
                item.optional.value = value
            else:
                item.exact.value = value
        if action is not None:
            entry.action.action.CopyFrom(self.action(action, args))
        for key, value in fields.items():
            if hasattr(value, "SerializeToString"):
                getattr(entry, key).CopyFrom(value)
            else:
                setattr(entry, key, value)
        return entity

    def action(self, name: str, args: Iterable[bytes] = ()) -> Any:
        """Return an Action message with its arguments in order."""
        message = p4runtime_pb2.Action(action_id=self.ident("actions", name))
        for number, value in enumerate(args, 1):
            message.params.add(param_id=number, value=value)
        return message

    def write(self, *updates: tuple[int, Any], **fields: Any) -> None:
        """Write; each update is (type, Entity)."""
        request = p4runtime_pb2.WriteRequest(device_id=self.device_id, role=self.role, **fields)
        self._identify(request)
        for kind, entity in updates:
            request.updates.add(type=kind, entity=entity)
        self.stub.Write(request)

    def read(self, *entities: Any) -> list[Any]:
        """Read: every Entity."""
        return list(self.iter_read(*entities))

    def iter_read(self, *entities: Any) -> Iterator[Any]:
        """Read: every Entity as it comes."""
        request = p4runtime_pb2.ReadRequest(device_id=self.device_id, entities=entities)
        for response in self.stub.Read(request):
            yield from response.entities


class Bench:
    """A fabric on the virtual clock with one switch (device 1, CPU port 255, ports 1 to 4), served on a socket."""

    def __init__(self, grants: Grants | None = None) -> None:
        self.fabric = Fabric("virtual", seed=1)
        self.server = FabricServer(self.fabric, grants=grants)
        self.switch = self.server.add_switch(1, cpu_port=255, priority_queues=8)
        for number in range(1, 5):
            self.switch.add_port(number)
        self.address = self.server.start()

    def close(self) -> None:
        """End everything."""
        self.server.stop()

    def send(self, port: int, frame: bytes, after_ns: int = 1000) -> list[tuple[int, bytes]]:
        """Inject a packet and let virtual time pass; the (port, packet) that came out."""
        self.fabric.inject(self.switch.port(port), frame)
        return self.run(after_ns)

    def run(self, duration_ns: int) -> list[tuple[int, bytes]]:
        """Let virtual time pass; the (port, packet) that came out."""
        return [(port, data) for _, _, port, data in self.fabric.run_until(self.fabric.now_ns + duration_ns)]


def ethernet(dst: int = 2, src: int = 1, kind: int = 0x9999, payload: bytes = b"payload") -> bytes:
    """Return an Ethernet frame."""
    return dst.to_bytes(6, "big") + src.to_bytes(6, "big") + kind.to_bytes(2, "big") + payload


def ipv4(dst: int = 0x0A000001, src: int = 0x0A000002, protocol: int = 17, kind: int = 0x0800) -> bytes:
    """Return an IPv4 packet in an Ethernet frame, without payload and checksum."""
    header = bytes([0x45, 0, 0, 20, 0, 0, 0, 0, 64, protocol, 0, 0]) + src.to_bytes(4, "big") + dst.to_bytes(4, "big")
    return ethernet(kind=kind, payload=header)
