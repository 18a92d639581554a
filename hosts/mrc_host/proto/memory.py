"""Memory regions: what a peer may write to, and where (`mrc-protocol.md §6`)."""

from __future__ import annotations

import random
from typing import Final

PAGE_BYTES: Final = 4096


class MemoryRegion:
    """A registered buffer: peers address byte i as `va + i` with `rkey`. `view` is the buffer itself."""

    __slots__ = ("length", "rkey", "va", "view", "writable")

    def __init__(self, view: memoryview, va: int, rkey: int, writable: bool) -> None:
        self.view = view
        self.va = va
        self.length = len(view)
        self.rkey = rkey
        self.writable = writable

    def offset_of(self, va: int, size: int) -> int:
        """Offset of `va..va+size` in the buffer, or -1 when not all of it lies inside."""
        offset = va - self.va
        if offset < 0 or offset + size > self.length:
            return -1
        return offset


class MemoryTable:
    """All memory regions of an endpoint, by R_Key. Keys and addresses come from the seeded generator."""

    __slots__ = ("_next_va", "_rng", "regions")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next_va = PAGE_BYTES * rng.randrange(1 << 20, 1 << 32)
        self.regions: dict[int, MemoryRegion] = {}

    def register(self, buffer: bytearray | memoryview, va: int | None, writable: bool) -> MemoryRegion:
        """Register `buffer`; without `va` an address range of its own is chosen.

        Raises ValueError for a writable region over a read-only buffer or an address beyond 64 bits.
        """
        view = memoryview(buffer).cast("B")
        if writable and view.readonly:
            raise ValueError("the buffer is read-only; register it with writable=False or pass a bytearray")
        if va is None:
            va = self._next_va
            self._next_va += (len(view) // PAGE_BYTES + 2) * PAGE_BYTES
        if not 0 <= va <= (1 << 64) - len(view):
            raise ValueError(f"va {va:#x} with {len(view)} bytes leaves the 64-bit address space")
        rkey = self._rng.getrandbits(32)
        while rkey in self.regions:
            rkey = self._rng.getrandbits(32)
        region = self.regions[rkey] = MemoryRegion(view, va, rkey, writable)
        return region

    def deregister(self, rkey: int) -> None:
        """Forget a region; later writes to it are refused. Raises KeyError for an unknown key."""
        del self.regions[rkey]
