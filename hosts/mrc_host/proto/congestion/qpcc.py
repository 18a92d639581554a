"""A congestion control context: one destination and one CC profile (`mrc-protocol.md §7, §8`).

`mrc.h` gives every queue pair its own EV profile and CC profile; a controller belongs to a destination. So the
queue pairs to one peer that name the same CC profile share one context, and those with another one have another.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from mypy_extensions import i64

from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.control import CongestionControl
from mrc_host.proto.congestion.inflight import nominal_size
from mrc_host.proto.statistics import PeerStatistics
from mrc_host.proto.timers import Timed, TimerKind


class PlaneBalance:
    """Keeps the planes towards one peer equally loaded (`mrc-protocol.md §7`).

    A plane may be ahead of the least loaded one by `slack` bytes. A plane that makes no progress for
    `patience_ns` while others wait for it (no room, no EV) is no longer waited for. Only time in which it could
    have sent counts (`pause`): behind a closed window nothing is sent, and the planes that happen to be behind then
    are not to blame.

    `sent[p]` is a level, not a counter: it is raised when a plane joins or is no longer waited for.
    """

    __slots__ = ("_all", "_last_block", "_since", "_snapshot", "limit", "mask", "patience_ns", "sent", "slack")

    def __init__(self, planes: int, slack: int, patience_ns: int) -> None:
        self.sent = [0] * planes
        self.mask = self._all = (1 << planes) - 1
        self.slack = slack
        self.patience_ns = patience_ns
        self.limit = slack
        self._since = 0
        self._last_block = -1
        self._snapshot: list[int] = []

    def set_mask(self, mask: int) -> None:
        """Set which planes take part; a plane that (re)joins starts level with the others."""
        joined = mask & ~self.mask
        self.mask = mask
        others = [n for plane, n in enumerate(self.sent) if mask & ~joined & 1 << plane]
        level = min(others) if others else max(self.sent)
        for plane in range(len(self.sent)):
            if joined >> plane & 1:
                self.sent[plane] = max(self.sent[plane], level)
        self._level()

    def _level(self) -> None:
        if self.mask == self._all:
            floor = min(self.sent)
        else:
            floor = min((n for plane, n in enumerate(self.sent) if self.mask >> plane & 1), default=0)
        self.limit = floor + self.slack

    def retry(self, plane: int, now: int) -> bool:
        """Recompute the limit that stopped `plane`; True when the plane may send after all."""
        self._level()
        if self.sent[plane] <= self.limit:
            return True
        if self._last_block < 0 or now - self._last_block > 2 * self.patience_ns:
            self._since = now
            self._snapshot = list(self.sent)
        self._last_block = now
        if now - self._since >= self.patience_ns:
            self.level_planes(now)
            return self.sent[plane] <= self.limit
        return False

    @property
    def waiting(self) -> bool:
        """Return whether a plane has been held back since the last `pause`."""
        return self._last_block >= 0

    def pause(self) -> None:
        """Record that nothing may be sent on any plane now: senders that wait do not wait for the planes behind."""
        self._last_block = -1
        self._snapshot = []

    def deadline(self) -> int:
        """Return when waiting for the planes behind ends (ns)."""
        return self._since + self.patience_ns

    def level_planes(self, now: int) -> None:
        """Raise the planes that have not moved since the wait began to the level of the leading one."""
        top = max((n for plane, n in enumerate(self.sent) if self.mask >> plane & 1), default=0)
        for plane, before in enumerate(self._snapshot):
            if self.mask >> plane & 1 and self.sent[plane] == before and before + self.slack < top:
                self.sent[plane] = top
        self._since = now
        self._snapshot = list(self.sent)
        self._level()


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

    def emit(self, port: i64, now: i64, room: i64) -> bytes | int:
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
        self.waiting: list[Sender] = []  # have data, window closed

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
