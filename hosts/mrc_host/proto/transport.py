"""Interface of an endpoint to its host, be it of MRC (`endpoint.Endpoint`) or RoCE (`roce.endpoint.RoceEndpoint`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from mypy_extensions import mypyc_attr

from mrc_host.proto.completion import Completion, CompletionQueue
from mrc_host.proto.events import Event, QpState
from mrc_host.proto.memory import Gather, MemoryRegion, ProcessPiece
from mrc_host.proto.qp_document import QpDocument, RoceQpDocument
from mrc_host.proto.statistics import QpReordering, Statistics

Buffer = bytes | bytearray | memoryview | MemoryRegion | Gather | ProcessPiece


class Pair(Protocol):
    """A queue pair of any transport."""

    number: int
    state: QpState


P_contra = TypeVar("P_contra", bound=Pair, contravariant=True)


@mypyc_attr(allow_interpreted_subclasses=True)
class TransportEndpoint:
    """The part of a transport without queue pairs: the driver's methods, ports, completions, statistics. Times are in
    ns.

    This is a class and not a protocol: methods that are called for every packet are called directly where both sides
    are compiled.
    """

    __slots__ = ()

    def receive_datagram(self, port: int, packet: bytes, now: int, missing: int = 0) -> None:
        """Take one packet that arrived on `port`. Bad input is counted and dropped.

        With `WireConfig.payload` "length" there may be bytes that count, but are `missing` before the ICRC.
        """
        raise NotImplementedError

    def quiet(self) -> bool:
        """Return True only if `datagrams_to_send` has nothing for any port and need not be called."""
        return False

    def datagrams_to_send(self, port: int, now: int, budget_bytes: int) -> list[bytes]:
        """Return packets to put on `port` now, together at most `budget_bytes` long."""
        raise NotImplementedError

    def next_timer(self) -> int | None:
        """Return when `handle_timer` is due next (ns), or None."""
        raise NotImplementedError

    def handle_timer(self, now: int) -> None:
        """Run the timers that are due."""
        raise NotImplementedError

    def next_event(self) -> Event | None:
        """Return the oldest event not yet taken, or None."""
        raise NotImplementedError

    def set_port_state(self, port: int, up: bool, now: int) -> None:
        """Handle the link of a port that went down or came up."""
        raise NotImplementedError

    def set_port_enabled(self, port: int, enabled: bool, now: int) -> None:
        """Enable or disable a port as its administrator."""
        raise NotImplementedError

    def ports_up(self) -> list[bool]:
        """Return which ports are up: enabled, with a link."""
        raise NotImplementedError

    def create_cq(self, depth: int = 65536) -> CompletionQueue:
        """Return a completion queue."""
        raise NotImplementedError

    def poll(self, cq: CompletionQueue, limit: int = 64) -> list[Completion]:
        """Take up to `limit` completions, oldest first."""
        raise NotImplementedError

    def statistics(self) -> Statistics:
        """Return counters and states."""
        raise NotImplementedError

    def reordering(self) -> Sequence[QpReordering]:
        """Return how far packets arrived out of order, of each queue pair to which some came that is not gone; RoCE
        measures nothing, since it does not keep what is out of order, or cannot tell what was sent again."""
        return ()


class Transport(Protocol[P_contra]):
    """A transport with memory, and with work on queue pairs of class `P_contra`. How they are created differs by
    transport.
    """

    def register_memory(
        self, buffer: bytearray | memoryview, va: int | None = None, *, writable: bool = True
    ) -> MemoryRegion:
        """Register a buffer; `.rkey`, `.va`, `.length` are what a peer needs to write to it."""

    def deregister_memory(self, region: MemoryRegion) -> None:
        """Forget a region."""

    def local_attributes(self, qp: P_contra) -> QpDocument | RoceQpDocument:
        """Return what the peer needs, as one JSON-serialisable document."""

    def connect(self, qp: P_contra, remote: object, now: int) -> None:
        """Go to RTS with the peer's attributes, plain JSON values, which are checked. Raises QpError."""

    def post_write(
        self,
        qp: P_contra,
        local: Buffer,
        remote_va: int,
        rkey: int,
        wr_id: int,
        *,
        local_offset: int = 0,
        length: int | None = None,
    ) -> None:
        """Write `local[local_offset:][:length]` to the peer's memory."""

    def post_write_imm(
        self,
        qp: P_contra,
        local: Buffer,
        remote_va: int,
        rkey: int,
        immediate: int,
        wr_id: int,
        *,
        local_offset: int = 0,
        length: int | None = None,
        solicited: bool = False,
    ) -> None:
        """Do as `post_write`, and deliver a 32-bit immediate, which may be `solicited`."""

    def post_recv(self, qp: P_contra, wr_id: int, count: int = 1) -> None:
        """Post `count` receives, each for one immediate."""

    def destroy_qp(self, qp: P_contra, now: int) -> None:
        """Forget a queue pair: its requests and receives end without a completion.

        As after `ibv_destroy_qp`, what it has not completed is the user's again. Completions would come of a queue pair
        that the user no longer knows, and might overflow a queue, which ends all others that use it.
        """

    def close_qp(self, qp: P_contra, now: int) -> None:
        """Do as `destroy_qp` for a user who is gone, and notify the peer."""
