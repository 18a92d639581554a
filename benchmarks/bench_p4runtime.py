"""P4Runtime: table entries per second that one server takes and gives, over gRPC and without it.

Client and server share this process, so the figures over gRPC include the client's work (building and parsing
messages), as in a controller of our own.
"""

from __future__ import annotations

import gc
import json
import time
from typing import Any

import grpc

from benchmarks import scaled
from p4lite.compiler import compile_text
from p4lite.messages import P4RuntimeStub, p4runtime_pb2
from p4lite.switch.fabric.fabric import Fabric
from p4lite.switch.server import FabricServer

ENTRIES = scaled(10000, 400)
BATCH = 200
PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header ipv6_t { bit<128> src; bit<128> dst; }
struct headers_t { ipv6_t ipv6; }
struct meta_t { }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.ipv6); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    action forward(bit<48> mac, bit<9> port) { h.ipv6.src[47:0] = mac; s.egress_spec = port; }
    table routes { key = { h.ipv6.dst: lpm; } actions = { forward; } size = 16384; }
    apply { routes.apply(); }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""


def _update(info: Any, number: int) -> Any:
    update = p4runtime_pb2.Update(type=p4runtime_pb2.Update.INSERT)
    entry = update.entity.table_entry
    entry.table_id = info.tables[0].preamble.id
    field = entry.match.add(field_id=1)
    field.lpm.value, field.lpm.prefix_len = (0x2001 << 112 | number << 64).to_bytes(16, "big"), 64
    action = entry.action.action
    action.action_id = next(a.preamble.id for a in info.actions if a.preamble.alias == "forward")
    action.params.add(param_id=1, value=b"\x02" + number.to_bytes(5, "big"))
    action.params.add(param_id=2, value=b"\x07")
    return update


def run() -> None:
    """Print the table."""
    compiled = compile_text(PROGRAM)
    config = p4runtime_pb2.ForwardingPipelineConfig(
        p4info=compiled.p4info_message, p4_device_config=json.dumps(compiled.bmv2).encode()
    )
    with FabricServer(Fabric("virtual")) as server:
        for device_id in (1, 2):
            server.add_switch(device_id)
        address = server.start()
        for device in server.service.devices():
            device.commit(server.service.cache.verify(config))
        updates = [_update(config.p4info, number) for number in range(ENTRIES)]
        gc.collect()
        gc.disable()  # as the server process nearly does
        try:
            rows = [*_over_grpc(address, updates), *_without_grpc(server, updates)]
        finally:
            gc.enable()
    print(f"{'operation':<44} {'entries/s':>10} {'relative':>9}")
    for name, seconds in rows:
        print(f"{name:<44} {ENTRIES / seconds:>10.0f} {rows[0][1] / seconds:>8.2f}x")


def _over_grpc(address: str, updates: list[Any]) -> list[tuple[str, float]]:
    with grpc.insecure_channel(address) as channel:
        stub = P4RuntimeStub(channel)
        hello = p4runtime_pb2.StreamMessageRequest()
        hello.arbitration.device_id, hello.arbitration.election_id.low = 1, 1
        hold = iter([hello])
        stream = stub.StreamChannel(_then_wait(hold))
        next(stream)
        start = time.perf_counter()
        for at in range(0, ENTRIES, BATCH):
            request = p4runtime_pb2.WriteRequest(device_id=1, updates=updates[at : at + BATCH])
            request.election_id.low = 1
            stub.Write(request)
        written = time.perf_counter()
        query = p4runtime_pb2.ReadRequest(device_id=1)
        query.entities.add().table_entry.SetInParent()
        count = sum(len(response.entities) for response in stub.Read(query))
        read = time.perf_counter()
        stream.cancel()
    if count != ENTRIES:
        raise RuntimeError(f"{count} entries were read, {ENTRIES} written")
    return [(f"Write over gRPC, batches of {BATCH}", written - start), ("Read over gRPC, wildcard", read - written)]


def _then_wait(messages: Any) -> Any:
    """Yield the messages and then wait: a controller leaves when it ends its side of the stream."""
    yield from messages
    while True:
        time.sleep(3600)


def _without_grpc(server: FabricServer, updates: list[Any]) -> list[tuple[str, float]]:
    device = server.service.device(2)
    forwarding = device._entities()
    data = p4runtime_pb2.WriteRequest(updates=updates).SerializeToString()
    start = time.perf_counter()
    for update in p4runtime_pb2.WriteRequest.FromString(data).updates:
        forwarding.write(update)
    written = time.perf_counter()
    query = p4runtime_pb2.Entity(table_entry=p4runtime_pb2.TableEntry())
    if sum(1 for _ in forwarding.read(query)) != ENTRIES:
        raise RuntimeError("not every entry was read")
    return [("write, the server's part", written - start), ("read, the server's part", time.perf_counter() - written)]


if __name__ == "__main__":
    run()
