"""Interfaces of a host by AF_PACKET: frames come in rings shared with the kernel, and go by one system call for all.

`PacketRing` maps a receiving ring (TPACKET_V2) of one interface, `PacketSender` sends through several. A frame here is
an IPv6 or IPv4 packet; the Ethernet header is added on transmission and stripped on reception. The kernel notes in the
ring when each frame came, on the clock of `time.time_ns()`.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import socket
import struct
from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64

from mrc_host.drivers import frames
from mrc_host.drivers.surface import PortRing, PortSender

ETH_P_ALL: Final = 0x0003
SOL_PACKET: Final = 263
PACKET_RX_RING: Final = 5
PACKET_STATISTICS: Final = 6
PACKET_VERSION: Final = 10
PACKET_QDISC_BYPASS: Final = 20
PACKET_IGNORE_OUTGOING: Final = 23
TPACKET_V2: Final = 1

#: In a frame beside the packet: the ring's header with the sender's address, and Ethernet's, aligned.
FRAME_EXTRA_BYTES: Final = 80
FRAME_ALIGN: Final = 16
#: Pages in one piece of a ring.
BLOCK_PAGES: Final = 8

_libc = ctypes.CDLL(None, use_errno=True)


def _set_ring(sock: socket.socket, option: int, request: bytes) -> None:
    """Make a ring, as `setsockopt` does; other threads run meanwhile. Raises OSError."""
    if _libc.setsockopt(sock.fileno(), SOL_PACKET, option, request, len(request)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class PacketRing(PortRing):
    """One interface's receiving ring.

    Args:
        interface: name in the current network namespace.
        packet_bytes: the largest packet; room for one is what a frame of a ring takes, and little more.
        frames: in the ring, at least.

    Raises:
        OSError: no such interface, or not permitted.
    """

    _at: i64

    def __init__(self, interface: str, *, packet_bytes: int = 8000, rx_frames: int = 512) -> None:
        super().__init__(interface)
        frame_bytes = -(-(packet_bytes + FRAME_EXTRA_BYTES) // FRAME_ALIGN) * FRAME_ALIGN
        block_bytes = mmap.PAGESIZE * max(BLOCK_PAGES, -(-frame_bytes // mmap.PAGESIZE))
        per_block = block_bytes // frame_bytes
        blocks = -(-rx_frames // per_block)
        self.not_ip = 0
        self._kernel_drops = 0
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            self.sock.setblocking(False)
            self.sock.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
            self.sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
            request = struct.pack("=IIII", block_bytes, blocks, frame_bytes, blocks * per_block)
            _set_ring(self.sock, PACKET_RX_RING, request)
            self._map = mmap.mmap(self.sock.fileno(), blocks * block_bytes)
            self.sock.bind((interface, ETH_P_ALL))
        except BaseException:
            self.sock.close()
            raise
        self._memory = memoryview(self._map)
        # Where each frame begins: whole frames to a block.
        self._places = [
            block * block_bytes + number * frame_bytes for block in range(blocks) for number in range(per_block)
        ]
        self._next = 0
        self._at = 0

    def fileno(self) -> int:
        """Return the socket's file descriptor, for `select`."""
        return self.sock.fileno()

    def close(self) -> None:
        """Unmap the ring and close the socket."""
        # A frame that is still referenced (by an exception's traceback) keeps the mapping, not the descriptor.
        with contextlib.suppress(BufferError):
            self._memory.release()
            self._map.close()
        self.sock.close()

    def arrival(self) -> i64:
        """Return when the packet that is read next came (ns of the realtime clock), 0 while there is none."""
        stamp = frames.arrival(self._memory, self._at)
        while stamp == frames.NOT_OURS:
            self.take()
            self.not_ip += 1
            stamp = frames.arrival(self._memory, self._at)
        return stamp

    def take(self) -> bytes:
        """Take the packet of which `arrival` told."""
        packet = frames.take(self._memory, self._at)
        places = self._places
        index = self._next + 1
        if index == len(places):
            index = 0
        self._next = index
        self._at = places[index]
        return packet

    def clear_error(self) -> None:
        """Forget that the interface was down, which would make `select` return at once for ever."""
        self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    def kernel_drops(self) -> int:
        """Return how many frames the kernel has dropped since the start because the receive ring was full."""
        _packets, drops = struct.unpack("=II", self.sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self._kernel_drops += drops
        return self._kernel_drops


class PacketSender(PortSender):
    """Sends through interfaces of the current network namespace.

    Args:
        interfaces: their names, in the order of the ports.
        macs: of each, the source and destination of its frames (6 bytes each).

    Raises:
        OSError: no such interface, or not permitted.
    """

    def __init__(self, interfaces: Sequence[str], macs: Sequence[tuple[bytes, bytes]]) -> None:
        super().__init__()
        self._routes = [
            frames.route(socket.if_nametoindex(interface), *addresses)
            for interface, addresses in zip(interfaces, macs, strict=True)
        ]
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._descriptor = self.sock.fileno()
        try:
            self.sock.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
        except BaseException:
            self.sock.close()
            raise

    def send(self, packets: list[list[bytes]]) -> None:
        """Send the packets of each port.

        What does not fit is dropped as a real NIC with a full ring would: the endpoint retransmits.
        """
        self.lost += frames.send(self._descriptor, self._routes, packets)

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()
        self._descriptor = -1  # another file may get the number
