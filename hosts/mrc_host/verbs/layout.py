"""Layout of the memory that a program shares with its agent, and the rings in it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum, IntFlag
from typing import Any, Final

from mrc_host.ordering import WEAK, fence

#: Of what follows in this file and of the messages on the socket. Both ends must have the same.
VERSION: Final = 2
#: The interface that names and states are of (`mrc_api_ver.h`): major, minor, subminor.
API_VERSION: Final = (1, 0, 1)
PROTOCOL_VERSION: Final = 1

HEAD_BYTES: Final = 128
#: Words of a ring's head. The producer writes TAIL and NOTED, the consumer HEAD.
TAIL: Final = 0
NOTED: Final = 1
HEAD: Final = 8

MAX_SGE: Final = 16
INLINE_BYTES: Final = 256
#: opcode, flags, elements, queue pair or queue, wr_id, remote address, R_Key, immediate, inline bytes.
REQUEST: Final = struct.Struct("=BBHIQQIII")
#: Of an atomic operation: the number to compare with or to add, and the number to swap in.
ATOMIC_AT: Final = 40
ATOMIC: Final = struct.Struct("=QQ")
ELEMENTS_AT: Final = 64
#: address, length, L_Key.
ELEMENT: Final = struct.Struct("=QII")
REQUEST_BYTES: Final = ELEMENTS_AT + max(INLINE_BYTES, MAX_SGE * ELEMENT.size)

#: wr_id, status, opcode, queue pair, byte length, immediate, flags, requests of that queue that have ended so far.
COMPLETION: Final = struct.Struct("=QHHIIIII")
COMPLETION_BYTES: Final = 32
#: type, element, then by type (EV: value, plane, losses), and a text.
EVENT: Final = struct.Struct("=IIIII108s")
EVENT_BYTES: Final = 128
EVENT_TEXT_BYTES: Final = 108

WORD: Final = (1 << 64) - 1


class RingOpcode(IntEnum):
    """The operation that an entry of the submission ring requests."""

    WRITE = 1
    WRITE_IMM = 2
    RECV = 3  # `elements` receives without memory
    NOTIFY = 4  # of a completion queue; wr_id: how many completions the program has seen come
    SEND = 5
    SEND_IMM = 6
    READ = 7
    COMPARE_SWAP = 8
    FETCH_ADD = 9
    RECV_INTO = 10  # one receive into the memory of its elements
    SRQ_RECV = 11  # the same, of the shared receive queue that stands in the place of the queue pair


class SendFlags(IntFlag):
    """Flags of one work request, with the numbers of `ibv_send_flags`."""

    NONE = 0
    FENCE = 1
    SIGNALED = 2
    SOLICITED = 4
    INLINE = 8


class WcOpcode(IntEnum):
    """What completed, with the numbers of `ibv_wc_opcode`."""

    SEND = 0
    RDMA_WRITE = 1
    RDMA_READ = 2
    COMP_SWAP = 3
    FETCH_ADD = 4
    RECV = 128
    RECV_RDMA_WITH_IMM = 129


class WcStatus(IntEnum):
    """How a work request ended, with the numbers of `ibv_wc_status`."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    FATAL_ERR = 19


class WcFlags(IntFlag):
    """Flags of a completion, with the numbers of `ibv_wc_flags`; `SOLICITED` is ours."""

    NONE = 0
    WITH_IMM = 2
    SOLICITED = 1 << 16


class QpState(IntEnum):
    """States of a queue pair, with the numbers of `ibv_qp_state`."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    ERR = 6


class EventType(IntEnum):
    """Asynchronous events: those of `ibv_event_type` with its numbers, and those of EVs."""

    CQ_ERR = 0
    QP_FATAL = 1
    DEVICE_FATAL = 8
    PORT_ACTIVE = 9
    PORT_ERR = 10
    SRQ_LIMIT_REACHED = 15
    QP_LAST_WQE_REACHED = 16
    EV_GOOD = 64
    EV_ASSUMED_BAD = 65
    EV_DENIED = 66
    PEER_PORT_ACTIVE = 72
    PEER_PORT_ERR = 73


class DeviceCap(IntFlag):
    """What a device can do, with the numbers of `mrc_device_cap`."""

    NONE = 0
    TRIM_NACK = 1
    DYNAMIC_MPR = 2
    SVC_TIME = 4


def ring_bytes(capacity: int, entry_bytes: int) -> int:
    """Return how much memory a ring takes."""
    return HEAD_BYTES + capacity * entry_bytes


def power_of_two(least: int) -> int:
    """Return the smallest power of two that is not less."""
    return 1 << max(least - 1, 0).bit_length()


class RingCorrupt(Exception):
    """The other end has written an impossible counter."""


class NoRing:
    """A stand-in for a ring that is gone: every use raises the error that `closed` makes, which says why."""

    def __init__(self, closed: Callable[[], Exception]) -> None:
        self._closed = closed

    def __getattr__(self, name: str) -> Any:
        raise self._closed()


class _RingEnd:
    """`buffer` holds the whole ring; `words` its counters."""

    def __init__(self, buffer: memoryview, capacity: int, entry_bytes: int) -> None:
        self.buffer = buffer
        self.words = buffer[:HEAD_BYTES].cast("Q")
        self.capacity = capacity
        self.entry_bytes = entry_bytes
        self._mask = capacity - 1

    def at(self, number: int) -> int:
        """Return where entry `number` lies in the buffer."""
        return HEAD_BYTES + (number & self._mask) * self.entry_bytes


class Producer(_RingEnd):
    """Writes entries at `at(tail)`, counts them, and publishes. `tail` is its own; of the memory it reads HEAD only."""

    def __init__(self, buffer: memoryview, capacity: int, entry_bytes: int) -> None:
        super().__init__(buffer, capacity, entry_bytes)
        self.tail = 0

    def room(self) -> int:
        """Return how many entries fit.

        Raises:
            RingCorrupt: the consumer claims to have read what was not written, or to have given something back.
        """
        used = self.tail - self.words[HEAD]
        if not 0 <= used <= self.capacity:
            raise RingCorrupt(f"{used} of {self.capacity} entries in use")
        if WEAK:  # Acquire: the consumer has read the places that it gave back before they are written to again.
            fence()
        return self.capacity - used

    def publish(self) -> None:
        """Make the entries before `tail` visible."""
        if WEAK:  # Release: the entries are seen before the counter that stands for them.
            fence()
        self.words[TAIL] = self.tail

    def note(self, count: int) -> None:
        """Set the second counter of the producer: of notifications, or of what was lost."""
        if WEAK:  # Release: what is notified of is seen before the notification.
            fence()
        self.words[NOTED] = count


class Consumer(_RingEnd):
    """Reads entries at `at(head)` and gives their places back. `head` is its own; of the memory it reads TAIL only."""

    def __init__(self, buffer: memoryview, capacity: int, entry_bytes: int) -> None:
        super().__init__(buffer, capacity, entry_bytes)
        self.head = 0

    def pending(self) -> int:
        """Return how many entries wait.

        Raises:
            RingCorrupt: more than there are places, or fewer than none.
        """
        count = self.words[TAIL] - self.head
        if not 0 <= count <= self.capacity:
            raise RingCorrupt(f"{count} entries in {self.capacity} places")
        if WEAK:  # Acquire: no entry is read before the counter that says that it is there.
            fence()
        return count

    def noted(self) -> int:
        """Return the second counter of the producer."""
        count = self.words[NOTED]
        if WEAK:  # Acquire: what was published before the notification is seen behind it.
            fence()
        return count

    def release(self) -> None:
        """Give the places before `head` back."""
        if WEAK:  # Release: the entries are read before the producer sees that it may overwrite them.
            fence()
        self.words[HEAD] = self.head
