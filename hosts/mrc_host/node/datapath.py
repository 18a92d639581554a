"""Per-packet path of a node; `host.py` has the rest. Runs compiled where the protocol core does."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Protocol

from mypy_extensions import i64

from mrc_host.drivers.surface import FOREVER, NodeInterface
from mrc_host.node.mapper import BODY_AT, MAGIC, PROBE_BYTES, Mapper
from mrc_host.node.samples import Sampler
from mrc_host.proto.events import Event
from mrc_host.proto.ports import PortTable
from mrc_host.proto.transport import TransportEndpoint
from mrc_host.proto.wire.icrc import wire_length


class TimedCalls:
    """Calls in the order of their times, and of being set where these are equal. `due`: the time of the first."""

    def __init__(self) -> None:
        self.due: i64 = FOREVER
        self._waiting: list[tuple[int, int, Callable[[int], None]]] = []
        self._numbers = itertools.count()

    def set(self, at_ns: int, call: Callable[[int], None]) -> None:
        """Schedule `call(now)` for `at_ns` or soon after."""
        heapq.heappush(self._waiting, (at_ns, next(self._numbers), call))
        self.due = self._waiting[0][0]

    def ring(self, now: int) -> None:
        """Make the calls that are due. One that raises is not made again; the others follow with the next `ring`."""
        while self._waiting and self._waiting[0][0] <= now:
            _, _, call = heapq.heappop(self._waiting)
            self.due = self._waiting[0][0] if self._waiting else FOREVER
            call(now)


#: From when a packet is sent until it arrives. No link carries it, so that its length does not matter.
LOOP_NS: Final = 1_000
_DESTINATION_AT: Final = 24  # without SRv6, which no packet to the own address has


class Loopback:
    """The way back of one device.

    Attributes:
        due: when the next packet arrives (ns); `FOREVER`: none does.
        packets: how many have been sent to the own address, by port.
        arrived: how many of them have arrived, by port.
    """

    __slots__ = ("_address", "_waiting", "arrived", "due", "packets")

    def __init__(self, address: bytes) -> None:
        self._address = address
        self._waiting: deque[tuple[int, int, bytes]] = deque()
        self.due: i64 = FOREVER
        self.packets: Counter[int] = Counter()
        self.arrived: Counter[int] = Counter()

    def keep(self, port: int, packets: list[bytes], now: int) -> list[bytes]:
        """Take the packets to the own address out of those that are sent on a port; return the others."""
        others: list[bytes] = []
        own = self._address
        for packet in packets:
            if packet[_DESTINATION_AT : _DESTINATION_AT + 16] == own:
                self._waiting.append((now + LOOP_NS, port, packet))
                self.packets[port] += 1
            else:
                others.append(packet)
        if self._waiting:
            self.due = self._waiting[0][0]
        return others

    def take(self, now: int) -> list[tuple[int, bytes, int]]:
        """Return what has arrived: port, packet, and how many bytes of the payload are missing before the ICRC."""
        arrived: list[tuple[int, bytes, int]] = []
        waiting = self._waiting
        while waiting and waiting[0][0] <= now:
            _, port, packet = waiting.popleft()
            self.arrived[port] += 1
            arrived.append((port, packet, wire_length(packet) - len(packet)))
        self.due = waiting[0][0] if waiting else FOREVER
        return arrived


MAGIC_END: Final = BODY_AT + len(MAGIC)
#: First byte of a MAC control frame behind its Ethernet header (opcode 01xx); an IP packet begins with its version.
MAC_CONTROL: Final = 0x01


class Applications(Protocol):
    """Programs on the host, as the data path sees them."""

    def serve(self, now: int, /) -> None:
        """Handle the requests that they have posted."""

    def tell(self) -> None:
        """Wake the programs that have new completions or events."""


def _none(port: int) -> int:
    """Return that nothing was sent."""
    return 0


class Datapath(NodeInterface):
    """Packets, timers and events between a driver and the parts of a node.

    Args:
        endpoint: the protocol.
        ports: its ports, which say whether it has a peer of the host's own address.
        address: the host's own, of 16 bytes.
        mapper: takes its own probes, and has some to send.
        sampler: has a timer, too.
        alarms: timed calls of workloads.
        fault: called with what failed, the error and the time; no packet ends an agent.
        take: called with events, the oldest first, until they cause no new ones.
        mac_control: takes MAC control frames, as a NIC does.
    """

    def __init__(
        self,
        endpoint: TransportEndpoint,
        ports: PortTable,
        address: bytes,
        mapper: Mapper,
        sampler: Sampler,
        alarms: TimedCalls,
        fault: Callable[[str, Exception, int], None],
        take: Callable[[Event, int], None],
        mac_control: Callable[[int, bytes, int], None],
    ) -> None:
        self.endpoint = endpoint
        self.ports = ports
        self.loopback = Loopback(address)
        self.mapper = mapper
        self.sampler = sampler
        self.alarms = alarms
        self.fault = fault
        self.take = take
        self.mac_control = mac_control
        #: Packets that the host's kernel itself has sent through a port; a simulated host has no kernel.
        self.kernel_sent: Callable[[int], int] = _none
        #: While there are programs on the host.
        self.applications: Applications | None = None

    def receive(self, port: int, packet: bytes, now: int, missing: int = 0, /) -> None:
        """Handle a packet that arrived."""
        try:
            if missing:
                self.endpoint.receive_datagram(port, packet, now, missing)
            elif len(packet) == PROBE_BYTES and packet[BODY_AT:MAGIC_END] == MAGIC:
                self.mapper.receive(port, packet, now)
            elif len(packet) > 0 and packet[0] == MAC_CONTROL:
                self.mac_control(port, packet, now)
            else:
                self.endpoint.receive_datagram(port, packet, now)
        except Exception as error:  # noqa: BLE001 - no packet ends an agent
            self.fault("a packet", error, now)

    def quiet(self) -> bool:
        """Return whether nothing is to be sent on any port."""
        return not self.mapper.waiting and self.endpoint.quiet()

    def to_send(self, port: int, now: int, budget_bytes: int, /) -> list[bytes]:
        """Return packets for a port."""
        try:
            probes: list[bytes] | None = None
            if self.mapper.waiting:
                probes = self.mapper.to_send(port)
                budget_bytes = max(budget_bytes - PROBE_BYTES * len(probes), 0)
            packets = self.endpoint.datagrams_to_send(port, now, budget_bytes)
            if packets and self.ports.looping:
                packets = self.loopback.keep(port, packets, now)
            return [*probes, *packets] if probes else packets
        except Exception as error:  # noqa: BLE001 - as above
            self.fault("sending", error, now)
            return []

    def next_timer(self) -> int:
        """Return when `handle_timer` is due next (ns); `FOREVER`: it is not."""
        due = self.sampler.due
        other = self.mapper.due
        if other < due:
            due = other
        other = self.alarms.due
        if other < due:
            due = other
        other = self.loopback.due
        if other < due:
            due = other
        timer = self.endpoint.next_timer()
        if timer is not None and timer < due:
            return timer
        return due

    def handle_timer(self, now: int, /) -> None:
        """Run the timers that are due."""
        sampler = self.sampler
        try:
            if sampler.due <= now:
                sampler.due = now + sampler.interval_ns  # also when it fails
                sampler.take(now)
            self.mapper.handle_timer(now)
        except Exception as error:  # noqa: BLE001 - no timer ends an agent
            self.fault("a timer", error, now)
        if self.loopback.due <= now:
            for port, packet, missing in self.loopback.take(now):
                self.receive(port, packet, now, missing)
        try:
            self.endpoint.handle_timer(now)
            # The endpoint runs first and sets its time, because the workloads that run now post writes to it.
            if self.alarms.due <= now:
                self.alarms.ring(now)
        except Exception as error:  # noqa: BLE001
            self.fault("a timer", error, now)

    def set_carrier(self, port: int, up: bool, now: int, /) -> None:
        """Handle the link of a port that went down or came up."""
        self.endpoint.set_port_state(port, up, now)
        self.settle(now)

    def settle(self, now: int, /) -> None:
        """Serve the applications' requests, pass events to the node until there are no new ones, and notify the
        applications.
        """
        applications = self.applications
        if applications is not None:
            applications.serve(now)
        while True:
            event = self.endpoint.next_event()
            if event is None:
                break
            self.take(event, now)
        if applications is not None:
            applications.tell()
