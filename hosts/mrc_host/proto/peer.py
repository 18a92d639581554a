"""One destination: congestion controller, usable planes, reverse EVs, SRv6 paths (`mrc-protocol.md §6-§8`)."""

from __future__ import annotations

import ipaddress
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any

from mrc_host.proto import cc
from mrc_host.proto.config import CcConfig, Srv6Path
from mrc_host.proto.context import Context
from mrc_host.proto.ev_profile import EvUniverse
from mrc_host.proto.ports import PlaneBalance
from mrc_host.proto.wire import encapsulate

if TYPE_CHECKING:
    from mrc_host.proto.qp import QueuePair
    from mrc_host.proto.requestor import Requestor

_OUTER_BYTES = 40
_SRH_BYTES = 8
_MAX_PATHS = 4096  # cached SRv6 paths; an EV universe is smaller


class Scheduling(Enum):
    """Scheduling states of a QPCC (`mrc-protocol.md §8`)."""

    IDLE = "nothing to send, nothing in flight"
    ACTIVE = "data, window closed"
    READY = "data, window open"
    PENDING = "nothing to send, packets in flight"


class Peer:
    """See the module's docstring. All queue pairs to the same address share it."""

    __slots__ = (
        "_turn",
        "addresses",
        "addresses_in",
        "balance",
        "cc",
        "cc_config",
        "context",
        "in_ring",
        "inbound_ns",
        "last_status_id",
        "outer_bytes",
        "paths",
        "planes",
        "qps",
        "remote_ports",
        "reverse",
        "reverse_ns",
        "status_acked",
        "status_id",
        "status_interval",
        "universe",
        "waiting",
    )

    def __init__(self, context: Context, address: bytes, universe: EvUniverse, cc_config: CcConfig) -> None:
        config = context.config
        self.context = context
        self.addresses = config.address + address
        self.addresses_in = address + config.address
        self.universe = universe
        self.cc_config = cc_config
        self.cc = cc.make(cc_config, nominal_size(config.wire.mtu))
        self.balance = PlaneBalance(
            config.ports.count,
            config.ports.balance_slack_packets * self.cc.mtu,
            config.ports.balance_patience_ns,
        )
        self.qps: list[QueuePair] = []
        self.in_ring = 0  # requestors in the send ring
        self.waiting: deque[Requestor] = deque()  # have data, window closed
        self.remote_ports = (1 << config.ports.count) - 1
        self.planes = context.ports.mask & self.remote_ports
        # One known-good EV per plane for control packets; random until one proves good.
        self.reverse = self._any_reverse()
        self.reverse_ns = -1
        self.inbound_ns = -1
        self.paths: dict[int, Srv6Path] = {}
        path = universe.path(self.reverse[0], address)
        self.outer_bytes = 0
        if path is not None:
            segments = len(path.segments)
            self.outer_bytes = _OUTER_BYTES + (_SRH_BYTES + 16 * segments if segments else 0)
        self.status_id = 0
        self.status_acked = True
        self.status_interval = config.ports.status_repeat_ns
        self.last_status_id: int | None = None
        self._turn = 0

    def _any_reverse(self) -> list[int]:
        universe = self.universe
        return [universe.values[self.context.rng.choice(members)] for members in universe.by_plane]

    def adopt(self, universe: EvUniverse, cc_config: CcConfig) -> None:
        """The profiles of a new queue pair decide, if it is the only one: a peer outlives its queue pairs."""
        if self.qps:
            return
        if cc_config != self.cc_config:
            self.cc_config = cc_config
            self.cc = cc.make(cc_config, nominal_size(self.context.config.wire.mtu))
        if universe is not self.universe:
            same = universe.values == self.universe.values
            self.universe = universe
            if not same:
                self.reverse = self._any_reverse()
                self.paths.clear()

    def denies(self, value: int) -> bool:
        """Whether a controller has denied an EV to a queue pair of this peer."""
        return any(qp.evs.denies(value) for qp in self.qps)

    def redraw_reverse(self, plane: int) -> None:
        """Another EV for the control packets of a plane, one that nobody has denied if there is one."""
        universe = self.universe
        values = [universe.values[ev] for ev in universe.by_plane[plane]]
        allowed = [value for value in values if not self.denies(value)]
        self.reverse[plane] = self.context.rng.choice(allowed or values)

    @property
    def address(self) -> bytes:
        """The peer's IPv6 address."""
        return self.addresses[16:]

    def wrap(self, packet: bytes, ev: int) -> bytes:
        """The packet in its SRv6 encapsulation; `outer_bytes` is 0 when there is none."""
        path = self.paths.get(ev)
        if path is None:
            found = self.universe.path(ev, self.addresses[16:])
            if found is None:
                return packet
            if len(self.paths) >= _MAX_PATHS:
                self.paths.clear()
            path = self.paths[ev] = found
        return encapsulate(packet, path.source or self.addresses[:16], path.destination, path.segments)

    def control_plane(self, arrival: int) -> int:
        """The plane for a control packet: the one that the packet it answers came on, while that is usable."""
        if self.planes >> arrival & 1:
            return arrival
        plane = self.next_plane()
        return arrival if plane < 0 else plane

    def next_plane(self) -> int:
        """Another usable plane each time; when the peer has announced none, any of ours; -1 when none is up."""
        mask = self.planes or self.context.ports.mask
        count = len(self.context.ports.ports)
        for step in range(1, count + 1):
            plane = (self._turn + step) % count
            if mask >> plane & 1:
                self._turn = plane
                return plane
        return -1

    def send(self, packet: bytes, ev: int, plane: int) -> None:
        """Queue a control packet that was encoded with `ev` on the port of `plane`."""
        if self.outer_bytes:
            packet = self.wrap(packet, ev)
        self.context.ports.enqueue(plane, packet)

    def refresh_planes(self) -> int:
        """Recompute which planes are usable; returns the mask of those that ceased to be."""
        before = self.planes
        self.planes = self.context.ports.mask & self.remote_ports
        carry = 0
        for qp in self.qps:
            qp.evs.set_usable(self.planes)
            carry |= qp.evs.planes()
        self.balance.set_mask(self.planes & carry)
        return before & ~self.planes

    def wake_waiting(self) -> None:
        """The window may have opened: put as many waiting requestors into the ring as it has room for full packets."""
        cc = self.cc
        mtu = cc.mtu
        room = cc.cwnd - cc.inflight
        if room < mtu and cc.inflight <= 0:
            room = mtu  # with nothing in flight one packet may always leave
        waiting = self.waiting
        while waiting and room >= mtu:
            requestor = waiting.popleft()
            requestor.waiting = False
            self.context.wake(requestor)
            room -= mtu

    def snapshot(self) -> dict[str, Any]:
        """JSON-serialisable state."""
        count = len(self.context.ports.ports)
        return {
            "address": str(ipaddress.IPv6Address(self.address)),
            "scheduling": self.scheduling.name,
            "planes": [bool(self.planes >> plane & 1) for plane in range(count)],
            "sent_bytes": list(self.balance.sent),
            "cc": self.cc.snapshot(),
        }

    @property
    def scheduling(self) -> Scheduling:
        """The QPCC's scheduling state."""
        has_data = any(qp.requestor.has_data() for qp in self.qps)
        if not has_data:
            in_flight = any(qp.requestor.board.outstanding for qp in self.qps)
            return Scheduling.PENDING if in_flight else Scheduling.IDLE
        open_ = self.cc.inflight + self.cc.mtu <= self.cc.cwnd or self.cc.inflight <= 0
        return Scheduling.READY if open_ else Scheduling.ACTIVE


def nominal_size(payload: int, extra: int = 4) -> int:
    """Nominal size of a data packet: UDP length + 40 (`mrc-protocol.md §5`); `extra`: TSETH, ImmDt bytes."""
    return payload + (-payload & 3) + 44 + extra + 40
