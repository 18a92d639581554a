"""Protection domains, memory regions, and the pieces of them that work requests name."""

from __future__ import annotations

import ctypes
import errno
from typing import NamedTuple

from mrc_host.access import Access
from mrc_host.verbs import requests
from mrc_host.verbs.connection import VerbsError, map_file
from mrc_host.verbs.device import Context

DEFAULT_ACCESS = Access.LOCAL_WRITE | Access.REMOTE_WRITE


class Sge(NamedTuple):
    """A scatter-gather element: `length` bytes at `addr`, in the memory region of `lkey`."""

    addr: int
    length: int
    lkey: int


class RemoteMemory(NamedTuple):
    """The address and key that a peer needs to write to a memory region."""

    addr: int
    rkey: int
    length: int


class ProtectionDomain:
    """Groups objects: queue pairs reach only the memory regions of their own domain."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.number = context.ask(requests.AllocPd()).pd

    def destroy(self) -> None:
        """Destroy the domain. Raises VerbsError while it has queue pairs or regions."""
        self.context.ask(requests.DeallocPd(self.number))


class MemoryRegion:
    """Memory that the device can read and write: `buffer` is a view of its bytes.

    The memory is shared with the agent, so nothing is copied through a socket: `numpy.frombuffer(region.buffer)` and
    `torch.frombuffer(region.buffer, ...)` are the same bytes. It starts zeroed, and lives as long as something
    refers to it, even when the region is destroyed.

    Args:
        domain: its protection domain.
        length: bytes.
        access: REMOTE_WRITE lets peers write into it, REMOTE_READ read it, REMOTE_ATOMIC change numbers in it.
            LOCAL_WRITE lets messages, and READs and atomics of the program itself, put something there.
    """

    def __init__(self, domain: ProtectionDomain, length: int, access: Access = DEFAULT_ACCESS) -> None:
        self.domain = domain
        self.length = length
        self.access = access
        answer, files = domain.context.ask_files(requests.RegMr(domain.number, length, access))
        self.buffer: memoryview = map_file(files[0], length)
        self.addr = answer.addr
        self.lkey = self.rkey = answer.key

    @classmethod
    def over(
        cls, domain: ProtectionDomain, buffer: bytearray | memoryview, access: Access = DEFAULT_ACCESS
    ) -> MemoryRegion:
        """Register memory that the program has, such as a bytearray or the memory of an array, instead of new memory.

        The agent reads and writes it through the kernel, which takes longer than memory that both have mapped. The
        buffer cannot be resized until the region is destroyed.

        Raises:
            VerbsError: the agent cannot reach the memory of this program (EOPNOTSUPP).
            TypeError: the buffer is read-only, or not contiguous.
        """
        made = cls.__new__(cls)
        made.domain = domain
        made.access = access
        made.buffer = memoryview(buffer).cast("B")
        made.length = len(made.buffer)
        address = ctypes.addressof(ctypes.c_char.from_buffer(made.buffer))
        answer = domain.context.ask(requests.RegUserMr(domain.number, address, made.length, access))
        made.addr = answer.addr
        made.lkey = made.rkey = answer.key
        return made

    @property
    def remote(self) -> RemoteMemory:
        """What a peer must know; JSON-serialisable as a list."""
        return RemoteMemory(self.addr, self.rkey, self.length)

    def sge(self, offset: int = 0, length: int | None = None) -> Sge:
        """Return a piece: `length` bytes from `offset`, by default up to the end.

        Raises:
            VerbsError: it leaves the region.
        """
        size = self.length - offset if length is None else length
        if offset < 0 or size < 0 or offset + size > self.length:
            raise VerbsError(errno.EINVAL, f"bytes {offset} to {offset + size} leave a region of {self.length} bytes")
        return Sge(self.addr + offset, size, self.lkey)

    def read(self, length: int, offset: int = 0) -> bytes:
        """Return a copy of some bytes."""
        return bytes(self.buffer[offset : offset + length])

    def write(self, data: bytes | bytearray | memoryview, offset: int = 0) -> None:
        """Copy bytes into it."""
        self.buffer[offset : offset + len(data)] = data

    def destroy(self) -> None:
        """Deregister it. Raises VerbsError while work requests under way read from it."""
        self.domain.context.ask(requests.DeregMr(self.lkey))
