"""Interface between a driver and a host node: the protocol core's surface, with the node's workloads behind."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

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


@mypyc_attr(allow_interpreted_subclasses=True)
class PortRing:
    """Receiving side of one port, on the real clock."""

    def __init__(self, interface: str) -> None:
        self.interface = interface

    def fileno(self) -> int:
        """Return a file descriptor for `poll`."""
        raise NotImplementedError

    def arrival(self) -> i64:
        """Return when the packet that is read next came (ns of the realtime clock), 0 while there is none."""
        raise NotImplementedError

    def take(self) -> bytes:
        """Take the packet that `arrival` has told of."""
        raise NotImplementedError

    def clear_error(self) -> None:
        """Forget an error that `poll` reports."""

    def kernel_drops(self) -> int:
        """Return the number of frames that the kernel dropped because they were not read in time."""
        return 0

    def close(self) -> None:
        """Give it back."""


@mypyc_attr(allow_interpreted_subclasses=True)
class PortSender:
    """Sending side of all ports of a node. `lost`: packets that an interface did not take."""

    def __init__(self) -> None:
        self.lost = 0

    def send(self, packets: list[list[bytes]]) -> None:
        """Send the packets of each port."""
        raise NotImplementedError

    def close(self) -> None:
        """Give it back."""


class PortPacer:
    """The link of a NIC port as a sender models it: busy until it has carried the bytes handed to it.

    It carries what it has been handed within `ahead_ns`. Time in which it had nothing to carry is gone.
    """

    __slots__ = ("ahead_ns", "free_ns", "ns_per_byte", "overhead_bytes")

    def __init__(self, rate_bps: int, ahead_ns: int, overhead_bytes: int) -> None:
        self.ns_per_byte = 8e9 / rate_bps
        self.ahead_ns = ahead_ns
        self.overhead_bytes = overhead_bytes
        self.free_ns = 0

    def budget(self, now: int) -> int:
        """Return how many bytes of packets may go now."""
        ahead = self.ahead_ns - max(self.free_ns - now, 0)
        return int(ahead / self.ns_per_byte) if ahead > 0 else 0

    def spend(self, packets: int, nbytes: int, now: int) -> None:
        """Account for packets that were sent."""
        size = nbytes + packets * self.overhead_bytes
        self.free_ns = max(self.free_ns, now) + int(size * self.ns_per_byte)

    def ready_ns(self, nbytes: int) -> int:
        """Return when there is room for a packet of `nbytes` bytes (ns)."""
        return self.free_ns + int(nbytes * self.ns_per_byte) - self.ahead_ns + 1
