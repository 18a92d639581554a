"""Writes over a simulated network, verified byte for byte.

`Bench` adds endpoints to a `Net`, connects queue pairs and posts writes. Each write has its own region at the
target, between guard bytes. When the sender's completion arrives, the region must equal the source; it is then
overwritten, as an application would reuse it, and must never change again: every byte is placed exactly once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mrc_host.proto.completion import Completion, CompletionKind, CompletionQueue, CompletionStatus
from mrc_host.proto.config import EndpointConfig, EvConfig, PortsConfig
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_host.proto.endpoint import Endpoint
from support.proto.net import Host, Net, NetConfig, address_of

GUARD = 64
GUARD_BYTE = 0xA5
REUSED = 0x5A


@dataclass
class Connection:
    """A queue pair from `source` to `target` and its other end."""

    source: Host
    target: Host
    qp: Any
    peer: Any
    cq: CompletionQueue
    peer_cq: CompletionQueue
    posted: int = 0
    immediates: list[int] = field(default_factory=list)
    receives: int = 0


@dataclass
class Write:
    """One posted write. `memory` is guard, region, guard at the target."""

    connection: Connection
    wr_id: int
    data: bytes
    memory: bytearray
    immediate: int | None
    posted_at: int
    region: Any = None
    completed_at: int | None = None
    status: CompletionStatus | None = None
    reused: bool = False


class Mismatch(AssertionError):
    """Memory, order or completions are not what was posted."""


CoreFactory = Callable[[EndpointConfig, random.Random], Any]


class Bench:
    """Endpoints on a network, and the writes between them. `verify=False` skips copying and checking data."""

    def __init__(
        self,
        config: NetConfig,
        seed: int,
        *,
        factory: CoreFactory = Endpoint,
        verify: bool = True,
        **endpoint: Any,
    ) -> None:
        """`endpoint` are keywords of EndpointConfig; EV, CC and port settings default to what fits the network."""
        self.net = Net(config, seed)
        self.seed = seed
        self.verify = verify
        self.factory = factory
        self.rng = random.Random(seed ^ 0x5EED)
        self.endpoint = endpoint
        self.connections: list[Connection] = []
        self.writes: list[Write] = []
        self.outstanding = 0
        self.events: list[tuple[int, int, Any]] = []
        self.keep_events = False
        self._cqs: dict[tuple[int, int], CompletionQueue] = {}
        self._receivers: dict[tuple[int, int], Connection] = {}
        self._open: dict[tuple[int, int], Write] = {}

    def add_host(self, group: int | None = None, **changes: Any) -> Host:
        """One more endpoint; `changes` override the bench's EndpointConfig keywords."""
        net, index = self.net, len(self.net.hosts)
        c = net.config
        base_rtt = 2 * c.latency_ns + 4 * 5_000 * 8_000_000_000 // c.port_rate_bps
        settings: dict[str, Any] = {
            "ports": PortsConfig(count=c.planes),
            "ev": EvConfig(count=max(32, 8 * c.planes), active=max(16, 4 * c.planes), ev_min_active=2),
            "cc": NsccConfig(line_rate_bps=c.planes * c.port_rate_bps, base_rtt_ns=base_rtt),
        }
        settings |= self.endpoint | changes
        core = self.factory(EndpointConfig(address_of(index), **settings), random.Random(f"{self.seed}-{index}"))
        host = net.add(address_of(index), core, group)
        host.on_event = lambda event: self._on_event(host, event)
        return host

    def connect(self, source: Host, target: Host, **profiles: Any) -> Connection:
        """Return a connected queue pair; `profiles` are keywords of `create_qp`."""
        ends = []
        for host in (source, target):
            cq = host.core.create_cq()
            ends.append((host, cq, host.core.create_qp(cq, cq, **profiles)))
        (_, cq, qp), (_, peer_cq, peer) = ends
        mine, theirs = source.core.local_attributes(qp), target.core.local_attributes(peer)
        source.core.connect(qp, theirs, self.net.now)
        target.core.connect(peer, mine, self.net.now)
        made = Connection(source, target, qp, peer, cq, peer_cq)
        self.connections.append(made)
        self._cqs[source.index, cq.number] = cq
        self._cqs[target.index, peer_cq.number] = peer_cq
        self._receivers[target.index, peer.number] = made
        self.net.touch(source)
        self.net.touch(target)
        return made

    def reverse(self, connection: Connection) -> Connection:
        """Return the other direction of a connected queue pair."""
        c = connection
        made = Connection(c.target, c.source, c.peer, c.qp, c.peer_cq, c.cq)
        self.connections.append(made)
        self._receivers[c.source.index, c.qp.number] = made
        return made

    def post(self, connection: Connection, size: int, *, immediate: int | None = None) -> Write:
        """Post one write of `size` random bytes (zeros when not verifying)."""
        net = self.net
        data = self.rng.randbytes(size) if self.verify else bytes(size)
        memory = bytearray(bytes((GUARD_BYTE,)) * (size + 2 * GUARD)) if self.verify else bytearray(size)
        view = memoryview(memory)[GUARD : GUARD + size] if self.verify else memoryview(memory)
        region = connection.target.core.register_memory(view)
        write = Write(connection, len(self.writes), data, memory, immediate, net.now, region)
        self.writes.append(write)
        self.outstanding += 1
        self._open[connection.source.index, write.wr_id] = write
        core = connection.source.core
        if immediate is None:
            core.post_write(connection.qp, data, region.va, region.rkey, write.wr_id)
        else:
            connection.target.core.post_recv(connection.peer, connection.receives)
            connection.receives += 1
            core.post_write_imm(connection.qp, data, region.va, region.rkey, immediate, write.wr_id)
        connection.posted += 1
        net.touch(connection.source)
        return write

    def run(self, *, max_time_ns: int = 10_000_000_000, max_events: int = 50_000_000) -> None:
        """Until every posted write has completed, with success or a reason. Raises Stalled at the bounds."""
        self.net.run(lambda: self.outstanding == 0, max_time_ns=max_time_ns, max_events=max_events)

    def settle(self, duration_ns: int) -> None:
        """Go on for a while, for late duplicates to arrive, and check that nothing placed them."""
        self.net.run(max_time_ns=duration_ns)
        self.check()

    def check(self) -> None:
        """Guards untouched, reused regions unchanged, immediates in order. Raises Mismatch."""
        if self.verify:
            guard = bytes((GUARD_BYTE,)) * GUARD
            for write in self.writes:
                if write.memory[:GUARD] != guard or write.memory[-GUARD:] != guard:
                    raise Mismatch(f"write {write.wr_id}: memory outside its region was touched")
                body = memoryview(write.memory)[GUARD : len(write.memory) - GUARD]
                if write.reused and body != bytes((REUSED,)) * len(body):
                    raise Mismatch(f"write {write.wr_id}: placed again after its completion")
        for connection in self.connections:
            sent = [w.immediate for w in self.writes if w.connection is connection and w.immediate is not None]
            if connection.immediates != sent[: len(connection.immediates)]:
                raise Mismatch(f"immediates of QP {connection.peer.number} out of order")

    def statuses(self) -> Counter[str]:
        """How many writes ended in which way."""
        return Counter("open" if w.status is None else w.status.name for w in self.writes)

    def _on_event(self, host: Host, event: Any) -> None:
        if self.keep_events:
            self.events.append((self.net.now, host.index, event))
        number = getattr(event, "cq", None)
        if number is None:
            return
        cq = self._cqs[host.index, number]
        while batch := host.core.poll(cq):
            for completion in batch:
                self._complete(host, completion)

    def _complete(self, host: Host, completion: Completion) -> None:
        if completion.kind is CompletionKind.RECV_IMM:
            if completion.status is CompletionStatus.SUCCESS and completion.immediate is not None:
                self._receivers[host.index, completion.qpn].immediates.append(completion.immediate)
            return
        write = self._open.pop((host.index, completion.wr_id), None)
        if write is None:
            raise Mismatch(f"completion of write {completion.wr_id}, which is not outstanding")
        write.completed_at, write.status = self.net.now, completion.status
        self.outstanding -= 1
        if completion.status is not CompletionStatus.SUCCESS:
            return
        if completion.byte_len != len(write.data):
            raise Mismatch(f"write {write.wr_id}: completed with {completion.byte_len} of {len(write.data)} bytes")
        if self.verify:
            body = memoryview(write.memory)[GUARD : len(write.memory) - GUARD]
            if body != write.data:
                first = next(i for i, (a, b) in enumerate(zip(body, write.data, strict=True)) if a != b)
                raise Mismatch(f"write {write.wr_id}: completed, but byte {first} of {len(body)} is wrong")
            body[:] = bytes((REUSED,)) * len(body)
            write.reused = True


def pair(config: NetConfig | None = None, seed: int = 1, **keywords: Any) -> tuple[Bench, Connection]:
    """Two endpoints, one connected queue pair."""
    bench = Bench(config or NetConfig(), seed, **keywords)
    return bench, bench.connect(bench.add_host(), bench.add_host())
