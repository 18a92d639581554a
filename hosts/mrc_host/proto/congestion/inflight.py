"""Bytes in flight: one owner of the account, so that it is never negative (`mrc-protocol.md §8`).

A queue pair counts what it sent, what it took for lost, and what has arrived. Two counts say what has arrived, and the
larger one holds: `rcvd_bytes` of the peer's SACKs (in units of 256 bytes, rounded up), which also knows packets that no
bitmap showed, and the packets that were acknowledged, which are known even when every SACK of them was lost. So a
packet that is acknowledged, by whatever, never holds the window.

The difference may be short of zero for a while: by the rounding, or because a packet taken for lost arrived after all.
The account then shows zero and remembers what it owes, so the next packets are not counted twice and nothing is counted
below zero. Only this module writes a controller's `inflight`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from mypy_extensions import i64

from mrc_host.proto.congestion.control import CongestionControl

RCVD_UNIT: Final = 256
_RCVD_MASK: Final = 0xFFFFFF


def nominal_size(payload: int, extra: int = 4) -> int:
    """Return the nominal size of a data packet, bytes: UDP length + 40 (`mrc-protocol.md §5`).

    `extra`: bytes of TSETH and ImmDt.
    """
    return payload + (-payload & 3) + 44 + extra + 40


class InFlightPacket(Protocol):
    """A packet on its way: its nominal size, and whether the account has it."""

    size: int
    counted: bool


class InflightAccount:
    """The part of one queue pair in its controller's `inflight`, which is the sum of `in_flight` over its QPs."""

    __slots__ = ("_cc", "_lost", "_sent", "_units", "acknowledged", "in_flight")
    _lost: i64
    _sent: i64
    _units: i64
    acknowledged: i64
    in_flight: i64

    def __init__(self, cc: CongestionControl | None) -> None:
        """Create an account that is part of the `inflight` of the controller `cc`; None while there is no
        controller.
        """
        self._cc = cc
        self._sent = 0  # every transmission
        self._lost = 0  # transmissions taken for lost and not seen again
        self._units = 0  # what the peer has received, cumulative, in units
        self.acknowledged = 0  # nominal bytes of acknowledged packets; the data path adds to it before `receive`
        self.in_flight = 0

    def _owed(self) -> i64:
        arrived = self._units * RCVD_UNIT
        if arrived < self.acknowledged:
            arrived = self.acknowledged
        return self._sent - self._lost - arrived

    def _update(self) -> None:
        now = self._owed()
        if now < 0:
            now = 0
        if self._cc is not None:
            self._cc.inflight += now - self.in_flight
        self.in_flight = now

    def problem(self, packets: Iterable[InFlightPacket]) -> str | None:
        """Return what is wrong with the account of these, which are all that are not acknowledged; None: it has the sum
        of the sizes of those that are counted, apart from what the peer has received and not acknowledged."""
        counted = sum(packet.size for packet in packets if packet.counted)
        sent = self._sent - self._lost - self.acknowledged
        return None if sent == counted else f"{sent} bytes are on the account, and the packets of {counted} bytes"

    def send(self, size: i64) -> None:
        """Add a packet of nominal `size` bytes that left."""
        self._sent += size
        # As in `_update`.
        owed = self._owed()
        if owed > 0:
            if self._cc is not None:
                self._cc.inflight += owed - self.in_flight
            self.in_flight = owed

    def lose(self, size: int) -> None:
        """Remove a packet in flight that was inferred lost, trimmed, or refused."""
        self._lost += size
        self._update()

    def revive(self, size: int) -> None:
        """Correct the count for a packet inferred lost that has arrived: the peer's count has it, or will."""
        self._lost -= size
        self._update()

    def drop(self, packet: InFlightPacket) -> None:
        """Remove a packet from the account if it is on it."""
        if packet.counted:
            packet.counted = False
            self.lose(packet.size)

    def restore(self, packet: InFlightPacket) -> None:
        """Add a packet that was dropped from the account and has arrived."""
        if not packet.counted:
            packet.counted = True
            self.revive(packet.size)

    def overtaken(self, rcvd_bytes: int) -> bool:
        """Return whether a SACK with these `rcvd_bytes` is older than one that has arrived before."""
        return (rcvd_bytes - self._units) & _RCVD_MASK >= _RCVD_MASK >> 1

    def receive(self, rcvd_bytes: int) -> int:
        """Take the peer's `rcvd_bytes` (units, modulo 2^24); return the bytes that are new in it.

        0 for an older SACK that was overtaken. More than was ever sent is not believed.
        """
        newly = (rcvd_bytes - self._units) & _RCVD_MASK
        if newly >= _RCVD_MASK >> 1:
            newly = 0
        elif newly:
            newly = min(newly, max(-(-self._sent // RCVD_UNIT) - self._units, 0))
            self._units += newly
        self._update()
        return newly * RCVD_UNIT

    def prove(self, packet: InFlightPacket) -> None:
        """Take off a packet whose arrival a transport ACK proves, whether or not its SACK has arrived."""
        self.restore(packet)
        self.acknowledged += packet.size
        self._update()

    def close(self) -> None:
        """Remove all packets of the queue pair, which ends."""
        self._sent = self._lost = self._units = self.acknowledged = 0
        self._update()
