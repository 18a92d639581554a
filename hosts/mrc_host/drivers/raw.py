"""The real clock: one node on AF_PACKET rings, with its control socket in the same loop."""

from __future__ import annotations

import contextlib
import fcntl
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

from mrc_host.drivers.lag import LagHistogram
from mrc_host.drivers.packet_ring import ETH_HEADER_BYTES, PacketRing
from mrc_host.drivers.surface import Drivable, PortPacer

SIOCGIFFLAGS = 0x8913
IFF_RUNNING = 0x40
RTMGRP_LINK = 1
NETLINK_BYTES = 1 << 16
IDLE_NS = 100_000_000
RX_BATCH = 64


class RawDriver:
    """Drives a node between its rings and the clock until `stop` is called.

    Args:
        node: what is driven.
        rings: one per port, in the order of the ports.
        rate_bps: rate of each port's link, by which sending is paced.
        mtu_bytes: the largest packet; a port has room when it could take one.
        burst_ns: how much of the link's time a late loop may catch up at once.
    """

    def __init__(
        self,
        node: Drivable,
        rings: Sequence[PacketRing],
        rate_bps: Sequence[int],
        mtu_bytes: int,
        burst_ns: int = 4_000_000,
    ) -> None:
        self.node = node
        self.rings = list(rings)
        self.mtu_bytes = mtu_bytes
        self.pacers = [
            PortPacer(rate, max(burst_ns, int(2 * mtu_bytes * 8e9 / rate)), ETH_HEADER_BYTES) for rate in rate_bps
        ]
        self.lag = LagHistogram()
        self.readers: dict[int, Callable[[int], None]] = {}
        self._carrier = [True] * len(self.rings)
        # The kernel tells of changes of links, so nobody has to ask again and again.
        self._changes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._changes.bind((0, RTMGRP_LINK))
        self._changes.setblocking(False)
        self._flags = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._running = True
        self._started_ns = time.monotonic_ns()
        self._started_cpu_ns = time.process_time_ns()

    def watch(self, fd: int, ready: Callable[[int], None]) -> None:
        """Calls `ready(now)` whenever `fd` is readable."""
        self.readers[fd] = ready

    def unwatch(self, fd: int) -> None:
        """Ends `watch`."""
        del self.readers[fd]

    def stop(self) -> None:
        """Makes `run` return after the present round."""
        self._running = False

    def run(self) -> None:
        """The loop: receive, timers, application, send, sleep until the next of these."""
        clock = time.monotonic_ns
        node, rings = self.node, self.rings
        self.watch(self._changes.fileno(), self._links_changed)
        self._poll_carrier(clock())
        sockets = [ring.fileno() for ring in rings]
        ports = {fd: port for port, fd in enumerate(sockets)}
        active = list(ports.values())
        receivers = [self._receiver(port) for port in range(len(rings))]
        while self._running:
            for port in active:
                rings[port].receive(receivers[port], RX_BATCH)
            due = node.next_timer()
            now = clock()
            if due is not None and due <= now:
                self.lag.add(now - due)
                node.handle_timer(now)
            node.settle(now)
            wake = self._send(now)
            due = node.next_timer()
            if due is not None:
                wake = min(wake, due)
            # What is left in a ring makes select return at once.
            timeout = max(min(wake, now + IDLE_NS) - clock(), 0) / 1e9
            ready, _, _ = select.select([*sockets, *self.readers], [], [], timeout)
            active = [ports[fd] for fd in ready if fd in ports]
            if len(active) < len(ready):
                for fd in ready:
                    if fd in self.readers:
                        self.readers[fd](clock())

    def _receiver(self, port: int) -> Callable[[memoryview], None]:
        receive, clock = self.node.receive, time.monotonic_ns

        def handle(view: memoryview) -> None:
            receive(port, bytes(view), clock())

        return handle

    def _send(self, now: int) -> int:
        """Sends what may go on every port; returns when a port that had too little room has enough."""
        wake = now + IDLE_NS
        for port, (ring, pacer) in enumerate(zip(self.rings, self.pacers, strict=True)):
            budget = pacer.budget(now)
            if budget < self.mtu_bytes:
                wake = min(wake, pacer.ready_ns(self.mtu_bytes))
                continue
            packets = self.node.to_send(port, now, budget)
            if packets:
                size = sum(map(len, packets))
                ring.send(packets)
                pacer.spend(len(packets), size, now)
                # There may be more that did not fit the budget, or that this packet's departure makes due.
                wake = min(wake, max(pacer.ready_ns(self.mtu_bytes), now))
        return wake

    def _links_changed(self, now: int) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while self._changes.recv(NETLINK_BYTES):
                pass
        self._poll_carrier(now)

    def _poll_carrier(self, now: int) -> None:
        for port, ring in enumerate(self.rings):
            up = self._has_carrier(ring.interface)
            if up != self._carrier[port]:
                self._carrier[port] = up
                self.node.set_carrier(port, up, now)

    def _has_carrier(self, interface: str) -> bool:
        request = struct.pack("16sH14x", interface.encode(), 0)
        try:
            answer = fcntl.ioctl(self._flags, SIOCGIFFLAGS, request)
        except OSError:
            return False
        return bool(struct.unpack("16sH14x", answer)[1] & IFF_RUNNING)

    def fidelity(self) -> dict[str, Any]:
        """How well this process kept up since its start: loop lag, CPU share, frames the kernel dropped."""
        wall = time.monotonic_ns() - self._started_ns
        return {
            "loop_lag": self.lag.summary(),
            "cpu_share": (time.process_time_ns() - self._started_cpu_ns) / max(wall, 1),
            "rx_ring_drops": sum(ring.kernel_drops() for ring in self.rings),
            "tx_errors": sum(ring.tx_errors for ring in self.rings),
        }

    def reset_fidelity(self) -> dict[str, Any]:
        """Starts the measurement anew; an empty answer, since this is a verb."""
        self.lag = LagHistogram()
        self._started_ns = time.monotonic_ns()
        self._started_cpu_ns = time.process_time_ns()
        return {}

    def close(self) -> None:
        """Closes the rings."""
        for ring in self.rings:
            ring.close()
        self._flags.close()
        self._changes.close()
