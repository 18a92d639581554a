"""Hosts with their agents' loop and sockets, on links in memory: no namespaces, no rights, the real rings and clock.

`python -m support.verbs.bed FOLDER [JSON]` is such an agent as a process of its own, which can be killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from mrc_host import verbs
from mrc_host.agent.verbs import VerbsServer, silence
from mrc_host.drivers.raw import RawDriver, RingNode
from mrc_host.drivers.surface import PortRing, PortSender
from mrc_host.node.config import load
from mrc_host.node.host import HostNode
from mrc_host.verbs.connection import verbs_socket
from mrc_topo.base import rpc

PORTS = 2
PACKETS = 4096
DESTINATION = slice(24, 40)  # of an IPv6 packet
#: Short retries: a silent peer is given up after some tenths of a second, on a machine that others use as well.
RELIABILITY = {"timeout": 14, "linear_cnt": 2, "exp_cnt": 3}


class WireEnd(PortRing):
    """One end of a network in memory, as a station sees a port's ring. `others`: other hosts' ends, by address."""

    def __init__(self) -> None:
        super().__init__("lo")
        self.others: dict[bytes, WireEnd] = {}
        self.frames: deque[tuple[int, bytes]] = deque()
        self.signal = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.cut = False
        self.dropped = 0

    def fileno(self) -> int:
        return self.signal

    def arrival(self) -> int:
        return self.frames[0][0] if self.frames else 0

    def take(self) -> bytes:
        silence(self.signal)
        return self.frames.popleft()[1]

    def kernel_drops(self) -> int:
        return self.dropped

    def close(self) -> None:
        os.close(self.signal)


class WireSender(PortSender):
    """Sends to the other ends."""

    def __init__(self, ends: Sequence[WireEnd]) -> None:
        super().__init__()
        self.ends = ends

    def send(self, packets: list[list[bytes]]) -> None:
        for end, through in zip(self.ends, packets, strict=True):
            told = set()
            for packet in through:
                other = end.others.get(packet[DESTINATION])
                if other is None or end.cut or len(other.frames) >= PACKETS:
                    end.dropped += 1
                else:
                    other.frames.append((time.time_ns(), packet))
                    told.add(other)
            for other in told:
                os.eventfd_write(other.signal, 1)


def document(index: int, **changes: Any) -> dict[str, Any]:
    settings = {
        "reliability": RELIABILITY,
        "ev": {"count": 32, "active": 16, "probe_interval_ns": 20_000_000, "probe_timeout_ns": 100_000_000},
        "cc": {"line_rate_bps": 10**10, "base_rtt_ns": 3_000_000},
        **changes.pop("settings", {}),
    }
    return {
        "name": f"h{index}",
        "address": f"fd00::{index + 1:x}",
        "ports": PORTS,
        "rate_bps": [5 * 10**9] * PORTS,
        "settings": settings,
    } | changes


class Bed:
    """`hosts` of them (two), port to port in each plane; `run` serves them until `driver.stop`."""

    def __init__(self, folder: pathlib.Path, *, hosts: int = 2, **changes: Any) -> None:
        self.folder = folder
        self.nodes = [
            HostNode(load(document(index, **json.loads(json.dumps(changes)))), random.Random(index + 7))
            for index in range(hosts)
        ]
        ends = [[WireEnd() for _ in range(PORTS)] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            address = ipaddress.IPv6Address(node.config.address).packed
            for other, own in enumerate(ends):
                if other != index:
                    for port, end in enumerate(own):
                        end.others[address] = ends[index][port]
        self.ends = ends
        self.stations = [
            RingNode(node.datapath, rings, WireSender(rings), node.config.rate_bps, node.packet_bytes)
            for node, rings in zip(self.nodes, ends, strict=True)
        ]
        self.driver = RawDriver(self.stations)
        self.servers: list[Any] = []
        for node, station in zip(self.nodes, self.stations, strict=True):
            control = folder / f"{node.name}.sock"
            self.servers.append(rpc.Server(control, self.driver, node.command))
            self.servers.append(VerbsServer(verbs_socket(control), self.driver, node))
            station.posted = node.programs.posted

    def path(self, index: int) -> str:
        return str(self.folder / f"h{index}.verbs")

    def run(self) -> None:
        try:
            self.driver.run()
        finally:
            for server in reversed(self.servers):
                server.close()
            self.driver.close()


@contextlib.contextmanager
def bed(folder: pathlib.Path, **changes: Any) -> Iterator[Bed]:
    """Run a bed whose loop runs in a thread."""
    made = Bed(folder, **changes)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield made
        assert thread.is_alive(), "the agents' loop has died"
        assert not any(node.faults for node in made.nodes)
    finally:
        made.driver.stop()
        thread.join(30)


@contextlib.contextmanager
def process(folder: pathlib.Path, *, errors: int | None = None, **changes: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a bed in a process of its own, with its error output at `errors`; yield it once it serves."""
    command = [sys.executable, "-m", "support.verbs.bed", str(folder), json.dumps(changes)]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as agent:
        try:
            assert agent.stdout is not None
            assert agent.stdout.readline() == "ready\n"
            yield agent
        finally:
            if agent.poll() is None:
                agent.terminate()
            agent.wait(30)


@dataclasses.dataclass
class End:
    """A program's usual objects on one host."""

    context: verbs.Context
    domain: verbs.ProtectionDomain
    channel: verbs.CompletionChannel
    cq: verbs.CompletionQueue
    region: verbs.MemoryRegion
    qp: verbs.QueuePair
    peer: verbs.RemoteMemory = dataclasses.field(default_factory=lambda: verbs.RemoteMemory(0, 0, 0))

    def wait(self, count: int = 1, seconds: float = 30.0) -> list[verbs.WorkCompletion]:
        """Wait for this number of completions."""
        found: list[verbs.WorkCompletion] = []
        deadline = time.monotonic() + seconds
        while len(found) < count:
            got = self.cq.wait(max(deadline - time.monotonic(), 0))
            assert got, f"{len(found)} of {count} completions after {seconds} s"
            found += got
        return found


def open_end(path: str, size: int = 1 << 16, **options: Any) -> End:
    context = verbs.open_device(path)
    domain = verbs.ProtectionDomain(context)
    channel = verbs.CompletionChannel(context)
    cq = verbs.CompletionQueue(context, 1024, channel)
    region = verbs.MemoryRegion(domain, size)
    return End(context, domain, channel, cq, region, verbs.QueuePair(domain, cq, **options))


def join(first: End, second: End) -> None:
    """Connect their queue pairs."""
    documents = [json.loads(json.dumps(end.qp.document())) for end in (first, second)]
    first.qp.connect(documents[1])
    second.qp.connect(documents[0])
    first.peer, second.peer = second.region.remote, first.region.remote


@contextlib.contextmanager
def ends(made: Bed, *, connected: bool = True, **options: Any) -> Iterator[tuple[End, End]]:
    """Two ends, one on each host."""
    pair = open_end(made.path(0), **options), open_end(made.path(1), **options)
    try:
        if connected:
            join(*pair)
        yield pair
    finally:
        for end in pair:
            end.context.close()


def main() -> None:
    made = Bed(pathlib.Path(sys.argv[1]), **json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}"))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: made.driver.stop())
    print("ready", flush=True)
    made.run()


if __name__ == "__main__":
    main()
