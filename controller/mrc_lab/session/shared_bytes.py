"""Memory that a process writes and another one reads, for packets of a simulation that several processes run."""

from __future__ import annotations

import mmap
import os
from types import TracebackType
from typing import Final, Self

#: The size at first; it doubles whenever more is written.
FIRST_BYTES: Final = 1 << 20


class SharedBytes:
    """Anonymous memory behind a file descriptor, which the other process inherits; it ends with the last of both.

    Only one process writes, and it says how many bytes (`size`) when it asks the other to read.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = os.memfd_create("mrclab", os.MFD_CLOEXEC) if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, FIRST_BYTES)
        self._map = mmap.mmap(self.fd, os.fstat(self.fd).st_size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmap and close the memory."""
        self._map.close()
        os.close(self.fd)

    def view(self, size: int) -> memoryview:
        """Return the first `size` bytes for reading or writing; release the view before the next call."""
        if size > len(self._map):
            room = os.fstat(self.fd).st_size
            while room < size:
                room *= 2
            os.ftruncate(self.fd, room)
            self._map.close()
            self._map = mmap.mmap(self.fd, room)
        return memoryview(self._map)[:size]
