"""Packets of a host to itself: as in a NIC, they turn round inside the device and reach no link."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from mrc_host.proto.wire.icrc import wire_length

#: From when a packet is sent until it arrives. No link carries it, so that its length does not matter.
LOOP_NS: Final = 1_000
_DESTINATION_AT: Final = 24  # without SRv6, which no packet to the own address has


class Loopback:
    """The way back of one device.

    Attributes:
        due: when the next packet arrives (ns), None while there is none.
        packets: how many have been sent to the own address, by port.
        arrived: how many of them have arrived, by port.
    """

    __slots__ = ("_address", "_waiting", "arrived", "due", "packets")

    def __init__(self, address: bytes) -> None:
        self._address = address
        self._waiting: deque[tuple[int, int, bytes]] = deque()
        self.due: int | None = None
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
        self.due = waiting[0][0] if waiting else None
        return arrived
