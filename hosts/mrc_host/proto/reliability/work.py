"""Work requests: what a user asks a queue pair to write (`mrc-protocol.md §4, §5`)."""

from __future__ import annotations

from mrc_host.proto.completion import CompletionKind
from mrc_host.proto.memory import MemoryRegion
from mrc_host.proto.wire.fields import Opcode

_FIRST = int(Opcode.WRITE_FIRST)
_MIDDLE = int(Opcode.WRITE_MIDDLE)


class WriteRequest:
    """One posted WRITE or WriteIMM. `first` and `last` are its PSNs."""

    __slots__ = (
        "first", "immediate", "is_imm", "last", "last_opcode", "length", "msn", "only_opcode", "posted_ns", "rkey",
        "rqmsn", "va", "view", "wr_id",
    )  # fmt: skip

    def __init__(self, wr_id: int, view: memoryview, va: int, rkey: int, immediate: int | None) -> None:
        self.wr_id = wr_id
        self.view = view
        self.length = len(view)
        self.va = va
        self.rkey = rkey
        self.is_imm = immediate is not None
        self.immediate = immediate or 0
        self.last_opcode = int(Opcode.WRITE_LAST_IMM if self.is_imm else Opcode.WRITE_LAST)
        self.only_opcode = int(Opcode.WRITE_ONLY_IMM if self.is_imm else Opcode.WRITE_ONLY)
        self.first = self.last = self.msn = self.rqmsn = 0
        self.posted_ns = 0

    def opcode_at(self, offset: int, end: int) -> int:
        """Opcode of the packet that carries the bytes from `offset` to `end`."""
        if end < self.length:
            return _MIDDLE if offset else _FIRST
        return self.last_opcode if offset else self.only_opcode

    @property
    def kind(self) -> CompletionKind:
        """What its completion says."""
        return CompletionKind.WRITE_IMM if self.is_imm else CompletionKind.WRITE


def bytes_of(local: bytes | bytearray | memoryview | MemoryRegion, offset: int, length: int | None) -> memoryview:
    """The bytes of a work request. Raises ValueError when they leave the buffer."""
    view = local.view if isinstance(local, MemoryRegion) else memoryview(local).cast("B")
    size = len(view) - offset if length is None else length
    if offset < 0 or size < 0 or offset + size > len(view):
        raise ValueError(f"bytes {offset}..{offset + size} leave the local buffer of {len(view)} bytes")
    if size >= 1 << 32:
        raise ValueError(f"{size} bytes are more than one request can carry (2^32 - 1)")
    return view[offset : offset + size]
