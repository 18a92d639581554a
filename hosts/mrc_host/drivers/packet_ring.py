"""Ethernet frames through AF_PACKET rings shared with the kernel: no system call per packet.

`PacketRing` maps a receive and a transmit ring (TPACKET_V2) of one interface. A frame here is an IPv6 or
IPv4 packet; the Ethernet header is added on transmission and stripped on reception. The kernel notes in the ring
when each frame came, on the clock of `time.time_ns()`.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import socket
import struct
from collections.abc import Iterable

ETH_P_ALL = 0x0003
ETH_HEADER_BYTES = 14
IP_TYPES = (b"\x86\xdd", b"\x08\x00")
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
FRAME = struct.Struct("=IIIHHII")  # status, len, snaplen, mac offset, net offset, sec, nsec
TO_SEND = struct.Struct("=II")  # status, len
WORD_BYTES = 4
#: In a frame beside the packet: the ring's header with the sender's address, and Ethernet's, aligned.
FRAME_EXTRA_BYTES = 80
FRAME_ALIGN = 16
#: Pages in one piece of a ring.
BLOCK_PAGES = 8

# What an interface that is down, gone or full answers; the endpoint's timers repair what it loses.
TRANSIENT = {errno.ENETDOWN, errno.ENXIO, errno.ENODEV, errno.ENOBUFS, errno.EAGAIN, errno.ENETUNREACH}


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
        tx_frames: int = 128,
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
                self.sock.setsockopt(SOL_PACKET, option, request)
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
        self._rx_places, self._tx_places = places[: self.rx_frames], places[self.rx_frames :]

    def fileno(self) -> int:
        """For select."""
        return self.sock.fileno()

    def close(self) -> None:
        """Unmaps the rings and closes the socket."""
        # A frame that somebody still holds (an exception's traceback does) keeps the mapping, not the descriptor.
        with contextlib.suppress(BufferError):
            self._words.release()
            self._map.close()
        self.sock.close()

    def readable(self) -> bool:
        """Whether a packet waits; no system call."""
        return bool(self._words[self._rx_places[self._rx] // WORD_BYTES] & TP_STATUS_USER)

    def take(self, limit: int) -> list[tuple[int, bytes]]:
        """Up to `limit` packets, each with the time at which it came: ns of the realtime clock."""
        memory, words, places, index = self._map, self._words, self._rx_places, self._rx
        taken: list[tuple[int, bytes]] = []
        done = 0
        while done < limit:
            base = places[index]
            if not words[base // WORD_BYTES] & TP_STATUS_USER:
                break
            _status, _length, captured, mac, _net, seconds, nanoseconds = FRAME.unpack_from(memory, base)
            start = base + mac
            if captured > ETH_HEADER_BYTES and memory[start + 12 : start + 14] in IP_TYPES:
                taken.append(
                    (seconds * 1_000_000_000 + nanoseconds, memory[start + ETH_HEADER_BYTES : start + captured])
                )
            else:
                self.not_ip += 1
            words[base // WORD_BYTES] = TP_STATUS_AVAILABLE
            index = index + 1 if index + 1 < self.rx_frames else 0
            done += 1
        self._rx = index
        self.rx_packets += done
        if done == 0:
            self._clear_error()
        return taken

    def send(self, packets: Iterable[bytes | bytearray | memoryview]) -> int:
        """Queues packets and starts transmission; returns how many the ring took.

        What does not fit is dropped as a real NIC with a full ring would: the endpoint retransmits.
        """
        memory, words, places, index = self._map, self._words, self._tx_places, self._tx
        room = self.frame_bytes - HEADER_BYTES
        queued = 0
        for packet in packets:
            base = places[index]
            if words[base // WORD_BYTES] != TP_STATUS_AVAILABLE:
                self.tx_errors += 1
                continue
            header = self._headers[packet[0] >> 4]
            length = ETH_HEADER_BYTES + len(packet)
            if length > room:
                self.oversize += 1
                continue
            start = base + HEADER_BYTES
            memory[start : start + ETH_HEADER_BYTES] = header
            memory[start + ETH_HEADER_BYTES : start + length] = packet
            TO_SEND.pack_into(memory, base, TP_STATUS_SEND_REQUEST, length)
            index = index + 1 if index + 1 < self.tx_frames else 0
            queued += 1
        self._tx = index
        if queued:
            self._kick()
            self.tx_packets += queued
        return queued

    def _kick(self) -> None:
        try:
            self.sock.send(b"", socket.MSG_DONTWAIT)
        except OSError as error:
            if error.errno not in TRANSIENT:
                raise
            self._discard_unsent()

    def _discard_unsent(self) -> None:
        """An interface that is down keeps what was queued; sending it seconds later would only confuse.

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
        """Frames that the kernel dropped because the receive ring was full, since the start."""
        _packets, drops = struct.unpack("=II", self.sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self._kernel_drops += drops
        return self._kernel_drops
