"""Receives with memory, the places that they name, and queues of receives that queue pairs share."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from mrc_host.proto.memory import LOCAL_WRITE, MemoryFault, MemoryRegion, MemoryTable


class Element(NamedTuple):
    """A scatter-gather element: `length` bytes at `address`, in the memory region of `key`."""

    address: int
    length: int
    key: int


class PostedReceive(NamedTuple):
    """A posted receive; its elements are looked up when a message takes it, as adapters do."""

    wr_id: int
    elements: tuple[Element, ...] = ()

    @property
    def length(self) -> int:
        """How long a message it can take."""
        return sum(element.length for element in self.elements)


class Scatter:
    """The places of several elements as one: bytes are written to it by their offset in the message."""

    __slots__ = ("_pieces", "length")

    def __init__(self, pieces: Iterable[tuple[MemoryRegion, int, int]]) -> None:
        """Create it of (region, offset in it, length)."""
        self._pieces = [piece for piece in pieces if piece[2]]
        self.length = sum(piece[2] for piece in self._pieces)

    def write(self, at: int, payload: memoryview | bytes) -> None:
        """Place bytes; they must not reach beyond `length`. Raises MemoryFault."""
        size, done = len(payload), 0
        for region, offset, length in self._pieces:
            if at >= length:
                at -= length
                continue
            part = min(length - at, size - done)
            if not region.write(offset + at, payload[done : done + part] if part < size else payload):
                raise MemoryFault(f"{part} bytes of memory region {region.rkey:#010x} are gone")
            done += part
            at = 0
            if done == size:
                return


def resolve(elements: Iterable[Element], memory: MemoryTable, domain: int) -> Scatter:
    """Return the places that elements name.

    Raises:
        MemoryFault: an element is outside the regions of the protection domain that may be written to.
    """
    pieces = []
    for address, length, key in elements:
        region = memory.regions.get(key)
        if region is None or region.domain != domain:
            raise MemoryFault(f"no memory region with the L_Key {key:#010x}")
        offset = region.offset_of(address, length)
        if offset < 0:
            raise MemoryFault(f"{length} bytes at {address:#x} leave the memory region {key:#010x}")
        if not region.access & LOCAL_WRITE:
            raise MemoryFault(f"the memory region {key:#010x} lacks LOCAL_WRITE")
        pieces.append((region, offset, length))
    return Scatter(pieces)


class SharedReceives:
    """Receives that several queue pairs take from (a shared receive queue).

    `limit`: the endpoint reports once when fewer are left (`SrqLimitReached`); 0: never. `ended` counts receives that
    have completed.
    """

    __slots__ = ("domain", "ended", "limit", "number", "receives", "users")

    def __init__(self, number: int, domain: int, limit: int) -> None:
        self.number = number
        self.domain = domain
        self.limit = limit
        self.receives: deque[PostedReceive] = deque()
        self.users = 0
        self.ended = 0
