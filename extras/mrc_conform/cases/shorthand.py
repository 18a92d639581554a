"""Steps on a connection that several modules of cases share."""

from __future__ import annotations

from mrc_conform.script import Script
from mrc_conform.wire import Packet


def one(c: Script) -> Packet:
    """Have the device send a write of one packet; return the packet."""
    c.post(8)
    return c.expect("WRITE_ONLY")


def answered(c: Script, count: int, start: int = 0, **changes: int) -> list[Packet]:
    """Have the device send `count` one-packet writes, each answered before the next; return them.

    `start`: how many packets the device has sent before. `changes`: fields of the SACKs.
    """
    packets = []
    for index in range(start, start + count):
        packet = one(c)
        c.sack(packet, index, **changes)
        c.ack(index, index + 1)
        packets.append(packet)
    return packets


def condemn(c: Script, index: int = 0) -> Packet:
    """Bring the EV of the device's next packet, number `index`, to ASSUMED_BAD by ALWAYS_SKIP; return that packet."""
    return answered(c, 1, index, m=2)[0]
