"""A congestion control context: one destination and one CC profile (`mrc-protocol.md §7, §8`).

`mrc.h` gives every queue pair its own EV profile and CC profile; a controller belongs to a destination. So the
queue pairs to one peer that name the same CC profile share one context, and those with another one have another.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any

from mrc_host.proto.congestion.inflight import nominal_size
from mrc_host.proto.ports import PlaneBalance

if TYPE_CHECKING:
    from mrc_host.proto.congestion.base import CcConfig
    from mrc_host.proto.paths.peer import Peer
    from mrc_host.proto.reliability.qp import QueuePair
    from mrc_host.proto.reliability.requestor import Requestor


class Scheduling(Enum):
    """Scheduling states of a QPCC (`mrc-protocol.md §8`)."""

    IDLE = "nothing to send, nothing in flight"
    ACTIVE = "data, window closed"
    READY = "data, window open"
    PENDING = "nothing to send, packets in flight"


class Qpcc:
    """See the module's docstring. `cc` holds the window, `balance` spreads what it lets pass over the planes."""

    __slots__ = ("balance", "cc", "config", "in_ring", "peer", "qps", "waiting")

    def __init__(self, peer: Peer, config: CcConfig) -> None:
        context = peer.context
        ports = context.config.ports
        self.peer = peer
        self.config = config
        self.cc = config.controller(nominal_size(context.config.wire.mtu))
        self.balance = PlaneBalance(ports.count, ports.balance_slack_packets * self.cc.mtu, ports.balance_patience_ns)
        self.qps: list[QueuePair] = []
        self.in_ring = 0  # requestors in the send ring
        self.waiting: deque[Requestor] = deque()  # have data, window closed

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
            self.peer.context.wake(requestor)
            room -= mtu

    def refresh(self) -> None:
        """Which planes take part: usable ones on which some queue pair has an EV."""
        carry = 0
        for qp in self.qps:
            carry |= qp.evs.planes()
        self.balance.set_mask(self.peer.planes & carry)

    def snapshot(self) -> dict[str, Any]:
        """JSON-serialisable state."""
        peer = self.peer
        count = len(peer.context.ports.ports)
        return {
            "address": str(ipaddress.IPv6Address(peer.address)),
            "scheduling": self.scheduling.name,
            "planes": [bool(peer.planes >> plane & 1) for plane in range(count)],
            "balance_level_bytes": list(self.balance.sent),  # no counter: see `PlaneBalance`
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
