"""Data packets per second of two MRC endpoints in one process, without I/O, and memory per idle queue pair.

The driver is a pipe with 5 us of latency and per-port room; every packet is really encoded, decoded and placed,
every ICRC computed and checked, one SACK per data packet. Ratios come from one run on one machine.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import random
import time
import tracemalloc
from collections import deque

from mrc_host.proto.completion import CompletionQueue
from mrc_host.proto.config import EndpointConfig, EvConfig, PortsConfig, ReliabilityConfig, WireConfig
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.reliability.qp import QueuePair

LATENCY_NS = 5_000
ROOM_BYTES = 36_000
TICK_NS = 3_000


class Pipe:
    """Two endpoints on one virtual clock: in order, lossless, constant latency."""

    def __init__(self, ports: int, **config: object) -> None:
        self.ends = [
            Endpoint(
                EndpointConfig(address=bytes(15) + bytes([i]), ports=PortsConfig(count=ports), **config),  # type: ignore[arg-type]
                random.Random(i),
            )
            for i in (1, 2)
        ]
        self.ports = range(ports)
        self.now = 0

    def connect(self, count: int = 1) -> tuple[CompletionQueue, list[tuple[QueuePair, QueuePair]]]:
        """`count` connected queue pairs; the completion queue is the first endpoint's."""
        a, b = self.ends
        cqs = a.create_cq(), b.create_cq()
        pairs = []
        for _ in range(count):
            pair = a.create_qp(cqs[0]), b.create_qp(cqs[1])
            documents = a.local_attributes(pair[0]), b.local_attributes(pair[1])
            a.connect(pair[0], documents[1], self.now)
            b.connect(pair[1], documents[0], self.now)
            pairs.append(pair)
        return cqs[0], pairs

    def run(self, cq: CompletionQueue, completions: int) -> None:
        """Until `cq` has so many completions."""
        a, b = self.ends
        flight: deque[tuple[int, Endpoint, int, bytes]] = deque()
        while len(cq.entries) < completions:
            now = self.now
            for source, target in ((a, b), (b, a)):
                for port in self.ports:
                    for packet in source.datagrams_to_send(port, now, ROOM_BYTES):
                        flight.append((now + LATENCY_NS, target, port, packet))
            self.now = now = now + TICK_NS
            while flight and flight[0][0] <= now:
                _, target, port, packet = flight.popleft()
                target.receive_datagram(port, packet, now)
            for end in (a, b):
                timer = end.next_timer()
                if timer is not None and timer <= now:
                    end.handle_timer(now)


def transfer(size: int, *, ports: int = 4, qps: int = 1, profile: bool = False, **config: object) -> float:
    """Data packets per CPU second of writing `size` bytes over `qps` queue pairs; prints a profile if asked."""
    pipe = Pipe(ports, **config)
    cq, pairs = pipe.connect(qps)
    source = bytes(size // qps)
    region = pipe.ends[1].register_memory(bytearray(size // qps))
    for number, (qp, _) in enumerate(pairs):
        pipe.ends[0].post_write(qp, source, region.va, region.rkey, number)
    gc.collect()
    profiler = cProfile.Profile()
    started = time.process_time()
    if profile:
        profiler.enable()
    pipe.run(cq, qps)
    profiler.disable()
    spent = time.process_time() - started
    if profile:
        pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(14)
    return sum(qp.requestor.counters.packets_sent for qp, _ in pairs) / spent


def idle_memory(count: int = 200) -> float:
    """Bytes per idle, connected queue pair with 256 EVs (both ends of each are in the process: halved)."""
    pipe = Pipe(4)
    pipe.connect(4)  # what is made once per peer and profile
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = pipe.connect(count)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(kept[1]) == count
    return (after - before) / (2 * count)


def run() -> None:
    """Print the table."""
    size = 64_000_000
    cases: list[tuple[str, dict[str, object]]] = [
        ("MTU 4096, 4 planes, 1 QP", {}),
        ("MTU 1024", {"wire": WireConfig(mtu=1024)}),
        ("MTU 4096, 1 plane", {"ports": 1}),
        ("MTU 4096, 64 QPs", {"qps": 64}),
        ("MTU 4096, no ICRC check", {"wire": WireConfig(check_icrc=False)}),
        ("MTU 4096, one SACK per 8", {"reliability": ReliabilityConfig(sack_every=8)}),
        ("MTU 4096, 256 EVs active", {"ev": EvConfig(active=256)}),
        ("MTU 4096, 100 Gb/s x 100 us", {"cc": NsccConfig(base_rtt_ns=100_000)}),
    ]
    print(f"{'case':<32} {'packets / CPU s':>15} {'of the first':>13}")
    first = 0.0
    for name, options in cases:
        small = 4 if isinstance(wire := options.get("wire"), WireConfig) and wire.mtu == 1024 else 1
        rate = max(transfer(size // small, **options) for _ in range(3))  # type: ignore[arg-type]
        first = first or rate
        print(f"{name:<32} {rate:>15,.0f} {rate / first:>12.0%}")
    print(f"\nmemory per idle queue pair with 256 EVs: {idle_memory() / 1024:.1f} KB (aim < 64 KB)")
    print("\nWhere the time goes (first case, under the profiler):")
    transfer(size // 4, profile=True)
