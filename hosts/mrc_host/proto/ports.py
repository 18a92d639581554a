"""NIC ports: state and control queues (`mrc-protocol.md §7`)."""

from __future__ import annotations

from typing import Final

from mrc_host.proto.statistics import PortStatistics

_STATUS_MASK: Final = 0xFFFF  # of a status, as a port status update names it
_STATUS_HALF: Final = 0x8000
# Changes of a port that an earlier life may have announced after the status that is overtaken.
_STATUS_MARGIN: Final = 64
_PROBE_SHARE: Final = 8  # probes of bad EVs take at most this part of a port's time
_PROBES_AT_ONCE: Final = 64  # after a pause


class Port:
    """One port: `up` while it has a `carrier` and its administrator wants it (`enabled`).

    `control` holds complete control packets, which go out before any data.
    """

    __slots__ = (
        "carrier", "control", "enabled", "number", "probes_until", "received_bytes", "received_packets", "sent_bytes",
        "sent_packets", "up",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.up = self.carrier = self.enabled = True
        self.control: list[bytes] = []
        self.sent_packets = 0
        self.sent_bytes = 0
        self.received_packets = 0
        self.received_bytes = 0
        self.probes_until = 0  # ns: the time that probes have used up

    def snapshot(self) -> PortStatistics:
        """Return the state and counters."""
        return PortStatistics(
            port=self.number,
            up=self.up,
            carrier=self.carrier,
            enabled=self.enabled,
            sent_packets=self.sent_packets,
            sent_bytes=self.sent_bytes,
            received_packets=self.received_packets,
            received_bytes=self.received_bytes,
        )


class PortTable:
    """The ports of an endpoint; bit p of `mask` says that port p is up.

    `status` identifies the present state: it counts the changes. Peers order our port status updates (its low 16 bits)
    and our queue pairs' documents (all of it) by it. `looping`: there has been a peer of the host's own
    address, so that what is sent may be for the host itself.
    """

    __slots__ = ("_byte_ps", "_first", "all", "limit", "looping", "mask", "overflow", "ports", "status")

    def __init__(self, count: int, limit: int, status: int, rate_bps: int) -> None:
        """Create the ports; `limit`: most control packets that wait at one port; `rate_bps`: of all ports together."""
        self._byte_ps = 8 * 10**12 * count // rate_bps
        self.ports = [Port(number) for number in range(count)]
        self.mask = self.all = (1 << count) - 1
        self.limit = limit
        self.overflow = 0
        self.looping = False
        self.status = self._first = status

    def overtake(self, named: int) -> bool:
        """Make `status` later than one that the wire names by 16 bits; False when it is ours or an earlier one.

        The statuses that followed the named one are overtaken as well, but the step stays below half of the 16 bits, or
        it would not be news to those who know our status. All that lies between the first status and the present one
        counts as ours from then on, so that wrong answers can cause this only until the numbers are used up.
        """
        ahead = named - self.status & _STATUS_MASK
        if not 0 < ahead < _STATUS_HALF or -ahead & _STATUS_MASK <= self.status - self._first:
            return False
        self.status += min(ahead + _STATUS_MARGIN, _STATUS_HALF - 1)
        return True

    def set_state(self, port: int, *, carrier: bool | None = None, enabled: bool | None = None) -> bool:
        """Record the state of a port; True when it went down or came up by that. Packets that waited on it are
        dropped.
        """
        entry = self.ports[port]
        if carrier is not None:
            entry.carrier = carrier
        if enabled is not None:
            entry.enabled = enabled
        up = entry.carrier and entry.enabled
        if entry.up == up:
            return False
        entry.up = up
        self.mask ^= 1 << port
        self.status += 1
        if not up:
            self.overflow += len(entry.control)
            entry.control.clear()
        return True

    def enqueue(self, port: int, packet: bytes) -> None:
        """Queue a control packet on a port; beyond the limit, or on a port that is down, it is dropped and counted.

        What waited on a dead port would leave when the port returns, with the state of long ago.
        """
        entry = self.ports[port]
        control = entry.control
        if entry.up and len(control) < self.limit:
            control.append(packet)
        else:
            self.overflow += 1

    def may_probe(self, port: int, size: int, now: int) -> bool:
        """Return whether a probe of a bad EV, of `size` bytes, may be sent on a port now; count it if so.

        Control packets go before data. Without a limit the probes of many queue pairs whose EVs are all bad would
        take the whole port, and no data would prove an EV good.
        """
        entry = self.ports[port]
        cost = max(1, size * self._byte_ps * _PROBE_SHARE // 1000)
        until = max(entry.probes_until, now)
        if until > now + _PROBES_AT_ONCE * cost:
            return False
        entry.probes_until = until + cost
        return True
