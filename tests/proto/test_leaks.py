"""Nothing is kept of what was destroyed: queue pairs, peers, regions, completion queues, profiles, denials, timers."""

from __future__ import annotations

import dataclasses
import gc
import random
import tracemalloc
from collections.abc import Callable

import pytest

from mrc_host.proto.config import EndpointConfig, EvConfig, EvMode, PortsConfig, ReliabilityConfig, WireConfig
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import EvState
from mrc_host.proto.wire import framing

PLANES = 2
SLACK = 64 << 10  # what the interpreter and its caches may come and go by


def endpoint() -> Endpoint:
    return Endpoint(
        EndpointConfig(
            address=bytes(15) + b"\x01",
            wire=WireConfig(mtu=1024),
            ports=PortsConfig(count=PLANES),
            ev=EvConfig(count=32, active=16),
            reliability=ReliabilityConfig(timeout=20),
        ),
        random.Random(1),
    )


def live(core: Endpoint, number: int) -> None:
    """Everything an endpoint can make, towards a peer that nobody has seen before, and its end."""
    now = number * 50_000
    values = [[2 * i + plane for i in range(32)] for plane in range(PLANES)]
    own = EvConfig(mode=EvMode.EXPLICIT, values=values, count=64, active=32)
    cc = NsccConfig(base_rtt_ns=10_000 + number % 7)
    address = bytes(12) + (number + 2).to_bytes(4, "big")
    region = core.register_memory(bytearray(4096))
    cq = core.create_cq()
    qps = [core.create_qp(cq, ev=own, cc=cc), core.create_qp(cq, ev=dataclasses.replace(own)), core.create_qp(cq)]
    for qp in qps:
        document = core.local_attributes(qp)
        document |= {"address": ":".join(address.hex()[i : i + 4] for i in range(0, 32, 4)), "qpn": 99}
        core.connect(qp, document | {"instance": number}, now)
        core.post_recv(qp, 1, 4)
        core.post_write(qp, region, 0, 1, 7)
    core.set_ev_state(qps[0], 0, EvState.DENIED, now)
    core.set_ev_state(qps[0], 0, EvState.GOOD, now)
    core.replace_ev(qps[1], 3, 5_001, now)
    core.probe_ev(address, 5, 0, now)
    core.set_port_state(1, False, now)
    core.set_port_state(1, True, now)
    mine, theirs = core.config.address, core.context.codec
    ends, first = address + mine, qps[0].number
    for packet in (
        theirs.encode_endpoint_request(ends, 5, 184, number & 0xFFFF, 1, 0, 5),
        theirs.encode_data(ends, 3, 19, 0xC6, first, 0, 0x80, 1, 1, 5, region.va, region.rkey, 4096, bytes(1024), 0),
        theirs.encode_probe(ends, 3, 18, first, 7, 0, 0, 5),
    ):  # fmt: skip
        core.receive_datagram(0, packet, now)
    stranger = (number + (1 << 40)).to_bytes(16, "big") + mine
    core.receive_datagram(0, theirs.encode_endpoint_request(stranger, 5, 184, 1, 1, 0, 5), now)
    for port in range(PLANES):
        core.datagrams_to_send(port, now, 1 << 20)
    for qp in qps:
        core.destroy_qp(qp, now)
    while core.poll(cq):
        pass
    core.destroy_cq(cq)
    core.deregister_memory(region)
    core.handle_timer(now)
    for port in range(PLANES):
        core.datagrams_to_send(port, now, 1 << 20)
    while core.next_event() is not None:
        pass


def growth(count: int, core: Endpoint, act: Callable[[Endpoint, int], None]) -> int:
    """Bytes by which memory grew over `count` acts, after some to warm up, but for the codec's bounded cache."""
    warm = 200
    tracemalloc.start()
    try:
        for number in range(warm):
            act(core, number)
        framing._constants.clear()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(warm, warm + count):
            act(core, number)
        framing._constants.clear()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_destroyed_objects_leave_nothing_behind() -> None:
    core = endpoint()
    live(core, 0)
    live(core, 1)
    context = core.context
    assert (core.peers, context.denied, core._qps, core._cqs) == ({}, {}, {}, {})
    assert list(core._universes.by_profile) == [id(core.config.ev)]
    assert not context.memory.regions
    assert not context.ring.senders
    assert context.counters.faults == 0


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.long])])
def test_memory_stays_flat_over_many_lives_of_objects(count: int) -> None:
    core = endpoint()
    # A QP of its own profile once kept 11.8 KB for ever: 300 of them are 3.5 MB.
    grown = growth(count, core, live)
    print(f"{count} lives of 3 QPs, a peer, a region, a CQ and 2 profiles: {grown} bytes more")
    assert grown < SLACK
