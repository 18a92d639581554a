"""The switch: packets per second in memory and between interfaces, start-up, events per second.

Interfaces: a C source in a namespace -> veth -> forwarder -> veth -> a namespace whose kernel counts and drops. The
same source and sink measure a bare recvmmsg/sendmmsg forwarder in C, one switch, and three in a row, in turn.
The source sends by AF_XDP where the kernel can, so that the forwarder is what limits the rate.
Source and forwarder have a CPU each if there are two, and real-time priority, so that what else the machine does
disturbs little. Needs root for that part.
"""

from __future__ import annotations

import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import scaled
from mrclab.lab.processes.namespaces import is_machine_root
from p4lite.switch.fabric.fabric import Fabric, FabricSwitch, LinkSettings, Port
from p4lite.switch.native.build import FABRIC_DIR, build
from p4lite.switch.program.entry import ActionCall, Exact, Lpm
from p4lite.switch.runtime.loader import LoadedProgram, load_program
from p4lite.switch.source import load_source

HERE = Path(__file__).parent
SIZES = (128, 1000)
SECONDS = scaled(1.0, 0.05)
ROUNDS = scaled(5, 1)
SWITCHES = scaled(24, 2)
ROUTES = 1000
NEXT_HOP = 0x0A000002


def router() -> LoadedProgram:
    """router.p4, compiled."""
    return load_program(load_source(HERE / "router.p4").bmv2, name="router")


def fill(switch: FabricSwitch, routes: int, port: int) -> None:
    """`routes` prefixes beside 10/8; all to one next hop behind `port`."""
    instance = switch.instance
    route = ActionCall("RouterIngress.route", (NEXT_HOP, port))
    instance.table_add("RouterIngress.routes", (Lpm(0x0A000000, 8),), route)
    for k in range(routes - 1):
        instance.table_add("RouterIngress.routes", (Lpm(0xC0000000 + (k << 8), 24),), route)
    deliver = ActionCall("RouterIngress.deliver", (0x020000000002,))
    instance.table_add("RouterIngress.neighbours", (Exact(NEXT_HOP),), deliver)
    instance.table_add("RouterEgress.interfaces", (Exact(port),), ActionCall("RouterEgress.rewrite", (0x020000000001,)))


def frame(size: int) -> bytes:
    """Return an IPv4 frame to 10.0.0.2, as the C source sends it."""
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, size - 14, 0, 0, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    total = sum(struct.unpack(">10H", head))
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    ethernet = bytes.fromhex("0200000000090200000000010800")
    return ethernet + head[:10] + struct.pack(">H", checksum) + head[12:] + bytes(size - 34)


def row(
    fabric: Fabric,
    program: LoadedProgram,
    count: int,
    attach: Callable[[FabricSwitch, int, bool], Port],
    link: LinkSettings,
) -> list[FabricSwitch]:
    """`count` switches in a row; `attach` makes the first's port 1 and the last's port 2."""
    switches: list[FabricSwitch] = []
    for k in range(count):
        switch = fabric.add_switch(k + 1)
        switch.load(program)
        for number, outside in ((1, k == 0), (2, k == count - 1)):
            if outside:
                attach(switch, number, number == 1)
            else:
                switch.add_port(number)
        if switches:
            fabric.link(switches[-1].port(2), switch.port(1), link)
        fill(switch, ROUTES, 2)
        switches.append(switch)
    return switches


# -- in memory -------------------------------------------------------------------------------------------


def in_memory(program: LoadedProgram) -> None:
    """One switch and three in a row on the virtual clock, source and sink in the core."""
    print(f"(a) in memory, one core, {ROUTES} routes")
    for count in (1, 3):
        for size in SIZES:
            rates = []
            for _ in range(ROUNDS):
                with Fabric("virtual") as fabric:
                    switches = row(fabric, program, count, lambda s, n, _: s.add_port(n), LinkSettings(delay_ns=1000))
                    packets = 500_000
                    switches[-1].port(2).collect(False)
                    switches[0].port(1).generate([frame(size)], packets, interval_ns=100)
                    started = time.process_time()
                    fabric.run_until(10**10)
                    rates.append(packets / (time.process_time() - started))
                    assert switches[-1].port(2).stats().tx_packets == packets
            print(f"    switches: {count}  {size:5} B  {statistics.median(rates):12,.0f} packets/s")


def clos(program: LoadedProgram) -> None:
    """24 switches with links of 10 Gb/s on the virtual clock: events per second."""
    with Fabric("virtual") as fabric:
        switches = [fabric.add_switch(k) for k in range(SWITCHES)]
        edges, spines = switches[:16], switches[16:]
        for switch in switches:
            switch.load(program)
            for number in range(1, 18):
                switch.add_port(number)
        settings = LinkSettings(rate_bps=10**10, delay_ns=1000)
        for e, edge in enumerate(edges):
            fill(edge, 100, 1 + e % 8)
            for s, spine in enumerate(spines):
                fabric.link(edge.port(1 + s), spine.port(1 + e), settings)
        for spine in spines:
            fill(spine, 100, 17)
            spine.port(17).set_link(outgoing=LinkSettings(rate_bps=10**11))
            spine.port(17).collect(False)
        for e, edge in enumerate(edges):
            edge.port(17).generate([frame(1000)], 20_000, interval_ns=1000 + e)
        started = time.process_time()
        fabric.run_until(10**9)
        took = time.process_time() - started
        hops = sum(s.stats().received for s in switches)
        print(
            f"(e) virtual clock, {SWITCHES} switches, {hops:,} hops: {fabric.events() / took:,.0f} events/s, "
            f"{hops / took:,.0f} hops/s"
        )


# -- between interfaces ----------------------------------------------------------------------------------


def ip(*arguments: str, check: bool = True) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *arguments], check=check, capture_output=not check)


class Wires:
    """A source's and a sink's namespace, each with a veth whose other end (`left`, `right`) is here."""

    def __init__(self) -> None:
        self.tag = f"bs{os.getpid() % 100000}"
        self.left, self.right = f"{self.tag}l", f"{self.tag}r"

    def __enter__(self) -> Wires:
        for name in (self.left, self.right):
            ip("netns", "add", name)
            ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            for prefix, device in (((), name), (("ip", "netns", "exec", name), "eth0")):
                subprocess.run([*prefix, "sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=1"], check=True)
            ip("-n", name, "link", "set", "eth0", "up")
            ip("link", "set", name, "up")
        return self

    def __exit__(self, *exc: object) -> None:
        for name in (self.left, self.right):
            ip("link", "del", name, check=False)
            ip("netns", "del", name, check=False)

    def arrived(self) -> int:
        """Frames that reached the sink: what this side of its cable has sent."""
        return int(Path(f"/sys/class/net/{self.right}/statistics/tx_packets").read_text())


def offered_rate(wires: Wires, forwarder: Path, size: int, cpu_ns: Callable[[], int]) -> tuple[float, float]:
    """Packets per second at the sink under full load, and CPU µs per packet of what forwards."""
    source = ["chrt", "-r", "1", "taskset", "-c", "0", str(forwarder), "source", "eth0", str(size), str(SECONDS)]
    before, cpu = wires.arrived(), cpu_ns()
    subprocess.run(["ip", "netns", "exec", wires.left, *source], check=True)
    packets = wires.arrived() - before
    assert packets > 0, "nothing reached the sink"
    return packets / SECONDS, (cpu_ns() - cpu) / 1000 / packets


@contextmanager
def bare(wires: Wires, forwarder: Path) -> Iterator[Callable[[], int]]:
    """Run the C forwarder; yield its CPU time in ns."""
    cpu = str((os.cpu_count() or 1) - 1)
    process = subprocess.Popen(
        ["chrt", "-r", "1", "taskset", "-c", cpu, str(forwarder), "forward", wires.left, wires.right]
    )
    time.sleep(0.3)

    def cpu_ns() -> int:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 10**9 // os.sysconf("SC_CLK_TCK")

    try:
        yield cpu_ns
    finally:
        process.kill()
        process.wait()


@contextmanager
def switched(wires: Wires, program: LoadedProgram, count: int) -> Iterator[Callable[[], int]]:
    """`count` switches at work; yields the CPU time of the loop's thread in ns."""
    everywhere = os.sched_getaffinity(0)
    with Fabric("real", realtime=True) as fabric:

        def attach(switch: FabricSwitch, number: int, first: bool) -> Port:
            return switch.add_port(number, interface=wires.left if first else wires.right)

        row(fabric, program, count, attach, LinkSettings())
        os.sched_setaffinity(0, {(os.cpu_count() or 1) - 1})  # the loop's thread inherits it
        fabric.start()
        os.sched_setaffinity(0, everywhere)

        def cpu_ns() -> int:
            return fabric.loop_cpu_ns()

        yield cpu_ns


def between_interfaces(program: LoadedProgram) -> None:
    """(b) and (c) beside the bare forwarder."""
    if os.geteuid() != 0:
        print("(b, c) between interfaces: skipped, needs root, or `python -m mrclab.lab.processes.launch --run`")
        return
    forwarder = build("forwarder", [HERE / "forwarder.c", FABRIC_DIR / "xdp.c"], executable=True)
    print(f"(b, c) veth to veth, offered as much as the source can, medians of {ROUNDS} rounds of {SECONDS:.0f} s")
    with Wires() as wires:
        for size in SIZES:
            contenders: dict[str, Callable[[], object]] = {
                "bare C forwarder": lambda: bare(wires, forwarder),
                "one switch": lambda: switched(wires, program, 1),
                "three switches": lambda: switched(wires, program, 3),
            }
            results: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
            for _ in range(ROUNDS):
                for name, start in contenders.items():
                    with start() as cpu_ns:  # type: ignore[attr-defined]
                        results[name].append(offered_rate(wires, forwarder, size, cpu_ns))
            reference = [rate for rate, _ in results["bare C forwarder"]]
            for name, rounds in results.items():
                rate = statistics.median(rate for rate, _ in rounds)
                ratio = statistics.median(own / base for (own, _), base in zip(rounds, reference, strict=True))
                cpu = statistics.median(cpu for _, cpu in rounds)
                print(f"    {name:18} {size:5} B  {rate:10,.0f} packets/s  {ratio:5.2f}  {cpu:5.2f} µs CPU/packet")


def lateness(program: LoadedProgram, realtime: bool) -> None:
    """How late the loop is when it sleeps between events."""
    with Fabric("real", realtime=realtime) as fabric:
        switch = fabric.add_switch(1)
        switch.load(program)
        fill(switch, 10, 2)
        source, sink = switch.add_port(1), switch.add_port(2)
        sink.collect(False)
        fabric.start()
        source.generate([frame(1000)], 2000, interval_ns=1_000_000)
        time.sleep(2.1)
        late = fabric.lateness()
    what = "real-time priority" if realtime else "normal priority"
    p50, p99, worst = (ns / 1000 for ns in (late.loop.p50_ns, late.loop.p99_ns, late.loop.max_ns))
    print(
        f"(f) real clock, {what}, an event each ms: late by p50 {p50:.0f} µs, p99 {p99:.0f} µs, max {worst:.0f} µs; "
        f"CPU {late.cpu_share:.1%}"
    )


# -- start-up --------------------------------------------------------------------------------------------


def start_up() -> None:
    """24 switches with filled tables in a fresh process: cold (empty cache) and warm."""
    with tempfile.TemporaryDirectory(prefix="bench-switch-") as cache:
        for what in ("cold", "warm"):
            command = [sys.executable, "-m", "benchmarks.bench_switch", "start-up"]
            started = time.monotonic()
            done = subprocess.run(
                command,
                env=os.environ | {"MRCLAB_CACHE": cache},
                cwd=HERE.parent,
                capture_output=True,
                text=True,
                check=True,
            )
            took = time.monotonic() - started
            print(f"(d) {SWITCHES} switches, {ROUTES} routes each, {what}: {took:.2f} s in all, {done.stdout.strip()}")


def start_up_child() -> None:
    """Run the child process of `start_up`."""
    started = time.monotonic()
    fabric = Fabric("real")
    program = router()
    compiled = time.monotonic() - started
    for k in range(SWITCHES):
        switch = fabric.add_switch(k)
        switch.load(program)
        for number in range(1, 9):
            switch.add_port(number)
        fill(switch, ROUTES, 2)
    fabric.start()
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"of that P4 to JSON {compiled:.2f} s; {rss:.0f} MB resident")
    fabric.close()


def run() -> None:
    """Print all tables."""
    program = router()
    in_memory(program)
    between_interfaces(program)
    start_up()
    clos(program)
    for realtime in (False, True)[: 1 + is_machine_root()]:
        lateness(program, realtime)


if __name__ == "__main__":
    if sys.argv[1:] == ["start-up"]:
        start_up_child()
    else:
        run()
