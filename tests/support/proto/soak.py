"""The simulation campaign: `PYTHONPATH=tests python -m support.proto.soak --runs 10000`, seeded, in parallel.

A seed alone decides a scenario: shape of the network, impairments, failures, profiles, queue pairs, sizes. Every run
must place every byte exactly once, complete or flush every work request with a reason, and end in bounded virtual
time. Prints the worst cases; `--only SEED` replays one alone. Exit status: 0, 1 (a run failed), 2 (usage).
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import multiprocessing
import random
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mrc_host.proto.config import EvConfig, EvFormat, ReliabilityConfig, Srv6Path, WireConfig
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.nscc import FixedConfig, NsccConfig
from mrc_host.proto.events import ErrorReason, QpState, QpStateChanged
from mrc_host.proto.statistics import QpStatistics
from mrc_host.proto.wire.codec import Codec
from mrc_topo.base.plain import encode
from support.proto.net import Impairment, NetConfig, Stalled
from support.proto.workload import Bench, Connection, Mismatch

MS = 1_000_000
VIRTUAL_LIMIT_NS = 30_000 * MS
MAX_EVENTS = 6_000_000
#: How many times as fast links become when trimmed headers alone have filled them.
RELIEF = 20


@dataclass
class Scenario:
    """What a seed means. `doomed`: the network dies for good in the middle, so retries must run out."""

    seed: int
    net: NetConfig
    endpoint: dict[str, Any]
    qps: int
    hosts: int
    sizes: list[int]
    flaps: list[tuple[str, int, int, int, int]]  # what, start, length, two selectors
    doomed: bool

    def text(self) -> str:
        """One line for a report."""
        harm = {k: v for k, v in vars(self.net.impairment).items() if v and k not in ("reorder_ns", "burst_leave")}
        r: ReliabilityConfig = self.endpoint["reliability"]
        return (
            f"seed {self.seed}: {self.net.planes}x{self.net.paths} {self.net.select}, {self.hosts} hosts, "
            f"{self.qps} QPs, {len(self.sizes)} writes of {sum(self.sizes)} bytes, mtu {self.endpoint['wire'].mtu}, "
            f"mpr {r.mpr_dest}{'d' if r.dynamic_mpr else ''}, sack_every {r.sack_every}, "
            f"{self.endpoint['cc'].algorithm}, {harm}, trim {self.net.trim_bytes}, "
            f"{len(self.flaps)} flaps{', doomed' if self.doomed else ''}"
        )


@dataclass
class Result:
    """How a run went; `problem` is empty when all is well."""

    seed: int
    text: str
    problem: str = ""
    virtual_ns: int = 0
    packets: int = 0
    retransmitted: int = 0
    sent: int = 0
    wall_s: float = 0.0
    doomed: bool = False
    statuses: Counter[str] = field(default_factory=Counter)


def carrier(ev: int, destination: bytes) -> Srv6Path:
    """Return a made-up carrier: locator, T0, T1 (from the EV), T0, host."""
    hops = (0x1000, ev & 0xFF, 0x3000, 0x4000)
    return Srv6Path(b"\x5f\x00\x00\x00" + b"".join(hop.to_bytes(2, "big") for hop in hops) + bytes(4))


def _sizes(rng: random.Random, budget: int) -> list[int]:
    """Message sizes from 0 bytes to 8 MB, mostly small, together about `budget` bytes."""
    sizes: list[int] = []
    left = budget
    for _ in range(rng.choice((1, 3, 10, 30, 60))):
        kind = rng.random()
        if kind < 0.1:
            size = rng.choice((0, 1, 2, 3, 4, 255, 256, 257, 4095, 4096, 4097, 8192))
        elif kind < 0.6:
            size = rng.randrange(4096)
        elif kind < 0.92:
            size = rng.randrange(100_000)
        elif kind < 0.99:
            size = rng.randrange(500_000)
        else:
            size = rng.randrange(1 << 23)
        sizes.append(min(size, max(left, rng.randrange(100))))
        left -= size
    return sizes


def _cc(rng: random.Random, line_rate_bps: int, base_rtt_ns: int, trimming: bool) -> CcConfig:
    kind = rng.choice((NsccConfig, NsccConfig, FixedConfig))
    window = rng.choice((5_000, 100_000, 1_000_000))
    own = {"fixed_window_bytes": window} if kind is FixedConfig else {}
    return kind(line_rate_bps=line_rate_bps, base_rtt_ns=base_rtt_ns, trimming=trimming, **own)  # type: ignore[arg-type]


def scenario(seed: int, *, budget: int = 400_000) -> Scenario:
    """Return the scenario of a seed; `budget` is about how many bytes a usual run writes."""
    rng = random.Random(f"scenario-{seed}")
    planes, paths = rng.choice((1, 1, 2, 2, 4, 8)), rng.choice((1, 2, 4, 8))
    harm: dict[str, Any] = {}
    if rng.random() < 0.7:
        harm["loss"] = rng.choice((0.001, 0.01, 0.05, 0.1, 0.3)) * rng.random()
    if rng.random() < 0.05:
        harm["loss"] = 0.3
    if rng.random() < 0.25:
        harm["burst_enter"], harm["burst_leave"] = 0.002, rng.choice((0.05, 0.2))
    if rng.random() < 0.4:
        harm["reorder"], harm["reorder_ns"] = rng.choice((0.01, 0.2)), rng.choice((5_000, 100_000))
    if rng.random() < 0.3:
        harm["duplicate"] = rng.choice((0.01, 0.2))
    if rng.random() < 0.3:
        harm["corrupt"] = rng.choice((0.01, 0.1))
    srv6 = rng.random() < 0.15
    trims = rng.random() < 0.6
    queue = rng.choice((20_000, 60_000, 200_000))
    net = NetConfig(
        planes=planes,
        paths=paths,
        port_rate_bps=rng.choice((10, 100)) * 10**9,
        path_rate_bps=rng.choice((10, 50, 100)) * 10**9,
        latency_ns=rng.choice((1_000, 5_000, 50_000)),
        queue_bytes=4 * queue,
        port_queue_bytes=4 * queue,
        ecn=(queue // 5, queue) if rng.random() < 0.8 else None,
        trim_bytes=queue if trims else None,
        port_trim_bytes=queue if trims else None,
        select="srv6" if srv6 else rng.choice(("hash", "structured")),
        impairment=Impairment(**harm),
    )
    base_rtt = 2 * net.latency_ns + 20_000
    evs = planes * rng.choice((4, 16, 32))
    mpr = rng.choice((1, 1, 2, 8, 64, 255))
    endpoint: dict[str, Any] = {
        "wire": WireConfig(
            mtu=rng.choice((256, 1024, 1024, 4096, 4096)), fabric_trims=trims, timestamps=rng.random() < 0.9
        ),
        "reliability": ReliabilityConfig(
            timeout=rng.choice((8, 9, 10)),
            linear_cnt=7,
            exp_cnt=10,
            mpr=mpr,
            mpr_dest=rng.choice((mpr, 1, 4, 64)),
            dynamic_mpr=rng.random() < 0.3,
            trim_nack=rng.random() < 0.9,
            service_time=rng.random() < 0.3,
            sack_every=rng.choice((1, 1, 1, 2, 8, 32)),
        ),
        "ev": EvConfig(
            fmt=EvFormat.SRV6_USID128 if srv6 else rng.choice((EvFormat.UDP16, EvFormat.STEV32)),
            count=evs,
            active=max(planes, evs // rng.choice((1, 2, 4))),
            ev_min_active=rng.choice((1, 2, 4)),
            resolver=carrier if srv6 else None,
            probe_interval_ns=rng.choice((100_000, 1_000_000)),
        ),
        "cc": _cc(rng, planes * net.port_rate_bps, base_rtt, trims),
        "initial_psn": rng.choice((None, None, 0, 0xFFFFFF, 0xFFFFF0, 0x7FFFFF)),
    }
    flaps: list[tuple[str, int, int, int, int]] = []
    for _ in range(rng.choice((0, 0, 0, 1, 2, 5))):
        what = rng.choice(("path", "path", "port", "port", "silent", "plane", "rank"))
        start = rng.randrange(1, 2 * MS)
        flaps.append((what, start, rng.randrange(1, 3 * MS), rng.randrange(1 << 16), rng.randrange(1 << 16)))
    qps = rng.choice((1, 1, 1, 2, 2, 4, 8, 16, 64))
    doomed = rng.random() < 0.03
    if trims and isinstance(endpoint["cc"], FixedConfig) and not doomed:
        # Nothing slows the sender down, and every NACK counts: only retrying for ever must succeed.
        endpoint["reliability"] = dataclasses.replace(endpoint["reliability"], exp_cnt=25)
    sizes = _sizes(rng, budget * (20 if rng.random() < 0.02 else 1))
    return Scenario(seed, net, endpoint, qps, rng.choice((2, 2, 2, 3, 4)), sizes, flaps, doomed)


def wire_sample() -> bytes:
    """Return a WRITE packet to mutate."""
    return Codec().encode_data(bytes(range(32)), 7, 18, 0xCA, 5, 6, 0x80, 0, 0, 1, 2, 3, 4, b"four")


def _schedule(bench: Bench, what: Scenario) -> None:
    """Put the failures of a scenario on the clock. Each ends, so that the work can be finished."""
    net, c = bench.net, what.net
    for kind, start, length, one, two in what.flaps:
        host, plane = net.hosts[one % len(net.hosts)], two % c.planes
        if kind == "path":
            net.flap(net.set_path, start, length, plane=plane, index=one % c.paths)
        elif kind == "rank":
            net.flap(net.set_path, start, length, index=one % c.paths)
        elif kind == "plane":
            net.flap(net.set_plane, start, length, plane)
        else:
            net.flap(net.set_link, start, length, host, plane, notice=kind == "port")
    if what.doomed:
        net.at(200_000, lambda: net.set_path(False))


def build(what: Scenario) -> Bench:
    """Return the bench of a scenario: hosts, queue pairs, failures and writes."""
    bench = Bench(what.net, what.seed, **what.endpoint)
    bench.keep_events = True
    hosts = [bench.add_host() for _ in range(what.hosts)]
    rng = bench.rng
    connections: list[Connection] = []
    for number in range(what.qps):
        ends = rng.sample(hosts, 2) if number else hosts[:2]
        forward = bench.connect(*ends)
        connections.append(forward)
        if rng.random() < 0.4:
            connections.append(bench.reverse(forward))
    _schedule(bench, what)
    for number, size in enumerate(what.sizes):
        connection = rng.choice(connections)
        immediate = number if rng.random() < 0.4 else None
        if number < 8 or rng.random() < 0.5:
            bench.post(connection, size, immediate=immediate)
        else:  # later, while others are under way
            bench.outstanding += 1
            bench.net.at(rng.randrange(2 * MS), _post_late, bench, connection, size, immediate)
    return bench


def _post_late(bench: Bench, connection: Connection, size: int, immediate: int | None) -> None:
    bench.outstanding -= 1
    bench.post(connection, size, immediate=immediate)


def verdict(bench: Bench, what: Scenario) -> str:
    """Return what is wrong with a finished run; empty when nothing is."""
    statuses = bench.statuses()
    if statuses["open"]:
        return f"{statuses['open']} work requests never completed"
    if len(bench.writes) != len(what.sizes):
        return f"{len(bench.writes)} of {len(what.sizes)} writes were posted"
    failed = {name for name in statuses if name != "SUCCESS"}
    errors = {
        event.reason for _, _, event in bench.events if isinstance(event, QpStateChanged) and event.new is QpState.ERROR
    }
    if not what.doomed and (failed or errors):
        return f"failed without need: {dict(statuses)}, {sorted(str(e) for e in errors)}"
    if failed - {"RETRY_EXC_ERR", "WR_FLUSH_ERR"} or errors - {ErrorReason.RETRY_EXCEEDED}:
        return f"wrong reason: {dict(statuses)}, {sorted(str(e) for e in errors)}"
    for connection in bench.connections:
        wanted = [w.immediate for w in bench.writes if w.connection is connection and w.immediate is not None]
        if not what.doomed and sorted(connection.immediates) != sorted(wanted):
            return f"{len(connection.immediates)} of {len(wanted)} immediates delivered"
    return ""


def _finish(bench: Bench, what: Scenario) -> None:
    """Run until every write has completed.

    A fixed window can collapse where switches trim: headers and their NACKs, which go first, fill a link, and no data
    passes any more (NDP weighs the two queues against this; Handley et al., SIGCOMM 2017, section 3.1). Nothing is
    wrong with the endpoints then. They must finish when the links can carry the headers again.

    Raises:
        Stalled: a write has not completed within the bounds of virtual time and events.
    """
    try:
        bench.run(max_time_ns=VIRTUAL_LIMIT_NS, max_events=MAX_EVENTS)
    except Stalled:
        if what.net.trim_bytes is None or not isinstance(what.endpoint["cc"], FixedConfig):
            raise
        for queue in [*bench.net.paths(), *(port for host in bench.net.hosts for port in host.ports)]:
            queue.rate_bps *= RELIEF
        bench.run(max_time_ns=VIRTUAL_LIMIT_NS, max_events=2 * MAX_EVENTS)


def run(seed: int) -> Result:
    """One run; never raises."""
    start = time.perf_counter()
    what = scenario(seed)
    result = Result(seed, what.text(), doomed=what.doomed)
    bench: Bench | None = None
    try:
        bench = build(what)
        _finish(bench, what)
        result.virtual_ns = bench.net.now
        bench.settle(5 * MS)
        result.problem = verdict(bench, what)
    except Mismatch as problem:
        result.problem = f"Mismatch: {problem}"
    except Exception as problem:  # noqa: BLE001 - the campaign reports any exception of the core with its seed
        where = traceback.extract_tb(problem.__traceback__)[-1]
        result.problem = f"{type(problem).__name__}: {problem} ({where.filename.split('/')[-1]}:{where.lineno})"
    if bench is not None:
        result.packets = bench.net.packets
        result.statuses = bench.statuses()
        for host in bench.net.hosts:
            for qp in host.core.statistics().qps:
                counters = encode(qp.requestor if isinstance(qp, QpStatistics) else qp)
                result.sent += counters["packets_sent"]
                result.retransmitted += counters["retransmissions"]
    result.wall_s = time.perf_counter() - start
    return result


def digest(seed: int) -> str:
    """Return the hash of every packet of a run, with when and where it was seen, and of all counters at its end."""
    what = scenario(seed)
    bench = build(what)
    seen = hashlib.sha256()
    bench.net.watchers.append(
        lambda time, event, host, port, path, packet: seen.update(
            b"%d %s %d %d %d %s" % (time, event.encode(), host.index, port, path, packet)
        )
    )
    bench.run(max_time_ns=VIRTUAL_LIMIT_NS, max_events=MAX_EVENTS)
    for host in bench.net.hosts:
        seen.update(json.dumps(encode(host.core.statistics()), sort_keys=True).encode())
    return seen.hexdigest()


def campaign(first: int, runs: int, jobs: int) -> list[Result]:
    """All runs, printing progress and problems as they come."""
    results: list[Result] = []
    began = time.perf_counter()
    with multiprocessing.Pool(jobs) as pool:
        for result in pool.imap_unordered(run, range(first, first + runs), chunksize=4):
            results.append(result)
            if result.problem:
                print(f"FAILED {result.problem}\n  {result.text}", flush=True)
            if len(results) % 1000 == 0:
                print(f"{len(results)} runs, {time.perf_counter() - began:.0f} s", flush=True)
    return results


def report(results: list[Result]) -> None:
    """Totals and the worst cases, each with its seed."""
    total = Counter[str]()
    for result in results:
        total.update(result.statuses)
    packets = sum(r.packets for r in results)
    failed = [r for r in results if r.problem]
    print(f"{len(results)} runs, {len(failed)} failed; {packets} packets; work requests: {dict(total)}")
    doomed = sum(r.doomed for r in results)
    print(f"the worst cases, leaving out {doomed} runs in which the network dies for good:")
    results = [r for r in results if not r.doomed]
    worst = (
        ("longest virtual time", lambda r: r.virtual_ns, lambda r: f"{r.virtual_ns / 1e6:.1f} ms"),
        ("most packets", lambda r: r.packets, lambda r: f"{r.packets}"),
        (
            "largest share of retransmissions",
            lambda r: r.retransmitted / max(r.sent, 100),
            lambda r: f"{r.retransmitted} of {r.sent}",
        ),
        ("longest wall time", lambda r: r.wall_s, lambda r: f"{r.wall_s:.1f} s"),
    )
    for title, key, show in worst:
        print(f"{title}:")
        for result in sorted(results, key=key, reverse=True)[:3]:
            print(f"  {show(result)}: {result.text}")


def main(arguments: list[str]) -> int:
    """Run the command; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="support.proto.soak", description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run; the others follow")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--only", type=int, help="replay this one seed and show its statistics")
    options = parser.parse_args(arguments)
    if options.only is not None:
        result = run(options.only)
        print(result.text)
        print(f"{result.problem or 'well'}; {result.virtual_ns / 1e6:.3f} ms, {result.packets} packets")
        print(f"{dict(result.statuses)}; {result.retransmitted} of {result.sent} retransmitted")
        return 1 if result.problem else 0
    if options.runs < 1 or options.jobs < 1:
        parser.error("--runs and --jobs must be at least 1")
    results = campaign(options.seed, options.runs, options.jobs)
    report(results)
    return 1 if any(result.problem for result in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
