"""Fairness of NSCC in an incast: Jain's index of 2 to 64 flows, with and without trimming, last-hop ECN, quick adapt.

The network is the reference network of UET 1.0 (100 Gb/s, base RTT 12 us) in simulated time, so the figures are those
of the algorithm and the same on every machine. `MRCLAB_SMOKE=1` runs two cells of it for 0.5 ms, to see that it works.
"""

from __future__ import annotations

import itertools
import pathlib
import sys
from dataclasses import dataclass
from typing import Any

from benchmarks import scaled, smoke

PLANES = 4
MTU = 4096
PORT_BPS = 25_000_000_000
BASE_RTT_NS = 12_000
#: What a port of one plane carries in a base RTT: where it trims, or, without trimming, half of what it holds.
BDP_BYTES = PORT_BPS // 8 * BASE_RTT_NS // 10**9
FLOWS = (2, 4, 8, 16, 32, 64)
#: UET's default, that of the labs, and no quick adapt.
GATES = (3, 5, None)
WARM_NS, LENGTH_NS = 2_000_000, 4_000_000
SEED = 1


@dataclass(frozen=True)
class Cell:
    """One run. `marked`: the ports to the receiver mark, as uet-htsim's do and MRC's do not; `qa_gate` None: no quick
    adapt."""

    flows: int
    trimming: bool
    marked: bool
    qa_gate: int | None


@dataclass(frozen=True)
class Outcome:
    """Jain's index of the flows' bytes, their sum as a share of the receiver's ports, the packets at those ports that
    were trimmed or dropped as a share of all, and the mean queue there in base RTTs."""

    jain: float
    used: float
    lost: float
    queue: float


def measure(cell: Cell, length_ns: int = LENGTH_NS, warm_ns: int = WARM_NS, slower: int = 1, **changes: Any) -> Outcome:
    """Run one cell for `warm_ns` and then for `length_ns` ns, which count.

    Args:
        slower: everything takes this many times as long, as in a lab; the outcome should be the same.
        changes: keywords of `NsccConfig`.
    """
    from mrc_host.proto.config import EvConfig, ReliabilityConfig, WireConfig
    from mrc_host.proto.congestion.nscc import NsccConfig
    from support.proto.net import NetConfig
    from support.proto.workload import Bench

    network = NetConfig(
        planes=PLANES,
        paths=4,
        port_rate_bps=PORT_BPS // slower,
        path_rate_bps=4 * PORT_BPS // slower,
        latency_ns=4_300 * slower,
        queue_bytes=40 * BDP_BYTES,
        ecn=(4 * BDP_BYTES, 16 * BDP_BYTES),
        trim_bytes=20 * BDP_BYTES if cell.trimming else None,
        port_queue_bytes=2 * BDP_BYTES,
        port_trim_bytes=BDP_BYTES if cell.trimming else None,
        port_ecn=(BDP_BYTES // 5, BDP_BYTES * 4 // 5) if cell.marked else None,
        nic_queue_bytes=2 * MTU,
    )
    control: dict[str, Any] = {
        "line_rate_bps": PLANES * PORT_BPS // slower,
        "base_rtt_ns": BASE_RTT_NS * slower,
        "trimming": cell.trimming,
        "disable_qa": cell.qa_gate is None,
        "qa_gate": 3 if cell.qa_gate is None else cell.qa_gate,
    }
    bench = Bench(
        network,
        SEED,
        verify=False,
        wire=WireConfig(mtu=MTU, fabric_trims=cell.trimming),
        ev=EvConfig(count=64, active=32),
        reliability=ReliabilityConfig(timeout=8 + (slower - 1).bit_length(), linear_cnt=7, exp_cnt=14),
        cc=NsccConfig(**control | changes),
    )
    sink = bench.add_host()
    total = PLANES * PORT_BPS // 8 * (warm_ns + length_ns) // 10**9
    for _ in range(cell.flows):
        bench.post(bench.connect(bench.add_host(), sink), total)
    arrived = [0] * cell.flows
    depths: list[float] = []

    def watch(now: int, kind: str, host: Any, port: int, path: int, packet: bytes) -> None:
        if kind == "received" and host is sink and len(packet) > MTU:
            arrived[packet[23] - 2] += MTU  # the last byte of the source, one more than its index
            depths.append(max(sink.ports[port].busy - now, 0) / (slower * BASE_RTT_NS))

    bench.net.run(max_time_ns=warm_ns * slower)
    bench.net.watchers.append(watch)
    ports = sink.ports
    before = [(each.sent, each.trimmed + each.dropped) for each in ports]
    bench.net.run(max_time_ns=length_ns * slower)
    sent = sum(each.sent for each in ports) - sum(row[0] for row in before)
    lost = sum(each.trimmed + each.dropped for each in ports) - sum(row[1] for row in before)
    jain = sum(arrived) ** 2 / (len(arrived) * sum(each * each for each in arrived))
    used = sum(arrived) * 8e9 / (length_ns * PLANES * PORT_BPS)
    return Outcome(jain, used, lost / (sent + lost), sum(depths) / len(depths))


def run() -> None:
    """Print the table."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))
    flows = scaled(FLOWS, FLOWS[1:2])
    times = scaled((LENGTH_NS, WARM_NS), (500_000, 200_000))
    print(f"NSCC, incast at {PLANES} x {PORT_BPS // 10**9} Gb/s, base RTT {BASE_RTT_NS // 1000} us, MTU {MTU}")
    print("each cell: Jain's index, goodput, packets trimmed or dropped, mean queue in base RTTs; by number of flows")
    print(f"{'trimming':<10}{'last-hop ECN':<14}{'qa_gate':<9}" + "".join(f"{count:>26}" for count in flows))
    for trimming, marked, gate in itertools.product((True, False), (True, False), GATES):
        if smoke() and not (trimming and gate == GATES[0]):
            continue
        cells = []
        for count in flows:
            found = measure(Cell(count, trimming, marked, gate), *times)
            cells.append(f"{found.jain:.3f} {found.used:.1%} {found.lost:.1%} {found.queue:.2f}")
        words = ["yes" if each else "no" for each in (trimming, marked)]
        print(f"{words[0]:<10}{words[1]:<14}{gate or 'off':<9}" + "".join(f"{cell:>26}" for cell in cells), flush=True)
