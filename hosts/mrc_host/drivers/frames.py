"""Ethernet frames in receiving rings of AF_PACKET, and frames that are sent through interfaces.

Compiled modules call `frames.c` in the place of these functions; without a build they run as they stand.

A ring is a memoryview of its bytes, and a place in it is where the kernel's header of a frame begins (`struct
tpacket2_hdr`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from typing import Final

from mypy_extensions import i64

from mrc_host.ordering import WEAK, fence

#: The frames that are handed on: IP, and MAC control (pauses), whose first byte is not an IP version.
IP_TYPES: Final = (b"\x86\xdd", b"\x08\x00", b"\x88\x08")
ETH_HEADER_BYTES: Final = 14
#: Where the Ethernet header of a received frame begins: behind the ring's header and the sender's address, aligned so
#: that the packet itself begins at a multiple of 16.
RX_MAC_BYTES: Final = 66
#: In the place of the time of a frame that is no packet of ours.
NOT_OURS: Final = -1
#: `struct sockaddr_ll` with nothing but the interface's index: the kernel finds the protocol in the frame.
_ADDRESS: Final = struct.Struct("=H2xi12x")
_ADDRESS_BYTES: Final = _ADDRESS.size
_STATUS: Final = struct.Struct("=I")
_AVAILABLE: Final = 0
_USER: Final = 1
_FRAME: Final = struct.Struct("=8xI4xII54x2s")  # snaplen, sec, nsec, EtherType
# What is answered for an interface that is down, gone or full, or for a packet longer than its MTU: the endpoint's
# timers repair what is lost.
_LOST: Final = frozenset(
    {
        errno.ENETDOWN,
        errno.ENXIO,
        errno.ENODEV,
        errno.ENOBUFS,
        errno.EAGAIN,
        errno.ENETUNREACH,
        errno.EMSGSIZE,
    }
)

_libc = ctypes.CDLL(None, use_errno=True)


def arrival(ring: memoryview, at: i64) -> i64:
    """Return when the frame at a place came (ns of the realtime clock), `NOT_OURS`, or 0 while there is none."""
    place: int = at
    (status,) = _STATUS.unpack_from(ring, place)
    if not status & _USER:
        return 0
    if WEAK:  # Acquire: the frame is read after the status that says that the kernel has written it.
        fence()
    captured, seconds, nanoseconds, kind = _FRAME.unpack_from(ring, place)
    if captured <= ETH_HEADER_BYTES or kind not in IP_TYPES:
        return NOT_OURS
    return int(seconds * 1_000_000_000 + nanoseconds)


def take(ring: memoryview, at: i64) -> bytes:
    """Return the packet in the frame at a place, and give the frame back to the kernel."""
    place: int = at
    captured = _FRAME.unpack_from(ring, place)[0]
    start = place + RX_MAC_BYTES
    packet = bytes(ring[start + ETH_HEADER_BYTES : start + captured])
    if WEAK:  # Release: the frame is read before the kernel sees that it may overwrite it.
        fence()
    _STATUS.pack_into(ring, place, _AVAILABLE)
    return packet


def route(index: int, source: bytes, destination: bytes) -> bytes:
    """Return what `send` needs for frames through the interface of an index, from one MAC address to another."""
    return _ADDRESS.pack(socket.AF_PACKET, index) + destination + source


def send(descriptor: i64, routes: list[bytes], packets: list[list[bytes]]) -> i64:
    """Send IP packets through a socket of AF_PACKET, those of each list by its route; return how many were lost.

    Raises:
        OSError: the socket cannot send.
    """
    lost = 0
    for way, through in zip(routes, packets, strict=True):
        address, macs = way[:_ADDRESS_BYTES], way[_ADDRESS_BYTES:]
        for packet in through:
            frame = macs + IP_TYPES[packet[0] >> 4 == 4] + packet
            if _libc.sendto(descriptor, frame, len(frame), socket.MSG_DONTWAIT, address, _ADDRESS_BYTES) < 0:
                number = ctypes.get_errno()
                if number not in _LOST:
                    raise OSError(number, os.strerror(number))
                lost += 1
    return lost
