"""Work requests: what a user asks a queue pair to write, numbered and in order (`mrc-protocol.md §4, §5`)."""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import i64

from mrc_host.proto.completion import CompletionKind
from mrc_host.proto.memory import Gather, MemoryRegion, ProcessPiece, Source
from mrc_host.proto.wire.fields import Opcode

FIRST: Final = int(Opcode.WRITE_FIRST)
MIDDLE: Final = int(Opcode.WRITE_MIDDLE)


class WriteRequest:
    """One posted WRITE or WriteIMM. `first` and `last` are its PSNs; `whole` is its view where that is in memory."""

    __slots__ = (
        "first", "immediate", "is_imm", "last", "last_opcode", "length", "msn", "only_opcode", "posted_ns", "rkey",
        "rqmsn", "solicited", "va", "view", "whole", "wr_id",
    )  # fmt: skip
    first: i64
    last: i64
    last_opcode: i64
    length: i64
    msn: i64
    only_opcode: i64
    rqmsn: i64

    def __init__(
        self, wr_id: int, view: Source, va: int, rkey: int, immediate: int | None, solicited: bool = False
    ) -> None:
        self.wr_id = wr_id
        self.view = view
        self.whole: memoryview | None = view if isinstance(view, memoryview) else None
        self.length = len(view)
        self.va = va
        self.rkey = rkey
        self.is_imm = immediate is not None
        self.immediate = immediate or 0
        self.solicited = solicited
        self.last_opcode = int(Opcode.WRITE_LAST_IMM if self.is_imm else Opcode.WRITE_LAST)
        self.only_opcode = int(Opcode.WRITE_ONLY_IMM if self.is_imm else Opcode.WRITE_ONLY)
        self.first = self.last = self.msn = self.rqmsn = 0
        self.posted_ns = 0

    def opcode_at(self, offset: int, end: int) -> int:
        """Return the opcode of the packet that carries the bytes from `offset` to `end`."""
        if end < self.length:
            return MIDDLE if offset else FIRST
        return self.last_opcode if offset else self.only_opcode

    @property
    def kind(self) -> CompletionKind:
        """What its completion says."""
        return CompletionKind.WRITE_IMM if self.is_imm else CompletionKind.WRITE


class WorkQueue:
    """The requests of one queue pair in posting order: those to be cut into packets, and those without a transport ACK.

    `current` is being sent, from byte `offset` on; `unacked` are all that have not completed, the current one among
    them.
    """

    __slots__ = ("_mtu", "_queue", "current", "end", "msn", "offset", "rqmsn", "unacked", "wimm_in_flight")
    offset: i64

    def __init__(self) -> None:
        self.unacked: deque[WriteRequest] = deque()
        self._queue: deque[WriteRequest] = deque()
        self.current: WriteRequest | None = None
        self.offset = 0

    def start(self, first_psn: int, mtu: int) -> None:
        """Start to number from here on; `mtu` is that of the path."""
        self.end = first_psn  # PSN at which the next request to be posted begins
        self._mtu = mtu
        self.msn = self.rqmsn = 0
        self.wimm_in_flight = 0

    def post(self, request: WriteRequest, now: int) -> None:
        """Queue a request with the next number."""
        packets = -(-request.length // self._mtu) or 1
        self.msn += 1
        if request.is_imm:
            self.rqmsn += 1
            self.wimm_in_flight += 1
        request.msn = self.msn & 0xFFFF
        request.rqmsn = self.rqmsn & 0xFFFF
        request.posted_ns = now
        request.first = self.end
        request.last = request.first + packets - 1
        self.end = request.last + 1
        self.unacked.append(request)
        if self.current is None:
            self.current = request
            self.offset = 0
        else:
            self._queue.append(request)

    def next_request(self) -> None:
        """Go to the next request, since all of the current one has been sent."""
        self.current = self._queue.popleft() if self._queue else None
        self.offset = 0

    def rewind(self) -> None:
        """Send all requests that have not completed again, from the oldest on."""
        self._queue = deque(self.unacked)
        self.next_request()

    def fits(self, psn: int, msn: int, nak: bool, una: int) -> bool:
        """Return whether a transport answer is consistent with what was sent.

        The MSN of an ACK counts the messages up to its PSN, and a NAK concerns a message that is not complete.

        Args:
            una: the first PSN that has not been acknowledged.
        """
        unacked = self.unacked
        if nak:
            return bool(unacked) and psn >= unacked[0].first
        complete = (unacked[0].msn if unacked else self.msn + 1) - 1
        if not unacked or psn < unacked[0].last:
            return psn < una or msn & 0xFFFF == complete & 0xFFFF
        for request in unacked:
            if request.last > psn:
                break
            complete = request.msn
        return msn & 0xFFFF == complete & 0xFFFF

    def take_complete(self, psn: int) -> WriteRequest | None:
        """Return the oldest request, if a transport ACK of `psn` completes it; call until there is none."""
        unacked = self.unacked
        if not unacked or unacked[0].last > psn:
            return None
        request = unacked.popleft()
        if request.is_imm:
            self.wimm_in_flight -= 1
        return request

    def take_completed_before(self, psn: int, msn: int) -> WriteRequest | None:
        """Return the oldest request if it ends before `psn` and a NAK's MSN counts it as complete; else None."""
        unacked = self.unacked
        if not unacked or unacked[0].last >= psn or (msn - unacked[0].msn) & 0xFFFF >= 0x8000:
            return None
        return self.take_complete(unacked[0].last)

    def flush(self) -> list[WriteRequest]:
        """Forget and return all that have not completed."""
        self._queue.clear()
        self.current = None
        requests = list(self.unacked)
        self.unacked.clear()
        self.wimm_in_flight = 0
        return requests


def bytes_of(
    local: bytes | bytearray | memoryview | MemoryRegion | Gather | ProcessPiece, offset: int, length: int | None
) -> Source:
    """Return the bytes of a work request. Raises ValueError when they leave the buffer."""
    if isinstance(local, Gather | ProcessPiece):
        if offset or length not in (None, len(local)):
            raise ValueError("what is gathered is written whole")
        return local
    view = local.view if isinstance(local, MemoryRegion) else memoryview(local).cast("B")
    size = len(view) - offset if length is None else length
    if offset < 0 or size < 0 or offset + size > len(view):
        raise ValueError(f"bytes {offset}..{offset + size} leave the local buffer of {len(view)} bytes")
    if size >= 1 << 32:
        raise ValueError(f"{size} bytes are more than one request can carry (2^32 - 1)")
    return view[offset : offset + size]
