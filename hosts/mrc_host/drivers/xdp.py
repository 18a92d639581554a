"""Sending by AF_XDP, which takes the kernel a third less than a ring of AF_PACKET does.

The sockets of all ports of a process send from one piece of memory, because memory of this kind is locked, and what a
user may lock is little. A frame longer than a page lies in several chunks one behind the other (Linux 6.6).
Documentation/networking/af_xdp.rst of Linux explains the rings.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import socket
import struct
import threading
from collections.abc import Iterable
from typing import Final

from mrc_host.ordering import WEAK, fence

AF_XDP: Final = 44
SOL_XDP: Final = 283
XDP_MMAP_OFFSETS: Final = 1
XDP_TX_RING: Final = 3
XDP_UMEM_REG: Final = 4
XDP_UMEM_FILL_RING: Final = 5
XDP_UMEM_COMPLETION_RING: Final = 6
#: Flags of `bind`.
XDP_SHARED_UMEM: Final = 1
XDP_COPY: Final = 2
XDP_USE_SG: Final = 16
#: Of a piece of a frame: another one follows.
XDP_PKT_CONTD: Final = 1
PGOFF_TX_RING: Final = 0x80000000
PGOFF_COMPLETION_RING: Final = 0x180000000

MEMORY = struct.Struct("=QQII")  # address, length, bytes of a chunk, headroom
ADDRESS = struct.Struct("=HHIII")  # family, flags, interface, queue, socket whose memory is shared
#: Of four rings (receive, send, fill, completion): producer, consumer, entries, flags.
OFFSETS = struct.Struct("=16Q")
PIECE = struct.Struct("=QII")  # address, length, options
PIECE_BYTES: Final = 16
PAGE: Final = mmap.PAGESIZE
WORD_BYTES: Final = 4
ENTRY_BYTES: Final = 8
#: Frames that all ports may have under way. The kernel is done with most when the call returns.
SLOTS: Final = 64
#: The least that the first of several pieces holds: a whole Ethernet header, and what lies behind it.
LEAST_PIECE: Final = 64
#: With fewer free slots they are taken back.
FEW: Final = SLOTS // 2
MSG_DONTWAIT: Final = int(socket.MSG_DONTWAIT)
WRAP: Final = 0xFFFFFFFF

_libc = ctypes.CDLL(None, use_errno=True)


class SendMemory:
    """Frames that the ports of a process send.

    Args:
        frame_bytes: the longest frame.

    Attributes:
        slot_bytes: room for one frame, in whole pages.
        entries: of a ring, which has room for the pieces of all frames; a power of two.
        free: where free slots begin.
        owner: the socket by which the kernel knows the memory; None: it does not yet.
        senders: all that use it.
        lock: one socket after the other begins to use it.
    """

    def __init__(self, frame_bytes: int) -> None:
        chunks = -(-frame_bytes // PAGE)
        self.slot_bytes = chunks * PAGE
        self.entries = 1 << (SLOTS * chunks - 1).bit_length()
        self.memory = mmap.mmap(-1, SLOTS * self.slot_bytes)
        self.free = [number * self.slot_bytes for number in range(SLOTS)]
        self.owner: socket.socket | None = None
        self.senders: list[XdpSender] = []
        self.lock = threading.Lock()

    def register(self, sock: socket.socket) -> None:
        """Tell the kernel of the memory through its first socket. Raises OSError."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        sock.setsockopt(SOL_XDP, XDP_UMEM_REG, MEMORY.pack(address, len(self.memory), PAGE, 0))

    def reclaim(self) -> None:
        """Take back all slots that the kernel is done with."""
        for sender in self.senders:
            sender.reclaim()


class XdpSender:
    """The sending ring of one interface.

    Args:
        interface: name in the current network namespace.
        memory: what it sends from.

    Raises:
        OSError: the kernel has no such sockets or no frames of several pieces, or memory may not be locked.
    """

    def __init__(self, interface: str, memory: SendMemory) -> None:
        self.sent = self.errors = self.oversize = 0
        self._memory = memory
        self._slot_bytes = memory.slot_bytes
        self._mask = memory.entries - 1
        self.sock = socket.socket(AF_XDP, socket.SOCK_RAW, 0)
        self._kick = self.sock.send
        try:
            with memory.lock:
                self._open(interface)
        except BaseException:
            self.sock.close()
            raise
        memory.senders.append(self)

    def _open(self, interface: str) -> None:
        sock, memory = self.sock, self._memory
        sock.setblocking(False)
        if memory.owner is None:
            memory.register(sock)
        for option, entries in (
            (XDP_UMEM_FILL_RING, 2),
            (XDP_UMEM_COMPLETION_RING, memory.entries),
            (XDP_TX_RING, memory.entries),
        ):
            sock.setsockopt(SOL_XDP, option, entries)
        told = sock.getsockopt(SOL_XDP, XDP_MMAP_OFFSETS, OFFSETS.size)
        if len(told) != OFFSETS.size:
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        offsets = OFFSETS.unpack(told)
        send, done = offsets[4:8], offsets[12:16]
        self._send_map = mmap.mmap(sock.fileno(), send[2] + memory.entries * PIECE_BYTES, offset=PGOFF_TX_RING)
        self._done_map = mmap.mmap(sock.fileno(), done[2] + memory.entries * ENTRY_BYTES, offset=PGOFF_COMPLETION_RING)
        flags, shared = XDP_COPY | (XDP_USE_SG if memory.slot_bytes > PAGE else 0), 0
        if memory.owner is not None:
            flags, shared = XDP_SHARED_UMEM, memory.owner.fileno()
        address = ADDRESS.pack(AF_XDP, flags, socket.if_nametoindex(interface), 0, shared)
        if _libc.bind(sock.fileno(), address, len(address)) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        if memory.owner is None:
            memory.owner = sock
        self._send_words = memoryview(self._send_map).cast("I")
        self._done_words = memoryview(self._done_map).cast("I")
        self._done_entries = memoryview(self._done_map).cast("Q")
        self._producer, self._consumer, self._pieces = send[0] // WORD_BYTES, send[1] // WORD_BYTES, send[2]
        self._done_producer, self._done_consumer = done[0] // WORD_BYTES, done[1] // WORD_BYTES
        self._done_at = done[2] // ENTRY_BYTES
        #: The next piece; what the kernel may have read; the next entry of what it is done with.
        self._next = self._seen = self._done = 0

    def close(self) -> None:
        """Unmap the rings and close the socket."""
        self._memory.senders.remove(self)
        for view in (self._send_words, self._done_words, self._done_entries):
            view.release()
        self._send_map.close()
        self._done_map.close()
        self.sock.close()

    def send(self, headers: dict[int, bytes], packets: Iterable[bytes | bytearray | memoryview]) -> int:
        """Send packets behind the header of their version of IP each; return how many there was room for."""
        memory, pieces, free = self._memory.memory, self._send_map, self._memory.free
        slot_bytes, mask, taken = self._slot_bytes, self._mask, 0
        if len(free) < FEW:
            self._memory.reclaim()
        for packet in packets:
            if not free:
                self.flush()
                self._memory.reclaim()
            header = headers[packet[0] >> 4]
            length = len(header) + len(packet)
            if length > slot_bytes:
                self.oversize += 1
                continue
            if not free:
                self.errors += 1
                continue
            slot = free.pop()
            chunks = (length + PAGE - 1) // PAGE
            # All chunks but the first are full, because a first one that is short takes the kernel less time.
            first = length - (chunks - 1) * PAGE
            start = slot + PAGE - first
            if chunks == 1:
                start = slot
            elif first < LEAST_PIECE:
                start, first = slot, PAGE
            body = start + len(header)
            memory[start:body] = header
            memory[body : start + length] = packet
            place = self._next
            while length > first:
                PIECE.pack_into(pieces, self._pieces + (place & mask) * PIECE_BYTES, start, first, XDP_PKT_CONTD)
                place += 1
                start += first
                length -= first
                first = min(length, PAGE)
            PIECE.pack_into(pieces, self._pieces + (place & mask) * PIECE_BYTES, start, length, 0)
            self._next = place + 1
            taken += 1
        if taken:
            self.flush()
        self.sent += taken
        return taken

    def flush(self) -> None:
        """Have the kernel send what is in the ring, some tens of packets a call. What it does not take for want of
        memory leaves with the next packets; what an interface that is down does not take is lost."""
        words, consumer, wanted = self._send_words, self._consumer, self._next & WRAP
        if WEAK:  # Release: the kernel sees the pieces before their number.
            fence()
        words[self._producer] = wanted
        before = -1
        while True:
            try:
                self._kick(b"", MSG_DONTWAIT)
            except OSError as error:
                if error.errno in (errno.ENETDOWN, errno.ENXIO):
                    self._take_back()
                    return
            self._seen = self._next
            now: int = words[consumer]
            if now in (wanted, before):
                return
            before = now

    def _take_back(self) -> None:
        """Take back the pieces of the last call: sent seconds later they would only confuse. The kernel has not looked
        at them, for it looks at the interface first."""
        slots, mask = self._slot_bytes, self._mask
        for place in range(self._seen, self._next):
            start = int(PIECE.unpack_from(self._send_map, self._pieces + (place & mask) * PIECE_BYTES)[0])
            if start % slots < PAGE:
                self._memory.free.append(start - start % slots)
                self.errors += 1
        self._next = self._seen
        self._send_words[self._producer] = self._next & WRAP

    def reclaim(self) -> None:
        """Take back the slots that the kernel is done with."""
        words, slots, free = self._done_words, self._slot_bytes, self._memory.free
        ready = (words[self._done_producer] - self._done) & WRAP
        if not ready:
            return
        if WEAK:  # Acquire: the entries are read after their number.
            fence()
        for _ in range(ready):
            start = self._done_entries[self._done_at + (self._done & self._mask)]
            self._done = (self._done + 1) & WRAP
            if start % slots < PAGE:
                free.append(start - start % slots)
        if WEAK:  # Release: the entries are read before the kernel may overwrite them.
            fence()
        words[self._done_consumer] = self._done
