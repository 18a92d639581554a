"""Memory regions: what a peer may write to, and where (`mrc-protocol.md §6`); and what is gathered from several."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, TypeAlias

PAGE_BYTES: Final = 4096


class Gather:
    """The bytes of several places as one: it has a length, and slices (without a step) of it are bytes.

    Nothing is copied before a slice is taken, and a slice that lies in one place is not copied then either.
    """

    __slots__ = ("_starts", "_views", "length")

    def __init__(self, views: Sequence[memoryview]) -> None:
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
            parts.append(bytes(view))


#: What a work request writes from.
Source: TypeAlias = memoryview | Gather


class MemoryRegion:
    """A registered buffer: peers address byte i as `va + i` with `rkey`. `view` is the buffer itself.

    Queue pairs reach the regions of their own protection domain; `domain` is its number.
    """

    __slots__ = ("domain", "length", "rkey", "va", "view", "writable")

    def __init__(self, view: memoryview, va: int, rkey: int, writable: bool, domain: int = 0) -> None:
        self.view = view
        self.va = va
        self.length = len(view)
        self.rkey = rkey
        self.writable = writable
        self.domain = domain

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

    __slots__ = ("_length_only", "_next_va", "_rng", "regions")

    def __init__(self, rng: random.Random, length_only: bool = False) -> None:
        self._rng = rng
        self._length_only = length_only
        self._next_va = PAGE_BYTES * rng.randrange(1 << 20, 1 << 32)
        self.regions: dict[int, MemoryRegion] = {}

    def register(self, buffer: bytearray | memoryview, va: int | None, writable: bool, domain: int = 0) -> MemoryRegion:
        """Register `buffer`; without `va` an address range of its own is chosen.

        Raises ValueError for a writable region over a read-only buffer or an address beyond 64 bits.
        """
        view = memoryview(buffer).cast("B")
        if writable and view.readonly and not self._length_only:
            raise ValueError("the buffer is read-only; register it with writable=False or pass a bytearray")
        if va is None:
            va = self._next_va
            self._next_va += (len(view) // PAGE_BYTES + 2) * PAGE_BYTES
        if not 0 <= va <= (1 << 64) - len(view):
            raise ValueError(f"va {va:#x} with {len(view)} bytes leaves the 64-bit address space")
        rkey = self._rng.getrandbits(32)
        while rkey in self.regions:
            rkey = self._rng.getrandbits(32)
        region = self.regions[rkey] = MemoryRegion(view, va, rkey, writable, domain)
        return region

    def deregister(self, rkey: int) -> None:
        """Forget a region; later writes to it are refused. Raises KeyError for an unknown key."""
        del self.regions[rkey]
