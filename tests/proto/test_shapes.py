"""Shapes of the paper on a simulated 8 x 100 Gb/s NIC (mrc-protocol.md §11): the endpoint against the test network.

Durations are short: a millisecond of an 800 Gb/s NIC is ten thousand packets.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from mrc_host.proto.config import EndpointConfig, EvConfig, EvMode, ReliabilityConfig, WireConfig
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_host.proto.events import EvChanged, EvState
from mrc_host.proto.roce.endpoint import RoceConfig, RoceEndpoint
from support.proto.net import GIGABIT, Host, Impairment, Net, NetConfig
from support.proto.workload import Bench, Connection

pytestmark = pytest.mark.slow

US, MS = 1_000, 1_000_000
PLANES, PATHS = 8, 4
MTU = 8192
NIC = NetConfig(
    planes=PLANES,
    paths=PATHS,
    port_rate_bps=100 * GIGABIT,
    path_rate_bps=400 * GIGABIT,  # a T0's uplinks together are wider than one host
    latency_ns=3_000,
    queue_bytes=800_000,
    ecn=(80_000, 320_000),
    trim_bytes=400_000,
    port_queue_bytes=800_000,
    port_trim_bytes=400_000,
    nic_queue_bytes=3 * MTU,
)


class Stream:
    """Keeps `depth` writes of `size` bytes outstanding on a connection, as long as it is asked to."""

    def __init__(self, bench: Bench, connection: Connection, size: int = 1_000_000, depth: int = 3) -> None:
        self.connection, self.size, self.going = connection, size, True
        self.bench = bench
        memory = connection.target.core.register_memory(bytearray(size))
        self.post: Callable[[], None] = lambda: connection.source.core.post_write(
            connection.qp, bytes(size), memory.va, memory.rkey, 0
        )
        bench.streams.setdefault(connection.source.index, []).append(self)  # type: ignore[attr-defined]
        for _ in range(depth):
            self.post()
        bench.net.touch(connection.source)


def refill(bench: Bench) -> None:
    """Completions of streams are counted by posting the next write."""
    bench.streams = {}  # type: ignore[attr-defined]

    def on_event(host: Host, event: Any) -> None:
        if bench.keep_events:
            bench.events.append((bench.net.now, host.index, event))
        if hasattr(event, "cq"):
            for stream in bench.streams.get(host.index, ()):  # type: ignore[attr-defined]
                for _ in host.core.poll(stream.connection.cq, 1 << 20):
                    stream.post()

    for host in bench.net.hosts:
        host.on_event = lambda event, host=host: on_event(host, event)


def bench_of(config: NetConfig, seed: int, **settings: Any) -> Bench:
    values: dict[str, Any] = {
        "wire": WireConfig(mtu=MTU),
        "ev": EvConfig(count=256, active=128),
        "reliability": ReliabilityConfig(timeout=8),
    }
    return Bench(config, seed, verify=False, **values | settings)


def received(net: Net, host: Host, duration_ns: int) -> float:
    """Gb/s that a host receives over the next `duration_ns`."""
    before = sum(host.received_bytes)
    net.run(max_time_ns=duration_ns)
    return (sum(host.received_bytes) - before) * 8 / duration_ns


def test_goodput_recovers_after_one_of_eight_ports_was_down() -> None:
    bench = bench_of(NIC, 1)
    a, b = bench.add_host(), bench.add_host()
    connection = bench.connect(a, b)
    refill(bench)
    Stream(bench, connection)
    net = bench.net
    net.run(max_time_ns=100 * US)
    whole = received(net, b, 250 * US)
    assert whole > 760
    net.set_link(a, 3, False)
    net.run(max_time_ns=100 * US)
    less = received(net, b, 250 * US)
    print(f"one of eight ports down: {less:.0f} of {whole:.0f} Gb/s, {less / whole:.1%}")
    assert less / whole == pytest.approx(0.875, abs=0.02)
    net.set_link(a, 3, True)
    net.run(max_time_ns=100 * US)
    again = received(net, b, 250 * US)
    print(f"and back: {again:.0f} Gb/s, {again / whole:.1%}")
    assert again / whole == pytest.approx(1.0, abs=0.02)
    # The same at the far end: the peer is told, and avoids the plane.
    net.set_link(b, 5, False)
    net.run(max_time_ns=100 * US)
    before = b.received_bytes[5]
    less = received(net, b, 250 * US)
    assert less / whole == pytest.approx(0.875, abs=0.02)
    assert b.received_bytes[5] == before
    net.set_link(b, 5, True)
    net.run(max_time_ns=200 * US)
    assert received(net, b, 250 * US) / whole == pytest.approx(1.0, abs=0.02)


def test_ev_with_a_fifth_lost_leaves_within_a_millisecond() -> None:
    bench = bench_of(NIC, 2)
    bench.keep_events = True
    a, b = bench.add_host(), bench.add_host()
    connection = bench.connect(a, b)
    refill(bench)
    Stream(bench, connection)
    net = bench.net
    net.run(max_time_ns=100 * US)
    whole = received(net, b, 200 * US)
    bad = next(row for row in a.core.query_evs(connection.qp) if row.active)
    rng = random.Random(2)

    def lossy(net: Net, host: Host, plane: int, path: int, packet: bytes) -> str | None:
        ev = int.from_bytes(packet[2:4], "big") << 16 | int.from_bytes(packet[40:42], "big")
        return "drop" if ev == bad.ev and rng.random() < 0.2 else None

    net.rules.append(lossy)
    start = net.now
    with_loss = received(net, b, 1 * MS)
    left = [
        time - start
        for time, _, event in bench.events
        if isinstance(event, EvChanged) and event.ev == bad.ev and event.new is EvState.ASSUMED_BAD
    ]
    assert left
    print(f"20 % drop on one EV: out after {left[0] / 1e3:.0f} us; {with_loss / whole:.2%} of the throughput")
    assert left[0] < 1 * MS
    assert with_loss / whole >= 0.98
    # A backup of the same plane took its place: the plane carries as much as before.
    shares = [sum(p.sent_bytes for p in net.paths(group=a.index, plane=plane)) for plane in range(PLANES)]
    assert min(shares) / max(shares) > 0.97
    now = {row.ev: row for row in a.core.query_evs(connection.qp)}
    assert sum(row.active for row in now.values()) == 128


@pytest.mark.long
def test_incast_of_seven_is_shared_evenly() -> None:
    # The receiver's queue is trimmed where it has cost the target delay: quick adapt counts on it (§8).
    config = NetConfig(**vars(NIC) | {"port_trim_bytes": 60_000})
    control = NsccConfig(line_rate_bps=800 * GIGABIT, base_rtt_ns=7_500)
    bench = bench_of(config, 3, ev=EvConfig(count=64, active=32), cc=control)
    senders = [bench.add_host() for _ in range(7)]
    sink = bench.add_host()
    connections = [bench.connect(sender, sink) for sender in senders]
    refill(bench)
    for connection in connections:
        Stream(bench, connection)
    net = bench.net
    arrived = [0] * 8

    def watch(time: int, kind: str, host: Host, port: int, path: int, packet: bytes) -> None:
        if kind == "received" and host is sink and len(packet) > 1000:
            arrived[packet[23] - 1] += len(packet)

    net.watchers.append(watch)
    net.run(max_time_ns=1 * MS)
    arrived[:] = [0] * 8
    net.run(max_time_ns=5 * MS)
    shares = arrived[:7]
    jain = sum(shares) ** 2 / (7 * sum(share * share for share in shares))
    mean = sum(shares) / 7
    rates = [round(share * 8 / (5 * MS)) for share in shares]
    print(f"incast of 7: {rates} Gb/s, Jain {jain:.4f}, furthest {max(abs(s / mean - 1) for s in shares):.1%}")
    assert jain >= 0.99
    # Quick adapt promises no fairness at once (UET 1.0, 3.6.13); its shares wander, and nobody starves.
    assert max(abs(share / mean - 1) for share in shares) <= 0.15
    assert sum(shares) * 8 / (5 * MS) > 0.97 * 800


def test_two_flows_on_one_ev_separate_by_ecn_alone() -> None:
    """Both start on the same of two EVs; the marks alone make one of them leave, and both run at line rate."""
    values = ((0, 1),)
    config = NetConfig(
        planes=1, paths=2, select="structured", trim_bytes=None, port_trim_bytes=None,
        queue_bytes=1_000_000, port_queue_bytes=1_000_000, ecn=(40_000, 120_000), nic_queue_bytes=3 * MTU,
    )  # fmt: skip
    bench = bench_of(
        config,
        1,
        ev=EvConfig(mode=EvMode.EXPLICIT, values=values, count=2, active=1, ev_min_active=1),
        reliability=ReliabilityConfig(timeout=10, always_skip_after=24),
        cc=NsccConfig(line_rate_bps=100 * GIGABIT, base_rtt_ns=10_000, trimming=False),
    )
    senders = [bench.add_host(group=0), bench.add_host(group=0)]
    sinks = [bench.add_host(group=1), bench.add_host(group=1)]
    connections = [bench.connect(one, two) for one, two in zip(senders, sinks, strict=True)]
    evs = [next(row.ev for row in c.source.core.query_evs(c.qp) if row.active) for c in connections]
    if evs[0] != evs[1]:  # put the second one where the first one is
        core, qp = connections[1].source.core, connections[1].qp
        core.set_ev_state(qp, evs[1], EvState.DENIED, 0)
        core.set_ev_state(qp, evs[1], EvState.GOOD, 0)
    refill(bench)
    for connection in connections:
        Stream(bench, connection)
    net = bench.net
    net.run(max_time_ns=30 * US)
    together = [path.sent for path in net.paths(group=0)]
    assert min(together) == 0  # on one EV, both
    net.run(max_time_ns=2 * MS)
    rates = [received(net, sink, 200 * US) for sink in sinks]
    used = [{row.ev for row in c.source.core.query_evs(c.qp) if row.active} for c in connections]
    print(f"two flows on one EV: {rates[0]:.0f} and {rates[1]:.0f} Gb/s after the marks")
    assert used[0] != used[1]
    assert min(rates) > 90
    assert all(path.dropped == path.trimmed == path.lost == 0 for path in net.paths())
    assert all(host.core.statistics().qps[0].requestor["retransmissions"] == 0 for host in senders)


def completion_time(factory: Any, loss: float, seed: int) -> int:
    """Virtual time of one 64 MB write over 8 planes with random loss on every path."""
    config = NetConfig(**vars(NIC) | {"impairment": Impairment(loss=loss)})
    settings = {} if factory is None else {"factory": factory}
    bench = bench_of(config, seed, **settings)
    a, b = bench.add_host(), bench.add_host()
    connections = [bench.connect(a, b) for _ in range(1 if factory is None else PLANES)]
    for connection in connections:
        bench.post(connection, 64_000_000 // len(connections))
    bench.run(max_time_ns=1_000 * MS)
    assert set(bench.statuses()) == {"SUCCESS"}
    return bench.net.now


def roce(config: EndpointConfig, rng: random.Random) -> RoceEndpoint:
    return RoceEndpoint(
        RoceConfig(config.address, config.wire, config.ports, line_rate_bps=config.cc.line_rate_bps, timeout=12),
        rng,
    )


def test_a_tenth_of_a_percent_of_loss_costs_little_and_roce_three_times_as_much() -> None:
    cost = {}
    for name, factory in (("mrc", None), ("roce", roce)):
        clean = completion_time(factory, 0.0, 5)
        lossy = [completion_time(factory, 0.001, seed) for seed in (6, 7)]
        cost[name] = 1 - clean / (sum(lossy) / len(lossy))
        assert clean < 1.1 * 64_000_000 * 8 / 800
    print(f"64 MB at 0.1 % loss: MRC {cost['mrc']:.2%} slower, RoCE {cost['roce']:.2%}")
    assert cost["mrc"] < 0.05
    assert cost["roce"] > 3 * cost["mrc"]
