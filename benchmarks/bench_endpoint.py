"""Data packets per CPU second of two MRC endpoints in one process, without I/O, and memory per idle queue pair.

The driver is a pipe with 5 us of latency. Every packet is really encoded, decoded and placed, every ICRC computed and
checked. What labs do is measured as they do it: SRv6 around the packets, one at a time (the virtual clock, a NIC's
port) or in batches (the real clock), a SACK for every packet or for several. Compiled and interpreted cores take turns,
in processes of their own, so the ratios come from one run on one machine. Memory is touched before.
"""

from __future__ import annotations

import cProfile
import gc
import json
import os
import pstats
import random
import subprocess
import sys
import time
import tracemalloc
from collections import deque
from typing import Any

from benchmarks import scaled
from mrc_host import native, running
from mrc_host.proto.completion import CompletionQueue
from mrc_host.proto.config import (
    EndpointConfig,
    EvConfig,
    EvFormat,
    PortsConfig,
    ReliabilityConfig,
    Srv6Path,
    WireConfig,
)
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.reliability.qp import QueuePair

LATENCY_NS = 5_000
ROOM_BYTES = 36_000
TICK_NS = 3_000
MESSAGE_BYTES = 1_000_000
SIZE = scaled(48_000_000, 1_000_000)
ROUNDS = scaled(3, 1)
SACK_EVERY = ReliabilityConfig(sack_every=8)


def carrier(ev: int, destination: bytes) -> Srv6Path:
    """Return the outer address of a made-up uSID path."""
    hops = (0x1000, ev & 0xFF, 0x3000, 0x4000)
    return Srv6Path(b"\x5f\x00\x00\x00" + b"".join(hop.to_bytes(2, "big") for hop in hops) + bytes(4))


SRV6 = EvConfig(fmt=EvFormat.SRV6_USID128, resolver=carrier)

#: What is measured: name, options of the endpoints, and of the transfer (`ports`, `qps`, `single`, `core`).
CASES: dict[str, dict[str, Any]] = {
    "as a lab: SRv6, batches": {"ev": SRV6},
    "SRv6, batches, one SACK per 8": {"ev": SRV6, "reliability": SACK_EVERY},
    "SRv6, one packet at a time": {"ev": SRV6, "single": True},
    "SRv6, one at a time, one SACK per 8": {"ev": SRV6, "single": True, "reliability": SACK_EVERY},
    "plain IPv6, batches": {},
    "plain IPv6, batches, one SACK per 8": {"reliability": SACK_EVERY},
    "MTU 1024": {"wire": WireConfig(mtu=1024)},
    "1 plane": {"ports": 1},
    "64 QPs": {"qps": 64},
    "no ICRC check": {"wire": WireConfig(check_icrc=False)},
    "256 EVs active": {"ev": EvConfig(active=256)},
    "100 Gb/s x 100 us": {"cc": NsccConfig(base_rtt_ns=100_000)},
}


class Pipe:
    """Two endpoints on one virtual clock: in order, lossless, constant latency.

    With `single` a port takes one packet at a time, and a host is asked for more after each that arrives.
    """

    def __init__(self, ports: int, *, single: bool = False, **config: Any) -> None:
        self.ends = [
            Endpoint(
                EndpointConfig(address=bytes(15) + bytes([i]), ports=PortsConfig(count=ports), **config),
                random.Random(i),
            )
            for i in (1, 2)
        ]
        self.ports = range(ports)
        self.now = 0
        self.single = single
        self._flight: deque[tuple[int, int, int, bytes]] = deque()

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

    def _send(self, number: int) -> None:
        """Send the packets that one end may send now."""
        source, now, flight = self.ends[number], self.now, self._flight
        room = 4300 if self.single else ROOM_BYTES
        for port in self.ports:
            for packet in source.datagrams_to_send(port, now, room):
                flight.append((now + LATENCY_NS, 1 - number, port, packet))

    def run(self, cq: CompletionQueue, completions: int) -> None:
        """Run until `cq` has this many completions."""
        ends, flight = self.ends, self._flight
        while len(cq.entries) < completions:
            self._send(0)
            self._send(1)
            self.now = now = self.now + TICK_NS
            while flight and flight[0][0] <= now:
                _, number, port, packet = flight.popleft()
                ends[number].receive_datagram(port, packet, now)
                if self.single:
                    self._send(number)
            for end in ends:
                timer = end.next_timer()
                if timer is not None and timer <= now:
                    end.handle_timer(now)


def transfer(size: int, *, ports: int = 4, qps: int = 1, profile: bool = False, **config: Any) -> float:
    """Return data packets per CPU second of writing `size` bytes over `qps` queue pairs, message after message to the
    same memory; prints a profile if asked."""
    pipe = Pipe(ports, **config)
    cq, pairs = pipe.connect(qps)
    source = memoryview(random.Random(1).randbytes(MESSAGE_BYTES))
    region = pipe.ends[1].register_memory(bytearray(b"\1") * MESSAGE_BYTES)
    messages = max(size // MESSAGE_BYTES, 1)
    for number in range(messages):
        pipe.ends[0].post_write(pairs[number % qps][0], source, region.va, region.rkey, number)
    gc.collect()
    profiler = cProfile.Profile()
    started = time.process_time()
    if profile:
        profiler.enable()
    pipe.run(cq, messages)
    profiler.disable()
    spent = time.process_time() - started
    assert region.view == source
    if profile:
        pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(14)
    return sum(qp.requestor.counters.packets_sent for qp, _ in pairs) / spent


def idle_memory(count: int = scaled(200, 4)) -> float:
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


def measure() -> None:
    """Measure every case once, in this process, and print one JSON object."""
    rates = {}
    for name, options in CASES.items():
        small = 4 if options.get("wire") == WireConfig(mtu=1024) else 1
        rates[name] = transfer(SIZE // small, **options)
    print(json.dumps({"how": running.description(), "rates": rates, "idle": idle_memory()}))


def _elsewhere(*, pure: bool, isal: bool = True) -> dict[str, Any]:
    """`measure` in a process of its own."""
    code = ("" if isal else "import sys; sys.modules['isal'] = None; ") + "from benchmarks import bench_endpoint as b; "
    environment = {**os.environ, "MRCLAB_PURE": "1" if pure else ""}
    done = subprocess.run(
        [sys.executable, "-c", code + "b.measure()"], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run() -> None:
    """Print the table: the best of some rounds, in which each way of running takes its turn."""
    ways: dict[str, dict[str, bool]] = {"pure, zlib": {"pure": True, "isal": False}, "pure": {"pure": True}}
    if native.COMPILED:
        ways["compiled"] = {"pure": False}
    else:
        print(f"not compiled: {native.WHY_NOT}\n")
    best: dict[str, dict[str, float]] = {way: {} for way in ways}
    idle = {}
    for _ in range(ROUNDS):
        for way, how in ways.items():
            found = _elsewhere(**how)
            idle[way] = found["idle"]
            for name, rate in found["rates"].items():
                best[way][name] = max(rate, best[way].get(name, 0))
    width = max(map(len, CASES))
    print(f"{'data packets per CPU second':<{width}} {''.join(f'{way:>12}' for way in ways)} {'last : first':>13}")
    for name in CASES:
        rates = [best[way][name] for way in ways]
        print(f"{name:<{width}} {''.join(f'{rate:>12,.0f}' for rate in rates)} {rates[-1] / rates[0]:>13.2f}")
    for way, size in idle.items():
        print(f"\nmemory per idle queue pair with 256 EVs, {way}: {size / 1024:.1f} KB (aim < 64 KB)", end="")
    if not native.COMPILED:
        print("\n\nWhere the time goes (first case, under the profiler):")
        transfer(SIZE // 4, profile=True, **CASES[next(iter(CASES))])
    else:
        print("\n\nWhere the time goes: MRCLAB_PURE=1 for a profile, perf record for the compiled core")
