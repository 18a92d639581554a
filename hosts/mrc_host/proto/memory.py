"""Memory regions: what a peer may write to, and where (`mrc-protocol.md §6`); and what is gathered from several."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, TypeAlias

from mypy_extensions import mypyc_attr

from mrc_host.access import Access

PAGE_BYTES: Final = 4096
_RECENT: Final = 16
#: What is read at once of memory that is not mapped here: a system call for many packets instead of one for each.
READ_AHEAD_BYTES: Final = 1 << 16
LOCAL_WRITE: Final = int(Access.LOCAL_WRITE)
REMOTE_WRITE: Final = int(Access.REMOTE_WRITE)
REMOTE_READ: Final = int(Access.REMOTE_READ)
REMOTE_ATOMIC: Final = int(Access.REMOTE_ATOMIC)


class MemoryFault(Exception):
    """Memory cannot be reached: the program is gone, or has unmapped it, or has no right to it; the text says what."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ProcessMemory:
    """The memory of a program, by the program's own addresses; drivers say how it is reached."""

    __slots__ = ()

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes. Raises MemoryFault."""
        raise NotImplementedError

    def write(self, address: int, payload: bytes | memoryview) -> bool:
        """Write bytes; return False when not all of them could be written."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of it; later reads and writes fail."""
        raise NotImplementedError


class ProcessPiece:
    """Some bytes of a program's memory, read when a slice of them is taken; see `Gather`.

    Slices are mostly taken one after another, so each read brings `READ_AHEAD_BYTES` more. A program must not change
    the bytes of a request before it has completed, so that it does not matter when they are read. Those that are mapped
    here as well (`view`, whose first byte is at `view_at`) are not read at all.
    """

    __slots__ = ("_address", "_ahead", "_ahead_at", "_memory", "_view", "_view_at", "length")

    def __init__(self, memory: ProcessMemory, address: int, length: int, view: memoryview, view_at: int) -> None:
        self._memory = memory
        self._address = address
        self._view = view
        self._view_at = view_at
        self.length = length
        self._ahead = memoryview(b"")
        self._ahead_at = 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, piece: slice) -> memoryview:
        first, end, _ = piece.indices(self.length)
        if end <= first:
            return memoryview(b"")
        mapped = len(self._view)
        at = first - self._view_at
        if mapped and at >= 0 and end <= self._view_at + mapped:
            return self._view[at : at + end - first]
        at = first - self._ahead_at
        if at < 0 or end > self._ahead_at + len(self._ahead):
            size = end - first if mapped else max(end - first, min(READ_AHEAD_BYTES, self.length - first))
            self._ahead = memoryview(self._memory.read(self._address + first, size))
            self._ahead_at = first
            at = 0
        return self._ahead[at : at + end - first]


#: A place of bytes: memory that is mapped here, or memory of a program.
Piece: TypeAlias = memoryview | ProcessPiece


class Gather:
    """The bytes of several places as one: it has a length, and slices (without a step) of it are bytes.

    Nothing is copied before a slice is taken, and a slice that lies in one place that is mapped here is not copied then
    either. Taking a slice raises MemoryFault when memory of a program is gone.
    """

    __slots__ = ("_starts", "_views", "length")

    def __init__(self, views: Sequence[Piece]) -> None:
        self._views = [view for view in views if len(view)]
        self._starts: list[int] = []
        self.length = 0
        for view in self._views:
            self._starts.append(self.length)
            self.length += len(view)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, piece: slice) -> memoryview | bytes:
        first, end, _ = piece.indices(self.length)
        if end <= first:
            return b""
        place = bisect_right(self._starts, first) - 1
        view, start = self._views[place], self._starts[place]
        if end <= start + len(view):
            return view[first - start : end - start]
        parts = [bytes(view[first - start :])]
        while True:
            place += 1
            view, start = self._views[place], self._starts[place]
            if end <= start + len(view):
                parts.append(bytes(view[: end - start]))
                return b"".join(parts)
            parts.append(bytes(view[:]))


#: What a work request writes from.
Source: TypeAlias = memoryview | Gather | ProcessPiece


class MemoryRegion:
    """A registered buffer: peers address byte i as `va + i` with `rkey`. `view` is the buffer itself.

    Queue pairs reach the regions of their own protection domain; `domain` is its number. `access` has the rights
    (`Access`), and `writable` says whether peers may write.

    Of a region of a program's own memory, `memory` is the program's, and byte 0 is at the program's `address`. `view`
    is then the part of it that is mapped here as well, from byte `view_at` on; mostly there is none.
    """

    __slots__ = ("access", "address", "domain", "length", "memory", "rkey", "va", "view", "view_at", "writable")

    def __init__(self, view: memoryview, va: int, rkey: int, access: int, domain: int = 0) -> None:
        self.view = view
        self.va = va
        self.length = len(view)
        self.rkey = rkey
        self.access = access
        self.writable = bool(access & REMOTE_WRITE)
        self.domain = domain
        self.memory: ProcessMemory | None = None
        self.address = 0
        self.view_at = 0

    def piece(self, offset: int, size: int) -> Piece:
        """Return `size` bytes from `offset`, which lie inside, as a source; nothing is read yet."""
        at = offset - self.view_at
        memory = self.memory
        if memory is None or (at >= 0 and at + size <= len(self.view)):
            return self.view[at : at + size]
        return ProcessPiece(memory, self.address + offset, size, self.view, -at)

    def read(self, offset: int, size: int) -> bytes | memoryview:
        """Return `size` bytes from `offset`, which lie inside. Raises MemoryFault when the program's memory is gone."""
        at = offset - self.view_at
        memory = self.memory
        if memory is None or (at >= 0 and at + size <= len(self.view)):
            return self.view[at : at + size]
        return memory.read(self.address + offset, size)

    def write(self, offset: int, payload: bytes | memoryview) -> bool:
        """Place bytes that lie inside from `offset` on; return False when the program's memory is gone."""
        at = offset - self.view_at
        memory = self.memory
        size = len(payload)
        if memory is None or (at >= 0 and at + size <= len(self.view)):
            self.view[at : at + size] = payload
            return True
        return memory.write(self.address + offset, payload)

    def offset_of(self, va: int, size: int) -> int:
        """Return the offset of `va..va+size` in the buffer, or -1 when not all of it lies inside."""
        offset = va - self.va
        if offset < 0 or offset + size > self.length:
            return -1
        return offset


class MemoryTable:
    """All memory regions of an endpoint, by R_Key. Keys and addresses come from the seeded generator.

    With `length_only` nothing is placed in them, so that writable ones may be over read-only buffers.
    """

    __slots__ = ("_length_only", "_next_va", "_recent", "_rng", "regions")

    def __init__(self, rng: random.Random, length_only: bool = False) -> None:
        self._rng = rng
        self._length_only = length_only
        self._next_va = PAGE_BYTES * rng.randrange(1 << 20, 1 << 32)
        self.regions: dict[int, MemoryRegion] = {}
        #: Regions that were asked for, one for each end of a key.
        self._recent: list[MemoryRegion | None] = [None] * _RECENT

    def register(
        self,
        buffer: bytearray | memoryview,
        va: int | None,
        writable: bool,
        domain: int = 0,
        access: int | None = None,
    ) -> MemoryRegion:
        """Register `buffer`; without `va` an address range of its own is chosen.

        `access` has the rights (`Access`); without it, peers may write where `writable` says so, and nothing else.
        Raises ValueError for a writable region over a read-only buffer or an address beyond 64 bits.
        """
        view = memoryview(buffer).cast("B")
        if access is None:
            access = LOCAL_WRITE | REMOTE_WRITE if writable else 0
        if access & (LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC) and view.readonly and not self._length_only:
            raise ValueError("the buffer is read-only; register it with writable=False or pass a bytearray")
        if va is None:
            va = self._next_va
            self._next_va += (len(view) // PAGE_BYTES + 2) * PAGE_BYTES
        if not 0 <= va <= (1 << 64) - len(view):
            raise ValueError(f"va {va:#x} with {len(view)} bytes leaves the 64-bit address space")
        region = MemoryRegion(view, va, self._key(), access, domain)
        self.regions[region.rkey] = region
        return region

    def register_process(
        self,
        memory: ProcessMemory,
        address: int,
        length: int,
        va: int,
        access: int,
        domain: int,
        rkey: int | None = None,
    ) -> MemoryRegion:
        """Register `length` bytes of a program at its `address`; peers address them from `va` on.

        With `rkey` the region takes the place of the one with that key. Raises ValueError for a range that leaves the
        64-bit address space.
        """
        if max(address, va) + length > 1 << 64:
            raise ValueError(f"{length} bytes at {address:#x} ({va:#x} for peers) leave the 64-bit address space")
        region = MemoryRegion(memoryview(b""), va, self._key() if rkey is None else rkey, access, domain)
        region.memory = memory
        region.address = address
        region.length = length
        self.regions[region.rkey] = region
        self._recent[region.rkey & _RECENT - 1] = region
        return region

    def _key(self) -> int:
        key = self._rng.getrandbits(32)
        while key in self.regions:
            key = self._rng.getrandbits(32)
        return key

    def deregister(self, rkey: int) -> None:
        """Forget a region; later writes to it are refused. Raises KeyError for an unknown key."""
        del self.regions[rkey]
        self._recent[rkey & _RECENT - 1] = None

    def find(self, rkey: int) -> MemoryRegion | None:
        """Return the region with this R_Key, None when there is none."""
        region = self._recent[rkey & _RECENT - 1]
        if region is None or region.rkey != rkey:
            region = self._recent[rkey & _RECENT - 1] = self.regions.get(rkey)
        return region
