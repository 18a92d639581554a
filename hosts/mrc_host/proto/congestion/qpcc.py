"""A congestion control context: one destination and one CC profile (`mrc-protocol.md §7, §8`).

`mrc.h` gives every queue pair its own EV profile and CC profile; a controller belongs to a destination. So the
queue pairs to one peer that name the same CC profile share one context, and those with another one have another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from mrc_host.proto.congestion.balance import PlaneBalance
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.control import CongestionControl
from mrc_host.proto.congestion.inflight import nominal_size
from mrc_host.proto.statistics import PeerStatistics
from mrc_host.proto.timers import Timed, TimerKind


class Scheduling(Enum):
    """Scheduling states of a QPCC (`mrc-protocol.md §8`)."""

    IDLE = "nothing to send, nothing in flight"
    ACTIVE = "data, window closed"
    READY = "data, window open"
    PENDING = "nothing to send, packets in flight"


class Sender:
    """A requestor that sends behind the window `qpcc`. `in_ring` and `waiting` are the send ring's (`send_ring.py`).

    `needs` is the nominal size in bytes of the packet that a waiting sender would send next.
    """

    __slots__ = ("in_ring", "needs", "qpcc", "waiting")
    qpcc: Qpcc

    def __init__(self) -> None:
        self.in_ring = False
        self.waiting = False
        self.needs = 0

    def emit(self, port: int, now: int, room: int) -> bytes | int:
        """Return the next packet for `port`, at most `room` bytes, or why there is none (`send_ring.IDLE` ...)."""
        raise NotImplementedError

    def has_data(self) -> bool:
        """Return whether there is data to send."""
        raise NotImplementedError

    def has_outstanding(self) -> bool:
        """Return whether any packet that was sent is not acknowledged."""
        raise NotImplementedError


class Qpcc(Timed):
    """See the module's docstring. `cc` holds the window, `balance` spreads what it lets pass over the planes."""

    __slots__ = ("balance", "cc", "config", "in_ring", "senders", "waiting")

    def __init__(
        self,
        config: CcConfig,
        mtu: int,
        planes: int,
        slack_packets: int,
        patience_ns: int,
        make: Callable[[CcConfig, int], Any] | None = None,
    ) -> None:
        """Create the controller of a group of queue pairs.

        `mtu` is the path MTU (bytes of payload); `make` makes the controller of a policy, None: the profile's algorithm
        is used. For the rest see `PlaneBalance`.
        """
        self.config = config
        packet = nominal_size(mtu)
        self.cc: CongestionControl = config.controller(packet) if make is None else make(config, packet)
        self.balance = PlaneBalance(planes, slack_packets * self.cc.mtu, patience_ns)
        self.senders: list[Sender] = []
        self.in_ring = 0  # how many of them are in the send ring
        self.waiting: deque[Sender] = deque()  # have data, window closed

    def on_timer(self, kind: TimerKind, now: int) -> None:
        """Stop waiting for the planes behind: they have made no progress for as long as the others wait."""
        self.balance.level_planes(now)

    def snapshot(self, address: str, planes: list[bool]) -> PeerStatistics:
        """Return the state, with the peer's address and which planes are usable."""
        return PeerStatistics(
            address=address,
            planes=planes,
            scheduling=self.scheduling.name,
            balance_level_bytes=list(self.balance.sent),  # no counter: see `PlaneBalance`
            cc=self.cc.snapshot(),
        )

    @property
    def scheduling(self) -> Scheduling:
        """The QPCC's scheduling state."""
        if not any(sender.has_data() for sender in self.senders):
            in_flight = any(sender.has_outstanding() for sender in self.senders)
            return Scheduling.PENDING if in_flight else Scheduling.IDLE
        open_ = self.cc.inflight + self.cc.mtu <= self.cc.cwnd or self.cc.inflight <= 0
        return Scheduling.READY if open_ else Scheduling.ACTIVE
