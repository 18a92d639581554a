"""Ethernet frames through AF_PACKET rings shared with the kernel: no system call per packet.

`PacketRing` maps a receive and a transmit ring (TPACKET_V2) of one interface. A frame here is an IPv6 or
IPv4 packet; the Ethernet header is added on transmission and stripped on reception. The kernel notes in the ring
when each frame came, on the clock of `time.time_ns()`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import socket
import struct
from collections.abc import Iterable

from mrc_host.ordering import WEAK, fence

ETH_P_ALL = 0x0003
ETH_HEADER_BYTES = 14
#: The frames that are handed on: IP, and MAC control (pauses), whose first byte is not an IP version.
IP_TYPES = (b"\x86\xdd", b"\x08\x00", b"\x88\x08")
SOL_PACKET = 263
PACKET_RX_RING = 5
PACKET_STATISTICS = 6
PACKET_VERSION = 10
PACKET_TX_RING = 13
PACKET_LOSS = 14
PACKET_QDISC_BYPASS = 20
PACKET_IGNORE_OUTGOING = 23
TPACKET_V2 = 1

TP_STATUS_AVAILABLE = 0
TP_STATUS_USER = 1
TP_STATUS_SEND_REQUEST = 1

# struct tpacket2_hdr is 32 bytes; a frame to send starts right behind it.
HEADER_BYTES = 32
#: Where the Ethernet header of a received frame begins: behind the ring's header and the sender's address, aligned so
#: that the packet itself begins at a multiple of 16.
RX_MAC_BYTES = 66
FRAME = struct.Struct("=8xI4xII54x2s")  # snaplen, sec, nsec, EtherType
TO_SEND = struct.Struct("=II")  # status, len
WORD_BYTES = 4
TX_PACKET_BYTES = HEADER_BYTES + ETH_HEADER_BYTES
#: In a frame beside the packet: the ring's header with the sender's address, and Ethernet's, aligned.
FRAME_EXTRA_BYTES = 80
FRAME_ALIGN = 16
#: Pages in one piece of a ring.
BLOCK_PAGES = 8

# What an interface that is down, gone or full answers; the endpoint's timers repair what it loses.
TRANSIENT = {errno.ENETDOWN, errno.ENXIO, errno.ENODEV, errno.ENOBUFS, errno.EAGAIN, errno.ENETUNREACH}

_libc = ctypes.CDLL(None, use_errno=True)


def _set_ring(sock: socket.socket, option: int, request: bytes) -> None:
    """Make a ring, as `setsockopt` does; other threads run meanwhile. Raises OSError."""
    if _libc.setsockopt(sock.fileno(), SOL_PACKET, option, request, len(request)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class PacketRing:
    """One interface's rings.

    Args:
        interface: name in the current network namespace.
        source, destination: MAC addresses of the frames to send (6 bytes each).
        packet_bytes: the largest packet; room for one is what a frame of a ring takes, and little more.
        rx_frames, tx_frames: frames per ring, at least.

    Raises:
        OSError: no such interface, or not permitted.
    """

    def __init__(
        self,
        interface: str,
        source: bytes,
        destination: bytes,
        *,
        packet_bytes: int = 8000,
        rx_frames: int = 512,
        tx_frames: int = 32,
    ) -> None:
        self.interface = interface
        self.frame_bytes = -(-(packet_bytes + FRAME_EXTRA_BYTES) // FRAME_ALIGN) * FRAME_ALIGN
        block_bytes = mmap.PAGESIZE * max(BLOCK_PAGES, -(-self.frame_bytes // mmap.PAGESIZE))
        per_block = block_bytes // self.frame_bytes
        rx_blocks, tx_blocks = -(-rx_frames // per_block), -(-tx_frames // per_block)
        self.rx_frames = rx_blocks * per_block
        self.tx_frames = tx_blocks * per_block
        self.rx_packets = self.tx_packets = self.tx_errors = self.oversize = self.not_ip = 0
        self._kernel_drops = 0
        self._headers = {
            4: destination + source + b"\x08\x00",
            6: destination + source + b"\x86\xdd",
        }
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            self.sock.setblocking(False)
            self.sock.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
            self.sock.setsockopt(SOL_PACKET, PACKET_LOSS, 1)
            self.sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
            for option, blocks in ((PACKET_RX_RING, rx_blocks), (PACKET_TX_RING, tx_blocks)):
                request = struct.pack("=IIII", block_bytes, blocks, self.frame_bytes, blocks * per_block)
                _set_ring(self.sock, option, request)
            self.sock.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
            self._map = mmap.mmap(self.sock.fileno(), (rx_blocks + tx_blocks) * block_bytes)
            self.sock.bind((interface, ETH_P_ALL))
        except BaseException:
            self.sock.close()
            raise
        #: Words of the mapping: the first of each frame is its status.
        self._words = memoryview(self._map).cast("I")
        self._rx = 0
        self._tx = 0
        # Where each frame begins: whole frames to a block, the sending ring behind the receiving one.
        places = [
            block * block_bytes + number * self.frame_bytes
            for block in range(rx_blocks + tx_blocks)
            for number in range(per_block)
        ]
        self._tx_versions = [0] * self.tx_frames
        self._rx_places, self._tx_places = places[: self.rx_frames], places[self.rx_frames :]

    def fileno(self) -> int:
        """Return the socket's file descriptor, for `select`."""
        return self.sock.fileno()

    def close(self) -> None:
        """Unmap the rings and close the socket."""
        # A frame that is still referenced (by an exception's traceback) keeps the mapping, not the descriptor.
        with contextlib.suppress(BufferError):
            self._words.release()
            self._map.close()
        self.sock.close()

    def readable(self) -> bool:
        """Return whether a packet waits; no system call."""
        return bool(self._words[self._rx_places[self._rx] // WORD_BYTES] & TP_STATUS_USER)

    def take(self, limit: int, port: int, taken: list[tuple[int, int, bytes]]) -> int:
        """Append up to `limit` packets, each with the time at which it came (ns of the realtime clock) and `port`.

        Returns how many frames that were, those that are no packets of ours among them.
        """
        memory, words, places, index, count = self._map, self._words, self._rx_places, self._rx, self.rx_frames
        unpack = FRAME.unpack_from
        done = 0
        while done < limit:
            base = places[index]
            if not words[base // WORD_BYTES] & TP_STATUS_USER:
                break
            if WEAK:  # Acquire: the frame is read after the status that says that the kernel has written it.
                fence()
            captured, seconds, nanoseconds, kind = unpack(memory, base)
            if captured > ETH_HEADER_BYTES and kind in IP_TYPES:
                start = base + RX_MAC_BYTES
                packet = memory[start + ETH_HEADER_BYTES : start + captured]
                taken.append((seconds * 1_000_000_000 + nanoseconds, port, packet))
            else:
                self.not_ip += 1
            if WEAK:  # Release: the frame is read before the kernel sees that it may overwrite it.
                fence()
            words[base // WORD_BYTES] = TP_STATUS_AVAILABLE
            index += 1
            if index == count:
                index = 0
            done += 1
        self._rx = index
        self.rx_packets += done
        if done == 0:
            self._clear_error()
        return done

    def send(self, packets: Iterable[bytes | bytearray | memoryview]) -> int:
        """Queue packets and start transmission, as often as the ring is full; return how many it took.

        What does not fit is dropped as a real NIC with a full ring would: the endpoint retransmits.
        """
        memory, words, places = self._map, self._words, self._tx_places
        room = self.frame_bytes - TX_PACKET_BYTES
        queued = waiting = 0
        for packet in packets:
            if waiting == self.tx_frames:
                self._kick()
                waiting = 0
            base = places[self._tx]
            if words[base // WORD_BYTES] != TP_STATUS_AVAILABLE:
                self.tx_errors += 1
                continue
            length = len(packet)
            if length > room:
                self.oversize += 1
                continue
            if WEAK:  # Acquire: the kernel has read the frame that was here before it is written to again.
                fence()
            version = packet[0] >> 4
            if version != self._tx_versions[self._tx]:
                self._head(self._tx, version)
            start = base + TX_PACKET_BYTES
            memory[start : start + length] = packet
            # No fence: the kernel reads the status in the system call of `_kick`, on behalf of this very thread.
            TO_SEND.pack_into(memory, base, TP_STATUS_SEND_REQUEST, ETH_HEADER_BYTES + length)
            self._tx += 1
            if self._tx == self.tx_frames:
                self._tx = 0
            queued += 1
            waiting += 1
        if waiting:
            self._kick()
        self.tx_packets += queued
        return queued

    def _head(self, number: int, version: int) -> None:
        """Write the Ethernet header of a frame to send. It stays there: most frames are of one version of IP."""
        start = self._tx_places[number] + HEADER_BYTES
        self._map[start : start + ETH_HEADER_BYTES] = self._headers[version]
        self._tx_versions[number] = version

    def _kick(self) -> None:
        # An error pending on the socket may date from when the interface was down, so the call is made twice.
        for _ in range(2):
            try:
                self.sock.send(b"", socket.MSG_DONTWAIT)
                return
            except OSError as error:
                if error.errno not in TRANSIENT:
                    raise
            self._clear_error()
        self._discard_unsent()

    def _discard_unsent(self) -> None:
        """Discard frames queued at an interface that is down; sent seconds later they would only confuse.

        The kernel's own cursor stays at the first frame it did not send, so ours goes back to it.
        """
        for _ in range(self.tx_frames):
            before = (self._tx or self.tx_frames) - 1
            base = self._tx_places[before]
            if self._words[base // WORD_BYTES] != TP_STATUS_SEND_REQUEST:
                break
            self._words[base // WORD_BYTES] = TP_STATUS_AVAILABLE
            self._tx = before
            self.tx_errors += 1

    def _clear_error(self) -> None:
        # ENETDOWN stays pending on the socket and would make select return at once for ever.
        self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    def kernel_drops(self) -> int:
        """Return how many frames the kernel has dropped since the start because the receive ring was full."""
        _packets, drops = struct.unpack("=II", self.sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self._kernel_drops += drops
        return self._kernel_drops
