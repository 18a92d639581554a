"""The real clock: nodes on AF_PACKET rings, with their control sockets in the same loop.

As a NIC moderates its interrupts, the loop looks at its rings at most once per interval, takes all that is there,
decides, and sends all, with one system call per node.
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence

from mypy_extensions import i64

from mrc_host.answers import HostFidelity, LagSummary
from mrc_host.drivers.frames import ETH_HEADER_BYTES
from mrc_host.drivers.surface import NodeInterface, PortPacer, PortRing, PortSender
from mrc_host.ordering import fence

SUB_BITS = 3
SUB = 1 << SUB_BITS


class LagHistogram:
    """Counts of delays in logarithmic buckets, each at most 12.5 % wide; adding is a few integer operations."""

    __slots__ = ("count", "counts", "max_ns")

    def __init__(self) -> None:
        self.counts = [0] * (64 * SUB)
        self.count = 0
        self.max_ns = 0

    def add(self, lag_ns: int) -> None:
        """Count one delay; a negative one counts as 0."""
        lag_ns = max(lag_ns, 0)
        shift = max(lag_ns.bit_length() - SUB_BITS - 1, 0)
        self.counts[min(shift * SUB + (lag_ns >> shift), len(self.counts) - 1)] += 1
        self.count += 1
        if lag_ns > self.max_ns:
            self.max_ns = lag_ns

    def quantile(self, share: float) -> int:
        """Return the lower edge (ns) of the bucket in which this share of all delays is reached; 0 when there is
        none.
        """
        wanted = share * self.count
        seen = 0
        for index, number in enumerate(self.counts):
            seen += number
            if number and seen >= wanted:
                shift = max(index // SUB - 1, 0)
                return (index - shift * SUB) << shift
        return 0

    def summary(self) -> LagSummary:
        """Return the count, and quantiles in ns."""
        return LagSummary(self.count, self.quantile(0.5), self.quantile(0.9), self.quantile(0.99), self.max_ns)


SIOCGIFFLAGS = 0x8913
IFF_RUNNING = 0x40
RTMGRP_LINK = 1
#: Carriers are also looked at once in this time: a notice of the kernel may be lost.
CARRIER_NS = 1_000_000_000
NETLINK_BYTES = 1 << 16
MS = 1_000_000
IDLE_NS = 100 * MS
#: A loop that waits for less than a millisecond looks at its rings this often.
REST_NS = 50_000
#: How much later a round may come than it should before a link has nothing to carry.
SCHEDULING_NS = MS
#: The most packets that a node reads before it sends.
RX_BATCH = 256
#: A node that has not read its rings for this long stood still. It sends nothing before it has read what came
#: meanwhile: it reads at the times of arrival, and packets that it sent would count from those times.
STALL_NS = 20 * MS
#: A busy loop looks after its control sockets once in this time.
CONTROL_NS = 5 * MS


def _nothing() -> bool:
    return False


class RingNode:
    """One node on its rings.

    What arrives counts from when it was readable, not from when this program looked: a late process neither measures
    its own lateness as round-trip time nor times out what is there already.

    Args:
        node: what is driven.
        rings: one per port, in the order of the ports.
        sender: what sends through these ports.
        rate_bps: rate of each port's link, by which sending is paced.
        mtu_bytes: the largest packet; a port has room when it could take one.
        moderation_ns: rounds are as far apart as this, and later by what scheduling takes.
    """

    def __init__(
        self,
        node: NodeInterface,
        rings: Sequence[PortRing],
        sender: PortSender,
        rate_bps: Sequence[int],
        mtu_bytes: int,
        moderation_ns: int = 0,
    ) -> None:
        self.node = node
        self.rings = list(rings)
        self.sender = sender
        self.mtu_bytes = mtu_bytes
        # A link carries this until the next round. What is more would wait for it, and lengthen the RTT.
        ahead_ns = moderation_ns + SCHEDULING_NS
        self.pacers = [PortPacer(rate, ahead_ns + int(mtu_bytes * 8e9 / rate), ETH_HEADER_BYTES) for rate in rate_bps]
        self.lag = LagHistogram()
        self.wake_ns = 0
        #: Whether an application has posted work that the node has not seen.
        self.posted: Callable[[], bool] = _nothing
        self._told_ns = 0
        #: When it looked last; when it came back from a stall.
        self._looked_ns = self._resumed_ns = 0
        self._carrier = [True] * len(self.rings)
        # The kernel tells of changes of links, so polling is not necessary.
        self.changes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self.changes.bind((0, RTMGRP_LINK))
        self.changes.setblocking(False)
        self._flags = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def act_from(self, now: int) -> None:
        """Act for a node that another part called at this time and that may have packets to send."""
        self._told_ns = max(self._told_ns, now)
        self.wake_ns = 0

    def readable(self) -> bool:
        """Return whether a packet waits in one of the rings, or work in those of applications."""
        return self._waiting() or self.posted()

    def _waiting(self) -> bool:
        return any(ring.arrival() for ring in self.rings)

    def catch_up(self) -> None:
        """Run rounds until all that was readable at first has been read."""
        before = time.monotonic_ns()
        while self._told_ns < before and self.readable():
            self.round()

    def round(self) -> None:
        """Receive packets, run the timers that are due, and send; `wake_ns` is the time of the next round."""
        node = self.node
        if self.posted():
            node.settle(self._told_ns)  # a receive that was posted before a packet came is there for it
        looked = self._looked_ns
        now = self._receive()
        due = node.next_timer()
        if due <= now:
            # A timer that is due at once (0) was set after the last round, which ran all timers that were due.
            self.lag.add(now - (due or looked or now))
            node.handle_timer(now)
        node.settle(now)
        if self.posted():
            node.settle(now)  # what a program has answered already leaves with the acknowledgements
        if now < self._resumed_ns:
            self.wake_ns = now
            return
        wake = self._send(now)
        due = node.next_timer()
        self.wake_ns = min(wake, due)

    def _receive(self) -> int:
        """Deliver the packets that have arrived, in that order; return the time at which the node may act.

        With packets left unread that is the time of the last one read, so that no timer overtakes those behind it.
        """
        node, rings = self.node, self.rings
        now = time.monotonic_ns()
        told = self._told_ns
        # One stall at a time, or a loop that is slow for long would never send.
        if now - self._looked_ns > STALL_NS and told >= self._resumed_ns:
            self._resumed_ns = now
        self._looked_ns = now
        since = time.time_ns() - now
        for _ in range(RX_BATCH):
            first: i64 = 0
            port = -1
            for number in range(len(rings)):
                stamp = rings[number].arrival()
                if stamp and (port < 0 or stamp < first):
                    first, port = stamp, number
            if port < 0:
                break
            packet = rings[port].take()
            at = int(first) - since
            if at > now:  # it came while others were handled, or the machine's clock was set back
                now = time.monotonic_ns()
                since = time.time_ns() - now
                at = min(int(first) - since, now)
            told = max(told, at)
            node.receive(port, packet, told)
        else:
            if self._waiting():
                now = told
        self._told_ns = now
        return now

    def _send(self, now: int) -> int:
        """Send the packets that each port has room for; return when a port that had too little room has enough."""
        node, mtu_bytes = self.node, self.mtu_bytes
        wake = now + IDLE_NS
        sent: list[list[bytes]] = []
        for port, pacer in enumerate(self.pacers):
            packets: list[bytes] = []
            budget = pacer.budget(now)
            if budget < mtu_bytes:
                wake = min(wake, pacer.ready_ns(mtu_bytes))
            else:
                packets = node.to_send(port, now, budget)
            sent.append(packets)
            if packets:
                size = 0
                for packet in packets:
                    size += len(packet)
                pacer.spend(len(packets), size, now)
                # There may be more that did not fit the budget, or that this packet's departure makes due.
                wake = min(wake, max(pacer.ready_ns(mtu_bytes), now))
        self.sender.send(sent)
        return wake

    def links_changed(self, now: int) -> None:
        """Check the carriers, because the kernel has reported a change of one."""
        with contextlib.suppress(BlockingIOError, OSError):
            while self.changes.recv(NETLINK_BYTES):
                pass
        self.poll_carrier(now)

    def poll_carrier(self, now: int) -> None:
        """Notify the node of the links that went down or came up since the last call."""
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

    def close(self) -> None:
        """Close the sockets; the rings stay open."""
        self.sender.close()
        self._flags.close()
        self.changes.close()


class RawDriver:
    """Drives stations between their rings and the clock until `stop` is called.

    Args:
        stations: all that this process drives.
        moderation_ns: the rings are looked at no more often than once in this time.
    """

    def __init__(self, stations: Sequence[RingNode], moderation_ns: int = 0) -> None:
        self.stations = list(stations)
        self.moderation_ns = moderation_ns
        self.readers: dict[int, Callable[[int], None]] = {}
        # One poll for the watched sockets (a busy loop), and one for these and all rings (a loop that sleeps).
        self._watched = select.poll()
        self._everything = select.poll()
        self._rings = {ring.fileno(): ring for station in self.stations for ring in station.rings}
        for fd in self._rings:
            self._everything.register(fd, select.POLLIN)
        self._running = True
        self._started_ns = time.monotonic_ns()
        self._started_cpu_ns = time.process_time_ns()

    def watch(self, fd: int, ready: Callable[[int], None]) -> None:
        """Call `ready(now)` whenever `fd` is readable."""
        self.readers[fd] = ready
        for poll in (self._watched, self._everything):
            poll.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        """End `watch`."""
        del self.readers[fd]
        for poll in (self._watched, self._everything):
            poll.unregister(fd)

    def stop(self) -> None:
        """Make `run` return after the present round."""
        self._running = False

    def run(self) -> None:
        """Run the loop: act for all stations that have something to do, then sleep until the next has."""
        clock = time.monotonic_ns
        stations = self.stations
        for station in stations:
            self.watch(station.changes.fileno(), station.links_changed)
            station.poll_carrier(clock())
        asked = 0
        looked = clock()
        while self._running:
            began = clock()
            for station in stations:
                if station.wake_ns <= began or station.readable():
                    station.round()
            now = clock()
            hold = began + self.moderation_ns - now
            if hold > 0:
                time.sleep(hold / 1e9)
                now = clock()
            if now - looked >= CARRIER_NS:
                looked = now
                for station in stations:
                    station.poll_carrier(now)
            wake = looked + CARRIER_NS
            for station in stations:
                if station.wake_ns < wake:
                    wake = station.wake_ns
            busy = wake <= now
            if not busy:
                # A program need not wake this loop for all that it posts. What it has been told must be seen before the
                # last look at its ring: so either it sees that there is news, or this loop sees what it has posted.
                fence()
                busy = any(station.readable() for station in stations)
            if not busy or now - asked >= CONTROL_NS:
                asked = now
                self._listen(0 if busy else wake - now)

    def _listen(self, timeout_ns: int) -> None:
        """Wait for packets and for what is watched, and serves the latter."""
        if timeout_ns <= 0:
            ready = self._watched.poll(0)
        else:
            # What the kernel rounds to milliseconds shall not be late; the rest is slept in steps that cost little.
            ready = self._everything.poll(timeout_ns // MS)
            if not ready and timeout_ns < MS:
                time.sleep(min(timeout_ns, REST_NS) / 1e9)
        handlers = []
        for fd, events in ready:
            if fd in self.readers:
                handlers.append(self.readers[fd])
            elif events & select.POLLERR:  # its interface was down, of which `poll` would tell at once for ever
                self._rings[fd].clear_error()
        if not handlers:
            return
        # A command runs at the present time, so packets that were readable before it go first.
        for station in self.stations:
            station.catch_up()
        now = time.monotonic_ns()
        for handler in handlers:
            handler(now)
        for station in self.stations:
            station.act_from(now)

    def fidelity(self, station: RingNode) -> HostFidelity:
        """Return how well this process kept up since its start: loop lag, CPU share, frames the kernel dropped."""
        wall = time.monotonic_ns() - self._started_ns
        return HostFidelity(
            loop_lag=station.lag.summary(),
            cpu_share=(time.process_time_ns() - self._started_cpu_ns) / max(wall, 1),
            wall_ns=wall,
            rx_ring_drops=sum(ring.kernel_drops() for ring in station.rings),
            tx_errors=station.sender.lost,
        )

    def reset_fidelity(self, station: RingNode) -> None:
        """Start the measurement again."""
        station.lag = LagHistogram()
        self._started_ns = time.monotonic_ns()
        self._started_cpu_ns = time.process_time_ns()

    def close(self) -> None:
        """Close all stations and their rings, at once: the kernel takes some milliseconds for each."""
        closing = [threading.Thread(target=ring.close) for station in self.stations for ring in station.rings]
        for each in closing:
            each.start()
        for station in self.stations:
            station.close()
        for each in closing:
            each.join()
