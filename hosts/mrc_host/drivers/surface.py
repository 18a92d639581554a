"""Interface between a driver and a host node: the protocol core's surface, with the node's workloads behind."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

#: A time that does not come.
FOREVER: Final = (1 << 61) - 1
#: Packets that may wait at all ports of a node which does not run, in a NIC's rings; later ones are lost.
RING_PACKETS = 2048


@mypyc_attr(allow_interpreted_subclasses=True)
class NodeInterface:
    """A node on any clock. Times are integer ns; port p is in plane p; packets carry no Ethernet header.

    This is a class and not a protocol: methods that are called for every packet are called directly where both sides
    are compiled.
    """

    __slots__ = ()

    def receive(self, port: int, packet: bytes, now: int, missing: int = 0, /) -> None:
        """Handle a packet that arrived, of which bytes of the payload may be `missing` before the ICRC."""
        raise NotImplementedError

    def quiet(self) -> bool:
        """Return whether `to_send` has nothing for any port and need not be called; False when that is not known."""
        return False

    def to_send(self, port: int, now: int, budget_bytes: int, /) -> list[bytes]:
        """Return packets for a port, together at most `budget_bytes` long."""
        raise NotImplementedError

    def next_timer(self) -> int:
        """Return when `handle_timer` is due next (ns); `FOREVER`: it is not."""
        raise NotImplementedError

    def handle_timer(self, now: int, /) -> None:
        """Run the timers that are due."""
        raise NotImplementedError

    def settle(self, now: int, /) -> None:
        """Let the application react to what happened since the last call."""
        raise NotImplementedError

    def set_carrier(self, port: int, up: bool, now: int, /) -> None:
        """Handle the link of a port that went down or came up."""
        raise NotImplementedError


class PortPacer:
    """The link of a NIC port as a sender models it: busy until it has carried the bytes handed to it.

    A driver that is late may catch up by at most `burst_ns` of the link's time.
    """

    __slots__ = ("burst_ns", "free_ns", "ns_per_byte", "overhead_bytes")

    def __init__(self, rate_bps: int, burst_ns: int, overhead_bytes: int) -> None:
        self.ns_per_byte = 8e9 / rate_bps
        self.burst_ns = burst_ns
        self.overhead_bytes = overhead_bytes
        self.free_ns = 0

    def budget(self, now: int) -> int:
        """Return how many bytes of packets may go now."""
        ahead = now + self.burst_ns - self.free_ns
        return min(int(ahead / self.ns_per_byte), int(2 * self.burst_ns / self.ns_per_byte)) if ahead > 0 else 0

    def spend(self, packets: int, nbytes: int, now: int) -> None:
        """Account for packets that were sent."""
        size = nbytes + packets * self.overhead_bytes
        self.free_ns = max(self.free_ns, now - self.burst_ns) + int(size * self.ns_per_byte)

    def ready_ns(self, nbytes: int) -> int:
        """Return when there is room for a packet of `nbytes` bytes (ns)."""
        return self.free_ns + int(nbytes * self.ns_per_byte) - self.burst_ns + 1
